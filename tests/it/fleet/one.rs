//! One node: the API shows what its own programs print, for every change.

use std::fs;

use nvml_sim::model::{Process, ProcessKind, Slot};
use serde_json::{Value, json};

use super::{MIXED, agreed};
use crate::fleet_api::Api;
use crate::machine::Machine;
use crate::process::{Aggregator, Program};

/// Changes a machine and checks that the API follows.
async fn follows(machine: &Machine, api: &Api, _agent: Program) {
    let node = agreed(api, "mixed", machine).await;
    assert_eq!((&node["state"], &node["devices"]["inUse"]), (&json!("ok"), &json!(1)));

    let gpu_uuid = machine.world().gpu(Slot(1)).unwrap().uuid.clone();
    machine.change(|world| {
        world.add_process(Process {
            pid: 4711,
            name: "vllm".to_owned(),
            gpu_uuid,
            gi: None,
            ci: None,
            memory_mib: 1000,
            kind: ProcessKind::Compute,
        })
    });
    let node = agreed(api, "mixed", machine).await;
    assert_eq!(node["devices"]["inUse"], 2);
    assert!(node["inventory"].to_string().contains("4711"), "{node}");

    machine.change(|world| {
        let gpu = world.gpu(Slot(2))?;
        let smallest = gpu.gi_profile(0)?;
        let (profile, compute) = (smallest.id, smallest.full_compute_profile().unwrap().id);
        let instance = world.create_gi(Slot(2), profile, None)?;
        world.create_ci(Slot(2), instance, compute, None)
    });
    let node = agreed(api, "mixed", machine).await;
    assert_eq!(node["devices"]["partitions"], json!({"total": 2, "free": 2, "inUse": 0}));

    machine.change(|world| world.lose_gpu(Slot(1)));
    let node = agreed(api, "mixed", machine).await;
    assert_eq!((&node["state"], &node["devices"]["unavailable"]), (&json!("degraded"), &json!(1)));
    let lost = &node["inventory"]["devices"][1];
    assert_eq!(lost["condition"]["state"], "failing");
    assert_eq!(lost["memoryMiB"], 81559, "the last known memory is lost");
}

#[tokio::test]
async fn aggregator_shows_node_exactly_as_its_own_programs() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let machine = Machine::new(MIXED);
    let agent = machine.report(&aggregator, "mixed", &[]);
    follows(&machine, &Api::at(aggregator.http), agent).await;
}

#[tokio::test]
async fn node_is_shown_over_tls_and_wrong_authority_gets_no_data() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(path("tls.crt"), pair.cert.pem()).unwrap();
    fs::write(path("tls.key"), pair.signing_key.serialize_pem()).unwrap();
    fs::write(path("other.crt"), other.cert.pem()).unwrap();
    let aggregator = Aggregator::start(&[
        &format!("--tls-cert={}", path("tls.crt")),
        &format!("--tls-key={}", path("tls.key")),
    ]);
    let machine = Machine::new(MIXED);
    let start = |authority: &str, node: &str| {
        machine.agent(&[
            &format!("--aggregator=https://{}", aggregator.grpc),
            &format!("--aggregator-ca={}", path(authority)),
            "--aggregator-server-name=localhost",
            "--interval=200ms",
            "--node-name",
            node,
        ])
    };
    let mut stranger = start("other.crt", "stranger");
    let reported = stranger.expect_log("cannot report to the aggregator");
    assert!(reported.contains("certificate"), "{reported}");
    let api = Api::trusting(aggregator.http, path("tls.crt").as_ref());
    follows(&machine, &api, start("tls.crt", "mixed")).await;
    let names: Vec<Value> = api.nodes().await.iter().map(|node| node["name"].clone()).collect();
    assert_eq!(names, ["mixed"]);
}
