//! Partitions of resource claims that an agent prepared, while that agent is down.

use std::fs;

use super::command::reported;
use crate::node::{Node, names};

/// Two GPUs with a partition each. A claim has that of the first.
const GPUS: &str =
    "- {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 3g.20gb, start: 0}]}\n";

/// Records the claim as the agent does.
async fn record(node: &Node, file: &str, uid: &str) {
    let pci = node.machine.observe().await.devices[0].pci;
    // Profile 9 is 3g.20gb.
    let device = format!(
        r#"{{"pci": "{pci}", "what": {{"kind": "partition", "profileId": 9, "profile": "3g.20gb",
        "placement": {{"start": 0, "size": 4}}}}}}"#
    );
    let device = format!(r#"{{"requests": ["gpu"], "created": true, "device": {device}}}"#);
    let claim = format!(
        r#"{{"namespace": "team", "name": "train", "state": "prepared", "devices": [{device}]}}"#
    );
    fs::create_dir_all(node.state()).unwrap();
    let text = format!(r#"{{"claims": {{"{uid}": {claim}}}}}"#);
    fs::write(node.state().join(file), text).unwrap();
}

#[tokio::test]
async fn i1_partition_of_a_recorded_claim_is_not_destroyed_without_an_agent() {
    let node = Node::new(GPUS);
    for file in ["claims.json", "claims.copy"] {
        record(&node, file, "uid-1").await;
        let text = reported(&node.octavo(&["apply", "all-7g.40gb", "-o", "json"]), 4);
        assert!(text.contains("resource claim team/train"), "{text}");
        assert_eq!(names(&node.geometry(0)), ["3g.20gb"], "{text}");
        // A claim on one GPU does not protect the other.
        assert_eq!(names(&node.geometry(1)), ["7g.40gb"], "{text}");
        fs::remove_file(node.state().join(file)).unwrap();
    }
    // Without a valid record, it is unknown which devices claims use.
    fs::write(node.state().join("claims.json"), "{").unwrap();
    let text = reported(&node.octavo(&["apply", "all-7g.40gb", "-o", "json"]), 4);
    assert!(text.contains("claims.json"), "{text}");
    assert_eq!(names(&node.geometry(0)), ["3g.20gb"], "{text}");
    assert_eq!(fs::read_to_string(node.state().join("claims.json")).unwrap(), "{");
    fs::remove_file(node.state().join("claims.json")).unwrap();
    reported(&node.octavo(&["apply", "all-7g.40gb"]), 0);
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
}
