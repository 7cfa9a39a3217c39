//! The list of nodes, with totals of the fleet and its types.

use std::collections::BTreeMap;

use askama::Template;
use axum::http::Uri;
use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_fleet::hardware_profile::TYPE_LABEL;
use octavo_fleet::summary::{DeviceCounts, NodeState};
use octavo_fleet::type_source::TypeSource;
use octavo_model::quantity::Mebibytes;
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::{Fleet, Node, TypeTotals};
use octavo_store::query::{self, Query};
use octavo_store::view::FleetView;
use octavo_toolkit::error::chain;

use super::address::{LIST, ListAddress, moved};
use super::badges::{
    Badge, count_noun, format_age, format_memory, millis, node_state, starting, type_name,
};
use super::bar::{Bar, LegendEntry, legend};
use super::filter_form::{FilterForm, filter_form, type_value};
use super::frame::Frame;
use super::groups::{GROUP, NodeSection, is_grouped, sections};
use super::layouts::dry_run;
use super::pager::{Pager, pager};
use super::rows::{ColumnHeading, NodeRow, headings};
use super::unreported_use;

/// Maximum number of rows on a page.
const MAX_ROWS: usize = 200;

/// Uptime of the aggregator during which agents may still be reconnecting.
const RECENT_START_SECONDS: u64 = 120;

#[derive(Template)]
#[template(path = "list.html")]
pub(super) struct ListPage {
    frame: Frame,
    /// Whether nodes are shown.
    nodes: bool,
    empty: Option<EmptyFleet>,
    /// Notice while agents reconnect after a start.
    starting: Option<String>,
    glance: FleetTotals,
    types: Vec<TypeCard>,
    form: FilterForm,
    pub(super) wrong: Option<String>,
    caption: String,
    heads: Vec<ColumnHeading>,
    sections: Vec<NodeSection>,
    /// Whether the list is empty.
    is_bare: bool,
    pager: Option<Pager>,
    origin: String,
    /// Filter of the list, as a query and as command-line flags.
    query: String,
    /// Address of the list as CSV.
    csv: String,
    /// Address of the dry run of a layout on the nodes of the list.
    dry_run: String,
    flags: String,
}

/// Instructions for an empty fleet.
#[derive(Debug)]
pub(super) struct EmptyFleet {
    pub(super) age: String,
    pub(super) age_ms: u64,
    pub(super) young: bool,
    pub(super) command: String,
}

/// Totals of the fleet.
#[derive(Debug)]
struct FleetTotals {
    devices: u32,
    devices_noun: &'static str,
    memory: String,
    partitions: Option<String>,
    bar: Bar,
    legend: Vec<LegendEntry>,
    /// Reason why the use of devices is unknown, if their vendor is the reason.
    unreported: Option<String>,
    nodes: usize,
    nodes_noun: &'static str,
    verdict: String,
    total: String,
    states: Vec<StateLink>,
}

/// Number of nodes in one state, with a link to them.
#[derive(Debug)]
struct StateLink {
    href: String,
    chosen: bool,
    badge: Badge,
    count: usize,
}

/// Devices of a type, with a link to the nodes that have it.
#[derive(Debug)]
struct TypeCard {
    id: String,
    href: String,
    chosen: bool,
    name: String,
    count: u32,
    about: String,
    bar: Bar,
    legend: Vec<LegendEntry>,
}

/// Builds the page that `uri` requests, for a reader who reached this server at `origin`.
///
/// A reader who is not allowed to list nodes sees types only.
pub(super) fn page(view: &FleetView, visibility: &Visibility, uri: &Uri, origin: &str) -> ListPage {
    let now = view.clock().now();
    let fleet = view.listed();
    let (address, (query, is_grouped), error) = ListAddress::read(uri, parse);
    let wrong = error.map(|error| format!("Invalid filter: {error}."));
    let query = Query { limit: query.limit.min(MAX_ROWS), ..query };
    let found = query::find(&fleet, &query, now);
    let sections = if is_grouped {
        let all = (&fleet, view.clock());
        sections(all, (&address, &query), MAX_ROWS, now)
    } else {
        vec![one_part(&found, view.clock(), now)]
    };
    let types = view.types(&fleet, now);
    let types = types.iter().filter(|one| visibility.types.contains(one.counts.type_name.as_ref()));
    let types: Vec<TypeTotals> = types.cloned().collect();
    let mut nodes = fleet.nodes.iter();
    let has_layouts = nodes.any(|node| node.summary.layout.is_some());
    let pager = if is_grouped { None } else { pager(&address, &found, fleet.nodes.len()) };
    ListPage {
        frame: Frame::new(view),
        nodes: visibility.nodes,
        starting: starting(view, visibility),
        empty: fleet.nodes.is_empty().then(|| empty(now, origin)),
        glance: fleet_totals((&fleet, view), &types, &visibility.types, &address, now),
        form: filter_form(&address, &types, &query, has_layouts),
        types: types.iter().map(|one| card(one, &address)).collect(),
        wrong,
        caption: format!("{} of {}", count_noun(found.total, "node", "nodes"), fleet.nodes.len()),
        heads: headings(&address, query.sort),
        is_bare: sections.iter().all(|part| part.rows.is_empty()),
        sections,
        pager,
        origin: origin.to_owned(),
        query: match { address.without(GROUP) }.with("sort", address.get("sort")).strip_prefix(LIST)
        {
            Some(query) => query.to_owned(),
            None => String::new(),
        },
        csv: filtered(&address, "/nodes.csv"),
        dry_run: filtered(&address, dry_run::PATH),
        flags: address.flags(),
    }
}

/// Address of another page with the filter of the list.
fn filtered(address: &ListAddress, path: &str) -> String {
    moved(&address.without(GROUP).with("continue", ""), path)
}

/// Parses the filter and whether to group nodes.
fn parse(address: &ListAddress) -> Result<(Query, bool), String> {
    let is_grouped = is_grouped(address)?;
    // Groups have no pages, so a continuation token does not apply.
    let address = address.without(GROUP);
    let address = if is_grouped { address.without("continue") } else { address };
    let query = Query::parse(address.pairs()).map_err(|error| chain(&error))?;
    Ok((query, is_grouped))
}

/// Rows of a page, without a heading.
fn one_part(found: &query::Page, clock: &Clock, now: Moment) -> NodeSection {
    let rows = found.items.iter();
    NodeSection { head: None, rows: rows.map(|node| NodeRow::of(node, clock, now)).collect() }
}

/// Instructions for the reader of an empty fleet at `origin`.
pub(super) fn empty(now: Moment, origin: &str) -> EmptyFleet {
    let since = Moment::default().age(now);
    EmptyFleet {
        age: format_age(since),
        age_ms: millis(since),
        young: since.as_secs() < RECENT_START_SECONDS,
        command: format!("octavo-agent --aggregator https://{}:7443", host_name(origin)),
    }
}

/// Removes scheme and port from `origin`.
fn host_name(origin: &str) -> &str {
    let host = origin.rsplit('/').next().unwrap_or_default();
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn fleet_totals(
    (fleet, view): (&Fleet, &FleetView),
    types: &[TypeTotals],
    seen: &VisibleTypes,
    address: &ListAddress,
    now: Moment,
) -> FleetTotals {
    let counts = types.iter().map(|one| one.counts.counts);
    let counts = counts.fold(DeviceCounts::default(), DeviceCounts::plus);
    let memory_of_all = match seen {
        VisibleTypes::All => fleet
            .nodes
            .iter()
            .fold(0_u64, |sum, node| sum.saturating_add(node.summary.memory.get())),
        // The memory of all nodes would include types that the reader is not allowed to see.
        VisibleTypes::Only(_) => types.iter().fold(0_u64, |sum, one| {
            let each = one.counts.memory.map_or(0, Mebibytes::get);
            sum.saturating_add(each.saturating_mul(one.counts.counts.total.into()))
        }),
    };
    let nodes = fleet.nodes.len();
    let is_starting = view.startup().is_some();
    let partitions = counts.partitions;
    FleetTotals {
        devices: counts.total,
        devices_noun: if counts.total == 1 { "device" } else { "devices" },
        memory: format_memory(Mebibytes::new(memory_of_all)),
        partitions: (partitions.total > 0)
            .then(|| format!("{} of {} partitions free", partitions.free, partitions.total)),
        bar: Bar::from_counts(counts, 15),
        legend: legend(counts),
        unreported: {
            let unknown = types.iter().filter(|one| one.counts.counts.unknown > 0);
            let names: Vec<_> = unknown.filter_map(|one| one.counts.type_name.as_ref()).collect();
            unreported_use::explanation(&names)
        },
        nodes,
        nodes_noun: if nodes == 1 { "node" } else { "nodes" },
        verdict: attention_summary(fleet, is_starting, now),
        total: count_noun(nodes, "node", "nodes"),
        states: state_links(&fleet.states(now), address),
    }
}

/// Whether a node needs attention. Agents may still reconnect during a start; after it, a node with an agent's label
/// has lost its agent.
fn needs_attention(node: &Node, is_starting: bool, now: Moment) -> bool {
    has_lost_agent(node, is_starting, now) || node.state(now).needs_attention()
}

/// Returns `true` if an agent reported the node before, and none does any more.
pub(super) fn has_lost_agent(node: &Node, is_starting: bool, now: Moment) -> bool {
    let is_labeled_by_agent = node.source == TypeSource::Label(TYPE_LABEL);
    node.state(now) == NodeState::NoAgent && is_labeled_by_agent && !is_starting
}

/// Summary of the state of all nodes.
pub(super) fn attention_summary(fleet: &Fleet, is_starting: bool, now: Moment) -> String {
    let (mut wanting, mut without_agent) = (0_usize, 0_usize);
    for node in fleet.nodes.iter() {
        let needs_attention = needs_attention(node, is_starting, now);
        wanting = wanting.saturating_add(usize::from(needs_attention));
        without_agent = without_agent.saturating_add(usize::from(!node.has_agent()));
    }
    // Agents may still reconnect during a start, so their nodes are not yet reported as nodes without an agent.
    let is_returning = is_starting && without_agent > 0;
    let verdict = match (wanting, without_agent) {
        (0, without) if is_returning && without < fleet.nodes.len() => {
            Some("no issues reported so far".to_owned())
        }
        (0, 0) => return "no issues".to_owned(),
        (0, without) if without == fleet.nodes.len() => None,
        (0, _) => Some("no issues on the others".to_owned()),
        (1, _) => Some("1 needs attention".to_owned()),
        (several, _) => Some(format!("{several} need attention")),
    };
    let without_agent = match without_agent {
        0 => None,
        _ if is_returning => None,
        count => Some(format!("{count} without an agent, known from the cluster only")),
    };
    let parts: Vec<String> = without_agent.into_iter().chain(verdict).collect();
    parts.join("; ")
}

fn state_links(by_state: &BTreeMap<NodeState, usize>, address: &ListAddress) -> Vec<StateLink> {
    let chosen = address.get("state");
    // Most severe state first.
    let shown = by_state.iter().rev();
    shown
        .filter(|(state, count)| **count > 0 || state.as_str() == chosen)
        .map(|(state, count)| StateLink {
            href: address.toggled("state", state.as_str()),
            chosen: state.as_str() == chosen,
            badge: node_state(*state),
            count: *count,
        })
        .collect()
}

fn card(one: &TypeTotals, address: &ListAddress) -> TypeCard {
    let TypeTotals { counts, nodes, .. } = one;
    let value = type_value(one);
    let nodes = usize::try_from(*nodes).unwrap_or(usize::MAX);
    let on = format!("on {}", count_noun(nodes, "node", "nodes"));
    let on = match one.without_agent {
        0 => on,
        without => format!("{on}, {without} without an agent"),
    };
    TypeCard {
        href: address.toggled("type", &value),
        chosen: address.get("type") == value,
        id: value,
        name: type_name(counts.type_name.as_ref()),
        count: counts.counts.total,
        about: match counts.memory {
            Some(each) => format!("{} each, {on}", format_memory(each)),
            None => on,
        },
        bar: Bar::from_counts(counts.counts, 11),
        legend: legend(counts.counts),
    }
}
