//! Heat map of the fleet: a cell per device, or per node of a large fleet, colored by a value.
//!
//! Each cell is a link whose name states everything that its color and its pattern mean. The address is the whole state
//! of the page, so a filter or a color is a link.

mod cell;
mod request;
mod scale;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_fleet::summary::TypeCounts;
use octavo_model::id::TypeName;
use octavo_store::clock::Moment;
use octavo_store::fleet::{Fleet, Node, TypeTotals};
use octavo_store::query::{self, Query};
use tokio::task::yield_now;

use self::cell::{Cell, CellState, device_cells, node_cell};
use self::request::{BY, CELLS, GROUP, MAX_CELLS, Request, VIEW, is_wanted, link, node_filter};
use self::scale::{Metric, NO_DATA, STEPS};
use super::address::ListAddress;
use super::badges::{Badge, count_noun, format_memory, node_state, starting, type_name};
use super::filter_form::{FILTERS, FilterForm, filter_form};
use super::frame::Frame;
use super::{PageState, html, origin, status_of};

/// Maximum number of devices that have a cell each unless the reader asks for it. Cells of 33 pixels, with their
/// gaps, for as many devices fill a screen of 1920 x 1080 pixels; larger fleets are easier to read as nodes.
const MAX_DEVICES_BY_DEFAULT: usize = 2_000;
/// Maximum number of rows of the table.
const MAX_ROWS: usize = 1_000;
/// Number of cells from which an open page updates every [`SLOW_REFRESH_MS`] only: each update sends the whole page.
const MAX_FAST_CELLS: usize = 500;
const SLOW_REFRESH_MS: u32 = 10_000;
/// Number of nodes decoded before other tasks of the thread run.
const NODES_PER_STEP: usize = 32;

#[derive(Template)]
#[template(path = "map.html")]
struct MapPage {
    frame: Frame,
    starting: Option<String>,
    form: FilterForm,
    /// Parameters that the form retains.
    retained: Vec<(String, String)>,
    wrong: Option<String>,
    switches: Vec<Switch>,
    caption: String,
    /// Meaning of the colors, and the reason if cells are nodes.
    note: String,
    legend: Vec<LegendEntry>,
    groups: Vec<CellGroup>,
    rows: Vec<TableRow>,
    is_table: bool,
    /// Nodes or rows that are not shown.
    omitted: Option<String>,
    /// Minimum interval of updates.
    refresh_ms: Option<u32>,
    origin: String,
    /// Filter of the nodes, as flags of the command line.
    flags: String,
    /// Filter of the nodes, as a query of the API.
    query: String,
}

/// Links of which one is chosen.
#[derive(Debug)]
struct Switch {
    label: &'static str,
    options: Vec<SwitchOption>,
}

#[derive(Debug)]
struct SwitchOption {
    id: String,
    href: String,
    word: &'static str,
    chosen: bool,
}

/// Class of cells, with its number of devices.
#[derive(Debug, PartialEq, Eq)]
struct LegendEntry {
    class: &'static str,
    text: &'static str,
    word: String,
    count: u64,
}

/// Cells under one heading.
#[derive(Debug)]
struct CellGroup {
    title: String,
    /// Page of the node, or the map of the type.
    href: String,
    devices: String,
    /// State of the node, if a user should know it.
    badge: Option<Badge>,
    cells: Vec<RenderedCell>,
}

/// Cell as rendered.
#[derive(Debug)]
struct RenderedCell {
    class: &'static str,
    href: String,
    label: String,
    text: String,
    slices: Vec<cell::Slice>,
}

/// Row of the table: the values of a cell in words.
#[derive(Debug)]
struct TableRow {
    href: String,
    node: String,
    device: String,
    type_name: String,
    state: &'static str,
    needs_attention: bool,
    utilization: Option<String>,
    memory: Option<String>,
    temperature: Option<String>,
    power: Option<String>,
}

/// Serves the map. Only readers who may list nodes reach it.
pub(super) async fn page(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let now = site.view.clock().now();
    // Without a guard in front of it, the page shows nothing.
    let is_guarded = visibility.types == VisibleTypes::All;
    let fleet = if is_guarded { site.view.listed() } else { Fleet::default() };
    let (address, request, error) = ListAddress::read(&uri, Request::parse);
    let wrong = error.map(|error| format!("Invalid address: {error}."));
    let found = query::find(&fleet, &request.query, now);
    let wanted = |one: &Cow<'_, TypeCounts>| is_wanted(&request.query, one.type_name.as_ref());
    let counts = found.items.iter().flat_map(|node| node.types(now)).filter(wanted);
    let devices = counts.map(|one| u64::from(one.counts.total)).sum::<u64>();
    let devices = usize::try_from(devices).unwrap_or(usize::MAX);
    let by_device = request.by_device.unwrap_or(devices <= MAX_DEVICES_BY_DEFAULT);
    let cells = match wrong {
        Some(_) => Vec::new(),
        None => cells(&found.items, (&request.query, by_device), now).await,
    };
    // The cache holds the types of listed nodes.
    let types = if is_guarded { site.view.types(&fleet, now) } else { Arc::default() };
    let shown = MapContent {
        frame: Frame::new(&site.view),
        address: &address,
        request: &request,
        by_device,
        devices,
        cells,
    };
    let page = shown.page((&fleet, &found), &types, wrong, now);
    let page = MapPage {
        starting: starting(&site.view, &Visibility { nodes: true, ..visibility }),
        origin: origin(&uri, &headers),
        ..page
    };
    html(status_of(page.wrong.as_ref()), &page)
}

/// Cells of the devices of these nodes that match the query, at most one node more than
/// [`MAX_CELLS`]. Other tasks share this thread, so it yields between nodes.
async fn cells(nodes: &[Arc<Node>], (query, by_device): (&Query, bool), now: Moment) -> Vec<Cell> {
    let mut all = Vec::new();
    for step in nodes.chunks(NODES_PER_STEP) {
        for node in step {
            if by_device {
                let cells = device_cells(node, now).into_iter();
                all.extend(cells.filter(|cell| is_wanted(query, cell.type_name.as_ref())));
            } else {
                all.extend(node_cell(node, query, now));
            }
        }
        // One more shows that the map is incomplete.
        if all.len() > MAX_CELLS {
            break;
        }
        yield_now().await;
    }
    all
}

/// Cells to show, with the parameters of the address.
struct MapContent<'a> {
    frame: Frame,
    address: &'a ListAddress,
    request: &'a Request,
    by_device: bool,
    /// Number of all devices that match, with or without a cell.
    devices: usize,
    cells: Vec<Cell>,
}

impl MapContent<'_> {
    fn page(
        self,
        (fleet, found): (&Fleet, &query::Page),
        types: &[TypeTotals],
        wrong: Option<String>,
        now: Moment,
    ) -> MapPage {
        let Self { frame, address, request, by_device, devices, mut cells } = self;
        let most = if request.is_table { MAX_ROWS } else { MAX_CELLS };
        let is_truncated = cells.len() > most;
        cells.truncate(most);
        let mut form = filter_form(address, types, &request.query, false);
        form.selects.retain(|select| matches!(select.name, "type" | "state"));
        let clear = FILTERS.iter().fold(address.clone(), |address, name| address.without(name));
        form.clear = link(&clear, "continue", "");
        let switches = switches(address, request, by_device);
        let legend = legend(&cells, request.metric);
        MapPage {
            frame,
            starting: None,
            retained: address
                .pairs()
                .filter(|(name, _)| !["search", "type", "state", "continue"].contains(&&**name))
                .collect(),
            form,
            wrong,
            switches,
            caption: format!(
                "{} on {}",
                count_noun(devices, "device", "devices"),
                count_noun(found.total, "node", "nodes")
            ),
            note: note(request, by_device, devices),
            legend,
            omitted: is_truncated.then(|| {
                let most = if request.is_table { "rows of the table" } else { "cells" };
                format!(
                    "Only the first {} {most} are shown. Use the filter to see others.",
                    cells.len()
                )
            }),
            refresh_ms: (cells.len() > MAX_FAST_CELLS).then_some(SLOW_REFRESH_MS),
            rows: if request.is_table {
                cells.iter().map(TableRow::of).collect()
            } else {
                Vec::new()
            },
            groups: if request.is_table {
                Vec::new()
            } else if request.by_type {
                groups_by_type(&cells, address, request.metric)
            } else {
                groups_by_node(&cells, fleet, (request.metric, by_device), now)
            },
            is_table: request.is_table,
            origin: String::new(),
            flags: node_filter(address).flags(),
            query: {
                let link = link(&node_filter(address), "continue", "");
                link.strip_prefix("/map").unwrap_or_default().to_owned()
            },
        }
    }
}

fn switches(address: &ListAddress, request: &Request, by_device: bool) -> Vec<Switch> {
    let option =
        |name: &'static str, value: &'static str, word: &'static str, chosen: bool| SwitchOption {
            id: format!("{name}-{value}"),
            href: link(address, name, value),
            word,
            chosen,
        };
    let by = Metric::ALL
        .map(|metric| option(BY, metric.as_str(), metric.title(), metric == request.metric));
    let mut all = vec![
        Switch { label: "Color", options: by.into_iter().collect() },
        Switch {
            label: "Group",
            options: vec![
                option(GROUP, "node", "Node", !request.by_type),
                option(GROUP, "type", "Type", request.by_type),
            ],
        },
        Switch {
            label: "Cell",
            options: vec![
                option(CELLS, "device", "Device", by_device),
                option(CELLS, "node", "Node", !by_device),
            ],
        },
        Switch {
            label: "View",
            options: vec![
                option(VIEW, "cells", "Cells", !request.is_table),
                option(VIEW, "table", "Table", request.is_table),
            ],
        },
    ];
    if request.is_table {
        // A table shows all values, without colors and groups.
        all.retain(|switch| matches!(switch.label, "Cell" | "View"));
    }
    all
}

/// Meaning of a cell and of its color.
fn note(request: &Request, by_device: bool, devices: usize) -> String {
    let of_node = !by_device;
    let cell = if of_node { "A cell is a node" } else { "A cell is a device" };
    let meaning = match (request.metric, of_node) {
        (Metric::State, true) => "its number of devices is in the cell",
        (Metric::State, false) => "an exclamation mark means that it needs attention",
        (Metric::Utilization, true) => "the mean of its devices that report their utilization",
        (Metric::Utilization, false) => "the share of time in which a kernel ran",
        (Metric::Memory, true) => "the used share of the memory of its devices",
        (Metric::Memory, false) => "the used share of its memory",
        (Metric::Temperature, true) => "the highest temperature of its devices",
        (Metric::Temperature, false) => "its temperature",
        (Metric::Power, true) => "the mean power draw of its devices that report it",
        (Metric::Power, false) => "its power draw",
    };
    let meaning = match request.metric {
        Metric::State => format!("{cell}; {meaning}."),
        Metric::Utilization | Metric::Memory | Metric::Temperature | Metric::Power => {
            format!("{cell}; the number is {meaning}, in{}.", request.metric.unit())
        }
    };
    if of_node && request.by_device.is_none() && devices > MAX_DEVICES_BY_DEFAULT {
        return format!(
            "{meaning} Maps of more than {MAX_DEVICES_BY_DEFAULT} devices begin with nodes."
        );
    }
    meaning
}

/// Classes of these cells in order, with the number of devices in each.
fn legend(cells: &[Cell], metric: Metric) -> Vec<LegendEntry> {
    match metric {
        Metric::State => {
            let mut counts: BTreeMap<CellState, u64> = BTreeMap::new();
            for cell in cells {
                let count = counts.entry(cell.state).or_default();
                *count = count.saturating_add(cell.devices.into());
            }
            let states = counts.into_iter().map(|(state, count)| LegendEntry {
                class: state.class(),
                text: if state.is_marked() { "!" } else { "" },
                word: state.word().to_owned(),
                count,
            });
            let marked = cells.iter().filter(|cell| cell.is_marked());
            let marked = marked.map(|cell| u64::from(cell.devices)).sum::<u64>();
            let is_by_device = cells.iter().all(|cell| matches!(cell.state, CellState::Device(_)));
            let marked = (is_by_device && marked > 0).then(|| LegendEntry {
                class: "plain",
                text: "!",
                word: "needs attention".to_owned(),
                count: marked,
            });
            states.chain(marked).collect()
        }
        Metric::Utilization | Metric::Memory | Metric::Temperature | Metric::Power => {
            let count = |class: &str| {
                let of_class = cells.iter().filter(|cell| cell.class(metric) == class);
                of_class.map(|cell| u64::from(cell.devices)).sum::<u64>()
            };
            let steps = STEPS.into_iter().zip(metric.ranges());
            let steps = steps.map(|(class, word)| (class, word, ""));
            let all = steps.chain([(NO_DATA, "not reported".to_owned(), "-")]);
            all.map(|(class, word, text)| LegendEntry { class, text, word, count: count(class) })
                .collect()
        }
    }
}

/// Cells by node. Whole nodes are grouped by nothing.
fn groups_by_node(
    cells: &[Cell],
    fleet: &Fleet,
    (metric, by_device): (Metric, bool),
    now: Moment,
) -> Vec<CellGroup> {
    if !by_device {
        let all = CellGroup::new("Nodes".to_owned(), String::new(), cells.iter(), metric);
        return if cells.is_empty() { Vec::new() } else { vec![all] };
    }
    let groups = cells.chunk_by(|one, other| one.node == other.node);
    groups
        .filter_map(|cells| {
            let name = &cells.first()?.node;
            let node = name.parse().ok().and_then(|name| fleet.nodes.get(&name));
            let state = node.map(|node| node.state(now));
            let badge = state.filter(|state| state.needs_attention()).map(node_state);
            let group = CellGroup::new(name.clone(), format!("/nodes/{name}"), cells, metric);
            Some(CellGroup { badge, ..group })
        })
        .collect()
}

fn groups_by_type(cells: &[Cell], address: &ListAddress, metric: Metric) -> Vec<CellGroup> {
    let mut all: BTreeMap<(bool, Option<&TypeName>), Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        let name = cell.type_name.as_ref();
        all.entry((name.is_none(), name)).or_default().push(cell);
    }
    let groups = all.into_iter().map(|((_, name), cells)| {
        let has_nodes = cells.iter().any(|cell| cell.title.is_empty());
        let title = if name.is_none() && has_nodes {
            "type unknown or mixed".to_owned()
        } else {
            type_name(name)
        };
        let value = name.map_or("unknown", TypeName::as_str);
        CellGroup::new(title, link(address, "type", value), cells, metric)
    });
    groups.collect()
}

impl CellGroup {
    fn new<'a>(
        title: String,
        href: String,
        cells: impl IntoIterator<Item = &'a Cell>,
        metric: Metric,
    ) -> Self {
        let mut devices = 0_u64;
        let cells = cells.into_iter().map(|cell| {
            devices = devices.saturating_add(cell.devices.into());
            RenderedCell {
                class: cell.class(metric),
                href: cell.href(),
                label: cell.label(),
                text: cell.text(metric),
                slices: cell.slices.iter().map(|slice| slice.colored(metric)).collect(),
            }
        });
        let cells = cells.collect();
        let devices = usize::try_from(devices).unwrap_or(usize::MAX);
        let devices = count_noun(devices, "device", "devices");
        Self { title, href, devices, badge: None, cells }
    }
}

impl TableRow {
    /// Values in the order of the columns.
    fn values(&self) -> [&Option<String>; 4] {
        [&self.utilization, &self.memory, &self.temperature, &self.power]
    }

    fn of(cell: &Cell) -> Self {
        let value = |metric: Metric| {
            cell.values.get(metric).map(|value| format!("{value}{}", metric.unit()))
        };
        Self {
            href: cell.href(),
            node: cell.node.clone(),
            device: if cell.title.is_empty() {
                count_noun(usize::try_from(cell.devices).unwrap_or(usize::MAX), "device", "devices")
            } else {
                cell.title.clone()
            },
            type_name: type_name(cell.type_name.as_ref()),
            state: cell.state.word(),
            needs_attention: cell.needs_attention,
            utilization: value(Metric::Utilization).or_else(|| {
                let partitions = cell.partition_utilization()?;
                Some(format!("partitions {partitions}"))
            }),
            memory: cell.values.memory.map(|(used, total)| {
                format!("{} of {}", format_memory(used), format_memory(total))
            }),
            temperature: value(Metric::Temperature),
            power: value(Metric::Power),
        }
    }
}

#[cfg(test)]
mod tests;
