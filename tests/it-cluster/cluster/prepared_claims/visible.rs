//! Prepared claims in the status of the claim, in metrics, and as blockers.

use nvml_sim::model::Slot;
use serde_json::{Value, json};

use super::rig::{Claim, ClaimRig, ONE};
use crate::cluster::Api;
use crate::pod_resources::Kubelet;
use crate::process::Program;
use crate::time_limits::{eventually, until};

const NETWORK: &str = "net.example.com";

/// The entries of drivers in the status of the claim.
pub(super) fn entries(rig: &ClaimRig, claim: &Claim) -> Vec<Value> {
    let name = ["get", "resourceclaim", &claim.name, "-n", rig.namespace(), "-o", "json"];
    let object: Value = serde_json::from_str(&rig.api.kubectl(&name)).unwrap();
    object["status"]["devices"].as_array().cloned().unwrap_or_default()
}

/// The status of the condition `Ready` of the only entry of this driver, with its reason.
fn ready(rig: &ClaimRig, claim: &Claim) -> Option<(String, String)> {
    let entries = entries(rig, claim);
    let entry = entries.iter().find(|entry| entry["driver"] == "gpu.octavo.dev")?;
    let condition = &entry["conditions"][0];
    assert_eq!(condition["type"], "Ready");
    let text = |key: &str| condition[key].as_str().unwrap().to_owned();
    Some((text("status"), text("reason")))
}

fn words(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

/// Allocates the claim a device of the node, and one of another driver, whose status that driver wrote.
fn allocate(rig: &ClaimRig, claim: &Claim, device: &str) -> Value {
    let result = |driver: &str, pool: &str, device: &str| json!({"request": "gpu", "driver": driver, "pool": pool, "device": device});
    let results = [result("gpu.octavo.dev", &rig.pool(), device), result(NETWORK, "net", "nic-0")];
    let entry = json!({
        "driver": NETWORK, "pool": "net", "device": "nic-0", "data": {"address": "192.0.2.1"},
        "conditions": null,
    });
    let status = json!({"status": {
        "allocation": {"devices": {"results": results}}, "devices": [entry],
    }});
    let name = ["patch", "resourceclaim", &claim.name, "-n", rig.namespace()];
    let status = status.to_string();
    let patch = ["--subresource=status", "--type=merge", "-p", &status];
    rig.api.kubectl(&[&name[..], &patch].concat());
    entry
}

#[test]
fn status_of_a_claim_describes_its_device_until_it_is_released() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let mut agent = rig.start(&[]);
    let device = rig.device("3g.20gb", 4);
    let claim = rig.claim("train", &[]);
    let foreign = allocate(&rig, &claim, &device);
    rig.prepare(&claim).unwrap();
    eventually("the status", || ready(&rig, &claim) == Some(words("True", "Prepared")));
    let all = entries(&rig, &claim);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all.contains(&foreign), "{all:?}");
    let own = all.iter().find(|one| one["driver"] == "gpu.octavo.dev").unwrap();
    assert_eq!((&own["pool"], &own["device"]), (&json!(rig.pool()), &json!(device)));
    let inventory = rig.inventory();
    let gpu = &inventory.devices[0];
    let (instance, compute) = gpu.mig.compute_instances().next().unwrap();
    let data = json!({
        "uuid": rig.uuids()[0], "parentUUID": gpu.uuid.as_ref().unwrap().to_string(),
        "gpuInstanceID": instance.id, "computeInstanceID": compute.id,
        "profile": "3g.20gb", "placement": {"start": 4, "size": 4},
    });
    assert_eq!(own["data"], data);

    // A restarted agent writes nothing, because nothing differs.
    let version = |claim: &Claim| {
        let path = "-o=jsonpath={.metadata.resourceVersion}";
        rig.api.kubectl(&["get", "resourceclaim", &claim.name, "-n", rig.namespace(), path])
    };
    let before = version(&claim);
    agent.kill();
    let _agent = rig.start(&[]);
    let other = rig.claim("other", &[&rig.device("1g.5gb", 0)]);
    rig.prepare(&other).unwrap();
    eventually("the status of another claim", || {
        ready(&rig, &other) == Some(words("True", "Prepared"))
    });
    assert_eq!(version(&claim), before);

    rig.unprepare(&claim).unwrap();
    eventually("no status", || entries(&rig, &claim) == [foreign.clone()]);
    rig.unprepare(&other).unwrap();
}

#[test]
fn claim_is_prepared_although_its_status_cannot_be_written() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let account = rig.account_without_status();
    let mut agent = Program::start(&mut rig.agent_as(&account.path(), &[]));
    agent.expect_log(super::rig::SERVING);
    let claim = rig.claim("train", &[&rig.device("3g.20gb", 4)]);
    rig.prepare(&claim).unwrap();
    let line = agent.expect_log("cannot write the status of resource claims");
    assert!(line.contains("train") && line.contains("forbidden"), "{line}");
    assert_eq!(entries(&rig, &claim), Vec::<Value>::new());
    rig.prepare(&claim).unwrap();
    rig.unprepare(&claim).unwrap();
    rig.await_geometry(&[]);
}

#[test]
fn reported_fault_of_a_partition_is_in_health_status_and_taints() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let _agent = rig.start(&[]);
    let (device, other) = (rig.device("3g.20gb", 4), rig.device("3g.20gb", 0));
    let claim = rig.claim("train", &[&device]);
    rig.prepare(&claim).unwrap();
    eventually("the status", || ready(&rig, &claim) == Some(words("True", "Prepared")));
    let place = rig.inventory();
    let place =
        place.devices[0].mig.compute_instances().next().map(|(gi, ci)| (gi.id, Some(ci.id)));
    rig.machine().machine.change(|world| world.xid(Slot(0), 31, place));
    rig.machine().machine.change(|world| world.xid(Slot(0), 95, place));
    eventually("the fault", || ready(&rig, &claim) == Some(words("False", "Unhealthy")));
    let is_healthy = |name: &str| {
        let health = rig.health();
        health.iter().any(|(device, is_healthy)| device == name && *is_healthy)
    };
    eventually("an unhealthy device", || !is_healthy(&device));
    assert!(is_healthy(&other), "the error is confined to the partition");
    let taints = || rig.taints(&device);
    let taint = until("a taint", taints, |taints| !taints.is_empty());
    assert_eq!(taint, ["octavo.dev/unhealthy=reported-error"]);
    assert_eq!(rig.taints(&other), Vec::<String>::new());
}

#[test]
fn claim_is_in_metrics_and_usage_before_and_after_the_kubelet_lists_its_pod() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let kubelet = Kubelet::start(rig.machine());
    let (_agent, http) = rig.start_with_metrics();
    let text = || rig.runtime.block_on(http.get("/metrics")).body;
    let has = |wanted: &str| {
        until(wanted, text, |text| text.lines().any(|line| line == wanted));
    };
    has("octavo_claims{state=\"prepared\"} 0");
    let device = rig.device("3g.20gb", 4);
    let claim = rig.claim("train", &[&device]);
    rig.prepare(&claim).unwrap();
    has("octavo_claims{state=\"prepared\"} 1");
    has("octavo_claim_calls_total{call=\"prepare\",result=\"success\"} 1");
    let gi = rig.inventory().devices[0].mig.compute_instances().next().unwrap().0.id;
    let allocated = |pod: &str, container: &str| {
        let namespace = rig.namespace();
        format!(
            "octavo_container_allocated{{device=\"0\",gi=\"{gi}\",ci=\"0\",profile=\"3g.20gb\",namespace=\"{namespace}\",pod=\"{pod}\",container=\"{container}\",claim=\"train\"}} 1.0"
        )
    };
    has(&allocated("", ""));
    kubelet.give_claimed(rig.namespace(), "train-0", "train", &format!("{}/{device}", rig.pool()));
    has(&allocated("train-0", "main"));
    rig.unprepare(&claim).unwrap();
    kubelet.ended("train-0");
    has("octavo_claims{state=\"prepared\"} 0");
    has("octavo_claim_calls_total{call=\"unprepare\",result=\"success\"} 1");
    rig.await_geometry(&[]);
}

#[test]
fn blocker_of_a_layout_is_the_claim_with_its_pod() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let kubelet = Kubelet::start(rig.machine());
    let mut agent = rig.start(&[]);
    let device = rig.device("3g.20gb", 0);
    let claim = rig.claim("train", &[&device]);
    rig.prepare(&claim).unwrap();
    agent.kill();
    kubelet.give_claimed(rig.namespace(), "train-0", "train", &format!("{}/{device}", rig.pool()));
    let layouts = rig.machine().layouts("[{devices: all, mig: {1g.5gb: 7}}]");
    let mut agent = rig.start(&["--layouts", &layouts, "--layout=wanted"]);
    let line = agent.expect_log("blocked");
    let namespace = rig.namespace();
    let text = format!("resource claim {namespace}/train (pod {namespace}/train-0)");
    assert!(line.contains(&text), "{line}");
    assert_eq!(line.matches("resource claim").count(), 1, "{line}");
    assert_eq!(rig.geometry(), [("3g.20gb".to_owned(), 0)]);
    rig.unprepare(&claim).unwrap();
    kubelet.ended("train-0");
    rig.await_geometry(&["1g.5gb"; 7]);
}
