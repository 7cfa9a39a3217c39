//! Preview of a layout on a node's page: a form, and the resulting plan.
//!
//! The layout is part of the page's address, so the page can be shared. The plan updates live like the rest of the
//! page.

mod diagram;

use octavo_files::config_files::{AvailableLayouts, LayoutFileSnapshot};
use octavo_model::holder::without_repeated_pods;
use octavo_model::inventory::{Device, Inventory};
use octavo_model::reason::Reason;
use octavo_planner::layout::{DeviceTarget, MigTarget, TargetScope};
use octavo_planner::plan::messages::{self, PlanFormatter};
use octavo_planner::plan::{
    Blocked, Cause, DeviceChange, DevicePlan, DevicePlanResult, Infeasible, PlanOutcome, Policy,
    Step,
};
use octavo_store::dry_run::{DryRun, dry_run};
use octavo_stream::status::NodeStatus;

use self::diagram::{mark_fates, planned_diagram};
use super::badges::{Badge, capitalize, printable};
use super::slice_diagram::SliceDiagram;

/// The form, with the plan of the selected layout.
#[derive(Debug, Default)]
pub(super) struct LayoutPreview {
    pub(super) file: Vec<Choice>,
    pub(super) made: Vec<Choice>,
    /// Why the listed layouts may differ from the file.
    pub(super) notice: Option<String>,
    pub(super) answer: Option<PlanPreview>,
}

/// Available layout.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) name: String,
    pub(super) chosen: bool,
}

/// Effect of a layout.
#[derive(Debug)]
pub(super) struct PlanPreview {
    pub(super) layout: String,
    pub(super) badge: Badge,
    /// Summary of the plan, or the reason why there is none.
    pub(super) summary: String,
    pub(super) warnings: Vec<String>,
    pub(super) groups: Vec<DeviceGroup>,
    /// Devices that the layout does not mention.
    pub(super) untouched: Option<String>,
}

/// Devices with the same plan.
#[derive(Debug)]
pub(super) struct DeviceGroup {
    pub(super) devices: Vec<String>,
    pub(super) story: DevicePlanView,
}

/// Plan of a device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DevicePlanView {
    pub(super) kind: String,
    pub(super) badge: Badge,
    pub(super) summary: String,
    pub(super) now: Option<SliceDiagram>,
    pub(super) then: Option<SliceDiagram>,
    pub(super) steps: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) obstacles: Vec<Obstacle>,
}

/// Blocker of a change, or the reason why it is impossible.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) what: String,
    pub(super) holders: Vec<String>,
    pub(super) advice: Vec<String>,
}

impl LayoutPreview {
    /// Builds the form for a node with this status, and the plan of the layout `requested`, if any.
    pub(super) fn of(
        current: &LayoutFileSnapshot,
        status: &NodeStatus,
        requested: Option<&str>,
    ) -> Self {
        let AvailableLayouts { file, made } = current.names(&status.inventory);
        let choices = |names: Vec<String>| -> Vec<Choice> {
            let choice = |name: String| Choice { chosen: requested == Some(name.as_str()), name };
            names.into_iter().map(choice).collect()
        };
        Self {
            file: choices(file),
            made: choices(made),
            notice: current.notice.as_deref().map(printable),
            answer: requested.map(|requested| PlanPreview::of(current, status, requested)),
        }
    }

    /// Returns whether any layout is available.
    pub(super) fn is_possible(&self) -> bool {
        !self.file.is_empty() || !self.made.is_empty()
    }
}

impl PlanPreview {
    fn of(current: &LayoutFileSnapshot, status: &NodeStatus, requested: &str) -> Self {
        match dry_run(current, requested, status, Policy::default()) {
            Ok(run) => Self::planned(&status.inventory, requested, &run),
            Err(error) => Self {
                layout: printable(requested),
                badge: outcome_badge(PlanOutcome::Infeasible, "no plan"),
                summary: printable(&error.to_string()),
                warnings: Vec::new(),
                groups: Vec::new(),
                untouched: None,
            },
        }
    }

    fn planned(inventory: &Inventory, requested: &str, run: &DryRun) -> Self {
        let found = run.plan.outcome();
        let untouched: Vec<String> = inventory
            .devices
            .iter()
            .filter(|device| run.targets.devices.iter().all(|target| target.pci != device.pci))
            .map(|device| title(inventory, device))
            .collect();
        Self {
            layout: printable(requested),
            badge: outcome_badge(found, outcome_label(found)),
            summary: match found {
                PlanOutcome::Unchanged => "The node already has this layout.".to_owned(),
                PlanOutcome::Changes => {
                    format!("{}.", capitalize(&messages::summary(&run.plan.summary())))
                }
                PlanOutcome::Blocked => "At least one device is blocked.".to_owned(),
                PlanOutcome::Infeasible => {
                    "At least one device cannot have this layout, so nothing would be changed."
                        .to_owned()
                }
            },
            warnings: run.warnings.iter().map(|text| printable(text)).collect(),
            groups: groups(inventory, run),
            untouched: (!untouched.is_empty()).then(|| untouched.join(", ")),
        }
    }
}

fn groups(inventory: &Inventory, run: &DryRun) -> Vec<DeviceGroup> {
    let mut groups: Vec<DeviceGroup> = Vec::new();
    for plan in &run.plan.devices {
        let mut devices = inventory.devices.iter();
        let Some(device) = devices.find(|device| device.pci == plan.pci) else {
            continue;
        };
        let target = run.targets.devices.iter().find(|target| target.pci == plan.pci);
        let story = DevicePlanView::of(inventory, device, plan, target);
        let name = title(inventory, device);
        match groups.iter_mut().find(|group| group.story == story) {
            Some(group) => group.devices.push(name),
            None => groups.push(DeviceGroup { devices: vec![name], story }),
        }
    }
    groups
}

fn title(inventory: &Inventory, device: &Device) -> String {
    PlanFormatter::new(inventory, device.pci).device(device.pci)
}

impl DevicePlanView {
    fn of(
        inventory: &Inventory,
        device: &Device,
        plan: &DevicePlan,
        target: Option<&DeviceTarget>,
    ) -> Self {
        let formatter = PlanFormatter::new(inventory, plan.pci);
        let verdict = &plan.verdict;
        let found = verdict.outcome();
        let mut story = Self {
            kind: device.identity.to_string(),
            badge: outcome_badge(found, outcome_label(found)),
            summary: describe_target(target, &formatter),
            now: SliceDiagram::of(device).map(|picture| mark_fates(picture, device, verdict)),
            then: None,
            steps: Vec::new(),
            notes: Vec::new(),
            obstacles: Vec::new(),
        };
        match verdict {
            DevicePlanResult::Unchanged => {}
            DevicePlanResult::Change(change) => story.changes(device, change, &formatter),
            DevicePlanResult::Blocked(blocked) => story.obstacles = obstacles(blocked, &formatter),
            DevicePlanResult::Infeasible(why) => {
                story.obstacles = vec![infeasibility(why, &formatter)];
            }
        }
        if let Some(sharing) = target.and_then(|target| target.time_slicing.as_ref()) {
            story.notes.push(format!(
                "Time-slicing: {sharing}. The plan covers partitions only and does not change time-slicing."
            ));
        }
        if target.is_some_and(|target| target.scope == TargetScope::Mode) {
            story.notes.push("Resource claims determine the partitions of this GPU.".to_owned());
        }
        story
    }

    fn changes(&mut self, device: &Device, change: &DeviceChange, formatter: &PlanFormatter<'_>) {
        let steps = change.steps.iter();
        // The text does not name the device, so that devices with the same plan can share it.
        let describe = |step: &Step| match step {
            Step::Reset { .. } => "reset the GPU".to_owned(),
            other @ (Step::DestroyComputeInstance { .. }
            | Step::DestroyGpuInstance { .. }
            | Step::SetMigMode { .. }
            | Step::CreateGpuInstance { .. }
            | Step::CreateComputeInstance { .. }) => {
                printable(&formatter.step(other, &change.after))
            }
        };
        self.steps = steps.map(describe).collect();
        self.notes.push(match &change.mode {
            Some(mode) => format!("{}.", capitalize(&formatter.mode(mode))),
            None => "No workload is interrupted.".to_owned(),
        });
        let scope = change.mode.as_ref().and_then(|mode| mode.reset.as_ref());
        if let Some(links) =
            scope.and_then(|scope| scope.links.filter(|_| !scope.coupled.is_empty()))
        {
            self.notes.push(format!(
                "{} connects this GPU to other GPUs of the node; the driver may require resetting them together.",
                messages::link_name(links)
            ));
        }
        self.then = device.mig.state().map(|state| planned_diagram(state, change, formatter));
    }
}

/// Describes the target of a device.
fn describe_target(target: Option<&DeviceTarget>, formatter: &PlanFormatter<'_>) -> String {
    let is_mode = target.is_some_and(|target| target.scope == TargetScope::Mode);
    match target.and_then(|target| target.mig.as_ref()) {
        None => "partitions unchanged".to_owned(),
        Some(MigTarget::Disabled) => "MIG mode off".to_owned(),
        Some(MigTarget::Enabled(_)) if is_mode => "MIG mode on".to_owned(),
        Some(MigTarget::Enabled(instances)) => printable(&formatter.list(instances)),
    }
}

fn obstacles(blocked: &Blocked, formatter: &PlanFormatter<'_>) -> Vec<Obstacle> {
    let obstacle = |cause: &Cause| {
        let holders = without_repeated_pods(cause.holders());
        let holders = holders.iter().map(|holder| printable(&messages::holder(&holder.details)));
        Obstacle {
            what: printable(&capitalize(&formatter.cause(cause))),
            holders: holders.collect(),
            advice: vec![capitalize(&messages::remedy(cause))],
        }
    };
    blocked.causes.iter().map(obstacle).collect()
}

fn infeasibility(why: &Infeasible, formatter: &PlanFormatter<'_>) -> Obstacle {
    let nearest = formatter.alternatives(why).into_iter();
    Obstacle {
        what: printable(&capitalize(&formatter.rule(&why.rule))),
        holders: Vec::new(),
        advice: nearest.map(|offer| printable(&format!("Would fit: {offer}"))).collect(),
    }
}

/// Word for an outcome.
pub(super) fn outcome_label(outcome: PlanOutcome) -> &'static str {
    match outcome {
        PlanOutcome::Unchanged => "no changes",
        PlanOutcome::Changes => "would change",
        PlanOutcome::Blocked => Reason::Blocked.as_str(),
        PlanOutcome::Infeasible => Reason::Infeasible.as_str(),
    }
}

/// Badge of an outcome.
pub(super) fn outcome_badge(outcome: PlanOutcome, word: &'static str) -> Badge {
    let (tone, icon) = match outcome {
        PlanOutcome::Unchanged => ("good", "ok"),
        PlanOutcome::Changes => ("soft", "note"),
        PlanOutcome::Blocked => ("warn", "warn"),
        PlanOutcome::Infeasible => ("bad", "bad"),
    };
    Badge { tone, icon, word }
}

#[cfg(test)]
mod tests {
    use octavo_model::examples::gpu;
    use octavo_model::holder::{Holder, HolderDetails};

    use super::*;

    #[test]
    fn process_name_cannot_control_the_page() {
        let device = gpu();
        let pci = device.pci;
        let inventory = Inventory { devices: vec![device], ..Inventory::default() };
        let holder = Holder {
            device: pci,
            gpu_instance: None,
            compute_instance: None,
            details: HolderDetails {
                pid: Some(7),
                command: Some("a\u{202e}b\u{200b}c\u{1b}[2Jd".to_owned()),
                ..HolderDetails::default()
            },
        };
        let causes = vec![Cause::DeviceInUse { holders: vec![holder] }];
        let formatter = PlanFormatter::new(&inventory, pci);
        let shown = obstacles(&Blocked { causes }, &formatter);
        assert_eq!(shown[0].holders, ["pid 7, a\u{fffd}b\u{fffd}c\u{fffd}[2Jd"]);
    }
}
