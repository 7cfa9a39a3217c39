//! Reports while nodes are still returning after a start of the aggregator.

use axum::http::StatusCode;
use octavo_fleet::startup::StartupProgress;
use serde_json::json;

use super::fleet::{Aggregator, Machines};

#[tokio::test]
async fn lists_and_readiness_report_startup_while_nodes_are_returning() {
    let now = StartupProgress::new(4, Some(9));
    let (progress, startup) = tokio::sync::watch::channel(Some(now));
    let machines = Machines::read().await;
    let aggregator = Aggregator::viewed(&machines, |view| view.with_startup(startup));
    let lists = ["/api/v1/nodes", "/api/v1/types", "/api/v1/availability"];
    for path in lists {
        let list = aggregator.get(path).await.json();
        assert_eq!(list["starting"], json!({"nodes": 4, "expected": 9}), "{path}");
    }
    for path in ["/api/v1/profiles", "/api/hardware-profiles"] {
        let notice = aggregator.get(path).await.json()["notice"].clone();
        let notice = notice.as_str().unwrap();
        assert!(notice.contains("4 of about 9 nodes"), "{path}: {notice}");
    }
    let matched = aggregator.post("/api/v1/match", "{\"count\": 1}").await;
    assert!(matched.body.contains("4 of about 9 nodes"), "{}", matched.body);
    let slo = r#"{"objectives": {}, "rows": [{"hardware_type": "L4", "hardware_count": 1}]}"#;
    let slo = aggregator.post("/api/v1/slo", slo).await.json();
    let notices = slo["notices"].to_string();
    assert!(notices.contains("4 of about 9 nodes"), "{slo}");
    let unready = aggregator.get("/readyz").await;
    assert_eq!(unready.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(unready.body.contains("not all nodes have reported"));
    progress.send_replace(None);
    for path in lists {
        assert_eq!(aggregator.get(path).await.json().get("starting"), None);
    }
    assert_eq!(aggregator.get("/readyz").await.status, StatusCode::OK);
}
