//! Texts about policies: their progress and plans in lines, each with a name.

use octavo_fleet::cluster::Taint;
use octavo_model::text::{count_noun, first_names, format_age_short};
use octavo_model::tone::Tone;

use crate::demand::{DemandMode, PolicyDemand};
use crate::document::{PolicyDetail, PolicyPlanDocument, PolicySource};
use crate::drain::{DrainScope, PolicyDrain};
use crate::instance_change::InstanceChange;
use crate::status::{Content, NodeCounts, StopAction};

/// Width of a bar in characters.
const BAR_WIDTH: u32 = 24;
/// Maximum number of names in a line.
const MAX_NAMES: usize = 8;

/// Named line of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Name.
    pub name: &'static str,
    /// Text.
    pub text: String,
    /// Severity.
    pub tone: Tone,
}

impl Fact {
    fn new(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, text: text.into(), tone: Tone::Neutral }
    }

    fn with_tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }
}

/// Describes the progress of a policy.
pub fn progress(detail: &PolicyDetail) -> Vec<Fact> {
    let status = &detail.status;
    let layout = detail.spec.as_ref().and_then(|spec| spec.layout.clone());
    let mut facts = vec![
        Fact::new("Policy", detail.name.as_str()),
        Fact::new("State", status.state.to_string()).with_tone(status.state.tone()),
    ];
    facts.extend(layout.map(|layout| Fact::new("Layout", layout)));
    let demand = detail.spec.as_ref().and_then(|spec| spec.demand);
    facts.extend(demand.map(|demand| Fact::new("Demand", demand.text())));
    if !status.revision.is_empty() {
        facts.push(Fact::new("Revision", status.revision.as_str()));
    }
    facts.push(Fact::new("Nodes", bar(status.nodes)));
    facts.extend(status.waits_for.iter().map(|what| Fact::new("Waits for", what.as_str())));
    facts.extend(status.changes.iter().map(|change| Fact::new(change.state(), change.text())));
    let refused = status.condition("Accepted").filter(|accepted| accepted.status == "False");
    let refused = refused.map(|accepted| &accepted.message).or(detail.spec_error.as_ref());
    let stopped = status.stop.as_ref().map(|stop| &stop.message);
    for (name, why) in [("Refused", refused), ("Stopped", stopped)] {
        facts.extend(why.map(|why| Fact::new(name, why.as_str()).with_tone(Tone::Bad)));
    }
    facts
}

/// Formats a bar with the counts: `[######......] 6 of 12 applied, 2 updating`.
fn bar(nodes: NodeCounts) -> String {
    let filled = nodes.applied.saturating_mul(BAR_WIDTH).checked_div(nodes.selected);
    let filled = filled.unwrap_or_default().min(BAR_WIDTH);
    let drawn = |text: &str, width: u32| text.repeat(usize::try_from(width).unwrap_or_default());
    let others = [
        (nodes.updating, "updating"),
        (nodes.failed, "failed"),
        (nodes.overridden, "overridden"),
        (nodes.conflicting, "conflicting"),
        (nodes.unavailable, "unavailable"),
    ];
    let others = others.iter().filter(|(count, _)| *count > 0);
    let others: Vec<String> = others.map(|(count, word)| format!(", {count} {word}")).collect();
    let others = others.concat();
    format!(
        "[{}{}] {} of {} applied{others}",
        drawn("#", filled),
        drawn(".", BAR_WIDTH.saturating_sub(filled)),
        nodes.applied,
        nodes.selected
    )
}

/// Describes the effect of a plan in numbers.
pub fn plan(plan: &PolicyPlanDocument) -> Vec<Fact> {
    let (rollout, capacity) = (&plan.rollout, &plan.capacity);
    let new = if plan.exists { "" } else { " (new)" };
    let mut facts = vec![Fact::new("Policy", format!("{}{new}", plan.name))];
    facts.extend(rollout.layout.iter().map(|layout| Fact::new("Layout", layout.as_str())));
    facts.extend(rollout.drain.iter().map(|drain| Fact::new("Drain", drain.text())));
    let refused = rollout.refused.iter();
    facts.extend(refused.map(|why| Fact::new("Refused", why.as_str()).with_tone(Tone::Bad)));
    facts.extend(rollout.stop.iter().map(|stop| match stop.action {
        StopAction::Pause => Fact::new("Stopped", stop.message.as_str()).with_tone(Tone::Bad),
        StopAction::RollBack | StopAction::Remove => {
            let is_done = rollout.waves.is_empty()
                && rollout.updating.is_empty()
                && rollout.waiting.is_empty();
            let name = if is_done { "Rolled back" } else { "Rolls back" };
            Fact::new(name, stop.message.as_str()).with_tone(Tone::Warning)
        }
    }));
    let opens =
        rollout.window_opens.map(|at| format!("opens at {at}; no further node is changed before"));
    let paused = "no further node is changed until spec.rollout.paused is false";
    let holds = [("Paused", rollout.paused.then(|| paused.to_owned())), ("Next window", opens)];
    let holds = holds.into_iter().filter_map(|(name, text)| Some(Fact::new(name, text?)));
    facts.extend(holds.map(|fact| fact.with_tone(Tone::Warning)));
    facts.extend(plan.infeasible.iter().map(|one| {
        let nodes = count_noun(one.nodes, "node", "nodes");
        let text = format!("{} ({nodes}): {}", one.types.join(", "), one.reason);
        Fact::new("Infeasible", text).with_tone(Tone::Bad)
    }));
    let selected = count_noun(rollout.selected, "node", "nodes");
    facts.push(Fact::new("Nodes", format!("{selected} selected, {} unchanged", rollout.unchanged)));
    for (name, nodes, tone) in [
        ("Updating", &rollout.updating, Tone::Neutral),
        ("Overridden", &rollout.overridden, Tone::Warning),
        ("Conflicting", &rollout.conflicting, Tone::Warning),
        ("Unavailable", &rollout.unavailable, Tone::Warning),
    ] {
        if !nodes.is_empty() {
            facts.push(Fact::new(name, first_names(nodes, MAX_NAMES)).with_tone(tone));
        }
    }
    let changing: usize = rollout.waves.iter().map(Vec::len).sum();
    if changing > 0 {
        let waves = count_noun(rollout.waves.len(), "wave", "waves");
        let (nodes, most) = (count_noun(changing, "node", "nodes"), rollout.max_unavailable);
        facts
            .push(Fact::new("Roll-out", format!("{nodes} in {waves}, at most {most} unavailable")));
        let text = format!(
            "at least {} of {} nodes and {} of {} devices available",
            capacity.min_nodes, capacity.nodes, capacity.min_devices, capacity.devices
        );
        facts.push(Fact::new("Capacity", text));
    }
    facts.extend(changes(plan).map(|text| Fact::new("Changes", text)));
    facts.extend(plan.duration.filter(|_| changing > 0).map(|duration| {
        let [least, most] = [duration.min_seconds, duration.max_seconds]
            .map(|seconds| format_age_short(std::time::Duration::from_secs(seconds)));
        Fact::new("Duration", format!("{least} to {most}, excluding time outside windows"))
    }));
    facts
}

/// Sums of the effect on the listed nodes; `None` without any.
fn changes(plan: &PolicyPlanDocument) -> Option<String> {
    let totals = &plan.totals;
    let others = [
        (totals.blocked, "blocked"),
        (totals.unplanned, "without a plan"),
        (plan.more_nodes, "not planned"),
    ];
    let others = others.into_iter().filter(|(count, _)| *count > 0);
    let others =
        others.map(|(count, words)| format!("; {} {words}", count_noun(count, "node", "nodes")));
    let devices = count_noun(totals.changed_devices, "device", "devices");
    let instances = count_noun(totals.destroyed, "instance", "instances");
    let created = totals.created;
    (totals.nodes > 0).then(|| {
        format!("{devices}: {instances} destroyed, {created} created{}", others.collect::<String>())
    })
}

impl PolicySource {
    /// Reason why no policies are listed, and the remedy.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::Disabled => {
                "policies have no effect: start the aggregator with --follow-cluster and --policies"
            }
            Self::Absent => {
                "the cluster has no AcceleratorPolicy resource: install the chart's definition"
            }
            Self::Starting => "the aggregator has not read the policies yet",
            Self::Cluster => "no policies; `octavo policy apply` creates one",
        }
    }
}

impl PolicyDrain {
    /// Evicted pods and time limit.
    pub fn text(&self) -> String {
        let pods = match self.scope {
            DrainScope::Never => return "no pods are evicted".to_owned(),
            DrainScope::Affected => "evicts the pods that block the layout",
            DrainScope::Node => "evicts all evictable pods of a node with blocking pods",
        };
        format!("{pods}, at most {} per attempt", self.timeout)
    }
}

impl PolicyDemand {
    /// Use of the proposals, and its limits.
    pub fn text(&self) -> String {
        let count = usize::try_from(self.changes_per_hour).unwrap_or(usize::MAX);
        let limit =
            format!("at most {} per hour on each node", count_noun(count, "change", "changes"));
        let limit = match self.max_evictions() {
            0 => limit,
            count => {
                format!("{limit}; evicts at most {} per hour", count_noun(count, "pod", "pods"))
            }
        };
        let limit = match self.reserve_after {
            Some(after) => format!("{limit}; reserves a GPU for a pod that has waited for {after}"),
            None => limit,
        };
        match self.mode {
            DemandMode::Act => format!("carries out proposals after {}; {limit}", self.hold),
            DemandMode::Propose => format!("carries out approved proposals; {limit}"),
            DemandMode::Observe => "reports proposals only".to_owned(),
        }
    }
}

impl InstanceChange {
    /// State of the change in a word.
    pub fn state(&self) -> &'static str {
        match (self.is_in_progress(), self.withdrawn) {
            (false, _) => "Proposed",
            (true, false) if self.reserved_device.is_some() => "Reserving",
            (true, false) => "Changing",
            (true, true) => "Withdrawing",
        }
    }

    /// The node with the created and destroyed instances of each pod, and the evicted pods.
    pub fn text(&self) -> String {
        let evictions = self.evictions_text().map(|text| format!("; {text}"));
        format!("{}: {}{}", self.node, self.message, evictions.unwrap_or_default())
    }

    /// The evicted pods; `None` without any.
    fn evictions_text(&self) -> Option<String> {
        let pods: Vec<&str> = self.evictions.iter().map(|one| one.pod.as_str()).collect();
        (!pods.is_empty()).then(|| format!("evicts {}", pods.join(", ")))
    }

    /// The message, with a line for each pod, and a line with the evicted pods.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut rest = self.message.as_str();
        for pod in self.pods.iter().skip(1) {
            let at = rest.find(&format!("; {pod}: "));
            if let Some((line, next)) = at.and_then(|at| rest.split_at_checked(at)) {
                lines.push(line.to_owned());
                rest = next.trim_start_matches("; ");
            }
        }
        lines.push(rest.to_owned());
        lines.extend(self.evictions_text());
        lines
    }
}

impl Content {
    /// The labels: `a=b, c=d`; `None` without any.
    pub fn labels_text(&self) -> Option<String> {
        let labels = self.node_labels.iter().map(|(key, value)| format!("{key}={value}"));
        joined(labels)
    }

    /// The taints: `a=b:NoSchedule`; `None` without any.
    pub fn taints_text(&self) -> Option<String> {
        joined(self.taints.iter().map(Taint::to_string))
    }

    /// All parts: `layout serving; labels a=b; drain affected,10m`.
    pub fn text(&self) -> String {
        let parts = [
            self.layout.as_ref().map(|layout| format!("layout {layout}")),
            self.labels_text().map(|labels| format!("labels {labels}")),
            self.taints_text().map(|taints| format!("taints {taints}")),
            self.drain.map(|drain| format!("drain {drain}")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

fn joined(texts: impl Iterator<Item = String>) -> Option<String> {
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance_change::NodeProposal;

    #[test]
    fn m21_change_has_a_line_for_each_pod() {
        let pods =
            ["a/x", "b/y"].map(|pod| (pod.to_owned(), "create; destroy idle: 1g".to_owned()));
        let proposal = NodeProposal { pods: pods.to_vec(), ..NodeProposal::default() };
        let change = InstanceChange::proposed("n", &proposal, None, jiff::Timestamp::UNIX_EPOCH);
        let expected = ["a/x: create; destroy idle: 1g", "b/y: create; destroy idle: 1g"];
        assert_eq!(change.lines(), expected);
        let shortened = InstanceChange { message: "a/x: cre…".to_owned(), ..change };
        assert_eq!(shortened.lines(), ["a/x: cre…"]);
    }

    #[test]
    fn p5_bar_shows_the_applied_share_and_the_other_counts() {
        let nodes = NodeCounts { selected: 12, applied: 6, updating: 2, ..NodeCounts::default() };
        assert_eq!(bar(nodes), "[############............] 6 of 12 applied, 2 updating");
        assert_eq!(bar(NodeCounts::default()), "[........................] 0 of 0 applied");
    }
}
