//! The page of demand: proposed MIG instances for pending pods, and the changes of devices.

mod diagram;
#[cfg(test)]
mod tests;

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use jiff::Timestamp;
use octavo_access::visibility::ReaderVisibility;
use octavo_demand::{
    Defragmentation, DemandReport, DeviceProposal, ONLY_PROPOSALS, Outcome, PodMove, PodProposal,
    ProposedInstance,
};
use octavo_fleet::access::VisibleTypes;
use octavo_model::id::NodeName;
use octavo_model::inventory::{Device, Inventory};
use octavo_model::reported::Reported;
use octavo_model::tone::Tone;
use octavo_store::demand::DemandError;
use octavo_store::fleet::Fleet;
use octavo_store::view::FleetView;

use self::diagram::BeforeAfter;
use super::address::{encoded, parameter_error};
use super::badges::{
    capitalize, count_noun, format_age, format_time, millis, printable, tone_class, tone_icon,
};
use super::bar::{Bar, LegendEntry, legend_of};
use super::frame::Frame;
use super::layout::StateBadge;
use super::{PageState, html, origin, status_of};

/// Maximum number of devices that are drawn. Each one may need the report of another node.
const MAX_DRAWN: usize = 24;
/// Maximum number of further devices.
const MAX_DEVICE_ROWS: usize = 500;

#[derive(Template)]
#[template(path = "demand.html")]
struct DemandPage {
    frame: Frame,
    /// Message about an invalid parameter.
    wrong: Option<String>,
    content: Content,
    origin: String,
}

/// Content of the page.
#[derive(Debug)]
enum Content {
    /// The reader may not see pods.
    Forbidden,
    /// No cluster is watched.
    NoCluster,
    /// The proposals are not known, for this reason.
    Unknown(String),
    /// The proposals are known.
    Proposals(Box<Proposals>),
}

/// The proposals.
#[derive(Debug)]
struct Proposals {
    as_of: String,
    stale: bool,
    /// Number of pods that wait, with those that are not planned.
    waiting: usize,
    /// `3 pods wait for MIG instances`.
    words: String,
    bar: Bar,
    legend: Vec<LegendEntry>,
    /// Outcomes with their meaning.
    outcomes: Vec<(&'static str, &'static str)>,
    notes: Vec<String>,
    /// Statement that nothing is changed.
    statement: String,
    drawn: Vec<DeviceCard>,
    /// Devices that are not drawn.
    devices: Vec<DeviceRow>,
    /// Number of devices that are not shown.
    more_devices: usize,
    pods: Vec<PodRow>,
}

/// Device with diagrams.
#[derive(Debug)]
struct DeviceCard {
    row: DeviceRow,
    /// `None` if the last report of the node does not match the proposal.
    diagrams: Option<BeforeAfter>,
}

/// Change of a device.
#[derive(Debug)]
struct DeviceRow {
    id: String,
    node: String,
    href: String,
    device: String,
    now: String,
    then: String,
    pods: String,
}

/// Pod with its proposal.
#[derive(Debug)]
struct PodRow {
    /// Namespace and name.
    id: String,
    namespace: String,
    name: String,
    /// Age with its milliseconds.
    waiting: Option<(String, u64)>,
    requests: Vec<String>,
    badge: StateBadge,
    message: String,
    /// Summary of the details; `None` without any.
    summary: Option<String>,
    fragmentation: Option<String>,
    instances: Vec<String>,
    /// Nodes with the reason why they are worse.
    alternatives: Vec<(String, String)>,
    obstacles: Vec<String>,
    /// Running pods whose restart would make room.
    restarts: Vec<String>,
    /// Fragmentation after the restart.
    defragmented: Option<String>,
}

/// Serves the page.
pub(super) async fn show(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    // Only readers who may get every node reach the page. Without a guard in front of it, it shows nothing.
    let content = if visibility.types == VisibleTypes::All {
        let proposals = site.view.demand().await;
        content(&site.view, proposals.as_ref().map(|proposals| &proposals.report))
    } else {
        Content::Forbidden
    };
    let page = DemandPage {
        frame: Frame::new(&site.view),
        wrong: parameter_error(&uri, ""),
        content,
        origin: origin(&uri, &headers),
    };
    html(page.status(), &page)
}

fn content(view: &FleetView, report: Result<&DemandReport, &DemandError>) -> Content {
    match report {
        Ok(report) => Content::Proposals(Box::new(Proposals::new(view, report))),
        Err(DemandError::NoCluster) => Content::NoCluster,
        Err(error) => Content::Unknown(capitalize(&error.to_string())),
    }
}

impl DemandPage {
    fn status(&self) -> StatusCode {
        status_of(self.wrong.as_ref())
    }
}

impl Proposals {
    fn new(view: &FleetView, report: &DemandReport) -> Self {
        let outcomes: Vec<(Outcome, usize)> = report
            .outcomes()
            .into_iter()
            .filter_map(|(outcome, pods)| Some((outcome.known()?, pods)))
            .collect();
        let legend = legend_of(outcomes.iter().map(|&(outcome, pods)| {
            let (kind, fill) = fill(outcome);
            (kind, fill, outcome.as_str(), u64::try_from(pods).unwrap_or(u64::MAX))
        }));
        let (drawn, others) = report.devices.split_at(report.devices.len().min(MAX_DRAWN));
        Self {
            as_of: report
                .as_of
                .parse::<Timestamp>()
                .map_or_else(|_| printable(&report.as_of), format_time),
            stale: report.stale,
            waiting: report.waiting_pods(),
            words: report.waiting_text(),
            bar: Bar::from_legend(&legend, 15),
            legend,
            outcomes: outcomes
                .iter()
                .map(|(outcome, _)| (outcome.as_str(), outcome.description()))
                .collect(),
            notes: report.notes().iter().map(|note| capitalize(note)).collect(),
            statement: capitalize(ONLY_PROPOSALS),
            drawn: draw(&view.listed(), drawn),
            devices: others.iter().take(MAX_DEVICE_ROWS).map(DeviceRow::new).collect(),
            more_devices: others.len().saturating_sub(MAX_DEVICE_ROWS),
            pods: report.items.iter().map(PodRow::new).collect(),
        }
    }
}

/// Color of an outcome in the bar, and its pattern.
fn fill(outcome: Outcome) -> (&'static str, Option<&'static str>) {
    match outcome {
        Outcome::Available => ("state-good", None),
        Outcome::Create => ("in-use", None),
        Outcome::Replace => ("partitioned", Some("stripes")),
        Outcome::Reserve => ("idle-hours", Some("idle-lines")),
        Outcome::Blocked => ("unavailable", Some("crosses")),
    }
}

/// Draws changes of devices, which are ordered by node. The report of each node is decoded once.
fn draw(fleet: &Fleet, changes: &[DeviceProposal]) -> Vec<DeviceCard> {
    let of_node = changes.chunk_by(|one, next| one.node == next.node);
    let cards = of_node.flat_map(|changes| {
        let inventory = changes.first().and_then(|first| inventory(fleet, &first.node));
        changes.iter().map(move |change| {
            let device = inventory.as_ref().and_then(|all| device(all, &change.device));
            DeviceCard {
                row: DeviceRow::new(change),
                diagrams: device.and_then(|device| BeforeAfter::new(device, change)),
            }
        })
    });
    cards.collect()
}

fn inventory(fleet: &Fleet, node: &str) -> Option<Inventory> {
    let node = fleet.nodes.get(&node.parse::<NodeName>().ok()?)?;
    Some(node.status().ok()?.inventory)
}

fn device<'a>(inventory: &'a Inventory, pci: &str) -> Option<&'a Device> {
    inventory.devices.iter().find(|device| device.pci.to_string() == pci)
}

impl DeviceRow {
    fn new(change: &DeviceProposal) -> Self {
        Self {
            id: printable(&format!("gpu-{}/{}", change.node, change.device)),
            node: printable(&change.node),
            href: format!("/nodes/{}", encoded(&change.node)),
            device: printable(&change.device_name),
            now: printable(&DeviceProposal::describe(&change.before)),
            then: printable(&DeviceProposal::describe(&change.after)),
            pods: count_noun(change.pods, "pod", "pods"),
        }
    }
}

impl PodRow {
    fn new(pod: &PodProposal) -> Self {
        let waiting = pod.waiting_seconds.map(Duration::from_secs);
        Self {
            id: printable(&format!("pod-{}", pod.reference())),
            namespace: printable(&pod.namespace),
            name: printable(&pod.pod),
            waiting: waiting.map(|waiting| (format_age(waiting), millis(waiting))),
            requests: pod.requests().split(", ").map(printable).collect(),
            badge: badge(&pod.outcome),
            message: capitalize(&printable(&pod.message)),
            summary: summary(pod),
            fragmentation: pod.fragmentation_text(),
            instances: pod.instances.iter().map(instance).collect(),
            alternatives: pod
                .alternatives
                .iter()
                .map(|one| (printable(&one.node), printable(&one.message)))
                .collect(),
            obstacles: pod.obstacles.iter().map(|one| printable(&one.message)).collect(),
            restarts: moves(pod).iter().map(restart).collect(),
            defragmented: pod.defragmentation.as_ref().map(Defragmentation::fragmentation_text),
        }
    }
}

/// Badge of an outcome. The word is that of the API, so that it can be searched.
fn badge(outcome: &Reported<Outcome>) -> StateBadge {
    let tone = outcome.known().map_or(Tone::Neutral, Outcome::tone);
    let icon = if *outcome == Outcome::Reserve { "stale" } else { tone_icon(tone) };
    StateBadge { tone: tone_class(tone), icon, word: outcome.as_str().to_owned() }
}

/// `1 instance, 2 alternatives, 1 obstacle`.
fn summary(pod: &PodProposal) -> Option<String> {
    let parts = [
        (pod.instances.len(), "instance", "instances"),
        (pod.alternatives.len(), "alternative", "alternatives"),
        (pod.obstacles.len(), "obstacle", "obstacles"),
        (moves(pod).len(), "restart makes room", "restarts make room"),
    ];
    let parts = parts.into_iter().filter(|(count, ..)| *count > 0);
    let parts: Vec<String> =
        parts.map(|(count, one, several)| count_noun(count, one, several)).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn moves(pod: &PodProposal) -> &[PodMove] {
    pod.defragmentation.as_ref().map_or(&[], |found| &found.moves)
}

/// `team-a/eval, which has run for 2h: 1g.10gb at slice 4 of GPU 3 on node gpu-1`.
fn restart(one: &PodMove) -> String {
    let running = one.running_seconds.map(Duration::from_secs);
    let running =
        running.map_or_else(String::new, |age| format!(", which has run for {}", format_age(age)));
    printable(&format!("{}{running}: {}", one.reference(), one.to()))
}

/// `create 3g.40gb in slices 4-7 of GPU 3 (0000:1b:00.0), destroy 1g.10gb at slice 4`.
fn instance(one: &ProposedInstance) -> String {
    let (profile, slices) = (&one.instance.profile, one.instance.slices());
    let verb = if one.exists { "use" } else { "create" };
    let destroyed = if one.destroys.is_empty() {
        String::new()
    } else {
        format!(", destroy {}", one.destroyed())
    };
    printable(&format!(
        "{verb} {profile} in {slices} of {} ({}){destroyed}",
        one.device_name, one.device
    ))
}
