//! Claims of time-sliced devices, and pods that request extended resources instead of claims.

use serde_json::json;

use super::{GPU, MIG, Workload, await_slices, chart_objects, device_of, profile, slices};
use crate::cluster::Api;
use crate::cluster::agent::Rig;
use crate::time_limits::eventually;

const SHARED: &str = "shared.octavo.dev";

#[test]
fn claims_share_a_device_up_to_its_replicas() {
    let api = Api::shared();
    api.apply(&chart_objects(&["dra.yaml"]));
    let rig = Rig::new(
        api,
        "- {board: A100_80GB, count: 1}\n- {board: A100_80GB, count: 1, mig: enabled}\n",
    );
    let file = rig.machine.layouts(
        "[{devices: 0, timeSlicing: {replicas: 2}, claims: dra}, \
         {devices: 1, mig: {}, timeSlicing: {profiles: {3g.40gb: {replicas: 2}}}, claims: dra}]",
    );
    let mut agent = rig.start(&["--dra", "--layouts", &file, "--layout=wanted"]);
    await_slices(api, rig.name(), 3);
    let workload = Workload { api, namespace: api.namespace() };
    api.await_account(&workload.namespace);
    let gpu = "device.attributes['gpu.nvidia.com'].type == 'gpu'";
    let half = profile("3g.40gb");
    for (kind, selector) in [("gpu", gpu), ("half", half.as_str())] {
        let [one, other] = ["one", "other"].map(|which| {
            let name = format!("{kind}-{which}");
            let device = workload.allocate(&name, rig.name(), SHARED, Some(selector));
            (device, workload.results(&name)[0]["shareID"].as_str().unwrap().to_owned())
        });
        assert_eq!(one.0, other.0, "{kind}");
        assert_ne!(one.1, other.1, "{kind}");
    }
    workload.refuse("gpu-third", rig.name(), SHARED, Some(gpu));
    // Devices of the other classes are exclusive.
    workload.refuse("gpu-whole", rig.name(), GPU, None);
    workload.refuse("half-whole", rig.name(), MIG, Some(&half));
    workload.allocate("small", rig.name(), MIG, Some(&profile("1g.10gb")));
    // The other placement of the profile is used by then, and its replicas have a limit too.
    workload.refuse("half-third", rig.name(), SHARED, Some(&half));
    // A static layout withdraws the devices.
    agent.kill();
    let file = rig.machine.layouts("[{devices: all, mig: disabled}]");
    let _static = rig.start(&["--dra", "--layouts", &file, "--layout=wanted"]);
    eventually("no partitions", || slices(api, rig.name()).len() <= 1);
    api.kubectl(&["delete", "namespace", &workload.namespace, "--wait=false"]);
}

#[test]
fn pod_with_an_extended_resource_gets_a_device_without_a_claim() {
    let api = Api::shared();
    api.apply(&chart_objects(&["dra.yaml"]));
    let rig = Rig::new(
        api,
        "- {board: A100_80GB, count: 1}\n- {board: A100_80GB, count: 1, mig: enabled}\n",
    );
    let _agent = rig.start(&["--dra"]);
    await_slices(api, rig.name(), 3);
    let workload = Workload { api, namespace: api.namespace() };
    api.await_account(&workload.namespace);
    for (pod, resource, device) in [
        ("gpu", "nvidia.com/gpu", "gpu-"),
        ("media", "nvidia.com/mig-1g.10gb.me", "-mig-1g10gbme-20-"),
    ] {
        workload.pod(pod, rig.name(), "", &[json!({"limits": {resource: "1"}})]);
        workload.await_scheduled(pod, "True");
        let path = "-o=jsonpath={.status.extendedResourceClaimStatus.resourceClaimName}";
        let claim = api.kubectl(&["get", "pod", pod, "-n", &workload.namespace, path]);
        let results = workload.results(claim.trim());
        assert_eq!(results.len(), 1, "{results:?}");
        assert!(device_of(&results[0]).contains(device), "{results:?}");
    }
    workload.pod("second", rig.name(), "", &[json!({"limits": {"nvidia.com/gpu": "1"}})]);
    workload.await_scheduled("second", "False");
    api.kubectl(&["delete", "namespace", &workload.namespace, "--wait=false"]);
}

#[test]
fn shared_devices_are_not_published_without_their_gate() {
    let api = Api::without_gate("DRAConsumableCapacity");
    let rig = Rig::new(&api, "- {board: A100_80GB, count: 2}\n");
    let file = rig.machine.layouts("[{devices: 0, timeSlicing: {replicas: 2}, claims: dra}]");
    let mut agent = rig.start(&["--dra", "--layouts", &file, "--layout=wanted"]);
    let line = agent.expect_log("shared devices are not published");
    assert!(line.contains("DRAConsumableCapacity"), "{line}");
    let published = await_slices(&api, rig.name(), 1);
    let devices = &published.values().next().unwrap()["spec"]["devices"];
    // The other GPU is exclusive.
    assert_eq!(devices.as_array().unwrap().len(), 1, "{devices}");
    assert_eq!(devices[0]["attributes"].get("gpu.octavo.dev/shared"), None);
}
