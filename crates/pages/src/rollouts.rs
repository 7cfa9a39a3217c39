//! Desired layouts: their nodes by state, and the nodes that are changed or drained.
//!
//! The overview shows the layouts that are not applied to all of their nodes, and the page of layouts shows all.

use std::collections::BTreeMap;

use octavo_fleet::summary::{LayoutProblem, LayoutSummary, NodeState, StepCounts};
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::tone::Tone;
use octavo_planner::reconcile::ApplyState;
use octavo_store::clock::Moment;
use octavo_store::fleet::{Fleet, Node};

use super::address::{LIST, encoded};
use super::badges::{TextPart, count_noun, printable, text_parts};
use super::bar::{Bar, LegendEntry};
use super::layout::StateBadge;

/// Maximum number of nodes that are listed.
const MAX_ROWS: usize = 20;
/// Maximum number of layouts that are listed.
const MAX_LAYOUTS: usize = 20;
/// States of the nodes that are listed.
const IN_PROGRESS: [Reason; 4] =
    [Reason::Applying, Reason::Pending, Reason::Yielded, Reason::Blocked];

/// Roll-outs of layouts.
#[derive(Debug)]
pub(super) struct Rollouts {
    /// Number of nodes with a layout.
    pub(super) nodes: usize,
    /// Number of nodes that report a problem with a layout without a name, such as an invalid file.
    pub(super) unnamed: usize,
    pub(super) layouts: Vec<Rollout>,
    /// Number of unfinished layouts that are not listed.
    pub(super) more_layouts: usize,
    pub(super) rows: Vec<ChangingNode>,
    /// Number of changing nodes that are not listed.
    pub(super) more: usize,
    /// Address of the list of all changing nodes.
    pub(super) href: String,
}

/// Nodes of a layout by progress.
#[derive(Debug)]
pub(super) struct Rollout {
    pub(super) name: String,
    pub(super) href: String,
    pub(super) words: String,
    pub(super) bar: Bar,
    pub(super) legend: Vec<LegendEntry>,
}

/// Node whose layout is being applied, or waits for that.
#[derive(Debug)]
pub(super) struct ChangingNode {
    pub(super) name: String,
    pub(super) layout: String,
    pub(super) badge: Option<StateBadge>,
    pub(super) progress: Option<StepCounts>,
    /// Obstacle that the change waits for.
    pub(super) waits: Vec<TextPart>,
}

/// Number of nodes of a layout by their progress.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    applied: u32,
    changing: u32,
    waiting: u32,
    troubled: u32,
}

/// Collects the layouts of the nodes that report.
pub(super) fn rollouts(
    fleet: &Fleet,
    layouts: &BTreeMap<&str, LayoutNodes<'_>>,
    now: Moment,
) -> Rollouts {
    let (mut nodes, mut unnamed) = (0_usize, 0_usize);
    let mut changing: Vec<(&Node, &LayoutSummary)> = Vec::new();
    for (node, layout) in nodes_with_layout(fleet, now) {
        nodes = nodes.saturating_add(1);
        if layout.name.is_none() && layout.needs_attention() {
            unnamed = unnamed.saturating_add(1);
        }
        if is_in_progress(layout) {
            changing.push((node, layout));
        }
    }
    let unfinished = layouts.iter().filter(|(_, nodes)| nodes.counts.is_unfinished());
    let mut layouts: Vec<Rollout> =
        unfinished.map(|(name, nodes)| rollout(name, nodes.counts)).collect();
    let more_layouts = layouts.len().saturating_sub(MAX_LAYOUTS);
    layouts.truncate(MAX_LAYOUTS);
    Rollouts {
        nodes,
        unnamed,
        layouts,
        more_layouts,
        more: changing.len().saturating_sub(MAX_ROWS),
        rows: changing.into_iter().take(MAX_ROWS).map(|(node, layout)| row(node, layout)).collect(),
        href: in_progress_list(),
    }
}

/// Nodes with the same desired layout.
#[derive(Debug, Default)]
pub(super) struct LayoutNodes<'f> {
    pub(super) counts: Counts,
    /// Number of nodes in each state; `None` if no device of the node is covered.
    pub(super) states: BTreeMap<Option<Reported<Reason>>, u32>,
    /// Number of nodes on which a user selected the layout manually.
    pub(super) manual: u32,
    /// All nodes: nodes that need attention first, then nodes without the layout, then by name.
    pub(super) nodes: Vec<(&'f Node, &'f LayoutSummary)>,
}

/// Nodes that report a layout.
fn nodes_with_layout(fleet: &Fleet, now: Moment) -> impl Iterator<Item = (&Node, &LayoutSummary)> {
    let nodes = fleet.nodes.iter().filter(move |node| !node.freshness.is_stale(now));
    nodes.filter_map(|node| Some((node.as_ref(), node.summary.layout.as_ref()?)))
}

/// Nodes that report a layout, by its name.
pub(super) fn nodes_by_layout(fleet: &Fleet, now: Moment) -> BTreeMap<&str, LayoutNodes<'_>> {
    let mut layouts: BTreeMap<&str, LayoutNodes<'_>> = BTreeMap::new();
    for (node, layout) in nodes_with_layout(fleet, now) {
        let Some(name) = layout.name.as_deref() else { continue };
        let of_name = layouts.entry(name).or_default();
        of_name.counts.add(layout);
        let count = of_name.states.entry(layout.state.clone()).or_default();
        *count = count.saturating_add(1);
        of_name.manual = of_name.manual.saturating_add(layout.is_manual.into());
        of_name.nodes.push((node, layout));
    }
    for layout in layouts.values_mut() {
        layout.nodes.sort_by_key(|(_, layout)| {
            let is_applied = layout.state.as_ref().is_some_and(|state| *state == Reason::Applied);
            (!layout.needs_attention(), is_applied)
        });
    }
    layouts
}

/// Returns `true` if the layout is being applied or waits to be applied, as in [`in_progress_list`].
fn is_in_progress(layout: &LayoutSummary) -> bool {
    let state = layout.state.as_ref().and_then(Reported::known);
    state.is_some_and(|state| IN_PROGRESS.contains(&state))
}

/// Address of the list of the nodes whose layout is in progress, without stale ones.
fn in_progress_list() -> String {
    let layout_states = IN_PROGRESS.map(Reason::as_str).join(",");
    format!("{LIST}?layoutState={layout_states}&state={}", current_states())
}

/// Values of the parameter `state` for nodes that are not stale.
pub(super) fn current_states() -> String {
    let states = NodeState::ALL.into_iter().filter(|state| *state != NodeState::Stale);
    let states: Vec<&str> = states.map(NodeState::as_str).collect();
    states.join(",")
}

impl Counts {
    fn add(&mut self, layout: &LayoutSummary) {
        let state = layout.state.as_ref().and_then(Reported::known);
        let count = match state {
            _ if layout.is_changing => &mut self.changing,
            Some(Reason::Applied) => &mut self.applied,
            Some(_) if layout.needs_attention() => &mut self.troubled,
            None if layout.message.is_some() => &mut self.troubled,
            Some(_) => &mut self.waiting,
            // The layout does not apply to any device of the node.
            None => return,
        };
        *count = count.saturating_add(1);
    }

    /// Returns whether a node does not have the layout.
    pub(super) fn is_unfinished(self) -> bool {
        self.changing > 0 || self.waiting > 0 || self.troubled > 0
    }

    /// Returns whether a node needs attention.
    pub(super) fn is_troubled(self) -> bool {
        self.troubled > 0
    }

    fn legend(self) -> Vec<LegendEntry> {
        let all = [
            ("in-use", None, Reason::Applied.as_str(), self.applied),
            ("partitioned", Some("stripes"), Reason::Applying.as_str(), self.changing),
            ("free", None, "waiting", self.waiting),
            ("unavailable", Some("crosses"), "with a problem", self.troubled),
        ];
        let all = all.into_iter().filter(|(.., count)| *count > 0);
        all.map(|(kind, fill, word, count)| LegendEntry { kind, fill, word, count }).collect()
    }
}

/// Nodes of a layout as a bar.
pub(super) fn rollout(name: &str, counts: Counts) -> Rollout {
    let legend = counts.legend();
    let all = legend.iter().fold(0_u32, |sum, entry| sum.saturating_add(entry.count));
    let all = count_noun(usize::try_from(all).unwrap_or(usize::MAX), "node", "nodes");
    Rollout {
        name: printable(name),
        href: format!("{LIST}?layout={}", encoded(name)),
        words: format!("applied on {} of {all}", counts.applied),
        bar: Bar::from_legend(&legend, 11),
        legend,
    }
}

fn row(node: &Node, layout: &LayoutSummary) -> ChangingNode {
    ChangingNode {
        name: node.name.to_string(),
        layout: layout.name.as_deref().map_or_else(|| "none".to_owned(), printable),
        badge: layout.state.as_ref().map(StateBadge::of),
        progress: layout.progress,
        waits: obstacle(layout),
    }
}

/// Obstacle to a layout; empty if it is applied.
pub(super) fn obstacle(layout: &LayoutSummary) -> Vec<TextPart> {
    // The complete text names all blockers.
    let drain = layout.problems.iter().find(|problem| problem.is_drain());
    let drain = drain.map(|problem: &LayoutProblem| problem.message.as_str());
    let drain = drain.or(layout.drain.as_deref());
    let waits = drain.or_else(|| {
        let is_waiting =
            layout.state.as_ref().is_some_and(|state| ApplyState::tone(state) != Tone::Good);
        layout.message.as_deref().filter(|_| is_waiting || layout.state.is_none())
    });
    text_parts(&printable(waits.unwrap_or_default()))
}
