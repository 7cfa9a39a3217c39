//! The page of teams: what the pods of each namespace have, use, leave idle and wait for.

mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::access::Visibility;
use octavo_fleet::availability::{Availability, UnitType};
use octavo_model::id::{NodeName, TypeName};
use octavo_model::quantity::Mebibytes;
use octavo_model::text::join;
use octavo_node::workload::{HoldingCounts, IdleHolder};
use octavo_store::availability::{Age, AvailabilityCount, CLUSTER_UNREADABLE, Counter};
use octavo_store::usage::summary::{Summary, UsageTotals};
use tokio::task::yield_now;

use self::order::{TeamEntry, TeamOrder, by_namespace, most_idle};
use super::address::{encoded, parameter_error, query_parameter};
use super::badges::{count_noun, format_age, format_memory, millis, printable, starting};
use super::frame::Frame;
use super::overview::demand::{PendingPods, pending_by_namespace};
use super::rows::ColumnHeading;
use super::unreported_use;
use super::{PageState, html, origin, status_of};

/// Maximum number of rows.
const MAX_ROWS: usize = 500;
/// Maximum number of allocations without a process that are shown.
const MAX_IDLE_ROWS: usize = 20;

#[derive(Template)]
#[template(path = "teams.html")]
struct TeamsPage {
    frame: Frame,
    /// True if nodes are shown.
    nodes: bool,
    /// Namespace that the page is limited to; empty for all.
    namespace: String,
    /// Value of the parameter `sort`; empty for the default order.
    sort: &'static str,
    /// Address of the page of all namespaces, in this order.
    clear: String,
    by_namespace: ColumnHeading,
    by_idle: ColumnHeading,
    wrong: Option<String>,
    /// Namespace that leaves the most idle.
    most_idle: Option<MostIdle>,
    /// Notice while agents reconnect after a start.
    starting: Option<String>,
    /// Reason why the cluster is currently not watched.
    error: Option<String>,
    caption: String,
    rows: Vec<TeamRow>,
    /// Number of rows that are not shown.
    more: usize,
    /// Notes on data that is not included.
    notes: Vec<String>,
    idle: Vec<IdleRow>,
    /// Number of idle allocations that are not shown.
    more_idle: u64,
    pending: PendingPods,
    /// Age of the figures on pending pods.
    age: String,
    age_ms: u64,
    origin: String,
    /// Parameter of the same request to the API.
    query: String,
}

/// Usage of a type by a namespace.
#[derive(Debug)]
struct TeamRow {
    id: String,
    namespace: String,
    href: String,
    product: String,
    /// Canonical name; empty if the type is unknown.
    name: String,
    pods: u64,
    allocated: String,
    memory: Option<MemoryUse>,
    utilization: String,
    idle: String,
    /// True if no other namespace leaves more idle.
    is_most_idle: bool,
    over_share: u64,
}

/// The namespace that leaves the most idle, with its counts over all types.
#[derive(Debug)]
struct MostIdle {
    namespace: String,
    href: String,
    idle: String,
    allocated: String,
}

/// Used memory, of the memory that the containers can use.
#[derive(Debug)]
struct MemoryUse {
    used: u64,
    total: u64,
    words: String,
}

/// Allocation without a process.
#[derive(Debug)]
struct IdleRow {
    id: String,
    namespace: String,
    pod: String,
    allocation: String,
    /// Device and node; empty if the reader may not list nodes.
    device: String,
    node: String,
    memory: String,
    /// Age of the pod; `-` if it is unknown.
    age: String,
}

/// Parameters of the address.
#[derive(Debug)]
struct Request {
    namespace: Option<String>,
    order: TeamOrder,
    /// Message about an invalid parameter.
    wrong: Option<String>,
}

impl Request {
    fn parse(uri: &Uri) -> Self {
        let namespace = query_parameter(uri, "namespace").map(|name| name.trim().to_owned());
        let order = query_parameter(uri, "sort").map(|text| TeamOrder::parse(&text));
        let (order, wrong) = match order.transpose() {
            Ok(order) => (order.unwrap_or_default(), parameter_error(uri, "namespace, sort")),
            Err(error) => (TeamOrder::default(), Some(format!("Invalid address: {error}."))),
        };
        Self { namespace: namespace.filter(|name| !name.is_empty()), order, wrong }
    }
}

/// Serves the page, for one namespace with the parameter `namespace`.
pub(super) async fn show(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let Some(latest) = site.availability.current().await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let request = Request::parse(&uri);
    let fleet = site.view.fleet();
    let mut summary =
        Summary::new(&fleet, site.view.clock().now()).of_namespace(request.namespace.as_deref());
    // Other tasks share this thread.
    while summary.step() {
        yield_now().await;
    }
    let totals = summary.totals();
    let seen = (&site.availability, &latest, &visibility);
    html(status_of(request.wrong.as_ref()), &page(seen, &totals, request, &origin(&uri, &headers)))
}

fn page(
    (counter, latest, visibility): (&Counter, &AvailabilityCount, &Visibility),
    totals: &UsageTotals,
    Request { namespace, order, wrong }: Request,
    origin: &str,
) -> TeamsPage {
    let namespace = namespace.as_deref();
    let sums = by_namespace(&totals.teams);
    // The page of one namespace compares nothing.
    let most_idle = most_idle(&sums).filter(|_| namespace.is_none());
    let rows = order.rows(&totals.teams, &sums).into_iter().take(MAX_ROWS);
    let rows = rows.map(|entry| TeamRow {
        is_most_idle: entry.2.idle.units() > 0
            && most_idle.is_some_and(|(name, _)| name == entry.0),
        ..TeamRow::of(entry, order)
    });
    let rows: Vec<TeamRow> = rows.collect();
    let more = totals.teams.len().saturating_sub(rows.len());
    let idle = totals.idle.iter().take(MAX_IDLE_ROWS).enumerate();
    let idle: Vec<IdleRow> = idle
        .map(|(number, holder)| IdleRow::of(number, holder, (latest, visibility.nodes)))
        .collect();
    let more_idle = u64::try_from(totals.idle.len().saturating_sub(idle.len())).unwrap_or(u64::MAX);
    let availability = &latest.availability;
    let Age { age, error, .. } = counter.age(latest);
    TeamsPage {
        frame: Frame::new(counter.view()),
        nodes: visibility.nodes,
        namespace: namespace.unwrap_or_default().to_owned(),
        sort: order.retained(),
        clear: order.link(None),
        by_namespace: TeamOrder::Namespace.heading("Namespace", order, namespace),
        by_idle: TeamOrder::Idle.heading("Idle", order, namespace),
        wrong,
        most_idle: most_idle.map(|(name, usage)| MostIdle {
            namespace: printable(name),
            href: order.link(Some(name)),
            idle: allocated(usage.idle),
            allocated: allocated(usage.held),
        }),
        starting: starting(counter.view(), visibility),
        error: error.map(|why| visibility.disclose(why, CLUSTER_UNREADABLE)),
        caption: match more {
            0 => count_noun(rows.len(), "row", "rows"),
            _ => format!("{} of {} rows", rows.len(), totals.teams.len()),
        },
        more,
        rows,
        notes: notes(totals, (availability, visibility), namespace),
        more_idle: totals.omitted_idle.saturating_add(more_idle),
        idle,
        pending: pending_by_namespace(availability, counter.has_cluster(), namespace),
        age: format_age(age),
        age_ms: millis(age),
        origin: origin.to_owned(),
        query: namespace.map_or_else(String::new, |name| format!("?namespace={}", encoded(name))),
    }
}

/// Data that the figures do not include.
fn notes(
    totals: &UsageTotals,
    (availability, visibility): (&Availability, &Visibility),
    namespace: Option<&str>,
) -> Vec<String> {
    let mut notes = Vec::new();
    if totals.stale_nodes > 0 {
        let outdated = count_noun(
            usize::try_from(totals.stale_nodes).unwrap_or(usize::MAX),
            "stale node is",
            "stale nodes are",
        );
        notes.push(format!("{outdated} not counted: the last report is too old."));
    }
    if totals.is_truncated {
        notes.push("The figures are incomplete: the fleet has too many allocations.".to_owned());
    }
    // Requests are not known by namespace.
    if namespace.is_none() {
        notes.extend(types_without_usage(totals, availability, visibility));
    }
    notes
}

/// Types whose units are allocated to pods although no agent reports which pods use them.
fn types_without_usage(
    totals: &UsageTotals,
    availability: &Availability,
    visibility: &Visibility,
) -> Option<String> {
    let reported: BTreeSet<&TypeName> =
        totals.teams.keys().filter_map(|(_, kind)| kind.as_ref()).collect();
    let mut missing: BTreeMap<&UnitType, u64> = BTreeMap::new();
    for row in availability.rows.iter().filter(|row| row.taken > 0) {
        let kind = &row.key.kind;
        let is_missing = kind.type_name().is_some_and(|name| !reported.contains(name));
        if is_missing && visibility.shows_type(kind.as_str()) {
            let sum = missing.entry(kind).or_default();
            *sum = sum.saturating_add(row.taken);
        }
    }
    if missing.is_empty() {
        return None;
    }
    let names: Vec<&TypeName> = missing.keys().filter_map(|kind| kind.type_name()).collect();
    let explanation = unreported_use::explanation(&names);
    let explanation = explanation.map_or_else(String::new, |text| format!(" {text}"));
    let types =
        missing.into_iter().map(|(kind, count)| format!("{} ({count})", kind.product_name()));
    Some(format!(
        "Allocated units of these types are not counted, because no agent reports which pods use them: {}.{explanation}",
        join(types, ", ")
    ))
}

impl TeamRow {
    fn of((namespace, kind, usage): TeamEntry<'_>, order: TeamOrder) -> Self {
        let product = UnitType::from(kind.cloned()).product_name();
        let held = usage.held;
        let memory = (usage.memory_mib > 0).then(|| MemoryUse {
            used: usage.used_mib.min(usage.memory_mib),
            total: usage.memory_mib,
            words: format!(
                "{} of {}",
                format_memory(Mebibytes::new(usage.used_mib)),
                format_memory(Mebibytes::new(usage.memory_mib))
            ),
        });
        let idle = match (usage.idle.units(), usage.unknown) {
            (0, 0) => "0".to_owned(),
            (0, unknown) if unknown == held.units() => "-".to_owned(),
            (_, 0) => allocated(usage.idle),
            (0, unknown) => format!("use of {unknown} unknown"),
            (_, unknown) => format!("{}; use of {unknown} unknown", allocated(usage.idle)),
        };
        Self {
            id: format!("team-{namespace}-{}", kind.map_or("unknown", TypeName::as_str)),
            namespace: printable(namespace),
            href: order.link(Some(namespace)),
            product,
            name: kind.map(ToString::to_string).unwrap_or_default(),
            pods: held.pods,
            allocated: allocated(held),
            memory,
            utilization: usage
                .mean_utilization()
                .map_or_else(|| "-".to_owned(), |mean| format!("{mean} %")),
            idle,
            is_most_idle: false,
            over_share: usage.over_share,
        }
    }
}

/// Counts of devices, partitions and replicas: `2 devices, 1 partition`.
fn allocated(counts: HoldingCounts) -> String {
    let all = [
        (counts.devices, "device", "devices"),
        (counts.partitions, "partition", "partitions"),
        (counts.replicas, "time slice", "time slices"),
    ];
    let all = all.into_iter().filter(|(count, ..)| *count > 0);
    let all = all.map(|(count, one, several)| {
        count_noun(usize::try_from(count).unwrap_or(usize::MAX), one, several)
    });
    let all: Vec<String> = all.collect();
    if all.is_empty() { "0".to_owned() } else { all.join(", ") }
}

impl IdleRow {
    fn of(
        number: usize,
        (node, holder): &(NodeName, IdleHolder),
        (latest, sees_nodes): (&AvailabilityCount, bool),
    ) -> Self {
        let started = latest.pod_started_at(&holder.namespace, &holder.pod);
        let kind = UnitType::from(holder.type_name.clone());
        let what = match (&holder.profile, holder.replicas) {
            (profile, Some(count)) => {
                let slices = usize::try_from(count).unwrap_or(usize::MAX);
                let slices = count_noun(slices, "time slice", "time slices");
                let of = profile.as_deref().map_or_else(String::new, |name| format!(" of {name}"));
                format!("{slices}{}", printable(&of))
            }
            (Some(profile), None) => format!("partition {}", printable(profile)),
            (None, None) => "whole device".to_owned(),
        };
        Self {
            id: format!("idle-{number}"),
            namespace: printable(&holder.namespace),
            pod: printable(&holder.pod),
            allocation: format!("{}, {what}", kind.product_name()),
            device: if sees_nodes { printable(&holder.device) } else { String::new() },
            node: if sees_nodes { node.to_string() } else { String::new() },
            memory: match holder.memory_mib {
                0 => "-".to_owned(),
                memory => format_memory(Mebibytes::new(memory)),
            },
            age: started.and_then(age_since).map_or_else(|| "-".to_owned(), format_age),
        }
    }
}

/// Time since a time in seconds since 1970; `None` if it is in the future.
fn age_since(seconds: i64) -> Option<Duration> {
    let age = Timestamp::now().as_second().checked_sub(seconds)?;
    u64::try_from(age).ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
