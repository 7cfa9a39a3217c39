//! Advertised devices, and their changes when the layout changes: the agent and a kubelet at its sockets.

use std::fs;

use crate::device_plugin::{GPU, Rig, shared};

const SHARED: &str = "nvidia.com/gpu.shared";
const TWO: &str = "- {board: A100_40GB, count: 2}\n";

#[test]
fn every_replica_is_advertised_and_allocation_exposes_its_gpu() {
    let rig = Rig::new(TWO);
    let mut agent = rig.agent(&shared(3), &[]);
    let all = [rig.replicas(0, &[0, 1, 2]), rig.replicas(1, &[0, 1, 2])].concat();
    rig.kubelet.await_ids(GPU, &all);
    agent.expect_log("sharing-in-force");
    let one = rig.replicas(1, &[2]);
    let answer = rig.kubelet.allocate(GPU, &one).unwrap();
    let visible = answer.envs.get("NVIDIA_VISIBLE_DEVICES");
    assert_eq!(visible, Some(&rig.uuid(1)));
    let error = rig.kubelet.allocate(GPU, &[rig.uuid(1)]).unwrap_err();
    assert!(error.message().contains("is not an ID of nvidia.com/gpu"), "{error}");
    let error = rig.kubelet.allocate(GPU, &rig.replicas(0, &[3])).unwrap_err();
    assert_eq!(error.code(), tonic::Code::NotFound);
}

#[test]
fn preferred_allocation_includes_required_ids_and_never_fails() {
    let rig = Rig::new(TWO);
    let _agent = rig.agent(&shared(3), &[]);
    rig.kubelet.await_count(GPU, 6);
    let all = [rig.replicas(0, &[0, 1, 2]), rig.replicas(1, &[0, 1, 2])].concat();
    let must = rig.replicas(1, &[1]);
    let advice = rig.kubelet.preferred_ids(GPU, &all, (&must, 3));
    assert_eq!(advice.len(), 3);
    assert!(advice.contains(&must[0]) && advice.iter().all(|id| all.contains(id)));
    let strange = ["a".to_owned(), "b".to_owned()];
    assert_eq!(rig.kubelet.preferred_ids(GPU, &strange, (&[], 2)), strange);
}

#[test]
fn socket_is_root_only_and_stale_sockets_are_removed() {
    use std::os::unix::fs::PermissionsExt;
    let rig = Rig::new(TWO);
    let stale = rig.directory().join("octavo-mig-1g.5gb.sock");
    fs::write(&stale, "").unwrap();
    let _agent = rig.agent(&shared(2), &[]);
    rig.kubelet.await_count(GPU, 4);
    assert!(!stale.exists());
    let socket = fs::metadata(rig.directory().join("octavo-gpu.sock")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
}

#[test]
fn pods_keep_replicas_until_they_end_when_replica_count_is_reduced() {
    let rig = Rig::new("- {board: A100_40GB}\n");
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.await_count(GPU, 4);
    for name in ["a", "b", "c"] {
        rig.kubelet.admit(name, GPU, 1).unwrap();
    }
    let held: Vec<String> = rig.kubelet.inspect(|known| {
        let pods = known.pods.iter();
        pods.flat_map(|pod| pod.ids.clone()).collect()
    });
    rig.node.layouts(&shared(2));
    let line = agent.expect_log("sharing-held");
    assert!(line.contains("team-a/"), "{line}");
    rig.kubelet.await_ids(GPU, &held);
    for name in ["a", "b", "c"] {
        rig.kubelet.end_pod(name);
    }
    rig.kubelet.await_ids(GPU, &rig.replicas(0, &[0, 1]));
    agent.expect_log("sharing-in-force");
}

#[test]
fn exclusively_allocated_gpu_is_shared_after_its_pod_ends() {
    let rig = Rig::new(TWO);
    let mut agent = rig.agent("[{devices: all, mig: disabled}]", &[]);
    rig.kubelet.await_count(GPU, 2);
    let pod = rig.kubelet.admit("train", GPU, 1).unwrap();
    rig.node.layouts(&shared(2));
    let held = usize::from(pod.ids == [rig.uuid(1)]);
    let free = rig.replicas(1 - held, &[0, 1]);
    rig.kubelet.await_ids(GPU, &[free, pod.ids].concat());
    agent.expect_log("sharing-held");
    rig.kubelet.end_pod("train");
    rig.kubelet.await_count(GPU, 4);
}

#[test]
fn renamed_resource_is_empty_until_unused_and_then_removed() {
    let rig = Rig::new("- {board: A100_40GB}\n");
    let _agent = rig.agent(&shared(2), &[]);
    rig.kubelet.await_count(GPU, 2);
    rig.kubelet.admit("a", GPU, 1).unwrap();
    rig.node.layouts("[{devices: all, timeSlicing: {replicas: 2, rename: true}}]");
    rig.kubelet.await_count(SHARED, 1);
    rig.kubelet.await_count(GPU, 1);
    rig.kubelet.end_pod("a");
    rig.kubelet.await_count(SHARED, 2);
    rig.kubelet.wait("the end of the old name", |known| !known.resources[GPU].is_connected);
    // Not unhealthy because of a missing plugin: the last list was empty.
    let left = rig.kubelet.inspect(|known| known.resources[GPU].devices.clone());
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn request_for_two_replicas_is_refused_if_layout_requires_it() {
    let rig = Rig::new(TWO);
    let rules = "[{devices: all, timeSlicing: {replicas: 2, failRequestsGreaterThanOne: true}}]";
    let _agent = rig.agent(rules, &[]);
    rig.kubelet.await_count(GPU, 4);
    let error = rig.kubelet.admit("greedy", GPU, 2).unwrap_err();
    assert!(error.message().contains("failRequestsGreaterThanOne"), "{error}");
    rig.kubelet.admit("modest", GPU, 1).unwrap();
}
