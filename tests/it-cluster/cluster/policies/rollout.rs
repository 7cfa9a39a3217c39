//! Roll-outs, stops, rollbacks, overrides, conflicts and deletion.

use serde_json::json;
use tempfile::TempDir;

use super::rig::{LAYOUT, Pool, await_deletion, label, spec};
use crate::cluster::Api;
use crate::fleet_api::Api as Readers;
use crate::time_limits::until_async;

#[tokio::test]
async fn p5_policy_is_rolled_out_within_its_budget_and_stops_and_rolls_back() {
    let mut pool = Pool::new(30).await;
    let _aggregator = pool.aggregator();
    pool.apply("serving", &spec("serving", &json!({"maxUnavailable": "10%"})));
    pool.await_unavailable(3).await;
    let status = pool.await_state("serving", "Complete", 3).await;
    assert_eq!(
        (&status["nodes"]["selected"], &status["nodes"]["applied"]),
        (&json!(30), &json!(30))
    );
    assert_eq!(pool.largest, 3);
    pool.check_records().await;
    pool.await_events("serving", &["RollingOut", "Complete"]);

    // An idle policy is not written while the controller works on another one.
    let version = |api: &Api| {
        let path = "-o=jsonpath={.metadata.resourceVersion}";
        api.kubectl(&["get", "acceleratorpolicy", "serving", path])
    };
    let (before, changes) = (version(&pool.api), pool.requests("patch", "nodes"));
    let mut other = spec("training", &json!({}));
    other["nodeSelector"] = json!({"matchLabels": {"pool": "none"}});
    pool.apply("other", &other);
    pool.await_state("other", "Complete", 0).await;
    assert_eq!((version(&pool.api), pool.requests("patch", "nodes")), (before, changes));

    // The third failing node stops the roll-out.
    pool.failing = ["gpu-001", "gpu-003", "gpu-005"].map(str::to_owned).into();
    pool.apply("serving", &spec("training", &json!({"maxUnavailable": 4, "maxFailures": 2})));
    let status = pool.await_state("serving", "Stopped", 4).await;
    assert_eq!(status["failures"].as_array().unwrap().len(), 3, "{status:#}");
    assert!(pool.with_layout("training").await.len() < 15);

    // Another spec continues, and a failure returns the changed nodes to the previous revision.
    pool.failing.clear();
    pool.apply("serving", &spec("serving", &json!({"maxUnavailable": 4})));
    pool.await_state("serving", "Complete", 4).await;
    assert_eq!(pool.with_layout("serving").await.len(), 30);
    pool.failing = ["gpu-002".to_owned()].into();
    pool.apply(
        "serving",
        &spec("training", &json!({"maxUnavailable": 2, "onFailure": "RollBack"})),
    );
    let is_stopped = |status: &serde_json::Value| status["stop"]["reason"] == "TooManyFailures";
    pool.await_status("serving", 2, is_stopped).await;
    pool.failing.clear();
    let status = pool.await_state("serving", "RolledBack", 2).await;
    assert!(is_stopped(&status), "{status:#}");
    pool.await_events("serving", &["RollingBack", "RolledBack"]);
    assert_eq!(pool.with_layout("serving").await.len(), 30);
    pool.check_records().await;
}

#[tokio::test]
async fn p2_overridden_and_conflicting_nodes_are_left_alone_and_deletion_removes_everything() {
    let mut pool = Pool::new(4).await;
    pool.api.kubectl(&["label", "node", "gpu-000", "octavo.dev/layout=mine"]);
    let files = TempDir::new().unwrap();
    let aggregator = pool.aggregator_with_ledger(files.path());
    pool.apply("a", &spec("serving", &json!({"maxUnavailable": 4})));
    let status = pool.await_state("a", "Complete", 4).await;
    assert_eq!(
        (&status["nodes"]["overridden"], &status["nodes"]["applied"]),
        (&json!(1), &json!(3))
    );
    let mut other = spec("training", &json!({}));
    other["nodeSelector"] = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "DoesNotExist"}]});
    pool.apply("b", &other);
    let status = pool.await_state("b", "Conflict", 4).await;
    assert_eq!(status["nodes"]["conflicting"], 4);
    let conflict = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["type"] == "Conflict")
        .unwrap();
    assert!(conflict["message"].as_str().unwrap().ends_with("selected by: a"), "{conflict}");
    let readers = Readers::at(aggregator.http);
    let entries = async || readers.get("/api/v1/audit?kind=policy").await.body;
    let is_audited = |text: &String| {
        let has = |policy: &str, state: &str| {
            let (policy, state) =
                (format!("\"policy\":\"{policy}\""), format!("\"after\":\"{state}\""));
            text.lines().any(|line| line.contains(&policy) && line.contains(&state))
        };
        has("a", "Complete") && has("b", "Conflict")
    };
    until_async("entries of the policies", entries, is_audited).await;
    assert_eq!(
        (pool.with_layout("serving").await.len(), pool.with_layout("training").await.len()),
        (3, 0)
    );
    pool.api.kubectl(&["delete", "acceleratorpolicy", "a", "b", "--wait=false"]);
    await_deletion(&pool.api);
    for node in pool.nodes().await {
        let labels = node.metadata.labels.clone().unwrap();
        assert!(labels.len() == 1 || label(&node, LAYOUT) == Some("mine"), "{labels:?}");
        assert_eq!(node.spec.unwrap().taints, None);
    }
    pool.check_record_of_none().await;
}
