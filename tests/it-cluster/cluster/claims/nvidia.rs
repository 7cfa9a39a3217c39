//! The example claims of NVIDIA's driver with the classes of ours.
//!
//! Source: kubernetes-sigs/dra-driver-nvidia-gpu, `demo/specs/quickstart/v1`, `gpu-test1.yaml` to `gpu-test6.yaml`.

use serde_json::{Value, json};

use super::{GPU, MIG, Workload, await_slices, chart_objects, device_of, profile};
use crate::cluster::Api;
use crate::cluster::agent::Rig;

/// Board whose profiles the examples name.
const GPUS: &str = "- {board: A100_40GB, count: 7}\n- {board: A100_40GB, count: 1, mig: enabled}\n";

fn request(name: &str, class: &str, selector: Option<&str>) -> Value {
    let selectors: Vec<Value> =
        selector.iter().map(|cel| json!({"cel": {"expression": cel}})).collect();
    json!({"name": name, "exactly": {"deviceClassName": class, "selectors": selectors}})
}

fn config(request: &str, sharing: &Value) -> Value {
    let version = "resource.nvidia.com/v1beta1";
    let parameters = json!({"apiVersion": version, "kind": "GpuConfig", "sharing": sharing});
    json!({"requests": [request], "opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}})
}

/// The resources of a container that uses one request of the claim, or all.
fn uses(request: Option<&str>) -> Value {
    let mut claim = json!({"name": "device"});
    if let Some(request) = request {
        claim["request"] = json!(request);
    }
    json!({"claims": [claim]})
}

#[test]
fn example_claims_of_nvidia_are_allocated() {
    let api = Api::shared();
    api.apply(&chart_objects(&["dra.yaml"]));
    let rig = Rig::new(api, GPUS);
    let _agent = rig.start(&["--dra"]);
    await_slices(api, rig.name(), 3);
    let workload = Workload { api, namespace: api.namespace() };
    api.await_account(&workload.namespace);
    let run = |claim: &str, devices: &Value, pods: &[&[Value]]| -> Vec<String> {
        workload.claim(claim, devices);
        for (number, containers) in pods.iter().enumerate() {
            let pod = format!("{claim}-{number}");
            workload.pod(&pod, rig.name(), claim, containers);
            workload.await_scheduled(&pod, "True");
        }
        workload.results(claim).iter().map(device_of).collect()
    };
    let gpu = json!({"requests": [request("gpu", GPU, None)]});
    // 1: two pods with a GPU each.
    let one = run("test1-a", &gpu, &[&[uses(None)]]);
    let other = run("test1-b", &gpu, &[&[uses(None)]]);
    assert_ne!(one, other);
    // 2: two containers that share a GPU. 3: two pods that share a claim.
    assert_eq!(run("test2", &gpu, &[&[uses(None), uses(None)]]).len(), 1);
    assert_eq!(run("test3", &gpu, &[&[uses(None)], &[uses(None)]]).len(), 1);
    // 4: four partitions of one GPU, in a container each.
    let parts = [("a", "1g.5gb"), ("b", "1g.5gb"), ("c", "2g.10gb"), ("d", "3g.20gb")];
    let requests = parts.map(|(name, of)| request(name, MIG, Some(&profile(of))));
    let same = json!([{"requests": [], "matchAttribute": "gpu.nvidia.com/parentUUID"}]);
    let devices = json!({"requests": requests, "constraints": same});
    let containers = parts.map(|(name, _)| uses(Some(name)));
    assert_eq!(run("test4", &devices, &[&containers]).len(), 4);
    // 5: configuration does not matter to the scheduler.
    let slicing = json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}});
    let mps = json!({"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}});
    let devices = json!({
        "requests": [request("ts", GPU, None), request("mps", GPU, None)],
        "config": [config("ts", &slicing), config("mps", &mps)],
    });
    assert_eq!(run("test5", &devices, &[&[uses(Some("ts")), uses(Some("mps"))]]).len(), 2);
    // 6: a product. The attribute `index` of the example does not exist, in NVIDIA's driver neither.
    let product =
        "device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$')";
    let devices = json!({"requests": [request("gpu", GPU, Some(product))]});
    assert_eq!(run("test6", &devices, &[&[uses(None)]]).len(), 1);
    let index = format!("{product} && device.attributes['gpu.nvidia.com'].index == 0");
    workload.refuse("test6-index", rig.name(), GPU, Some(&index));
    api.kubectl(&["delete", "namespace", &workload.namespace, "--wait=false"]);
}
