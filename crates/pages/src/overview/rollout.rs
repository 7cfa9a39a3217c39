//! Layouts that are being rolled out: their nodes by state, and the nodes that are changed or drained.

use std::collections::BTreeMap;

use octavo_fleet::summary::{LayoutProblem, LayoutSummary, NodeState, StepCounts};
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::tone::Tone;
use octavo_planner::reconcile::ApplyState;
use octavo_store::clock::Moment;
use octavo_store::fleet::{Fleet, Node};

use crate::address::{LIST, encoded};
use crate::badges::{TextPart, count_noun, printable, text_parts};
use crate::bar::{Bar, LegendEntry};
use crate::layout::StateBadge;

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

/// Layout that is not applied to all of its nodes.
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
struct Counts {
    applied: u32,
    changing: u32,
    waiting: u32,
    troubled: u32,
}

/// Collects the layouts of the nodes that report.
pub(super) fn rollouts(fleet: &Fleet, now: Moment) -> Rollouts {
    let (mut nodes, mut unnamed) = (0_usize, 0_usize);
    let mut layouts: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut changing: Vec<(&Node, &LayoutSummary)> = Vec::new();
    for node in fleet.nodes.iter().filter(|node| !node.freshness.is_stale(now)) {
        let Some(layout) = &node.summary.layout else { continue };
        nodes = nodes.saturating_add(1);
        if let Some(name) = layout.name.as_deref() {
            layouts.entry(name).or_default().add(layout);
        } else if layout.needs_attention() {
            unnamed = unnamed.saturating_add(1);
        }
        if is_in_progress(layout) {
            changing.push((node, layout));
        }
    }
    let unfinished = layouts.into_iter().filter(|(_, counts)| counts.is_unfinished());
    let mut layouts: Vec<Rollout> =
        unfinished.map(|(name, counts)| rollout(name, counts)).collect();
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

/// Returns `true` if the layout is being applied or waits to be applied, as in [`in_progress_list`].
fn is_in_progress(layout: &LayoutSummary) -> bool {
    let state = layout.state.as_ref().and_then(Reported::known);
    state.is_some_and(|state| IN_PROGRESS.contains(&state))
}

/// Address of the list of the nodes whose layout is in progress, without stale ones.
fn in_progress_list() -> String {
    let layout_states = IN_PROGRESS.map(Reason::as_str).join(",");
    let states = NodeState::ALL.into_iter().filter(|state| *state != NodeState::Stale);
    let states: Vec<&str> = states.map(NodeState::as_str).collect();
    format!("{LIST}?layoutState={layout_states}&state={}", states.join(","))
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

    fn is_unfinished(self) -> bool {
        self.changing > 0 || self.waiting > 0 || self.troubled > 0
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

fn rollout(name: &str, counts: Counts) -> Rollout {
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
    // The complete text names all blockers.
    let drain = layout.problems.iter().find(|problem| problem.is_drain());
    let drain = drain.map(|problem: &LayoutProblem| problem.message.as_str());
    let drain = drain.or(layout.drain.as_deref());
    let waits = drain.or_else(|| {
        let is_waiting =
            layout.state.as_ref().is_some_and(|state| ApplyState::tone(state) != Tone::Good);
        layout.message.as_deref().filter(|_| is_waiting)
    });
    ChangingNode {
        name: node.name.to_string(),
        layout: layout.name.as_deref().map_or_else(|| "none".to_owned(), printable),
        badge: layout.state.as_ref().map(StateBadge::of),
        progress: layout.progress,
        waits: text_parts(&printable(waits.unwrap_or_default())),
    }
}
