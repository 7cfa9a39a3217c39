//! Metrics of the watched cluster: whether it is watched, and the age of the snapshot.
//!
//! Without `--follow-cluster` these metrics are absent, so that alerting rules have no data instead of wrong data.

use std::fmt;
use std::sync::Arc;

use octavo_kube::cluster::Followed;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::Instant;

/// Registers the metrics with `registry`, which must have no prefix.
pub fn register(registry: &mut Registry, followed: watch::Receiver<Arc<Followed>>) {
    registry.register_collector(Box::new(ClusterMetrics { followed }));
}

/// Reads the cluster at each scrape.
#[derive(Debug)]
struct ClusterMetrics {
    followed: watch::Receiver<Arc<Followed>>,
}

impl Collector for ClusterMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let followed = Arc::clone(&self.followed.borrow());
        let is_followed = i64::from(followed.trouble.is_none());
        let help = "Whether the cluster's nodes and pods are followed now: 1, or 0";
        let metric =
            encoder.encode_descriptor("octavo_cluster_followed", help, None, MetricType::Gauge)?;
        ConstGauge::new(is_followed).encode(metric)?;
        if let Some(heard) = followed.current_at {
            age(&mut encoder, heard)?;
        }
        objects(&mut encoder, &followed)
    }
}

/// Absent until everything was read once, because there is no age before.
fn age(encoder: &mut DescriptorEncoder<'_>, heard: Instant) -> fmt::Result {
    let age = Instant::now().saturating_duration_since(heard);
    let help =
        "How long ago what is known of the cluster's nodes and pods was last known to be all";
    let name = "octavo_cluster_age_seconds";
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(age.as_secs_f64()).encode(metric)
}

fn objects(encoder: &mut DescriptorEncoder<'_>, followed: &Followed) -> fmt::Result {
    let count = |count: usize| ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
    let help = "Nodes and pods of the cluster that are known; pods that have ended are not";
    let name = "octavo_cluster_objects";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    let sights = &followed.sights;
    for (kind, number) in [("node", sights.nodes.len()), ("pod", sights.pods.len())] {
        count(number).encode(metric.encode_family(&[("kind", kind)])?)?;
    }
    let help = "Nodes and pods of the cluster of which something could not be understood";
    let name = "octavo_cluster_odd_objects";
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    count(followed.invalid_objects).encode(metric)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use octavo_fleet::cluster::{ClusterNode, Sights};
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn scraped(followed: Followed) -> String {
        let (_kept, receiver) = watch::channel(Arc::new(followed));
        let mut registry = Registry::default();
        register(&mut registry, receiver);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_metrics_are_exported_and_documented() {
        let sights = Sights::new([ClusterNode::default()], []);
        let followed = Followed {
            sights: Arc::new(sights),
            current_at: Some(Instant::now()),
            trouble: None,
            invalid_objects: 3,
        };
        tokio::time::advance(Duration::from_secs(7)).await;
        let text = scraped(followed);
        for line in [
            "octavo_cluster_followed 1\n",
            "octavo_cluster_age_seconds 7.0\n",
            "octavo_cluster_objects{kind=\"node\"} 1\n",
            "octavo_cluster_objects{kind=\"pod\"} 0\n",
            "octavo_cluster_odd_objects 3\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let page = include_str!("../../../../../docs/metrics.md");
        for told in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, _) = told.split_once(' ').unwrap();
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
    }

    #[tokio::test]
    async fn age_is_absent_before_the_first_read() {
        let text = scraped(Followed::default());
        assert!(text.contains("octavo_cluster_followed 0\n"), "{text}");
        assert!(!text.contains("octavo_cluster_age_seconds"), "{text}");
    }
}
