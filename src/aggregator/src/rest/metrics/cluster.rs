//! Metrics of the watched cluster: whether it is watched, and the age of the snapshot.
//!
//! Without `--follow-cluster` these metrics are absent, so that alerting rules have no data instead of wrong data.

use std::fmt;
use std::sync::Arc;

use octavo_kube::cluster::WatchedCluster;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{gauge, gauges};

/// Registers the metrics with `registry`, which must have no prefix.
pub fn register(registry: &mut Registry, watched: watch::Receiver<Arc<WatchedCluster>>) {
    registry.register_collector(Box::new(ClusterMetrics { watched }));
}

/// Reads the cluster at each scrape.
#[derive(Debug)]
struct ClusterMetrics {
    watched: watch::Receiver<Arc<WatchedCluster>>,
}

impl Collector for ClusterMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let watched = Arc::clone(&self.watched.borrow());
        let is_followed = i64::from(watched.error.is_none());
        let help = "Whether the nodes and pods of the cluster are being watched: 1 or 0";
        gauge(&mut encoder, "octavo_cluster_followed", help, is_followed)?;
        if let Some(current_at) = watched.current_at {
            age(&mut encoder, current_at)?;
        }
        objects(&mut encoder, &watched)
    }
}

/// Absent until everything was read once, because there is no age before.
fn age(encoder: &mut DescriptorEncoder<'_>, current_at: Instant) -> fmt::Result {
    let age = Instant::now().saturating_duration_since(current_at);
    let help =
        "Seconds since the data about the cluster's nodes and pods was last known to be complete";
    gauge(encoder, "octavo_cluster_age_seconds", help, age.as_secs_f64())
}

fn objects(encoder: &mut DescriptorEncoder<'_>, watched: &WatchedCluster) -> fmt::Result {
    let help = "Known nodes and pods of the cluster, without completed pods";
    let snapshot = &watched.snapshot;
    let counts = [("node", snapshot.nodes.len()), ("pod", snapshot.pods().len())];
    let counts =
        counts.map(|(kind, count)| ([("kind", kind)], u64::try_from(count).unwrap_or(u64::MAX)));
    gauges(encoder, "octavo_cluster_objects", help, counts)?;
    let help = "Nodes and pods of the cluster with at least one field that could not be parsed";
    let count = i64::try_from(watched.invalid_objects).unwrap_or(i64::MAX);
    gauge(encoder, "octavo_cluster_odd_objects", help, count)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use octavo_fleet::cluster::{ClusterNode, ClusterSnapshot};
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn scraped(watched: WatchedCluster) -> String {
        let (_sender, receiver) = watch::channel(Arc::new(watched));
        let mut registry = Registry::default();
        register(&mut registry, receiver);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_metrics_are_exported_and_documented() {
        let snapshot = ClusterSnapshot::new([ClusterNode::default()], []);
        let watched = WatchedCluster {
            snapshot: Arc::new(snapshot),
            current_at: Some(Instant::now()),
            error: None,
            invalid_objects: 3,
        };
        tokio::time::advance(Duration::from_secs(7)).await;
        let text = scraped(watched);
        for line in [
            "octavo_cluster_followed 1\n",
            "octavo_cluster_age_seconds 7.0\n",
            "octavo_cluster_objects{kind=\"node\"} 1\n",
            "octavo_cluster_objects{kind=\"pod\"} 0\n",
            "octavo_cluster_odd_objects 3\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let page = include_str!("../../../../../docs/reference/metrics.md");
        for metric_type in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, _) = metric_type.split_once(' ').unwrap();
            assert!(page.contains(&format!("\n### `{name}`\n")), "{name}");
        }
    }

    #[tokio::test]
    async fn age_is_absent_before_the_first_read() {
        let text = scraped(WatchedCluster::default());
        assert!(text.contains("octavo_cluster_followed 0\n"), "{text}");
        assert!(!text.contains("octavo_cluster_age_seconds"), "{text}");
    }
}
