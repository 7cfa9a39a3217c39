//! Metrics with the names of OpenCost, of the shipped aggregator.

use tempfile::TempDir;

use super::Site;
use crate::fleet_api::Api;
use crate::process::Aggregator;
use crate::time_limits::until_async;

/// Metrics of an aggregator whose fleet has a node with two GPUs, one of which is allocated to a pod.
pub(crate) async fn scraped() -> String {
    let files = TempDir::new().unwrap();
    let ledger = format!("sqlite://{}", files.path().join("ledger.db").display());
    let site = Site::start(&ledger, files);
    site.start_pod("train", 101);
    let api = Api::at(site.aggregator.http);
    let scrape = async || api.get("/metrics").await.body;
    let is_allocated = |text: &String| text.contains("container_gpu_allocation{");
    until_async("the allocation of a container", scrape, is_allocated).await
}

#[tokio::test]
async fn aggregator_exposes_prices_devices_and_allocations_as_opencost_does() {
    let text = scraped().await;
    let node = "instance=\"gpu-1\",node=\"gpu-1\"";
    let place = "instance_type=\"\",region=\"\",provider_id=\"\",arch=\"\"";
    for line in [
        format!("node_gpu_hourly_cost{{{node},{place}}} 3.6"),
        format!("node_gpu_count{{{node},{place}}} 2.0"),
        format!(
            "container_gpu_allocation{{namespace=\"team\",pod=\"train\",container=\"main\",{node}}} 1.0"
        ),
        "octavo_opencost_omitted_containers 0".to_owned(),
    ] {
        assert!(text.lines().any(|one| one == line), "{line}: {text}");
    }
}

#[tokio::test]
async fn metrics_of_opencost_are_off_by_default() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let text = Api::at(aggregator.http).get("/metrics").await.body;
    assert!(text.contains("octavo_nodes{"), "{text}");
    assert!(!text.contains("node_gpu") && !text.contains("container_gpu"), "{text}");
}
