//! Metrics of the fleet, computed at each scrape. The page `docs/metrics.md` explains each.
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
use octavo_documents::api::Problem;
use octavo_fleet::fleet::{Counts, NodeState};
use octavo_store::clock::Moment;
use octavo_store::fleet::{Fleet, TypeTotals};
use octavo_store::view::View;
use octavo_toolkit::telemetry::exposition;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::Api;
use super::problem::{ApiError, ProblemKind};

/// Maximum number of types with series of their own; the devices of all others are summed up under type `other`.
const MAX_TYPES: usize = 256;

/// Maximum time that a scrape waits for the availability count.
const COUNT_WITHIN: Duration = Duration::from_millis(500);

/// Registers metrics of the fleet with `registry`, which must have no prefix.
pub fn register(registry: &mut Registry, view: View) {
    registry.register_collector(Box::new(FleetMetrics { view }));
}

/// Metrics, for Prometheus
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "operations",
    responses(
        (status = 200, description = "Metrics as Prometheus text, or as OpenMetrics text where that is accepted", content(
            (String = "text/plain; version=0.0.4; charset=utf-8"),
            (String = "application/openmetrics-text; version=1.0.0; charset=utf-8")
        )),
        (status = 500, description = "They cannot be written", body = Problem, content_type = "application/problem+json")
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
        let detail = "a metric could not be written";
        ApiError::new(ProblemKind::Internal, detail)
    })?;
    Ok(([(header::CONTENT_TYPE, kind)], body))
}

/// Devices and nodes by type name.
type Types = BTreeMap<String, (Counts, u32)>;

/// Reads the fleet at each scrape.
#[derive(Debug)]
struct FleetMetrics {
    view: View,
}

impl Collector for FleetMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = self.view.clock().now();
        let fleet = self.view.listed();
        let types = types(&fleet, now);
        build_info(&mut encoder)?;
        nodes(&mut encoder, &fleet, now)?;
        devices(&mut encoder, &types)?;
        partitions(&mut encoder, &types)?;
        type_nodes(&mut encoder, &types)?;
        oldest(&mut encoder, &fleet, now)
    }
}

/// Types by name, at most two more than [`MAX_TYPES`]. Devices and nodes of further types are summed up, and so are
/// those of types that peers report under Octavo's own words, because a series must not be reported twice.
fn types(fleet: &Fleet, now: Moment) -> Types {
    let mut types = Types::new();
    for TypeTotals { counts, nodes, .. } in fleet.types(now) {
        let room = types.len() < MAX_TYPES;
        let name = match &counts.type_name {
            None => "unknown",
            Some(name) if room => name.as_str(),
            Some(_) => "other",
        };
        let (sum, of) = types.entry(name.to_owned()).or_default();
        *sum = sum.plus(counts.counts);
        *of = of.saturating_add(nodes);
    }
    types
}

fn build_info(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "The version that runs";
    let mut metric =
        encoder.encode_descriptor("octavo_build_info", help, None, MetricType::Gauge)?;
    let labels = [("version", env!("CARGO_PKG_VERSION"))];
    ConstGauge::new(1_i64).encode(metric.encode_family(&labels)?)
}

fn nodes(encoder: &mut DescriptorEncoder<'_>, fleet: &Fleet, now: Moment) -> fmt::Result {
    let mut states: BTreeMap<NodeState, u32> = NodeState::ALL.map(|state| (state, 0)).into();
    for node in fleet.nodes.iter() {
        let count = states.entry(node.state(now)).or_default();
        *count = count.saturating_add(1);
    }
    let help = "Nodes, by how they are";
    let mut metric = encoder.encode_descriptor("octavo_nodes", help, None, MetricType::Gauge)?;
    for (state, count) in states {
        let labels = [("state", state.as_str())];
        ConstGauge::new(i64::from(count)).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn devices(encoder: &mut DescriptorEncoder<'_>, types: &Types) -> fmt::Result {
    let help = "Devices, by type and by what can be done with them; each is counted once";
    let mut metric = encoder.encode_descriptor("octavo_devices", help, None, MetricType::Gauge)?;
    for (name, (counts, _)) in types {
        for (occupancy, count) in [
            ("free", counts.free),
            ("in_use", counts.in_use),
            ("partitioned", counts.partitioned),
            ("unavailable", counts.unavailable),
            ("set_aside", counts.reserved),
            ("unknown", counts.unknown),
        ] {
            let labels = [("type", name.as_str()), ("occupancy", occupancy)];
            ConstGauge::new(i64::from(count)).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn partitions(encoder: &mut DescriptorEncoder<'_>, types: &Types) -> fmt::Result {
    let help = "Partitions of partitioned devices, by the devices' type";
    let mut metric =
        encoder.encode_descriptor("octavo_partitions", help, None, MetricType::Gauge)?;
    for (name, (counts, _)) in types {
        let partitions = counts.partitions;
        for (occupancy, count) in [("free", partitions.free()), ("in_use", partitions.in_use)] {
            let labels = [("type", name.as_str()), ("occupancy", occupancy)];
            ConstGauge::new(i64::from(count)).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn type_nodes(encoder: &mut DescriptorEncoder<'_>, types: &Types) -> fmt::Result {
    let help = "Nodes that have at least one device of the type";
    let mut metric =
        encoder.encode_descriptor("octavo_type_nodes", help, None, MetricType::Gauge)?;
    for (name, (_, nodes)) in types {
        let labels = [("type", name.as_str())];
        ConstGauge::new(i64::from(*nodes)).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn oldest(encoder: &mut DescriptorEncoder<'_>, fleet: &Fleet, now: Moment) -> fmt::Result {
    let ages = fleet.nodes.iter().map(|node| node.freshness.age(now));
    let oldest = ages.max().unwrap_or_default();
    let help = "How long ago the node that was confirmed least recently was confirmed";
    let name = "octavo_oldest_confirmation_age_seconds";
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(oldest.as_secs_f64()).encode(metric)
}
