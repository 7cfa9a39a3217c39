//! The plugin with a real kubelet and none of our programs.

use octavo_kubelet::proto::pod_resources::ListPodResourcesRequest;
use octavo_kubelet::proto::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use serde_json::json;

use super::super::nodes::Nodes;
use super::*;
use crate::machine::Machine;

const NODE: &str = "node-2";
/// Not an NVIDIA resource, because an agent of another test on the node would process it.
const RESOURCE: &str = "test.invalid/mig-3g.40gb";
const HALVES: &str = "machine: plugin\ngpus:\n- {board: A100_80GB, mig: enabled, instances: \
    [{profile: 3g.40gb, start: 0}, {profile: 3g.40gb, start: 4}]}\n";

/// Waits until this many devices are allocatable.
#[track_caller]
fn await_allocatable(nodes: &Nodes, count: usize) {
    let resource = RESOURCE.replace('.', "\\.");
    let allocatable = format!("--for=jsonpath={{.status.allocatable.{resource}}}={count}");
    let wait = ["wait", "node", NODE, &allocatable, "--timeout=120s"];
    nodes.api().kubectl(&wait);
}

/// The devices that kubelet reports for a pod.
async fn given(nodes: &Nodes, namespace: &str) -> Vec<String> {
    let socket = nodes.kubelet(NODE).join("pod-resources/kubelet.sock");
    let socket = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
    let mut kubelet = PodResourcesListerClient::new(socket.connect().await.unwrap());
    let answer = kubelet.list(ListPodResourcesRequest {}).await.unwrap();
    let pods = answer.into_inner().pod_resources.into_iter();
    pods.filter(|pod| pod.namespace == namespace)
        .flat_map(|pod| pod.containers)
        .flat_map(|container| container.devices)
        .inspect(|devices| assert_eq!(devices.resource_name, RESOURCE))
        .flat_map(|devices| devices.device_ids)
        .collect()
}

#[tokio::test]
async fn pod_is_allocated_an_existing_device_that_kubelet_reports() {
    let nodes = Nodes::shared();
    let api = nodes.api();
    let machine = Machine::new(HALVES);
    let there = partitions(&machine.world(), "3g.40gb");
    let plugin = Plugin::offer(&nodes.kubelet(NODE), RESOURCE, machine.store(), |world| {
        partitions(world, "3g.40gb")
    });
    await_allocatable(nodes, 2);

    let namespace = api.namespace();
    api.await_account(&namespace);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": namespace},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
            "name": "one", "image": "test.invalid/pause:1", "imagePullPolicy": "Never",
            "resources": {"limits": {RESOURCE: "1"}},
        }]},
    });
    api.apply(&pod.to_string());
    let ready = ["wait", "--for=condition=Ready", "--timeout=120s"];
    api.kubectl(&[&ready[..], &["-n", &namespace, "pod/one"]].concat());
    assert_eq!(given(nodes, &namespace).await, [there[0].id.clone()]);

    // Another program removes unused devices.
    machine.change(|world| {
        let mig = world.gpus[0].mig.as_mut().unwrap();
        mig.instances.retain(|one| one.compute[0].uuid == there[0].id);
        Ok(())
    });
    await_allocatable(nodes, 1);
    api.kubectl(&["delete", "namespace", &namespace, "--wait=false"]);
    drop(plugin);
    await_allocatable(nodes, 0);
}

#[test]
fn devices_are_allocated_from_gpu_with_most_available() {
    let device = |id: &str, gpu: usize| Device { id: id.to_owned(), gpu };
    let offered = [device("a", 0), device("b", 0), device("c", 1), device("d", 1)];
    let choose = |available: &[&str], must: &[&str], size: i32| {
        let owned = |ids: &[&str]| ids.iter().map(|&id| id.to_owned()).collect();
        let request = ContainerPreferredAllocationRequest {
            available_device_i_ds: owned(available),
            must_include_device_i_ds: owned(must),
            allocation_size: size,
        };
        spread(&offered, request)
    };
    assert_eq!(choose(&["d", "c", "b", "a"], &[], 1), ["a"]);
    assert_eq!(choose(&["b", "c", "d"], &[], 1), ["c"]);
    assert_eq!(choose(&["a", "b", "c", "d"], &[], 2), ["a", "c"]);
    assert_eq!(choose(&["a", "b", "c", "d"], &["b"], 2), ["b", "c"]);
    assert_eq!(choose(&["x"], &[], 1), Vec::<String>::new());
}
