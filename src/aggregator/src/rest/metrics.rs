//! Metrics of the fleet, computed at each scrape. `docs/reference/metrics.md` lists them.
//!
//! Label values are Octavo's own words and types, never nodes or devices. Peers report the types, so the number of
//! types with series of their own is bounded.

pub mod cluster;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use octavo_fleet::problem::Problem;
use octavo_fleet::summary::{DeviceCounts, DeviceUse};
use octavo_store::clock::Moment;
use octavo_store::fleet::{Fleet, TypeTotals};
use octavo_store::view::FleetView;
use octavo_toolkit::telemetry::exposition;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::Api;
use super::problem::{ApiError, ProblemKind};

/// Maximum number of types with series of their own; the devices of all others are summed up under type `other`.
const MAX_TYPES: usize = 256;

/// Maximum time that a scrape waits for the availability count.
const COUNT_WITHIN: Duration = Duration::from_millis(500);

/// Registers metrics of the fleet with `registry`, which must have no prefix.
pub fn register(registry: &mut Registry, view: FleetView) {
    registry.register_collector(Box::new(FleetMetrics { view }));
}

/// Prometheus metrics
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "operations",
    responses(
        (status = 200, description = "Metrics in the Prometheus text format, or in the OpenMetrics format if the client accepts it", content(
            (String = "text/plain; version=0.0.4; charset=utf-8"),
            (String = "application/openmetrics-text; version=1.0.0; charset=utf-8")
        )),
        (status = 500, description = "The metrics could not be encoded", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn scrape(
    State(api): State<Api>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    // Counted here because encoding is synchronous. A slow count is reported at the next scrape.
    let counting = tokio::time::timeout(COUNT_WITHIN, api.availability.current());
    drop(counting.await);
    let accepted = headers.get_all(header::ACCEPT).iter();
    let accepted = accepted.filter_map(|value| value.to_str().ok());
    let (kind, body) = exposition::write(&api.registry, accepted).map_err(|_| {
        let detail = "a metric could not be encoded";
        ApiError::new(ProblemKind::Internal, detail)
    })?;
    Ok(([(header::CONTENT_TYPE, kind)], body))
}

/// Devices and nodes by type name.
type Types = BTreeMap<String, (DeviceCounts, u32)>;

/// Reads the fleet at each scrape.
#[derive(Debug)]
struct FleetMetrics {
    view: FleetView,
}

impl Collector for FleetMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = self.view.clock().now();
        let fleet = self.view.listed();
        let types = types(&self.view.types(&fleet, now));
        build_info(&mut encoder)?;
        nodes(&mut encoder, &fleet, now)?;
        devices(&mut encoder, &types)?;
        partitions(&mut encoder, &types)?;
        type_nodes(&mut encoder, &types)?;
        oldest(&mut encoder, &fleet, now)
    }
}

/// Encodes a gauge.
pub(crate) fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: impl EncodeGaugeValue,
) -> fmt::Result {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value).encode(metric)
}

/// Encodes a gauge with a value per label set. Values above `i64::MAX` are encoded as that.
pub(crate) fn gauges<'a, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = ([(&'static str, &'a str); N], u64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Encodes a counter with a value per label set.
pub(crate) fn counters<'a, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = ([(&'static str, &'a str); N], u64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in values {
        ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Types by name, at most two more than [`MAX_TYPES`]. Devices and nodes of further types are summed up, and so are
/// those of types that peers report under Octavo's own words, because a series must not be reported twice.
fn types(all: &[TypeTotals]) -> Types {
    let mut types = Types::new();
    for TypeTotals { counts, nodes, .. } in all {
        let room = types.len() < MAX_TYPES;
        let name = match &counts.type_name {
            None => "unknown",
            Some(name) if room => name.as_str(),
            Some(_) => "other",
        };
        let (sum, of) = types.entry(name.to_owned()).or_default();
        *sum = sum.plus(counts.counts);
        *of = of.saturating_add(*nodes);
    }
    types
}

fn build_info(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Version of the aggregator; the value is always 1";
    gauges(encoder, "octavo_build_info", help, [([("version", env!("CARGO_PKG_VERSION"))], 1)])
}

fn nodes(encoder: &mut DescriptorEncoder<'_>, fleet: &Fleet, now: Moment) -> fmt::Result {
    let help = "Nodes by state";
    let values = fleet.states(now).into_iter().map(|(state, count)| {
        ([("state", state.as_str())], u64::try_from(count).unwrap_or(u64::MAX))
    });
    gauges(encoder, "octavo_nodes", help, values)
}

fn devices(encoder: &mut DescriptorEncoder<'_>, types: &Types) -> fmt::Result {
    let help = "Devices by type and occupancy; each device is counted once";
    let values = types.iter().flat_map(|(name, (counts, _))| {
        DeviceUse::ALL.map(|of| {
            ([("type", name.as_str()), ("occupancy", of.metric_value())], counts.count(of).into())
        })
    });
    gauges(encoder, "octavo_devices", help, values)
}

fn partitions(encoder: &mut DescriptorEncoder<'_>, types: &Types) -> fmt::Result {
    let help = "Partitions of partitioned devices, by device type and occupancy";
    let values = types.iter().flat_map(|(name, (counts, _))| {
        let partitions = counts.partitions;
        let uses = [(DeviceUse::Free, partitions.free), (DeviceUse::InUse, partitions.in_use)];
        uses.map(|(of, count)| {
            ([("type", name.as_str()), ("occupancy", of.metric_value())], count.into())
        })
    });
    gauges(encoder, "octavo_partitions", help, values)
}

fn type_nodes(encoder: &mut DescriptorEncoder<'_>, types: &Types) -> fmt::Result {
    let help = "Nodes with at least one device of the type";
    let values =
        types.iter().map(|(name, (_, nodes))| ([("type", name.as_str())], u64::from(*nodes)));
    gauges(encoder, "octavo_type_nodes", help, values)
}

fn oldest(encoder: &mut DescriptorEncoder<'_>, fleet: &Fleet, now: Moment) -> fmt::Result {
    let ages = fleet.nodes.iter().map(|node| node.freshness.age(now));
    let oldest = ages.max().unwrap_or_default();
    let help = "Age of the oldest node report, in seconds; 0 if there are no nodes";
    let name = "octavo_oldest_confirmation_age_seconds";
    gauge(encoder, name, help, oldest.as_secs_f64())
}
