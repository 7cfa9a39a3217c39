//! Dry run of a layout on all nodes of a selection, page by page.
//!
//! The parameter `plan` names the layout. The others select nodes as in the list of nodes, where `layout` is the current
//! layout of a node.

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use octavo_access::visibility::ReaderVisibility;
use octavo_files::config_files::{AvailableLayouts, LayoutFileSnapshot};
use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_fleet::node_plan::{NodePlanRow, NodePlanTotals};
use octavo_model::text::MAX_WORD_BYTES;
use octavo_planner::plan::PlanOutcome;
use octavo_store::dry_run::{MAX_PLANNED_NODES, layout_names, plan_nodes};
use octavo_store::fleet::Fleet;
use octavo_store::query::{self, Query};
use octavo_toolkit::error::chain;

use crate::address::{ListAddress, encoded, moved};
use crate::badges::{Badge, capitalize, count_noun, printable, starting};
use crate::filter_form::{FILTERS, FilterForm, filter_form};
use crate::frame::Frame;
use crate::pager::{Pager, pager};
use crate::plan::{Choice, outcome_badge, outcome_label};
use crate::{PageState, html, origin, status_of};

/// Path of the page.
pub(crate) const PATH: &str = "/layouts/dry-run";
/// Parameter that names the layout.
const PLAN: &str = "plan";

#[derive(Template)]
#[template(path = "dry_run.html")]
struct DryRunPage {
    frame: Frame,
    starting: Option<String>,
    /// Reason why the aggregator's layouts may differ from its file.
    notice: Option<String>,
    form: FilterForm,
    /// Parameters that the form retains.
    retained: Vec<(String, String)>,
    file: Vec<Choice>,
    made: Vec<Choice>,
    wrong: Option<String>,
    /// `340 nodes`.
    selection: String,
    plan: Option<Plan>,
    pager: Option<Pager>,
    most: usize,
    origin: String,
}

/// Effect of a layout on the nodes of the page.
#[derive(Debug)]
struct Plan {
    layout: String,
    /// Path and query of the same request to the API.
    api: String,
    outcomes: Vec<OutcomeCount>,
    /// Sum of the changes.
    changes: String,
    rows: Vec<Row>,
}

/// Nodes with the same outcome.
#[derive(Debug, PartialEq, Eq)]
struct OutcomeCount {
    badge: Badge,
    count: usize,
}

/// Effect on a node.
#[derive(Debug)]
struct Row {
    node: String,
    href: String,
    badge: Badge,
    stale: bool,
    /// `3 of 8`.
    devices: String,
    destroyed: usize,
    created: usize,
    /// Obstacles, each with its device, then warnings.
    problems: Vec<(Option<String>, String)>,
}

/// Parameters of the address.
#[derive(Debug, Default)]
struct Request {
    layout: Option<String>,
    query: Query,
}

impl Request {
    fn parse(address: &ListAddress) -> Result<Self, String> {
        let layout = address.get(PLAN).trim();
        if layout.len() > MAX_WORD_BYTES {
            return Err(format!(
                "invalid value for parameter {PLAN}: use at most {MAX_WORD_BYTES} bytes"
            ));
        }
        let pairs = address.without(PLAN);
        let query = Query::parse(pairs.pairs()).map_err(|error| chain(&error))?;
        let query = Query { limit: query.limit.min(MAX_PLANNED_NODES), ..query };
        Ok(Self { layout: (!layout.is_empty()).then(|| layout.to_owned()), query })
    }
}

/// Plans and layouts of the nodes of a page.
type Planned = (Vec<NodePlanRow>, AvailableLayouts, Option<String>);

/// Serves the page. Only readers who may get every node reach it.
pub(crate) async fn show(
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
    let (layout, nodes) = (request.layout.clone(), found.items.clone());
    let planned = site.view.plan(move |layouts: &LayoutFileSnapshot| -> Planned {
        let rows = layout.map(|layout| plan_nodes(layouts, &layout, &nodes, now));
        let names = layout_names(layouts, &nodes);
        (rows.unwrap_or_default(), names, layouts.notice.clone())
    });
    let (rows, names, notice) = match planned.await {
        Ok(planned) => planned,
        Err(error) => {
            tracing::error!(%error, "a dry run failed");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let types = site.view.types(&fleet, now);
    let mut form = filter_form(&address, &types, &request.query, true);
    form.selects.retain(|select| ["type", "state", "layoutState"].contains(&select.name));
    // The first field of the form is the layout to plan.
    let layout_states = form.selects.iter_mut().filter(|select| select.name == "layoutState");
    layout_states.for_each(|select| select.label = "Layout state");
    let clear = FILTERS.iter().fold(address.clone(), |address, name| address.without(name));
    form.clear = moved(&clear.with("continue", ""), PATH);
    let shown: Vec<&str> = form.selects.iter().map(|select| select.name).collect();
    let is_retained = |name: &str| {
        !shown.contains(&name) && ![PLAN, "search", "selector", "continue"].contains(&name)
    };
    let choices = |names: Vec<String>| -> Vec<Choice> {
        let chosen = request.layout.as_deref();
        names.into_iter().map(|name| Choice { chosen: chosen == Some(&*name), name }).collect()
    };
    let plan = request.layout.as_deref().filter(|_| wrong.is_none());
    let status = status_of(wrong.as_ref());
    let page = DryRunPage {
        frame: Frame::new(&site.view),
        starting: starting(&site.view, &Visibility { nodes: true, ..visibility }),
        notice: notice.as_deref().map(printable),
        retained: address.pairs().filter(|(name, _)| is_retained(name)).collect(),
        file: choices(names.file),
        made: choices(names.made),
        selection: selection(found.total, &request.query.layouts),
        plan: plan.map(|layout| Plan::new(layout, &rows, &address)),
        pager: pager(&address, &found, fleet.nodes.len()).map(|pager| pager.moved(PATH)),
        most: MAX_PLANNED_NODES,
        origin: origin(&uri, &headers),
        form,
        wrong,
    };
    html(status, &page)
}

/// `12 nodes with the layout serving`.
fn selection(count: usize, layouts: &[String]) -> String {
    let nodes = count_noun(count, "node", "nodes");
    match layouts {
        [] => nodes,
        layouts => format!("{nodes} with the layout {}", printable(&layouts.join(" or "))),
    }
}

impl Plan {
    fn new(layout: &str, rows: &[NodePlanRow], address: &ListAddress) -> Self {
        let totals = NodePlanTotals::of_rows(rows);
        let query = address.without(PLAN).with("continue", "");
        let api = format!("/api/v1/layouts/{}/plan", encoded(layout));
        Self {
            layout: printable(layout),
            api: moved(&query, &api),
            outcomes: outcomes(&totals),
            changes: format!(
                "{}: {} destroyed, {} created",
                count_noun(totals.changed_devices, "device changes", "devices change"),
                count_noun(totals.destroyed, "instance", "instances"),
                totals.created
            ),
            rows: rows.iter().map(|row| Row::new(layout, row)).collect(),
        }
    }
}

/// Number of nodes with each outcome, the most severe first.
fn outcomes(totals: &NodePlanTotals) -> Vec<OutcomeCount> {
    let all = [
        (Some(PlanOutcome::Infeasible), totals.infeasible),
        (Some(PlanOutcome::Blocked), totals.blocked),
        (None, totals.unplanned),
        (Some(PlanOutcome::Changes), totals.changes),
        (Some(PlanOutcome::Unchanged), totals.unchanged),
    ];
    let all = all.into_iter().filter(|(_, count)| *count > 0);
    all.map(|(outcome, count)| OutcomeCount { badge: badge(outcome), count }).collect()
}

fn badge(outcome: Option<PlanOutcome>) -> Badge {
    match outcome {
        Some(outcome) => outcome_badge(outcome, outcome_label(outcome)),
        None => Badge { tone: "soft", icon: "empty", word: "no plan" },
    }
}

impl Row {
    fn new(layout: &str, row: &NodePlanRow) -> Self {
        let problems = row.problems.iter().map(|problem| {
            let device = problem.device.as_deref().map(printable);
            (device, capitalize(&printable(&problem.message)))
        });
        let warnings = row.warnings.iter().map(|text| (None, capitalize(&printable(text))));
        Self {
            node: row.node.clone(),
            href: format!("/nodes/{}?layout={}#what-if", row.node, encoded(layout)),
            badge: badge(row.outcome),
            stale: row.stale,
            devices: match row.devices {
                0 => "-".to_owned(),
                all => format!("{} of {all}", row.changed_devices),
            },
            destroyed: row.destroyed,
            created: row.created,
            problems: problems.chain(warnings).collect(),
        }
    }
}

/// Address of the dry run of `layout` on the nodes whose desired layout it is.
pub(super) fn link_of_layout(layout: &str) -> String {
    format!("{PATH}?{PLAN}={name}&layout={name}", name = encoded(layout))
}

/// Address of the dry run of `layout` on all nodes.
pub(crate) fn link_of_layout_alone(layout: &str) -> String {
    format!("{PATH}?{PLAN}={}", encoded(layout))
}

/// Address of the dry run on the nodes with a device of this type.
pub(crate) fn link_of_type(type_name: &str) -> String {
    format!("{PATH}?type={}", encoded(type_name))
}
