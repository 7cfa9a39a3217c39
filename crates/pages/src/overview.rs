//! The overview: health of the fleet, what needs attention, capacity, pending pods, and changes of layouts.
//!
//! It is built from the summaries of the store and from the last count of the availability, so that it is fast for large
//! fleets.

mod attention;
mod capacity;
pub(super) mod demand;
mod health;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::access::Visibility;
use octavo_fleet::changes::Change;
use octavo_store::availability::{Age, AvailabilityCount, CLUSTER_UNREADABLE, Counter};

use self::attention::Attention;
use self::capacity::CapacityRow;
use self::demand::PendingPods;
use self::health::{Figure, StateBar};
use super::address::LIST;
use super::badges::{format_age, millis, starting};
use super::frame::Frame;
use super::history::FleetTrend;
use super::list::{self, EmptyFleet};
use super::policies;
use super::rollouts::{Rollouts, nodes_by_layout, rollouts};
use super::timeline::{RecentChange, recent_changes};
use super::{PageState, html, origin, redirect};

/// Maximum number of changes that are listed.
const MAX_CHANGES: usize = 8;

#[derive(Template)]
#[template(path = "overview.html")]
pub(super) struct OverviewPage {
    frame: Frame,
    /// True if nodes are shown.
    nodes: bool,
    empty: Option<EmptyFleet>,
    /// Notice while agents reconnect after a start.
    starting: Option<String>,
    /// Reason why the cluster is currently not watched.
    error: Option<String>,
    node_states: StateBar,
    device_states: StateBar,
    figures: Vec<Figure>,
    trend: Option<FleetTrend>,
    attention: Attention,
    /// Latest changes of health; empty if nodes are not shown.
    changes: Vec<RecentChange>,
    capacity: Vec<CapacityRow>,
    /// Age of the figures on capacity and pending pods, and whether it exceeds the limit.
    age: String,
    age_ms: u64,
    stale: bool,
    pending: PendingPods,
    rollouts: Rollouts,
    /// Policies that are not complete; empty if nodes are not shown.
    policies: Vec<policies::Row>,
    origin: String,
}

/// Serves the page. Parameters belong to the list of nodes, which had this address before.
pub(super) async fn show(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if uri.query().is_some_and(|query| !query.is_empty()) {
        return redirect(&uri, LIST);
    }
    match site.availability.current().await {
        Some(latest) => {
            let origin = origin(&uri, &headers);
            html(StatusCode::OK, &page(&site.availability, &latest, &visibility, &origin))
        }
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Builds the page with this count, limited by `visibility`, for a reader who reached this server at `origin`.
pub(super) fn page(
    counter: &Counter,
    latest: &AvailabilityCount,
    visibility: &Visibility,
    origin: &str,
) -> OverviewPage {
    let view = counter.view();
    let (fleet, now) = (view.listed(), view.clock().now());
    let is_starting = view.startup().is_some();
    let availability = &latest.availability;
    let Age { age, is_stale, error } = counter.age(latest);
    OverviewPage {
        frame: Frame::new(view),
        nodes: visibility.nodes,
        empty: fleet.nodes.is_empty().then(|| list::empty(now, origin)),
        starting: starting(view, visibility),
        error: error.map(|why| visibility.disclose(why, CLUSTER_UNREADABLE)),
        node_states: health::node_states(&fleet, is_starting, now),
        device_states: health::device_states(&fleet, &visibility.types, now),
        figures: health::figures((&fleet, &view.types(&fleet, now)), availability, visibility, now),
        trend: FleetTrend::new(&view.history(), &visibility.types, view.prometheus()),
        attention: attention::attention(&fleet, is_starting, now),
        changes: if visibility.nodes {
            recent_changes(&fleet, (view.clock(), now), MAX_CHANGES, Change::is_of_health)
        } else {
            Vec::new()
        },
        capacity: capacity::rows(availability, visibility),
        age: format_age(age),
        age_ms: millis(age),
        stale: is_stale,
        pending: demand::pending(availability, counter.has_cluster(), visibility),
        policies: if visibility.nodes { policies::unfinished(view) } else { Vec::new() },
        rollouts: rollouts(&fleet, &nodes_by_layout(&fleet, now), now),
        origin: origin.to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests;
