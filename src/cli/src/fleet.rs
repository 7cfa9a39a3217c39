//! `octavo nodes`, `types`, `availability`, `demand` and `node`: the aggregator's view of the fleet, as tables or as the
//! original documents.
//!
//! ```text
//! nodes.rs         one row per node
//! types.rs         one row per type, then the nodes with its devices
//! availability.rs  availability of each type
//! demand.rs        proposals for pending pods
//! node.rs          one node, as `octavo inspect` shows a machine
//! changes.rs       latest changes of a node
//! format.rs        common format of states, ages and amounts
//! absent_types.rs  requested types that the fleet does not have
//! ```

pub(super) mod absent_types;
mod availability;
mod changes;
#[cfg(test)]
mod consistency;
mod demand;
pub(super) mod format;
pub(super) mod node;
pub(super) mod nodes;
mod types;

use std::num::NonZeroUsize;

use octavo_client::{Client, RequestPath, segment};
use octavo_demand::{DemandReport, PodProposal};
use octavo_fleet::api::{NodeDetail, NodeList, NodeRow, TypeList, TypeRow};
use octavo_fleet::availability::AvailabilityList;
use octavo_fleet::changes::document::ChangeList;
use octavo_fleet::summary::NodeState;

use super::error::brief;
use super::output::render;
use super::text::{count_noun, first_names, printable};
use super::{CliError, Exit, Report};
use crate::settings::Colors;
use crate::settings::fleet::{
    AvailabilitySettings, DemandSettings, GroupBy, NodeFilter, NodeOrder, NodeSettings,
    NodesSettings, TypesSettings,
};

/// Runs `octavo nodes`.
pub(super) async fn nodes(settings: &NodesSettings, colors: Colors) -> Result<Report, CliError> {
    let client = Client::connect(&settings.server).await?;
    let limit = settings.limit.map(NonZeroUsize::get);
    let list = list(&client, (&settings.filter, settings.order), limit).await?;
    let printed = settings.output;
    let names = list.items.iter().map(|row| row.name.as_str());
    let output = render(printed.format, &list, names, || match settings.group_by {
        None => nodes::table(&list.items, printed, colors),
        Some(GroupBy::Type) => nodes::by_type(&list.items, printed, colors),
    })?;
    let mut notes: Vec<String> = list.starting.iter().map(format::starting).collect();
    notes.extend(stale_notes(&list.items));
    if printed.is_table() {
        notes.extend(reasons(&list.items));
    }
    if list.items.is_empty() {
        notes.push(
            "no matching nodes; without filters, the list has all nodes with an agent, and nodes \
             of a watched cluster whose labels show an accelerator"
                .to_owned(),
        );
    } else if list.items.len() < list.total {
        notes.push(format!("showing {} of {} nodes", list.items.len(), list.total));
    }
    let types = list.items.iter().flat_map(|row| &row.types);
    let types = types.filter_map(|one| one.type_name.as_deref());
    let unknown = absent_types::unknown(&client, &settings.filter.types, types).await;
    Ok(report(output, notes, unknown))
}

/// Runs `octavo types`.
pub(super) async fn types(settings: &TypesSettings, colors: Colors) -> Result<Report, CliError> {
    let client = Client::connect(&settings.server).await?;
    let mut types: TypeList = client.get(&RequestPath::new("/api/v1/types")).await?;
    let absent = absent_types::absent(&settings.types, &types);
    let wanted =
        |name: &str| settings.types.is_empty() || settings.types.iter().any(|one| one == name);
    types.items.retain(|row| wanted(format::type_name(&row.of_all)));
    let printed = settings.output;
    let mut notes = Vec::new();
    let mut places = Some(Vec::new());
    if printed.is_table() {
        if printed.with_headers() {
            places = visible_nodes(&client).await?;
        }
        notes = places.as_deref().map_or_else(
            || {
                vec![
                    "nodes are not shown: permission to list nodes.octavo.dev is required"
                        .to_owned(),
                ]
            },
            stale_notes,
        );
        notes.extend(without_agent(&types.items));
    }
    let names = types.items.iter().map(|row| format::type_name(&row.of_all));
    let output = render(printed.format, &types, names, || {
        types::tables(&types.items, places.as_deref(), printed, colors)
    })?;
    notes.extend(types.starting.iter().map(format::starting));
    if types.items.is_empty() && absent.is_empty() {
        notes.push("no devices in the fleet".to_owned());
    }
    Ok(report(output, notes, Ok(absent)))
}

/// Runs `octavo availability`.
pub(super) async fn availability(
    settings: &AvailabilitySettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let client = Client::connect(&settings.server).await?;
    let parameters = settings.parameters();
    let parameters = parameters.iter().map(|(name, value)| (*name, value.as_str()));
    let target = RequestPath::new("/api/v1/availability").with(parameters);
    let list: AvailabilityList = client.get(&target).await?;
    let printed = settings.output;
    let mut names: Vec<&str> = list.items.iter().map(|row| row.type_name.as_str()).collect();
    names.dedup();
    let text = || availability::text(&list, printed, colors);
    let output = render(printed.format, &list, names, text)?;
    let types = list.items.iter().map(|row| row.type_name.as_str());
    let unknown = absent_types::unknown(&client, &settings.types, types).await;
    Ok(report(output, availability::notes(&list), unknown))
}

/// Runs `octavo demand`.
pub(super) async fn demand(settings: &DemandSettings, colors: Colors) -> Result<Report, CliError> {
    let client = Client::connect(&settings.server).await?;
    let all: DemandReport = client.get(&RequestPath::new("/api/v1/demand")).await?;
    let printed = settings.output;
    let Some(wanted) = &settings.pod else {
        let names: Vec<String> = all.items.iter().map(PodProposal::reference).collect();
        let text = || demand::text(&all, printed, colors);
        let output = render(printed.format, &all, names.iter().map(String::as_str), text)?;
        return Ok(Report::with_notes(output, &demand::notes(&all), Exit::Done));
    };
    let pod = demand::find(&all, wanted)?;
    let text = || demand::details(pod, printed, colors);
    let output = render(printed.format, pod, [pod.reference().as_str()], text)?;
    Ok(Report::with_notes(output, &demand::validity(&all), Exit::Done))
}

/// Returns the report of an answer. Requested types that do not exist are a failure, and so is a failed request for the
/// types; the answer is printed in both cases.
pub(super) fn report(
    output: String,
    mut notes: Vec<String>,
    absent_types: Result<Vec<String>, CliError>,
) -> Report {
    let absent_types = absent_types.unwrap_or_else(|error| {
        vec![format!("the types of the fleet were not checked: {}", brief(&error))]
    });
    let exit = if absent_types.is_empty() { Exit::Done } else { Exit::Failed };
    notes.extend(absent_types);
    Report::with_notes(output, &notes, exit)
}

/// Returns all nodes, unless the requester is not authorized to see them.
async fn visible_nodes(client: &Client) -> Result<Option<Vec<NodeRow>>, CliError> {
    match client.all_nodes().await {
        Ok(nodes) => Ok(Some(nodes.items)),
        Err(error) if error.is_forbidden() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Runs `octavo node`.
pub(super) async fn node(settings: &NodeSettings, colors: Colors) -> Result<Report, CliError> {
    let client = Client::connect(&settings.server).await?;
    let path = format!("/api/v1/nodes/{}", segment(&settings.name));
    if settings.changes {
        let list: ChangeList = client.get(&RequestPath::new(&format!("{path}/changes"))).await?;
        let text = || changes::table(&list, settings.output, colors);
        let names = [list.node.as_str()];
        let output = render(settings.output.format, &list, names, text)?;
        return Ok(Report::with_notes(output, &changes::notes(&list), Exit::Done));
    }
    let target = RequestPath::new(&path);
    let detail: NodeDetail = client.get(&target).await?;
    let printed = settings.output;
    let text = || node::text(&detail, printed, colors);
    let output = render(printed.format, &detail, [detail.row.name.as_str()], text)?;
    let notes = stale_notes(std::slice::from_ref(&detail.row));
    Ok(Report::with_notes(output, &notes, Exit::Done))
}

/// Returns the nodes that pass the filter, from all pages, or the first `limit` nodes.
pub(super) async fn list(
    client: &Client,
    (filter, order): (&NodeFilter, NodeOrder),
    limit: Option<usize>,
) -> Result<NodeList, CliError> {
    let mut parameters = filter.parameters();
    let order = order.parameter();
    parameters.push(("sort", order.as_str()));
    Ok(client.nodes(&parameters, limit).await?)
}

/// Returns the node's current state, if it passes the filter. The aggregator applies the filter, because it alone has
/// the labels.
pub(super) async fn matching(
    client: &Client,
    filter: &NodeFilter,
    node: NodeRow,
) -> Result<Option<NodeRow>, CliError> {
    let parameters = filter.parameters();
    if parameters.is_empty() {
        return Ok(Some(node));
    }
    let searched = filter.search.as_deref().unwrap_or_default();
    let searched = searched.to_ascii_lowercase();
    if !node.name.to_ascii_lowercase().contains(&searched) {
        return Ok(None);
    }
    let parameters = parameters.into_iter();
    let parameters = parameters.filter(|(name, _)| *name != "search");
    let parameters: Vec<(&str, &str)> =
        parameters.chain([("search", node.name.as_str())]).collect();
    let list = client.nodes(&parameters, None).await?;
    Ok(list.items.into_iter().find(|row| row.name == node.name))
}

/// Returns a warning about stale rows.
pub(super) fn stale_notes(rows: &[NodeRow]) -> Vec<String> {
    let stale: Vec<String> = rows
        .iter()
        .filter(|row| format::is_stale(row))
        .map(|row| format!("{} ({})", printable(&row.name), format::age(row.age_seconds)))
        .collect();
    if stale.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "{} stale: {}; the last reports are shown",
        count_noun(stale.len(), "node is", "nodes are"),
        first_names(&stale, 5)
    )]
}

/// Returns a note about devices that are counted only by labels.
fn without_agent(types: &[TypeRow]) -> Option<String> {
    let types: Vec<String> = types
        .iter()
        .filter(|row| row.nodes_without_agent > 0)
        .map(|row| {
            let nodes = usize::try_from(row.nodes_without_agent).unwrap_or(usize::MAX);
            let name = printable(format::type_name(&row.of_all));
            format!("{name} on {}", count_noun(nodes, "node", "nodes"))
        })
        .collect();
    (!types.is_empty()).then(|| {
        format!(
            "nodes without an agent are counted by their labels, and their usage is unknown: {}; \
             see octavo nodes --state no-agent",
            types.join(", ")
        )
    })
}

/// Returns the reasons for unhealthy nodes, for the first few that report one.
fn reasons(rows: &[NodeRow]) -> Vec<String> {
    const SHOWN: usize = 5;
    let wrong = rows.iter().filter(|row| {
        let state = row.state.known();
        state.is_none_or(|state| state.needs_attention() || state == NodeState::NoAgent)
    });
    let mut all = wrong.filter_map(|row| {
        let reason = printable(row.reason.as_deref()?);
        let name = printable(&row.name);
        let state = match row.state.known() {
            Some(NodeState::Attention) => "needs attention".to_owned(),
            Some(_) | None => printable(&row.state.to_string()),
        };
        Some(format!("{name}: {state}: {reason}"))
    });
    let mut shown: Vec<String> = all.by_ref().take(SHOWN).collect();
    let more = all.count();
    if more > 0 {
        shown.push(format!("{more} more nodes have problems; use -o json to show all"));
    }
    shown
}
