//! Availability, as a document and as metrics.

use std::collections::BTreeMap;
use std::fmt;

use axum::Json;
use axum::extract::State;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::availability::AvailabilityList;
use octavo_fleet::availability::Row;
use octavo_fleet::problem::Problem;
use octavo_fleet::summary::DeviceUse;
use octavo_store::availability::{AvailabilityQuery, CLUSTER_UNREADABLE, Counter};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use super::Api;
use super::metrics::{gauge, gauges};
use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};

/// Capacity by type and resource, with the reasons for unavailable units
///
/// `free` is the number of additional pods that the scheduler would place if each requests one unit and nothing else. Without
/// `--follow-cluster`, it is the number of units on which agents see no process. `basis` shows which method was used.
#[utoipa::path(
    get,
    path = "/api/v1/availability",
    tag = "fleet",
    params(
        ("type" = Option<Vec<String>>, Query, style = Form, explode = false, description = "Types to include; `unknown`: devices of unknown type; `mixed`: nodes with several types", example = json!(["nvidia-h200-141gb"])),
        ("resource" = Option<Vec<String>>, Query, style = Form, explode = false, description = "Resource names to include", example = json!(["nvidia.com/gpu"])),
        ("minFree" = Option<u64>, Query, description = "Minimum number of free units", example = 1)
    ),
    responses(
        (status = 200, description = "Rows, ordered by type and resource", body = AvailabilityList),
        (status = 400, description = "Unknown or invalid parameter", body = Problem, content_type = "application/problem+json"),
        (status = 500, description = "Availability could not be calculated", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn availability(
    State(api): State<Api>,
    ReaderVisibility(visibility): ReaderVisibility,
    QueryPairs(pairs): QueryPairs,
) -> Result<Json<AvailabilityList>, ApiError> {
    let query = AvailabilityQuery::parse(pairs)?;
    let counted = api.availability.current().await;
    let counted = counted.ok_or_else(|| {
        let detail = "availability could not be calculated because of an internal error; retry";
        ApiError::new(ProblemKind::Internal, detail)
    })?;
    let mut list = api.availability.document(&counted, &query);
    list.items.retain(|row| visibility.shows_type(&row.type_name));
    list.starting = { api.view.startup() }.map(|now| now.visible_to(&visibility));
    list.error = list.error.map(|why| visibility.disclose(why, CLUSTER_UNREADABLE));
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
type States = [u64; 8];

impl Collector for AvailabilityMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(counted) = self.counter.last() else {
            return Ok(());
        };
        let help = "Units of a resource by type and state; requested, free, unusable, passthrough and unknown add up to capacity";
        let all = series(&counted.availability.rows).into_iter();
        let all = all.flat_map(|((kind, resource), states)| {
            let states = STATES.into_iter().zip(states);
            states.map(move |(state, count)| {
                ([("type", kind), ("resource", resource), ("state", state)], count)
            })
        });
        gauges(&mut encoder, "octavo_aggregator_availability", help, all)?;
        let age = self.counter.age(&counted).age;
        let help = "Seconds since the counted data was last confirmed";
        let name = "octavo_aggregator_availability_age_seconds";
        gauge(&mut encoder, name, help, age.as_secs_f64())
    }
}

const STATES: [&str; 8] = [
    "capacity",
    "allocatable",
    "requested",
    "free",
    "unusable",
    "passthrough",
    "unknown",
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
            row.units_with_use(DeviceUse::Unavailable),
            row.units_with_use(DeviceUse::Passthrough),
            row.units_with_use(DeviceUse::Unknown),
            row.pending.units,
        ];
        for (sum, more) in sum.iter_mut().zip(more) {
            *sum = sum.saturating_add(more);
        }
    }
    all
}
