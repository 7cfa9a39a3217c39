//! Layouts that are being rolled out: their nodes by state, and the nodes that are changed or drained.

use std::collections::BTreeMap;

use octavo_fleet::summary::{LayoutProblem, LayoutSummary, StepCounts};
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::tone::Tone;
use octavo_planner::reconcile::ApplyState;
use octavo_store::clock::Moment;
use octavo_store::fleet::{Fleet, Node};

use crate::address::{LIST, encoded};
use crate::badges::{TextPart, printable, text_parts};
use crate::bar::{Bar, LegendEntry};
use crate::layout::StateBadge;

/// Maximum number of nodes that are listed.
const MAX_ROWS: usize = 20;

/// Roll-outs of layouts.
#[derive(Debug)]
pub(super) struct Rollouts {
    /// Number of nodes with a layout.
    pub(super) nodes: usize,
    pub(super) layouts: Vec<Rollout>,
    pub(super) rows: Vec<ChangingNode>,
    /// Number of changing nodes that are not listed.
    pub(super) more: usize,
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

/// Node that is changed or drained.
#[derive(Debug)]
pub(super) struct ChangingNode {
    pub(super) name: String,
    pub(super) layout: String,
    pub(super) badge: Option<StateBadge>,
    pub(super) progress: Option<StepCounts>,
    /// What the change waits for.
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
    let mut nodes = 0_usize;
    let mut layouts: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut changing: Vec<(&Node, &LayoutSummary)> = Vec::new();
    for node in fleet.nodes.iter().filter(|node| !node.freshness.is_stale(now)) {
        let Some(layout) = &node.summary.layout else { continue };
        nodes = nodes.saturating_add(1);
        if let Some(name) = layout.name.as_deref() {
            layouts.entry(name).or_default().add(layout);
        }
        if is_in_progress(layout) {
            changing.push((node, layout));
        }
    }
    let unfinished = layouts.into_iter().filter(|(_, counts)| counts.is_unfinished());
    Rollouts {
        nodes,
        layouts: unfinished.map(|(name, counts)| rollout(name, counts)).collect(),
        more: changing.len().saturating_sub(MAX_ROWS),
        rows: changing.into_iter().take(MAX_ROWS).map(|(node, layout)| row(node, layout)).collect(),
    }
}

/// Whether a device is being changed, or pods are being evicted for that, or either will begin.
fn is_in_progress(layout: &LayoutSummary) -> bool {
    let state = layout.state.as_ref().and_then(Reported::known);
    layout.is_changing
        || layout.drain.is_some()
        || matches!(state, Some(Reason::Pending | Reason::Applying | Reason::Yielded))
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
    let all = { legend.iter() }.fold(0_u32, |sum, entry| sum.saturating_add(entry.count));
    Rollout {
        name: printable(name),
        href: format!("{LIST}?layout={}", encoded(name)),
        words: format!("applied on {} of {all} nodes", counts.applied),
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
