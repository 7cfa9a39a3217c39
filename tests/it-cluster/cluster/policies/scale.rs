//! A pool of 1,000 nodes.

use serde_json::{Value, json};

use super::rig::{Pool, spec};

#[tokio::test]
async fn p5_thousand_nodes_are_rolled_out_with_few_requests() {
    let mut pool = Pool::new(1000).await;
    let _aggregator = pool.aggregator();
    pool.apply("a", &spec("serving", &json!({"maxUnavailable": "10%"})));
    // Each wave has a time limit of its own: all of them take minutes on a loaded machine.
    for applied in (100..=1000).step_by(100) {
        let is_applied = |status: &Value| status["nodes"]["applied"].as_u64() >= Some(applied);
        pool.await_status("a", 100, is_applied).await;
    }
    let status = pool.await_state("a", "Complete", 100).await;
    assert_eq!(status["nodes"]["applied"], 1000);
    let [reads, changes] = [pool.requests("get", "nodes"), pool.requests("patch", "nodes")];
    let written = pool.requests("patch", "acceleratorpolicies");
    assert_eq!(changes, 1000);
    assert!(reads < 1100 && written < 400, "{reads} {written}");
}
