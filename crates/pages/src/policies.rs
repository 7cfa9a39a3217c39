//! Pages of accelerator policies: the list, and a policy with its progress.

pub(super) mod detail;
#[cfg(test)]
pub(super) mod tests;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_model::id::NodeName;
use octavo_model::reported::Reported;
use octavo_policy::document::{PolicyRow, PolicySource};
use octavo_policy::record::Record;
use octavo_policy::{NodeCounts, PolicyState};
use octavo_store::policies::{PolicyView, documents};
use octavo_store::search::is_match;
use octavo_store::view::FleetView;

use super::address::encoded;
use super::badges::{count_noun, printable, tone_class, tone_icon};
use super::bar::{Bar, LegendEntry, legend_of};
use super::frame::Frame;
use super::layout::StateBadge;
use super::{PageState, html, origin};

/// Maximum number of rows, ordered by name.
const MAX_ROWS: usize = 500;
/// Maximum number of policies of the overview.
const MAX_UNFINISHED: usize = 20;

#[derive(Template)]
#[template(path = "policies.html")]
struct ListPage {
    frame: Frame,
    notice: Option<String>,
    source: PolicySource,
    caption: String,
    rows: Vec<Row>,
    /// Number of policies that are not shown.
    more: usize,
    origin: String,
}

/// Policy with its progress.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) href: String,
    pub(super) layout: Option<String>,
    pub(super) badge: StateBadge,
    pub(super) bar: Bar,
    pub(super) legend: Vec<LegendEntry>,
    /// `7 of 12 nodes applied`.
    pub(super) words: String,
    pub(super) waits_for: Option<String>,
}

/// Policy that set the layout, labels or taints of a node.
#[derive(Debug)]
pub(super) struct NodePolicy {
    pub(super) name: String,
    pub(super) href: String,
    pub(super) revision: String,
}

impl NodePolicy {
    /// Reads the record on a node; `None` without one.
    pub(super) fn new(view: &FleetView, node: &NodeName) -> Option<Self> {
        let cluster = view.policies()?.cluster();
        let record = &cluster.snapshot.nodes.get(node.as_str())?.policy_record;
        let record = Record::parse(record.as_deref());
        let record = record.valid()?;
        Some(Self {
            name: printable(&record.policy),
            href: path(&record.policy),
            revision: printable(&record.revision),
        })
    }
}

/// Policies that the reader may see. Only readers who may get every node reach the pages.
fn visible<'a>(view: &'a FleetView, visibility: &Visibility) -> Option<&'a PolicyView> {
    view.policies().filter(|_| visibility.types == VisibleTypes::All)
}

/// Serves the list.
pub(super) async fn show(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let policies = visible(&site.view, &visibility);
    let list = documents::list(policies);
    let rows: Vec<Row> = list.items.iter().take(MAX_ROWS).map(Row::of).collect();
    let page = ListPage {
        frame: Frame::new(&site.view),
        notice: list.notice.as_deref().map(printable),
        source: documents::source(policies),
        caption: count_noun(list.items.len(), "policy", "policies"),
        more: list.items.len().saturating_sub(rows.len()),
        rows,
        origin: origin(&uri, &headers),
    };
    html(StatusCode::OK, &page)
}

/// Policies that are not complete, for the overview.
pub(super) fn unfinished(view: &FleetView) -> Vec<Row> {
    let list = documents::list(view.policies());
    let rows = list.items.iter().filter(|row| row.state != PolicyState::Complete);
    rows.take(MAX_UNFINISHED).map(Row::of).collect()
}

/// Policies whose names match a text, with layout and state.
pub(super) fn matching(view: &FleetView, text: &str) -> Vec<Row> {
    let list = documents::list(view.policies());
    list.items.iter().filter(|row| is_match(&row.name, text)).map(Row::of).collect()
}

/// Address of a policy.
pub(super) fn path(name: &str) -> String {
    format!("/policies/{}", encoded(name))
}

impl Row {
    fn of(row: &PolicyRow) -> Self {
        let legend = legend(row.nodes);
        Self {
            name: printable(&row.name),
            href: path(&row.name),
            layout: row.layout.as_deref().map(printable),
            badge: badge(&row.state),
            bar: Bar::from_legend(&legend, 11),
            legend,
            words: words(row.nodes),
            waits_for: row.waits_for.as_deref().map(printable),
        }
    }
}

/// Badge of a state. The word is that of the API, so that it can be searched.
fn badge(state: &Reported<PolicyState>) -> StateBadge {
    let known = state.known().unwrap_or_default();
    let icon = match known {
        PolicyState::RollingOut | PolicyState::RollingBack | PolicyState::Waiting => "stale",
        PolicyState::Paused => "off",
        PolicyState::Unknown => "empty",
        PolicyState::Refused
        | PolicyState::Complete
        | PolicyState::RolledBack
        | PolicyState::Stopped
        | PolicyState::Conflict => tone_icon(known.tone()),
    };
    StateBadge { tone: tone_class(known.tone()), icon, word: printable(&state.to_string()) }
}

/// Nodes by progress.
fn legend(nodes: NodeCounts) -> Vec<LegendEntry> {
    let ignored = nodes.overridden.saturating_add(nodes.conflicting);
    let busy = [nodes.applied, nodes.updating, nodes.failed, ignored];
    let waiting = busy.into_iter().fold(nodes.selected, u32::saturating_sub);
    legend_of(
        [
            ("in-use", None, "applied", nodes.applied),
            ("partitioned", Some("stripes"), "updating", nodes.updating),
            ("free", None, "waiting", waiting),
            ("unavailable", Some("crosses"), "failed", nodes.failed),
            ("unknown", None, "overridden or conflicting", ignored),
        ]
        .map(|(kind, fill, word, count)| (kind, fill, word, count.into())),
    )
}

fn words(nodes: NodeCounts) -> String {
    let selected = usize::try_from(nodes.selected).unwrap_or(usize::MAX);
    format!("applied on {} of {}", nodes.applied, count_noun(selected, "node", "nodes"))
}
