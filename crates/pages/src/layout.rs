//! Layout state of a node.

use octavo_fleet::summary::LayoutSummary;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_planner::reconcile::{ApplyState, DeviceLayoutStatus, NodeLayoutStatus};

use super::badges::{capitalize, printable, tone_class, tone_icon};

/// Layout section of a node's page.
#[derive(Debug)]
pub(super) struct LayoutSection {
    pub(super) name: Option<String>,
    pub(super) by_hand: bool,
    pub(super) plan: Option<String>,
    pub(super) badge: Option<StateBadge>,
    /// Whether the layout is applied, as a sentence.
    pub(super) verdict: String,
    pub(super) notice: Option<String>,
    /// Handling of pods that block the layout.
    pub(super) drain: Option<String>,
    pub(super) devices: Vec<DeviceLayoutRow>,
}

/// State with icon and color. The word may come from a newer agent and be unknown here.
#[derive(Debug)]
pub(super) struct StateBadge {
    pub(super) tone: &'static str,
    pub(super) icon: &'static str,
    pub(super) word: String,
}

/// Layout state of a device.
#[derive(Debug)]
pub(super) struct DeviceLayoutRow {
    pub(super) pci: String,
    pub(super) name: String,
    pub(super) badge: StateBadge,
    pub(super) message: String,
    pub(super) progress: Option<ProgressBar>,
}

/// Progress.
#[derive(Debug)]
pub(super) struct ProgressBar {
    pub(super) doing: String,
    pub(super) done: usize,
    pub(super) all: usize,
    pub(super) words: String,
}

/// Layout of a node as shown in the list.
#[derive(Debug)]
pub(super) struct LayoutCell {
    pub(super) name: String,
    pub(super) badge: Option<StateBadge>,
    /// Completed steps and their total, while a layout is applied.
    pub(super) steps: Option<String>,
}

impl LayoutSection {
    /// Converts the node's layout status.
    pub(super) fn of(layout: &NodeLayoutStatus) -> Self {
        Self {
            name: layout.layout.as_deref().map(printable),
            by_hand: layout.is_manual,
            plan: layout.plan.as_deref().map(printable),
            badge: layout.state.as_ref().map(StateBadge::of),
            verdict: verdict(layout),
            notice: layout.notice.as_deref().map(printable),
            drain: layout.drain.as_deref().map(|drain| capitalize(&printable(drain))),
            devices: layout.devices.iter().map(DeviceLayoutRow::of).collect(),
        }
    }
}

impl LayoutCell {
    /// Converts the node's layout summary.
    pub(super) fn of(layout: &LayoutSummary) -> Self {
        Self {
            name: layout.name.as_deref().map_or_else(|| "none".to_owned(), printable),
            badge: layout.state.as_ref().map(StateBadge::of),
            steps: layout.progress.map(|at| format!("{} of {}", at.done, at.steps)),
        }
    }
}

impl StateBadge {
    pub(super) fn of(state: &Reported<Reason>) -> Self {
        let tone = ApplyState::tone(state);
        let icon = match state.known() {
            Some(Reason::Pending | Reason::Applying) => "stale",
            _ => tone_icon(tone),
        };
        let word = printable(state.as_str());
        Self { tone: tone_class(tone), icon, word }
    }
}

impl DeviceLayoutRow {
    fn of(device: &DeviceLayoutStatus) -> Self {
        Self {
            pci: device.pci.to_string(),
            name: printable(&device.name),
            badge: StateBadge::of(&device.state),
            message: printable(&device.message),
            progress: device.progress.as_ref().map(|progress| {
                let (done, steps) = (progress.done, progress.steps.max(progress.done));
                let back = if progress.back { "; rolling back" } else { "" };
                ProgressBar {
                    doing: printable(&progress.current_step),
                    done,
                    all: steps,
                    words: format!("{done} of {steps} steps{back}"),
                }
            }),
        }
    }
}

fn verdict(layout: &NodeLayoutStatus) -> String {
    let all = layout.devices.len();
    let devices = layout.devices.iter();
    let have = devices.filter(|device| device.state == Reason::Applied).count();
    match (all, all.saturating_sub(have)) {
        (0, _) => "The layout matches no device of this node.".to_owned(),
        (1, 0) => "Applied to its only matching device.".to_owned(),
        (_, 0) => format!("Applied to all {all} matching devices."),
        (_, _) => format!("Applied to {have} of {all} matching devices."),
    }
}

#[cfg(test)]
mod tests {
    use octavo_model::id::PciAddress;
    use octavo_planner::reconcile::ChangeProgress;

    use super::*;

    fn layout(states: &[&str]) -> NodeLayoutStatus {
        let device = |(number, state): (u8, &&str)| {
            DeviceLayoutStatus::new(
                PciAddress::new(0, number, 0, 0).unwrap(),
                format!("GPU {number}"),
                Reported::parse(state),
            )
        };
        NodeLayoutStatus {
            layout: Some("serving".to_owned()),
            devices: (0..).zip(states).map(device).collect(),
            ..NodeLayoutStatus::default()
        }
    }

    #[test]
    fn verdict_states_whether_the_layout_is_applied() {
        for (states, expected) in [
            (&[][..], "The layout matches no device of this node."),
            (&["applied"], "Applied to its only matching device."),
            (&["applied", "applied"], "Applied to all 2 matching devices."),
            (&["applied", "blocked"], "Applied to 1 of 2 matching devices."),
        ] {
            assert_eq!(LayoutSection::of(&layout(states)).verdict, expected);
        }
    }

    #[test]
    fn every_state_has_an_icon_and_unknown_states_keep_their_word() {
        for reason in ApplyState::REASONS {
            assert_ne!(StateBadge::of(&reason.into()).icon, "note", "{reason}");
        }
        let newer = StateBadge::of(&Reported::parse("re\u{202e}sting"));
        assert_eq!((newer.icon, newer.word.as_str()), ("note", "re\u{fffd}sting"));
    }

    #[test]
    fn progress_never_shows_more_steps_done_than_there_are() {
        let mut layout = layout(&["applying"]);
        layout.devices[0].progress = Some(ChangeProgress {
            current_step: "create 3g.40gb".to_owned(),
            done: 9,
            steps: 4,
            back: true,
        });
        let section = LayoutSection::of(&layout);
        let steps = section.devices[0].progress.as_ref().unwrap();
        assert_eq!((steps.done, steps.all), (9, 9));
        assert_eq!(steps.words, "9 of 9 steps; rolling back");
    }
}
