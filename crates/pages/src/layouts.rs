//! The page of desired layouts: their nodes by state, what blocks them, and recent changes.

pub(super) mod dry_run;

use std::cmp::Reverse;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::access::Visibility;
use octavo_fleet::changes::Change;
use octavo_fleet::summary::LayoutSummary;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_store::query::NO_STATE;
use octavo_store::view::FleetView;

use super::address::{LIST, encoded, parameter_error};
use super::badges::{TextPart, count_noun, printable, starting};
use super::frame::Frame;
use super::layout::StateBadge;
use super::rollouts::{
    LayoutNodes, Rollout, Rollouts, current_states, nodes_by_layout, obstacle, rollout, rollouts,
};
use super::timeline::{RecentChange, recent_changes};
use super::{PageState, html, origin, status_of};

/// Maximum number of layouts that are listed.
const MAX_LAYOUTS: usize = 100;
/// Maximum number of nodes of a layout with a link to their dry run.
const MAX_DRY_RUNS: usize = 3;
/// Maximum number of changes that are listed.
const MAX_CHANGES: usize = 30;

#[derive(Template)]
#[template(path = "layouts.html")]
struct LayoutsPage {
    frame: Frame,
    /// Notice while agents reconnect after a start.
    starting: Option<String>,
    /// Reason why the aggregator's layouts may differ from its file.
    notice: Option<String>,
    /// Message about an invalid parameter.
    wrong: Option<String>,
    rows: Vec<LayoutRow>,
    /// Number of layouts that are not listed.
    more: usize,
    rollouts: Rollouts,
    changes: Vec<RecentChange>,
    origin: String,
}

/// Desired layout.
#[derive(Debug)]
struct LayoutRow {
    id: String,
    rollout: Rollout,
    source: &'static str,
    /// Nodes on which a user selected it manually.
    manual: Option<String>,
    states: Vec<StateCount>,
    /// First node that needs attention, with the reason.
    blocked: Option<(String, Vec<TextPart>)>,
    /// Dry run on all of its nodes.
    dry_run: String,
    dry_runs: Vec<DryRunLink>,
}

/// Nodes of a layout in one state.
#[derive(Debug)]
struct StateCount {
    badge: StateBadge,
    count: u32,
    href: String,
}

/// Link to the dry run of a layout on a node.
#[derive(Debug)]
struct DryRunLink {
    node: String,
    href: String,
}

/// Serves the page.
pub(super) async fn show(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let page = page(&site.view, &visibility, origin(&uri, &headers));
    let page = LayoutsPage { wrong: parameter_error(&uri, ""), ..page };
    html(status_of(page.wrong.as_ref()), &page)
}

fn page(view: &FleetView, visibility: &Visibility, origin: String) -> LayoutsPage {
    let (fleet, clock) = (view.listed(), view.clock());
    let now = clock.now();
    let file = view.layouts();
    let by_name = nodes_by_layout(&fleet, now);
    let mut layouts: Vec<(&&str, &LayoutNodes<'_>)> = by_name.iter().collect();
    layouts.sort_by_key(|(_, nodes)| {
        (Reverse(nodes.counts.is_troubled()), Reverse(nodes.counts.is_unfinished()))
    });
    let is_in_file =
        |name: &str| file.layouts.as_deref().is_some_and(|layouts| layouts.by_name(name).is_some());
    let rows = layouts.iter().take(MAX_LAYOUTS).enumerate();
    let rows = rows.map(|(number, (name, nodes))| {
        let id = format!("layout-{number}");
        LayoutRow { id, ..LayoutRow::new(name, nodes, is_in_file(name)) }
    });
    LayoutsPage {
        frame: Frame::new(view),
        starting: starting(view, visibility),
        notice: file.notice.as_deref().map(printable),
        wrong: None,
        rows: rows.collect(),
        more: layouts.len().saturating_sub(MAX_LAYOUTS),
        rollouts: rollouts(&fleet, &by_name, now),
        changes: recent_changes(&fleet, (clock, now), MAX_CHANGES, Change::is_of_layout),
        origin,
    }
}

impl LayoutRow {
    fn new(name: &str, nodes: &LayoutNodes<'_>, is_in_file: bool) -> Self {
        let manual = usize::try_from(nodes.manual).unwrap_or(usize::MAX);
        let manual = (manual > 0).then(|| count_noun(manual, "node", "nodes"));
        let first = nodes.nodes.first();
        let blocked = first.filter(|(_, layout)| layout.needs_attention());
        let links = nodes.nodes.iter().take(MAX_DRY_RUNS).map(|(node, _)| DryRunLink {
            node: node.name.to_string(),
            href: format!("/nodes/{}?layout={}#what-if", node.name, encoded(name)),
        });
        Self {
            id: String::new(),
            rollout: rollout(name, nodes.counts),
            source: if is_in_file { "layouts file" } else { "generated, or from the node" },
            manual: manual.map(|nodes| format!("selected manually on {nodes}")),
            states: nodes
                .states
                .iter()
                .map(|(state, count)| StateCount::new(name, state.as_ref(), *count))
                .collect(),
            blocked: blocked.map(|(node, layout)| (node.name.to_string(), reason(layout))),
            dry_run: dry_run::link_of_layout(name),
            dry_runs: links.collect(),
        }
    }
}

/// Obstacle to a layout on a node; its state if there is no explanation.
fn reason(layout: &LayoutSummary) -> Vec<TextPart> {
    let parts = obstacle(layout);
    if !parts.is_empty() {
        return parts;
    }
    let state = layout.state.as_ref().map_or(NO_STATE, Reported::as_str);
    vec![TextPart { code: false, text: printable(state) }]
}

impl StateCount {
    fn new(layout: &str, state: Option<&Reported<Reason>>, count: u32) -> Self {
        // The list cannot be filtered by a state that this version does not know.
        let word = state.map_or(Some(NO_STATE), |state| state.known().map(Reason::as_str));
        let filter = word.map(|word| format!("&layoutState={word}")).unwrap_or_default();
        Self {
            badge: state.map_or_else(
                || StateBadge { tone: "soft", icon: "note", word: NO_STATE.to_owned() },
                StateBadge::of,
            ),
            count,
            href: format!("{LIST}?layout={}{filter}&state={}", encoded(layout), current_states()),
        }
    }
}

#[cfg(test)]
mod tests;
