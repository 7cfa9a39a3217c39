//! Layouts with `claims: dra`, claims that share a device, administrative access and opaque configuration.

use serde_json::json;

use super::rig::{ClaimRig, ONE};
use super::visible::entries;
use crate::cluster::Api;
use crate::time_limits::eventually;

const SHARES: [&str; 2] =
    ["4d3e9f66-58a2-4a8a-9d5b-0e7a1c1b0001", "4d3e9f66-58a2-4a8a-9d5b-0e7a1c1b0002"];

#[test]
fn layout_of_claims_enables_mig_mode_and_leaves_the_partitions_to_claims() {
    // Hopper needs no reset.
    let rig = ClaimRig::new(Api::shared(), "- {board: H100_80GB_SXM}\n");
    let layouts = rig.machine().layouts("[{devices: all, mig: {}, claims: dra}]");
    let arguments = ["--layouts", layouts.as_str(), "--layout=wanted"];
    let mut agent = rig.start(&arguments);
    eventually("MIG mode", || rig.machine().is_partitioned(0));
    let claim = rig.claim("train", &[&rig.device("3g.40gb", 4)]);
    rig.prepare(&claim).unwrap();
    // The next agent finds a partition that its layout does not list.
    agent.kill();
    let mut agent = rig.start(&arguments);
    rig.await_state("applied");
    rig.prepare(&rig.claim("other", &[&rig.device("1g.10gb", 0)])).unwrap();
    let both = [("1g.10gb".to_owned(), 0), ("3g.40gb".to_owned(), 4)];
    assert_eq!(rig.geometry(), both);
    agent.kill();
    // A layout cannot turn MIG mode off while claims are prepared.
    let layouts = rig.machine().layouts("[{devices: all, mig: disabled, claims: dra}]");
    let mut agent = rig.start(&["--layouts", &layouts, "--layout=wanted"]);
    let line = agent.expect_log("blocked");
    assert!(line.contains("resource claim"), "{line}");
    assert_eq!(rig.geometry(), both);
}

#[test]
fn i4_infeasible_layout_of_one_gpu_does_not_delay_claims_of_another() {
    let gpus = "- {board: A100_40GB, mig: enabled}\n- {board: A100_40GB, mig: enabled}\n";
    let rig = ClaimRig::new(Api::shared(), gpus);
    // Each profile fits, but not both.
    let layouts = rig.machine().layouts("[{devices: 1, mig: {7g.40gb: 1, 1g.5gb: 1}}]");
    let mut agent = rig.start(&["--layouts", &layouts, "--layout=wanted"]);
    agent.expect_log("infeasible");
    rig.prepare(&rig.claim("train", &[&rig.device("3g.20gb", 0)])).unwrap();
    assert_eq!(rig.geometry(), [("3g.20gb".to_owned(), 0)]);
}

#[test]
fn shared_partition_is_released_with_its_last_claim() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let mut agent = rig.start(&[]);
    let device = rig.device("3g.20gb", 4);
    let [one, other] =
        [0, 1].map(|number| rig.claim_share(&format!("c-{number}"), &device, SHARES[number]));
    let prepared = rig.prepare(&one).unwrap();
    assert_eq!(prepared[0].share_id.as_deref(), Some(SHARES[0]));
    rig.add_process(4711);
    assert_eq!(rig.prepare(&other).unwrap()[0].share_id.as_deref(), Some(SHARES[1]));
    for (claim, share) in [&one, &other].into_iter().zip(SHARES) {
        eventually("the status of the share", || {
            entries(&rig, claim).iter().any(|entry| entry["shareID"] == share)
        });
    }
    rig.remove_process(4711);
    let exclusive = rig.claim("exclusive", &[&device]);
    let refused = rig.prepare(&exclusive).unwrap_err();
    assert!(refused.contains("prepared for claim"), "{refused}");
    rig.unprepare(&one).unwrap();
    agent.kill();
    let _agent = rig.start(&[]);
    // The claim beside it shows that a round has run.
    rig.prepare(&rig.claim("beside", &[&rig.device("1g.5gb", 0)])).unwrap();
    assert_eq!(rig.geometry(), [("1g.5gb".to_owned(), 0), ("3g.20gb".to_owned(), 4)]);
    assert!(rig.has_spec(&other) && !rig.has_spec(&one));
    rig.unprepare(&other).unwrap();
    rig.await_geometry(&["1g.5gb"]);
    rig.prepare(&exclusive).unwrap();
}

#[test]
fn administrative_access_uses_a_device_that_another_claim_holds() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let label = "resource.kubernetes.io/admin-access=true";
    rig.api.kubectl(&["label", "namespace", rig.namespace(), label]);
    let _agent = rig.start(&[]);
    let device = rig.device("3g.20gb", 4);
    let admin = json!({"adminAccess": true});
    let monitor = rig.claim_with("monitor", &device, &admin, &json!([]));
    let refused = rig.prepare(&monitor).unwrap_err();
    assert!(refused.contains("administrative access creates none"), "{refused}");
    assert_eq!(rig.geometry(), []);
    let claim = rig.claim("train", &[&device]);
    rig.prepare(&claim).unwrap();
    rig.add_process(4711);
    let devices = rig.prepare(&monitor).unwrap();
    let container = rig.container(&devices[0].cdi_device_ids);
    assert_eq!(container["linux"]["devices"].as_array().unwrap().len(), 3);
    // The holder ends first; the partition does not wait for the monitor.
    rig.remove_process(4711);
    rig.unprepare(&claim).unwrap();
    rig.await_geometry(&[]);
    rig.unprepare(&monitor).unwrap();
    assert!(!rig.has_spec(&monitor));
}

#[test]
fn opaque_configuration_is_accepted_or_refused_with_its_place() {
    let rig = ClaimRig::new(Api::shared(), "- {board: A100_40GB}\n");
    let _agent = rig.start(&[]);
    let device = rig.whole_device();
    let config = |sharing: &serde_json::Value| {
        let version = "resource.nvidia.com/v1beta1";
        let parameters = json!({"apiVersion": version, "kind": "GpuConfig", "sharing": sharing});
        let opaque = json!({"driver": "gpu.nvidia.com", "parameters": parameters});
        json!([{"source": "FromClaim", "requests": ["gpu"], "opaque": opaque}])
    };
    let none = json!({});
    let mps = rig.claim_with("mps", &device, &none, &config(&json!({"strategy": "MPS"})));
    let refused = rig.prepare(&mps).unwrap_err();
    let place = "config[0].opaque.parameters.sharing.strategy: unknown variant `MPS`";
    assert!(refused.contains(place), "{refused}");
    let slicing = json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}});
    rig.prepare(&rig.claim_with("sliced", &device, &none, &config(&slicing))).unwrap();
}
