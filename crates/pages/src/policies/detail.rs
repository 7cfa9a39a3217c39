//! Page of a policy: its progress, its nodes, the next waves and the revisions.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use octavo_access::visibility::ReaderVisibility;
use octavo_model::reported::Reported;
use octavo_model::text::{first_names, shell_word};
use octavo_model::tone::Tone;
use octavo_policy::document::PolicyDetail;
use octavo_policy::{
    Condition, Content, DemandMode, InstanceChange, MemberState, PlannedNode, Policy, PolicyMember,
    PolicyPlan, PolicySpec, Revision, StopAction, Window,
};
use octavo_store::clock::Moment;
use octavo_store::fleet::Fleet;
use octavo_store::policies::PolicyView;

use super::{Bar, LegendEntry, badge, legend, visible, words};
use crate::badges::{TextPart, format_time, printable, text_parts, tone_class, tone_icon};
use crate::frame::Frame;
use crate::layout::StateBadge;
use crate::{NotFoundPage, PageState, html, origin};

/// Maximum number of nodes that are listed.
const MAX_NODES: usize = 200;
/// Maximum number of waves that are listed.
const MAX_WAVES: usize = 5;
/// Maximum number of names in a line.
const MAX_NAMES: usize = 12;

#[derive(Template)]
#[template(path = "policy.html")]
struct PolicyPage {
    frame: Frame,
    name: String,
    /// Name in a command.
    word: String,
    /// Path of the API.
    path: String,
    badge: StateBadge,
    notice: Option<String>,
    /// Reason why the policy is refused, stopped or in conflict.
    obstacle: Option<String>,
    waits_for: Vec<TextPart>,
    /// Changes of instances for pending pods.
    changes: Vec<ChangeRow>,
    bar: Bar,
    legend: Vec<LegendEntry>,
    words: String,
    facts: Vec<(&'static str, String)>,
    /// Identifier, title and text.
    commands: Vec<(&'static str, &'static str, String)>,
    nodes: Vec<NodeRow>,
    more_nodes: usize,
    waves: Vec<WaveRow>,
    more_waves: usize,
    /// Nodes that no wave changes, with the reason.
    waiting: Option<(&'static str, String)>,
    revisions: Vec<RevisionRow>,
    conditions: Vec<ConditionRow>,
    origin: String,
}

/// Selected node.
#[derive(Debug)]
struct NodeRow {
    name: String,
    badge: StateBadge,
    since: Option<String>,
    layout: Option<String>,
    in_use: Option<u32>,
    message: Vec<TextPart>,
}

/// Change of instances for pending pods.
#[derive(Debug)]
struct ChangeRow {
    state: &'static str,
    node: String,
    since: String,
    pods: Vec<String>,
    /// The instances of each pod.
    lines: Vec<String>,
}

/// Nodes that are changed together.
#[derive(Debug)]
struct WaveRow {
    nodes: String,
    /// `2 of them in use`.
    in_use: Option<String>,
}

/// Retained revision.
#[derive(Debug)]
struct RevisionRow {
    name: String,
    time: String,
    is_current: bool,
    content: String,
}

/// Condition of the status.
#[derive(Debug)]
struct ConditionRow {
    kind: String,
    status: String,
    since: String,
    reason: String,
    message: String,
}

/// Serves the page.
pub(crate) async fn show(
    State(site): State<PageState>,
    ReaderVisibility(visibility): ReaderVisibility,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let (fleet, now) = (site.view.fleet(), site.view.clock().now());
    let policies = visible(&site.view, &visibility);
    let found = policies.and_then(|view| found(view, &name, (&fleet, now)));
    let Some((detail, plan)) = found else {
        let page = NotFoundPage {
            frame: Frame::new(&site.view),
            title: "Policy not found",
            text: "The cluster has no accelerator policy with this name, or the aggregator does not read policies.",
        };
        return html(StatusCode::NOT_FOUND, &page);
    };
    let page = page(Frame::new(&site.view), &detail, &plan, origin(&uri, &headers));
    html(StatusCode::OK, &page)
}

/// The policy with its nodes and the waves that follow.
fn found(
    view: &PolicyView,
    name: &str,
    fleet: (&Fleet, Moment),
) -> Option<(PolicyDetail, PolicyPlan)> {
    let detail = view.detail(name, fleet)?;
    let known = view.known();
    let policy: &Policy = known.all.get(name)?;
    let accepted = detail.status.condition("Accepted");
    let infeasible = accepted.filter(|accepted| accepted.reason == "Infeasible");
    let infeasible = infeasible.map(|accepted| accepted.message.clone());
    Some((detail, view.plan(policy, fleet, infeasible)))
}

fn page(frame: Frame, detail: &PolicyDetail, plan: &PolicyPlan, origin: String) -> PolicyPage {
    let status = &detail.status;
    let legend = legend(status.nodes);
    let nodes: Vec<NodeRow> = detail.members.iter().take(MAX_NODES).map(NodeRow::of).collect();
    let all = detail.members.len().saturating_add(detail.more_members);
    let waves = &plan.waves;
    PolicyPage {
        frame,
        name: printable(&detail.name),
        word: shell_word(&printable(&detail.name)),
        path: super::path(&detail.name),
        badge: badge(&status.state.into()),
        notice: detail.notice.as_deref().map(printable),
        obstacle: obstacle(detail).as_deref().map(printable),
        waits_for: text_parts(&printable(status.waits_for.as_deref().unwrap_or_default())),
        changes: status.changes.iter().map(ChangeRow::of).collect(),
        bar: Bar::from_legend(&legend, 12),
        legend,
        words: words(status.nodes),
        facts: facts(detail),
        commands: commands(detail),
        more_nodes: all.saturating_sub(nodes.len()),
        nodes,
        waves: waves.iter().take(MAX_WAVES).map(|wave| WaveRow::of(wave)).collect(),
        more_waves: waves.len().saturating_sub(MAX_WAVES),
        waiting: waiting(plan),
        revisions: status
            .revisions
            .iter()
            .map(|revision| RevisionRow::of(revision, &status.revision))
            .collect(),
        conditions: status.conditions.iter().map(ConditionRow::of).collect(),
        origin,
    }
}

/// Nodes that no wave changes, with the reason.
fn waiting(plan: &PolicyPlan) -> Option<(&'static str, String)> {
    let reason = if plan.refused.is_some() {
        "Not planned, because the policy is refused"
    } else if plan.stop.as_ref().is_some_and(|stop| stop.action == StopAction::Pause) {
        "Not planned, because the roll-out is stopped until the spec changes"
    } else {
        "Not planned yet, because they are not ready or the budget is used up"
    };
    let names: Vec<String> = plan.waiting.iter().map(|node| node.name.clone()).collect();
    (!names.is_empty()).then(|| (reason, printable(&first_names(&names, MAX_NAMES))))
}

/// Commands that change the policy.
fn commands(detail: &PolicyDetail) -> Vec<(&'static str, &'static str, String)> {
    let name = shell_word(&printable(&detail.name));
    let is_paused = detail.spec.as_ref().is_some_and(|spec| spec.rollout.paused);
    let pace = if is_paused {
        ("resume", "Resume the roll-out", format!("octavo policy resume {name}"))
    } else {
        ("pause", "Pause the roll-out", format!("octavo policy pause {name}"))
    };
    let approve =
        ("approve", "Approve the proposed instances", format!("octavo policy approve {name}"));
    let waits = detail
        .spec
        .as_ref()
        .is_some_and(|spec| spec.demand.is_some_and(|demand| demand.mode == DemandMode::Propose));
    let back = "Return the nodes to the previous revision";
    let back = ("rollback", back, format!("octavo policy rollback {name}"));
    waits.then_some(approve).into_iter().chain([pace, back]).collect()
}

/// Reason why the policy is refused, stopped or in conflict.
fn obstacle(detail: &PolicyDetail) -> Option<String> {
    let status = &detail.status;
    let message = |kind: &str, bad: &str| {
        let condition = status.condition(kind).filter(|condition| condition.status == bad);
        condition.map(|condition| format!("{}: {}", condition.reason, condition.message))
    };
    let refused = message("Accepted", "False").or_else(|| detail.spec_error.clone());
    refused.or_else(|| message("Stopped", "True")).or_else(|| message("Conflict", "True"))
}

fn facts(detail: &PolicyDetail) -> Vec<(&'static str, String)> {
    let spec = detail.spec.as_ref();
    let with = |of: fn(&PolicySpec) -> Option<String>| spec.and_then(of);
    let pace = spec.map(|spec| &spec.rollout);
    let status = &detail.status;
    let all = [
        ("Layout", with(|spec| spec.layout.clone())),
        ("Demand", with(|spec| spec.demand.map(|demand| demand.text()))),
        ("Revision", Some(status.revision.clone()).filter(|revision| !revision.is_empty())),
        ("Node labels", with(|spec| Content::of(spec).labels_text())),
        ("Taints", with(|spec| Content::of(spec).taints_text())),
        ("Drain", with(|spec| spec.drain.map(|drain| drain.text()))),
        ("Selected by", with(selector)),
        ("Max. unavailable", pace.map(|pace| pace.max_unavailable.to_string())),
        ("Unavailable now", Some(status.nodes.unavailable.to_string())),
        ("Pause between waves", pace.and_then(|pace| Some(pace.pause?.to_string()))),
        ("Windows", pace.and_then(|pace| windows(&pace.windows))),
        ("Allowed failures", pace.map(|pace| pace.max_failures.to_string())),
        ("On failure", pace.map(|pace| pace.on_failure.to_string())),
        ("Deadline of a node", pace.map(|pace| pace.node_deadline.to_string())),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, printable(&value?)))).collect()
}

fn selector(spec: &PolicySpec) -> Option<String> {
    let labels = spec.node_selector.match_labels.iter();
    let mut all: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
    all.extend(spec.node_selector.match_expressions.iter().map(|one| {
        let values = if one.values.is_empty() {
            String::new()
        } else {
            format!(" ({})", one.values.join(", "))
        };
        format!("{} {:?}{values}", one.key, one.operator)
    }));
    (!all.is_empty()).then(|| all.join(", "))
}

fn windows(windows: &[Window]) -> Option<String> {
    let all = windows.iter().map(|window| {
        let days: Vec<String> = window.days.iter().map(ToString::to_string).collect();
        let days = if days.is_empty() { "daily".to_owned() } else { days.join(" ") };
        let zone = window.time_zone.as_deref().unwrap_or("UTC");
        format!("{days} {} for {} ({zone})", window.start, window.duration)
    });
    let all: Vec<String> = all.collect();
    (!all.is_empty()).then(|| all.join("; "))
}

impl NodeRow {
    fn of(member: &PolicyMember) -> Self {
        Self {
            name: member.name.clone(),
            badge: member_badge(&member.state),
            since: member.since.map(format_time),
            layout: member.layout.as_deref().map(printable),
            in_use: member.in_use,
            message: text_parts(&printable(member.message.as_deref().unwrap_or_default())),
        }
    }
}

fn member_badge(state: &Reported<MemberState>) -> StateBadge {
    let tone = state.known().map_or(Tone::Neutral, MemberState::tone);
    let icon = match state.known() {
        Some(MemberState::Updating) => "stale",
        Some(MemberState::Waiting) | None => "empty",
        Some(_) => tone_icon(tone),
    };
    StateBadge { tone: tone_class(tone), icon, word: printable(&state.to_string()) }
}

impl ChangeRow {
    fn of(change: &InstanceChange) -> Self {
        Self {
            state: change.state(),
            node: printable(&change.node),
            since: format_time(change.since),
            pods: change.pods.iter().map(|pod| printable(pod)).collect(),
            lines: change.lines().iter().map(|line| printable(line)).collect(),
        }
    }
}

impl WaveRow {
    fn of(wave: &[PlannedNode]) -> Self {
        let names: Vec<String> = wave.iter().map(|node| node.name.clone()).collect();
        let used = wave.iter().filter(|node| node.in_use.is_some_and(|count| count > 0)).count();
        Self {
            nodes: printable(&first_names(&names, MAX_NAMES)),
            in_use: (used > 0).then(|| format!("{used} in use")),
        }
    }
}

impl RevisionRow {
    fn of(revision: &Revision, current: &str) -> Self {
        Self {
            name: printable(&revision.revision),
            time: format_time(revision.time),
            is_current: revision.revision == current,
            content: match revision.content.text() {
                text if text.is_empty() => "no layout, labels or taints".to_owned(),
                text => printable(&text),
            },
        }
    }
}

impl ConditionRow {
    fn of(condition: &Condition) -> Self {
        Self {
            kind: printable(&condition.kind),
            status: printable(&condition.status),
            since: format_time(condition.last_transition_time),
            reason: printable(&condition.reason),
            message: printable(&condition.message),
        }
    }
}
