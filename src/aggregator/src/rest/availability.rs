//! Availability, as a document and as metrics.

use std::collections::BTreeMap;
use std::fmt;

use axum::Json;
use axum::extract::State;
use octavo_access::visibility::ReaderVisibility;
use octavo_documents::api::Problem;
use octavo_documents::availability::AvailabilityList;
use octavo_fleet::availability::Row;
use octavo_store::availability::{AvailabilityQuery, CLUSTER_UNREADABLE, Counter};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::Api;
use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};

/// What is to be had: how many of each type and resource there are, are taken and are free, and why the rest is of no use
///
/// Free is what the scheduler would place: as many more pods that ask for one unit and nothing else. Where no cluster is followed,
/// it is what agents see without a process, and `basis` says so.
#[utoipa::path(
    get,
    path = "/api/v1/availability",
    tag = "fleet",
    params(
        ("type" = Option<Vec<String>>, Query, style = Form, explode = false, description = "Types; `unknown` for what nobody knows, `mixed` for nodes with several", example = json!(["nvidia-h200-141gb"])),
        ("resource" = Option<Vec<String>>, Query, style = Form, explode = false, description = "Resources that pods ask for", example = json!(["nvidia.com/gpu"])),
        ("minFree" = Option<u64>, Query, description = "Only rows with so many free", example = 1)
    ),
    responses(
        (status = 200, description = "The rows, ordered by type and resource", body = AvailabilityList),
        (status = 400, description = "A parameter is not known or cannot be as given", body = Problem, content_type = "application/problem+json"),
        (status = 500, description = "It could not be counted", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn availability(
    State(api): State<Api>,
    ReaderVisibility(sight): ReaderVisibility,
    QueryPairs(pairs): QueryPairs,
) -> Result<Json<AvailabilityList>, ApiError> {
    let query = AvailabilityQuery::parse(pairs)?;
    let counted = api.availability.current().await;
    let counted = counted.ok_or_else(|| {
        let detail = "what is to be had could not be counted; try again";
        ApiError::new(ProblemKind::Internal, detail)
    })?;
    let mut list = api.availability.document(&counted, &query);
    list.items.retain(|row| sight.shows_type(&row.type_name));
    list.starting = { api.view.startup() }.map(|now| now.document(&sight));
    list.trouble = list.trouble.map(|why| sight.told(why, CLUSTER_UNREADABLE));
    Ok(Json(list))
}

/// Maximum number of series; all other rows are summed up under type and resource `other`.
const MAX_ROWS: usize = 256;

/// Registers metrics of the last count with `registry`, which must have no prefix.
pub fn register(registry: &mut Registry, counter: Counter) {
    registry.register_collector(Box::new(AvailabilityMetrics { counter }));
}

#[derive(Debug)]
struct AvailabilityMetrics {
    counter: Counter,
}

/// Capacity, allocatable, requested, free, unusable, pending.
type States = [u64; 6];

impl Collector for AvailabilityMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(counted) = self.counter.last() else {
            return Ok(());
        };
        let help = "Units of a resource, by type; taken, free and unusable add up to capacity";
        let name = "octavo_aggregator_availability";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for ((kind, resource), states) in series(&counted.availability.rows) {
            for (state, count) in STATES.iter().zip(states) {
                let labels = [("type", kind), ("resource", resource), ("state", *state)];
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                ConstGauge::new(count).encode(metric.encode_family(&labels)?)?;
            }
        }
        let age = self.counter.age(&counted).age;
        let help = "How long ago what was counted was last known to be current";
        let name = "octavo_aggregator_availability_age_seconds";
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(age.as_secs_f64()).encode(metric)
    }
}

const STATES: [&str; 6] = [
    "capacity",
    "allocatable",
    "requested",
    "free",
    "unusable",
    "pending",
];

/// Sums up the shapes of one resource, and rows beyond the bound, because a series must not be reported twice.
fn series(rows: &[Row]) -> BTreeMap<(&str, &str), States> {
    const OTHER: (&str, &str) = ("other", "other");
    let mut all: BTreeMap<(&str, &str), States> = BTreeMap::new();
    for row in rows {
        let key = (row.key.kind.as_str(), row.key.resource.as_str());
        let has_room = all.len() < MAX_ROWS || all.contains_key(&key);
        let sum = all.entry(if has_room { key } else { OTHER }).or_default();
        let more = [
            row.capacity,
            row.allocatable,
            row.taken,
            row.free,
            row.unavailable_units(),
            row.pending.units,
        ];
        for (sum, more) in sum.iter_mut().zip(more) {
            *sum = sum.saturating_add(more);
        }
    }
    all
}
