//! Metrics with the names and labels of OpenCost, for queries and dashboards that were written for it.
//!
//! `run` starts the monitor if it is enabled. A series exists for each node and each container with a device, so the metrics are off by
//! default, and the number of containers is limited. Source of names and labels: OpenCost, `pkg/costmodel/metrics.go`. The label `uid` is
//! omitted, because only clients that can read a pod may see its UID.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use octavo_fleet::cluster::ClusterSnapshot;
use octavo_fleet::price::{Amount, CurrentPrices, INSTANCE_TYPE, REGION};
use octavo_kube::cluster::WatchedCluster;
use octavo_ledger::{Container, DeviceState, Holder, PPM};
use octavo_model::id::NodeName;
use octavo_store::fleet::Node;
use octavo_store::view::FleetView;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{MissedTickBehavior, interval};

use crate::ledger::observation::{PodDirectory, device_states};
use crate::rest::metrics::gauge;

/// Interval of reading the fleet.
const INTERVAL: Duration = Duration::from_secs(10);
/// Nodes that are read before other tasks of the thread run.
const NODES_PER_BATCH: usize = 50;
/// Maximum number of containers with series.
const MAX_CONTAINERS: usize = 20_000;
/// Label of a node with its architecture. Source: Kubernetes, "Well-Known Labels".
const ARCHITECTURE: &str = "kubernetes.io/arch";

/// Reads the fleet at an interval, because a scrape must not wait for it.
#[derive(Debug)]
pub struct OpenCostMonitor {
    view: FleetView,
    cluster: Option<watch::Receiver<Arc<WatchedCluster>>>,
    metrics: OpenCostMetrics,
}

/// Series for scrapes. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct OpenCostMetrics(Arc<Mutex<Arc<OpenCostSeries>>>);

/// Series at one time.
#[derive(Debug, Default)]
struct OpenCostSeries {
    nodes: Vec<NodeSeries>,
    containers: Vec<(ContainerLabels, f64)>,
    /// Number of containers without a series.
    omitted: u64,
}

/// Devices of a node.
#[derive(Debug)]
struct NodeSeries {
    labels: NodeLabels,
    devices: u32,
    /// Mean price of a device for one hour; `None` if a device has no price in the currency of the price book.
    hourly_cost: Option<f64>,
}

type NodeLabels = [(&'static str, String); 6];
type ContainerLabels = [(&'static str, String); 5];

impl OpenCostMonitor {
    /// Creates a monitor of the fleet of a view.
    pub fn new(view: FleetView, cluster: Option<watch::Receiver<Arc<WatchedCluster>>>) -> Self {
        Self { view, cluster, metrics: OpenCostMetrics::default() }
    }

    /// Its metrics.
    pub fn metrics(&self) -> OpenCostMetrics {
        self.metrics.clone()
    }

    /// Runs forever.
    pub async fn run(self) {
        let mut times = interval(INTERVAL);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            times.tick().await;
            let series = self.series().await;
            self.metrics.set(series);
        }
    }

    async fn series(&self) -> OpenCostSeries {
        let clock = self.view.clock();
        let now = clock.now();
        let fleet = self.view.fleet();
        let cluster = self.cluster.as_ref().map(|cluster| Arc::clone(&cluster.borrow()));
        let cluster = cluster.as_ref().map(|cluster| &*cluster.snapshot);
        let directory = PodDirectory { cluster, team_label: None };
        let prices = self.view.prices().prices;
        let mut series = OpenCostSeries::default();
        let nodes: Vec<&Arc<Node>> = fleet.local_nodes().collect();
        for batch in nodes.chunks(NODES_PER_BATCH) {
            let batch = batch.iter().filter(|node| node.has_agent());
            for node in batch.filter(|node| !node.freshness.is_stale(now)) {
                let states = device_states(node, node.usage_by_pod().as_ref(), directory);
                series.nodes.push(NodeSeries {
                    labels: node_labels(&node.name, cluster),
                    devices: u32::try_from(states.len()).unwrap_or(u32::MAX),
                    hourly_cost: prices.as_ref().and_then(|prices| mean_price(&states, prices)),
                });
                let room = MAX_CONTAINERS.saturating_sub(series.containers.len());
                series.add(&node.name, &states, room);
            }
            yield_now().await;
        }
        series
    }
}

/// Labels of a node. Without a cluster, only its name is known.
fn node_labels(node: &NodeName, cluster: Option<&ClusterSnapshot>) -> NodeLabels {
    let known = cluster.and_then(|cluster| cluster.nodes.get(node.as_str()));
    let label = |name| known.and_then(|known| known.labels.get(name)).cloned().unwrap_or_default();
    [
        ("instance", node.to_string()),
        ("node", node.to_string()),
        ("instance_type", label(INSTANCE_TYPE)),
        ("region", label(REGION)),
        ("provider_id", known.map(|known| known.provider_id.clone()).unwrap_or_default()),
        ("arch", label(ARCHITECTURE)),
    ]
}

fn container_labels(node: &NodeName, container: &Container) -> ContainerLabels {
    [
        ("namespace", container.namespace.clone()),
        ("pod", container.pod.clone()),
        ("container", container.container.clone()),
        ("instance", node.to_string()),
        ("node", node.to_string()),
    ]
}

/// Mean price of devices; `None` if one has no price in the currency of the book, or there is no device. OpenCost has one price for all
/// GPUs of a node, and no currency.
fn mean_price(states: &[DeviceState], prices: &CurrentPrices) -> Option<f64> {
    let price = |state: &DeviceState| {
        let price = prices.price_of(state.device.price_key.as_ref()?)?;
        (price.currency == *prices.currency()).then_some(price.per_hour)
    };
    let sum = states.iter().map(price).try_fold(Amount::ZERO, |sum, one| sum.checked_add(one?))?;
    let count = u32::try_from(states.len()).ok().filter(|count| *count > 0)?;
    Some(sum.to_f64()? / f64::from(count))
}

impl OpenCostSeries {
    /// Adds a node and its devices. `room` is the number of containers that can be added.
    fn add(&mut self, node: &NodeName, states: &[DeviceState], room: usize) {
        // A container can have parts of several devices.
        let mut shares: BTreeMap<ContainerLabels, u32> = BTreeMap::new();
        for part in states.iter().flat_map(|state| &state.parts) {
            if let Holder::Container(container) = &part.part.holder {
                let share = shares.entry(container_labels(node, container)).or_default();
                *share = share.saturating_add(part.part.ppm);
            }
        }
        let omitted = shares.len().saturating_sub(room);
        self.omitted = self.omitted.saturating_add(u64::try_from(omitted).unwrap_or(u64::MAX));
        let shares = shares.into_iter().take(room);
        self.containers
            .extend(shares.map(|(labels, ppm)| (labels, f64::from(ppm) / f64::from(PPM))));
    }
}

impl OpenCostMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    fn set(&self, series: OpenCostSeries) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(series);
    }
}

impl Collector for OpenCostMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let series = Arc::clone(&*self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let nodes = series.nodes.iter();
        let costs = nodes.clone().filter_map(|node| Some((&node.labels[..], node.hourly_cost?)));
        gauges(
            &mut encoder,
            "node_gpu_hourly_cost",
            "Mean price of a device of the node for one hour, in the currency of the price book",
            costs,
        )?;
        gauges(
            &mut encoder,
            "node_gpu_count",
            "Number of devices of the node",
            nodes.map(|node| (&node.labels[..], f64::from(node.devices))),
        )?;
        gauges(
            &mut encoder,
            "container_gpu_allocation",
            "Devices that are allocated to the container; a partition or replica is a part of a device",
            series.containers.iter().map(|(labels, devices)| (&labels[..], *devices)),
        )?;
        let omitted = i64::try_from(series.omitted).unwrap_or(i64::MAX);
        let help = "Containers without the metric container_gpu_allocation because of the limit";
        gauge(&mut encoder, "octavo_opencost_omitted_containers", help, omitted)
    }
}

fn gauges<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (&'a [(&'static str, String)], f64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
