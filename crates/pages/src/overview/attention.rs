//! Problems that need attention, most severe first: each one as a line, or many as counted groups.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_fleet::hardware_profile::TYPE_LABEL;
use octavo_fleet::summary::{NodeProblem, NodeState, ProblemArea};
use octavo_model::reason::Reason;
use octavo_model::tone::Tone;
use octavo_store::clock::Moment;
use octavo_store::fleet::{Fleet, Node};

use crate::address::{LIST, encoded};
use crate::badges::{
    Badge, TextPart, capitalize, count_noun, device_state, format_age, millis, node_state,
    printable, text_parts,
};
use crate::list::has_lost_agent;

/// Maximum number of problems that are listed one by one; more are grouped by reason.
pub(super) const MAX_LINES: usize = 50;

/// Problems of all nodes.
#[derive(Debug)]
pub(super) struct Attention {
    /// Number of problems.
    pub(super) problems: usize,
    /// Number of nodes with a problem.
    pub(super) nodes: usize,
    /// Number of nodes in total.
    pub(super) all_nodes: usize,
    /// By severity, most severe first.
    pub(super) parts: Vec<SeverityPart>,
}

/// Problems of one severity.
#[derive(Debug)]
pub(super) struct SeverityPart {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) count: usize,
    pub(super) lines: Vec<ProblemLine>,
    /// In place of lines, if there are too many problems.
    pub(super) groups: Vec<ProblemGroup>,
}

/// Problem of a node.
#[derive(Debug)]
pub(super) struct ProblemLine {
    pub(super) badge: Badge,
    pub(super) node: String,
    pub(super) device: Option<String>,
    pub(super) message: Vec<TextPart>,
    /// Age, if it is known since when the problem exists.
    pub(super) age: Option<(String, u64)>,
    pub(super) remedy: Vec<TextPart>,
}

/// Problems with the same reason.
#[derive(Debug)]
pub(super) struct ProblemGroup {
    pub(super) badge: Badge,
    pub(super) words: String,
    pub(super) href: String,
    pub(super) remedy: Vec<TextPart>,
}

/// Problem, its node and its age.
struct ProblemEntry<'a> {
    node: &'a Node,
    age: Option<Duration>,
    problem: NodeProblem,
}

/// Collects the problems of all nodes.
pub(super) fn attention(fleet: &Fleet, is_starting: bool, now: Moment) -> Attention {
    let mut found: Vec<ProblemEntry<'_>> = Vec::new();
    for node in fleet.nodes.iter() {
        if has_lost_agent(node, is_starting, now) {
            found.push(ProblemEntry { node, age: None, problem: lost_agent(node) });
            continue;
        }
        let state = node.state(now);
        if !state.needs_attention() {
            continue;
        }
        let age = (state == NodeState::Stale).then(|| node.freshness.age(now));
        let problems = node.problems(now).into_iter();
        found.extend(problems.map(|problem| ProblemEntry { node, age, problem }));
    }
    found.sort_by(|one, other| {
        let key = |found: &ProblemEntry<'_>| (Reverse(found.problem.tone), Reverse(found.age));
        let by_age = key(one).cmp(&key(other));
        by_age
            .then_with(|| one.problem.reason.cmp(other.problem.reason))
            .then_with(|| one.node.name.cmp(&other.node.name))
    });
    let nodes: BTreeSet<&str> = found.iter().map(|one| one.node.name.as_str()).collect();
    let is_grouped = found.len() > MAX_LINES;
    let severities = [
        (Tone::Bad, "needs-action", "Needs action"),
        (Tone::Warning, "needs-attention", "Needs attention"),
    ];
    let parts = severities.into_iter().filter_map(|(tone, id, title)| {
        // Nothing may be omitted, so the last part has everything that is less severe.
        let is_bad = tone == Tone::Bad;
        let of = found.iter().filter(|one| (one.problem.tone >= Tone::Bad) == is_bad);
        let of: Vec<&ProblemEntry<'_>> = of.collect();
        let (lines, groups) = if is_grouped {
            (Vec::new(), groups(&of))
        } else {
            (of.iter().map(|one| line(one)).collect(), Vec::new())
        };
        (!of.is_empty()).then_some(SeverityPart { id, title, count: of.len(), lines, groups })
    });
    Attention {
        problems: found.len(),
        nodes: nodes.len(),
        all_nodes: fleet.nodes.len(),
        parts: parts.collect(),
    }
}

/// Problem of a node that an agent reported before.
fn lost_agent(node: &Node) -> NodeProblem {
    NodeProblem {
        area: ProblemArea::Devices,
        tone: Tone::Warning,
        reason: NodeState::NoAgent.as_str(),
        device: None,
        place: None,
        message: node.summary.reason.clone().unwrap_or_default(),
        remedy: "Check that the pod of the agent on the node is running and can reach the aggregator.",
    }
}

fn badge(problem: &NodeProblem) -> Badge {
    if problem.reason == Reason::Stale.as_str() {
        return node_state(NodeState::Stale);
    }
    device_state(problem.reason, problem.tone)
}

fn line(found: &ProblemEntry<'_>) -> ProblemLine {
    let problem = &found.problem;
    ProblemLine {
        badge: badge(problem),
        node: found.node.name.to_string(),
        device: problem.device.as_deref().map(printable),
        message: text_parts(&capitalize(&printable(&problem.message))),
        age: found.age.map(|age| (format_age(age), millis(age))),
        remedy: text_parts(problem.remedy),
    }
}

/// Groups problems by reason; the most frequent first.
fn groups(found: &[&ProblemEntry<'_>]) -> Vec<ProblemGroup> {
    let mut by_reason: BTreeMap<&str, (usize, BTreeSet<&str>, &NodeProblem)> = BTreeMap::new();
    for one in found {
        let (count, nodes, _) = by_reason
            .entry(one.problem.reason)
            .or_insert_with(|| (0, BTreeSet::new(), &one.problem));
        *count = count.saturating_add(1);
        nodes.insert(one.node.name.as_str());
    }
    let mut groups: Vec<_> = by_reason.into_values().collect();
    groups.sort_by_key(|(count, ..)| Reverse(*count));
    let groups = groups.into_iter().map(|(count, nodes, problem)| {
        let nodes = count_noun(nodes.len(), "node", "nodes");
        ProblemGroup {
            badge: badge(problem),
            words: format!("{} on {nodes}", count_noun(count, "problem", "problems")),
            href: filtered_list(problem.reason),
            remedy: text_parts(problem.remedy),
        }
    });
    groups.collect()
}

/// Address of the list of nodes with this problem.
fn filtered_list(reason: &str) -> String {
    if reason == NodeState::NoAgent.as_str() {
        return format!("{LIST}?state={reason}&selector={}", encoded(TYPE_LABEL));
    }
    format!("{LIST}?problem={}", encoded(reason))
}
