//! A pool of 1,000 nodes.

use std::time::Instant;

use serde_json::json;

use super::rig::{Pool, spec};

#[tokio::test]
async fn p5_thousand_nodes_are_rolled_out_with_few_requests() {
    let mut pool = Pool::new(1000).await;
    let _aggregator = pool.aggregator();
    let began = Instant::now();
    pool.apply("a", &spec("serving", &json!({"maxUnavailable": "10%"})));
    let status = pool.await_state("a", "Complete", 100).await;
    let took = began.elapsed();
    assert_eq!(status["nodes"]["applied"], 1000);
    let [reads, changes] = [pool.requests("get", "nodes"), pool.requests("patch", "nodes")];
    let written = pool.requests("patch", "acceleratorpolicies");
    println!(
        "1,000 nodes: {took:?}, {reads} reads and {changes} changes of nodes, {written} writes of the policy, at most {} at once",
        pool.largest
    );
    assert_eq!(changes, 1000);
    assert!(reads < 1100 && written < 400, "{reads} {written}");
}
