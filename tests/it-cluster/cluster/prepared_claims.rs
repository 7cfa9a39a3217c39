//! Resource claims of a real API server, prepared by the shipped agent on a simulated machine. The test plays the kubelet.

mod access;
mod crashes;
mod kubelet;
mod node;
mod rig;
mod sequences;
mod visible;

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use self::rig::{ClaimRig, ONE};
use crate::cluster::Api;
use crate::cluster::nodes::Nodes;
use crate::process::Program;
use crate::time_limits::{eventually, until};

#[test]
fn prepared_claim_has_its_instance_at_the_allocated_placement() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let mut agent = rig.start(&[]);
    let device = rig.device("3g.20gb", 4);
    let claim = rig.claim("train", &[&device]);
    let devices = rig.prepare(&claim).unwrap();
    assert_eq!(rig.geometry(), [("3g.20gb".to_owned(), 4)]);
    let [prepared] = devices.as_slice() else { panic!("{devices:?}") };
    assert_eq!(prepared.request_names, ["gpu"]);
    assert_eq!(
        (prepared.pool_name.as_str(), prepared.device_name.as_str()),
        (&*rig.pool(), &*device)
    );
    assert_eq!(prepared.cdi_device_ids, [format!("octavo.dev/claim={}-{device}", claim.uid)]);
    // The library of container runtimes finds the devices.
    let container = rig.container(&prepared.cdi_device_ids);
    let nodes = container["linux"]["devices"].as_array().unwrap();
    let paths: Vec<&Value> = nodes.iter().map(|node| &node["path"]).collect();
    assert_eq!(paths[0], "/dev/nvidia0", "{paths:?}");
    assert_eq!(paths.len(), 3, "{paths:?}");
    // The runtime's directory is lost at a reboot, and so are instances.
    fs::remove_dir_all(rig.cdi_dir()).unwrap();
    assert_eq!(rig.prepare(&claim).unwrap(), devices);
    rig.container(&prepared.cdi_device_ids);
    agent.kill();
    rig.reboot();
    let mut agent = rig.start(&[]);
    assert_eq!(rig.geometry(), []);
    assert_eq!(rig.prepare(&claim).unwrap(), devices);
    assert_eq!(rig.geometry(), [("3g.20gb".to_owned(), 4)]);
    // A second claim cannot get the device, and a restart does not change that.
    let second = rig.claim("second", &[&device]);
    let refused = rig.prepare(&second).unwrap_err();
    assert!(
        refused.contains(&format!("prepared for claim {}/train", rig.namespace())),
        "{refused}"
    );
    agent.kill();
    let _agent = rig.start(&[]);
    assert_eq!(rig.prepare(&second).unwrap_err(), refused);
    rig.unprepare(&claim).unwrap();
    rig.await_geometry(&[]);
    assert!(!rig.has_spec(&claim));
    rig.unprepare(&claim).unwrap();
    // Now it can.
    rig.prepare(&second).unwrap();
    rig.unprepare(&second).unwrap();
    rig.await_geometry(&[]);
}

#[test]
fn claim_of_another_node_driver_or_name_is_refused_with_the_reason() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let _agent = rig.start(&[]);
    let device = rig.device("1g.5gb", 0);
    let other_node = rig.claim_in_pool("other-node", "elsewhere/gpu.octavo.dev", &[&device]);
    let refused = rig.prepare(&other_node).unwrap_err();
    assert!(refused.contains("is in pool elsewhere/gpu.octavo.dev"), "{refused}");
    let unallocated = rig.claim("unallocated", &[]);
    let refused = rig.prepare(&unallocated).unwrap_err();
    assert_eq!(refused, "the claim is not allocated a device of this driver");
    let absent = rig::Claim { name: "absent".to_owned(), ..unallocated.clone() };
    assert_eq!(rig.prepare(&absent).unwrap_err(), "the claim does not exist");
    let replaced = rig::Claim { uid: "another-uid".to_owned(), ..unallocated };
    assert_eq!(rig.prepare(&replaced).unwrap_err(), "the claim was deleted and created again");
    assert_eq!(rig.geometry(), []);
}

#[test]
fn i1_instance_in_use_is_not_destroyed_after_its_claim() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let _agent = rig.start(&[]);
    let claim = rig.claim("train", &[&rig.device("3g.20gb", 0)]);
    rig.prepare(&claim).unwrap();
    rig.add_process(4711);
    rig.unprepare(&claim).unwrap();
    // The node's loop has run since: another claim gets its instance beside it.
    let beside = rig.claim("beside", &[&rig.device("1g.5gb", 4)]);
    rig.prepare(&beside).unwrap();
    assert_eq!(rig.geometry(), [("3g.20gb".to_owned(), 0), ("1g.5gb".to_owned(), 4)]);
    // A claim that needs its slices is refused with the reason.
    let next = rig.claim("next", &[&rig.device("1g.5gb", 1)]);
    let refused = rig.prepare(&next).unwrap_err();
    assert!(refused.contains("4711"), "{refused}");
    assert_eq!(rig.geometry().len(), 2);
    rig.remove_process(4711);
    rig.await_geometry(&["1g.5gb"]);
    rig.prepare(&next).unwrap();
}

#[test]
fn instance_from_outside_is_adopted_only_when_idle_and_stays() {
    let gpus = "- {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, start: 0}]}\n";
    let rig = ClaimRig::new(Api::shared(), gpus);
    let _agent = rig.start(&[]);
    rig.add_process(4711);
    let claim = rig.claim("train", &[&rig.device("3g.20gb", 0)]);
    let refused = rig.prepare(&claim).unwrap_err();
    assert!(refused.contains("is used outside of claims by pid 4711"), "{refused}");
    rig.remove_process(4711);
    rig.prepare(&claim).unwrap();
    rig.unprepare(&claim).unwrap();
    let other = rig.claim("other", &[&rig.device("1g.5gb", 4)]);
    rig.prepare(&other).unwrap();
    assert_eq!(rig.geometry(), [("3g.20gb".to_owned(), 0), ("1g.5gb".to_owned(), 4)]);
    let blocked = rig.claim("blocked", &[&rig.device("1g.5gb", 3)]);
    let refused = rig.prepare(&blocked).unwrap_err();
    assert!(refused.contains("cannot exist beside 3g.20gb at slice 0"), "{refused}");
}

#[test]
fn whole_gpu_is_prepared_without_a_change() {
    let rig = ClaimRig::new(Api::shared(), "- {board: A100_40GB}\n");
    let _agent = rig.start(&[]);
    let claim = rig.claim("train", &[&rig.whole_device()]);
    let devices = rig.prepare(&claim).unwrap();
    let container = rig.container(&devices[0].cdi_device_ids);
    assert_eq!(container["linux"]["devices"][0]["path"], "/dev/nvidia0");
    rig.unprepare(&claim).unwrap();
    assert!(!rig.has_spec(&claim));
}

#[test]
fn kept_instance_serves_the_next_claim_and_yields_to_another_one() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let _agent = rig.start(&["--dra-release=keep"]);
    let device = rig.device("3g.20gb", 0);
    let first = rig.claim("first", &[&device]);
    rig.prepare(&first).unwrap();
    let uuid = rig.uuids();
    rig.unprepare(&first).unwrap();
    let second = rig.claim("second", &[&device]);
    rig.prepare(&second).unwrap();
    assert_eq!(rig.uuids(), uuid, "the same instance");
    rig.unprepare(&second).unwrap();
    let other = rig.claim("other", &[&rig.device("1g.5gb", 2)]);
    rig.prepare(&other).unwrap();
    assert_eq!(rig.geometry(), [("1g.5gb".to_owned(), 2)]);
}

#[test]
fn claim_that_was_deleted_while_the_agent_was_down_is_released() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let mut agent = rig.start(&[]);
    let stays = rig.claim("stays", &[&rig.device("1g.5gb", 0)]);
    let ends = rig.claim("ends", &[&rig.device("3g.20gb", 4)]);
    rig.prepare(&stays).unwrap();
    rig.prepare(&ends).unwrap();
    agent.kill();
    rig.delete(&ends);
    let _agent = rig.start(&[]);
    rig.await_geometry(&["1g.5gb"]);
    eventually("the removed specification", || !rig.has_spec(&ends));
    assert!(rig.has_spec(&stays));
}

#[test]
fn layout_does_not_destroy_the_instance_of_a_claim() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let mut agent = rig.start(&[]);
    let claim = rig.claim("train", &[&rig.device("3g.20gb", 0)]);
    rig.prepare(&claim).unwrap();
    agent.kill();
    let layouts = rig.machine().layouts("[{devices: all, mig: {1g.5gb: 7}}]");
    let mut agent = rig.start(&["--layouts", &layouts, "--layout=wanted"]);
    let line = agent.expect_log("blocked");
    assert!(line.contains(&format!("resource claim {}/train", rig.namespace())), "{line}");
    assert_eq!(rig.geometry(), [("3g.20gb".to_owned(), 0)]);
    // The layout covers the GPU, so no other claim gets a part of it.
    let refused = rig.prepare(&rig.claim("late", &[&rig.device("1g.5gb", 4)])).unwrap_err();
    assert!(refused.contains("the layout of this node covers the GPU"), "{refused}");
    rig.prepare(&claim).unwrap();
    rig.unprepare(&claim).unwrap();
    rig.await_geometry(&["1g.5gb"; 7]);
}

#[test]
fn health_of_all_devices_is_streamed() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let _agent = rig.start(&[]);
    let devices = until("the health of all devices", || rig.health(), |all| !all.is_empty());
    // All placements of six profiles.
    assert_eq!(devices.len(), 25, "{devices:?}");
    assert!(devices.iter().all(|(_, is_healthy)| *is_healthy), "{devices:?}");
}

/// The registration socket is dialed by the kubelet itself, whose HTTP authority is unusual. The runtime of these nodes
/// ignores CDI, so the pod gets no device.
#[test]
fn claim_of_two_pods_is_listed_by_pod_and_released_with_the_last_one() {
    let nodes = Nodes::shared();
    let rig = ClaimRig::with_kubelet(nodes, "node-1", ONE);
    let _alone = rig.runtime.block_on(Nodes::alone());
    // The agent finds the allocations of the real kubelet.
    fs::create_dir_all(rig.machine().kubelet().parent().unwrap()).unwrap();
    let socket = nodes.kubelet("node-1").join("pod-resources/kubelet.sock");
    symlink(socket, rig.machine().kubelet()).unwrap();
    let (mut agent, http) = rig.start_with_metrics();
    agent.expect_log("the kubelet registered the DRA driver");
    let claim = rig.claim("train", &[&rig.device("3g.20gb", 4)]);
    rig.api.await_account(rig.namespace());
    // Not scheduled: the claim is allocated already, and the controller manager reserves it for the pods. Two containers
    // and two pods share it.
    let containers = ["main", "side"].map(|name| {
        let resources = json!({"claims": [{"name": "gpu"}]});
        json!({"name": name, "image": "test.invalid/none:1", "resources": resources})
    });
    for pod in ["train", "second"] {
        rig.api.create(&json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod, "namespace": rig.namespace()},
            "spec": {
                "nodeName": "node-1",
                "terminationGracePeriodSeconds": 0,
                "resourceClaims": [{"name": "gpu", "resourceClaimName": claim.name}],
                "containers": containers,
            },
        }));
    }
    rig.await_geometry(&["3g.20gb"]);
    eventually("the specification", || rig.has_spec(&claim));
    // A device that several containers of a pod share has no container.
    let listed = "namespace=\"NS\",pod=\"train\",container=\"\",claim=\"train\"} 1.0";
    let listed = listed.replace("NS", rig.namespace());
    let metrics = || rig.runtime.block_on(http.get("/metrics")).body;
    let claimed =
        || metrics().lines().filter(|line| line.contains("claim=")).collect::<Vec<_>>().join("\n");
    until("the claim of the pod", claimed, |lines| lines.contains(&listed));
    // A restarted kubelet finds the socket again.
    nodes.restart_kubelet("node-1");
    agent.expect_log("the kubelet registered the DRA driver");
    assert_eq!(rig.geometry(), [("3g.20gb".to_owned(), 4)]);
    rig.api.kubectl(&["delete", "pod", "train", "-n", rig.namespace()]);
    assert_eq!(rig.geometry(), [("3g.20gb".to_owned(), 4)]);
    rig.api.kubectl(&["delete", "pod", "second", "-n", rig.namespace(), "--wait=false"]);
    rig.await_geometry(&[]);
    eventually("the removed specification", || !rig.has_spec(&claim));
    agent.kill();
    // Other tests use this Node too.
    rig.api.kubectl(&["annotate", "node", "node-1", "octavo.dev/status-"]);
}

/// The kubelet repeats its call until an agent answers.
fn prepare_eventually(rig: &ClaimRig, claim: &rig::Claim) {
    let other_owner = "this agent does not own the state directory";
    until(
        "a prepared claim",
        || rig.try_prepare(claim),
        |answer| match answer {
            Some(Ok(_)) => true,
            Some(Err(error)) => {
                assert!(error.contains(other_owner), "{error}");
                false
            }
            None => false,
        },
    );
}

#[test]
fn claims_stay_prepared_while_two_agents_of_an_update_overlap() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let mut old = rig.start(&[]);
    let stays = rig.claim("stays", &[&rig.device("3g.20gb", 4)]);
    let devices = rig.prepare(&stays).unwrap();
    let uuids = rig.uuids();
    for round in 0..4 {
        let name = format!("next-{round}");
        let next = rig.claim(&name, &[&rig.device("1g.5gb", round)]);
        let is_surge = round % 2 == 0;
        let new = if is_surge {
            // The next agent waits for the current one, which still serves the kubelet.
            let mut new = Program::start(&mut rig.agent(&[]));
            new.expect_log(" and holds ");
            assert_eq!(rig.prepare(&stays).unwrap(), devices);
            old.terminate();
            new
        } else {
            old.terminate();
            Program::start(&mut rig.agent(&[]))
        };
        prepare_eventually(&rig, &next);
        assert!(old.wait_for_exit().success());
        // The agent that ended has removed nothing of its successor.
        prepare_eventually(&rig, &stays);
        assert_eq!(rig.prepare(&stays).unwrap(), devices);
        assert!(rig.uuids().contains(&uuids[0]));
        assert!(rig.has_spec(&stays) && rig.has_spec(&next));
        old = new;
    }
    assert_eq!(rig.geometry().len(), 5);
    old.kill();
    // All claims are in the record of the last agent.
    let _last = rig.start(&[]);
    for round in 0..4 {
        let name = format!("again-{round}");
        let again = rig.claim(&name, &[&rig.device("1g.5gb", round)]);
        let refused = rig.prepare(&again).unwrap_err();
        assert!(refused.contains(&format!("next-{round}")), "{refused}");
    }
}
