//! Search results: nodes, devices, types, MIG profiles, layouts, hardware profiles, pods, namespaces and policies.

mod names;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use octavo_access::visibility::ReaderVisibility;
use octavo_fleet::access::Visibility;
use octavo_model::id::NodeName;
use octavo_store::fleet::Fleet;
use octavo_store::search::{DeviceMatch, Matches, PodMatch, Scope, Search, SearchResults};
use tokio::task::yield_now;

use super::address::{encoded, query_parameter};
use super::badges::{count_noun, printable, starting};
use super::frame::Frame;
use super::policies;
use super::{PageState, html, origin};

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    frame: Frame,
    starting: Option<String>,
    text: String,
    namespace: Option<String>,
    /// Search for the same text in all namespaces.
    everywhere: Option<String>,
    /// Number of matches; `None` without a text.
    total: Option<String>,
    groups: Vec<ResultGroup>,
    /// Kinds that the reader may not search, and the required permission.
    hidden: Vec<(&'static str, &'static str)>,
    /// Number of nodes that were searched for devices and pods, if not all.
    searched: Option<usize>,
    /// True if there are more namespaces than were counted.
    not_counted: bool,
    origin: String,
}

/// Matches of one kind.
#[derive(Debug)]
struct ResultGroup {
    id: &'static str,
    title: &'static str,
    count: usize,
    results: Vec<SearchResult>,
    /// Number of matches that are not shown.
    rest: usize,
}

/// Match, with a link if the reader may open its page.
#[derive(Debug, PartialEq, Eq)]
struct SearchResult {
    href: Option<String>,
    name: String,
    about: String,
}

/// Serves the results for the parameter `q`, and optionally only pods of a `namespace`.
pub(super) async fn page(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let text = query_parameter(&uri, "q").unwrap_or_default();
    let text = text.trim();
    let namespace = query_parameter(&uri, "namespace").map(|name| name.trim().to_owned());
    let fleet = site.view.listed();
    // In a namespace there are only pods.
    let nodes = visibility.nodes && namespace.is_none();
    if nodes && let Some(name) = exact_node(&fleet, text) {
        return Redirect::to(&format!("/nodes/{name}")).into_response();
    }
    let scope = Scope { nodes, pods: visibility.pods, namespace: namespace.clone() };
    let mut search = Search::new(&fleet, text, scope);
    // Other tasks share this thread.
    while search.step() {
        yield_now().await;
    }
    let found = search.finish();
    let mut groups = groups(&found, visibility.nodes);
    if namespace.is_none() && !text.is_empty() {
        // After nodes and devices.
        let place = groups.iter().position(|group| ["pods", "namespaces"].contains(&group.id));
        let place = place.unwrap_or(groups.len());
        groups.splice(place..place, named(&site, &visibility, &fleet, text).await);
        if nodes {
            let found = policies::matching(&site.view, text).into_iter().collect();
            groups.push(group("policies", "Policies", &found, policy));
        }
        groups.retain(|group| group.count > 0);
    }
    let total = groups.iter().map(|group| group.count).sum();
    let has_query = !text.is_empty() || namespace.is_some();
    let page = SearchPage {
        frame: Frame::new(&site.view),
        starting: starting(&site.view, &visibility),
        text: printable(text),
        everywhere: namespace
            .as_ref()
            .filter(|_| !text.is_empty())
            .map(|_| format!("/search?q={}", encoded(text))),
        namespace: namespace.as_deref().map(printable),
        total: has_query.then(|| count_noun(total, "match", "matches")),
        groups,
        hidden: hidden(&visibility, namespace.is_some()),
        searched: found.searched,
        not_counted: found.has_more_namespaces,
        origin: origin(&uri, &headers),
    };
    html(StatusCode::OK, &page)
}

/// Groups of matches by name, of the kinds that the reader may see.
async fn named(
    site: &PageState,
    visibility: &Visibility,
    fleet: &Fleet,
    text: &str,
) -> Vec<ResultGroup> {
    let mut groups = Vec::new();
    if let Some(latest) = site.availability.current().await {
        groups.push(names::types(text, &latest.availability, visibility));
        groups.push(names::mig_profiles(text, &latest.availability, visibility));
    }
    if visibility.nodes {
        groups.push(names::layouts(text, fleet, site.view.layouts().layouts.as_deref()));
    }
    if visibility.profiles {
        let report = site.view.profiles().latest_report(site.view.fleet()).await;
        let rows = report.visible_to(visibility).map(|(row, _)| row);
        groups.push(names::hardware_profiles(text, rows));
    }
    groups
}

/// Node with exactly this name.
fn exact_node(fleet: &Fleet, text: &str) -> Option<NodeName> {
    let name = text.to_ascii_lowercase().parse::<NodeName>().ok()?;
    fleet.nodes.get(&name).map(|node| node.name.clone())
}

/// Kinds of matches that require another permission. In a namespace, only pods are searched.
fn hidden(visibility: &Visibility, in_namespace: bool) -> Vec<(&'static str, &'static str)> {
    let nodes = ("Nodes, devices, layouts and policies", "list nodes.octavo.dev");
    let profiles = ("Hardware profiles", "list hardwareprofiles.octavo.dev");
    let pods = ("Pods and namespaces", "list usage.octavo.dev");
    let all = [
        (visibility.nodes || in_namespace, nodes),
        (visibility.profiles || in_namespace, profiles),
        (visibility.pods, pods),
    ];
    all.into_iter().filter(|(is_shown, _)| !is_shown).map(|(_, hidden)| hidden).collect()
}

/// Groups with at least one match.
fn groups(found: &SearchResults, nodes: bool) -> Vec<ResultGroup> {
    let groups = [
        group("nodes", "Nodes", &found.nodes, |name| SearchResult {
            href: Some(format!("/nodes/{name}")),
            name: name.to_string(),
            about: String::new(),
        }),
        group("devices", "Devices", &found.devices, device),
        group("pods", "Pods", &found.pods, |one| pod(one, nodes)),
        group("namespaces", "Namespaces", &found.namespaces, |(name, pods)| SearchResult {
            href: Some(format!("/search?namespace={}", encoded(name))),
            name: printable(name),
            about: count_noun(*pods, "pod with a device", "pods with a device"),
        }),
    ];
    groups.into_iter().filter(|group| group.count > 0).collect()
}

fn group<T>(
    id: &'static str,
    title: &'static str,
    matches: &Matches<T>,
    result: impl Fn(&T) -> SearchResult,
) -> ResultGroup {
    ResultGroup {
        id,
        title,
        count: matches.total,
        results: matches.items.iter().map(result).collect(),
        rest: matches.rest(),
    }
}

fn policy(row: &policies::Row) -> SearchResult {
    SearchResult {
        href: Some(row.href.clone()),
        name: row.name.clone(),
        about: format!("{}, {}", row.badge.word, row.words),
    }
}

fn device(found: &DeviceMatch) -> SearchResult {
    let DeviceMatch { node, pci, uuid } = found;
    let name = uuid.as_deref().map(printable);
    SearchResult {
        href: Some(format!("/nodes/{node}#device-{pci}")),
        about: match &name {
            Some(_) => format!("{pci} on {node}"),
            None => format!("on {node}"),
        },
        name: name.unwrap_or_else(|| pci.to_string()),
    }
}

/// The node and the devices of a pod are named only to readers who may list nodes.
fn pod(found: &PodMatch, nodes: bool) -> SearchResult {
    let first = found.devices.first();
    let fragment = first.map(|(pci, _)| format!("#device-{pci}")).unwrap_or_default();
    let names: Vec<String> = found.devices.iter().map(|(_, name)| printable(name)).collect();
    let devices = match names.as_slice() {
        [] => "no device".to_owned(),
        [one] => one.clone(),
        [one, .., last] => {
            format!("{} from {one} to {last}", count_noun(names.len(), "device", "devices"))
        }
    };
    SearchResult {
        href: nodes.then(|| format!("/nodes/{}{fragment}", found.node)),
        name: match found.namespace.as_str() {
            "" => printable(&found.pod),
            namespace => printable(&format!("{namespace}/{}", found.pod)),
        },
        about: if nodes {
            format!("{devices} on {}", found.node)
        } else {
            count_noun(names.len(), "device", "devices")
        },
    }
}

#[cfg(test)]
mod tests;
