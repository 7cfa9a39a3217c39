//! `apply` and `restore`: a change with hooks around it.
//!
//! Files are read, names resolved and the plan computed before the first hook runs, so that an infeasible layout
//! disturbs no workload. The order of hooks is: apply-start; pre-apply-mode if a mode differs; pre-apply-config if
//! partitions differ; always apply-exit. Modes and partitions are one transaction, unless a hook runs between the two
//! or a driver reports its profiles only after the mode change.

use octavo_engine::engine::Settings;
use octavo_engine::reset::ResetMethods;
use octavo_files::hooks::HookPoint;
use octavo_hardware::DriverHandle;
use octavo_model::inventory::Inventory;
use octavo_planner::layout::{
    Difference, Targets, compare, compare_modes, mode_targets, modes_are_set,
};
use octavo_planner::plan::messages::PlanFormatter;
use octavo_planner::plan::{DevicePlanResult, PlanInput, plan};
use octavo_planner::reconcile::{DriftPolicy, NodeLayoutStatus};
use tokio::time::Instant;

use super::OpenHardware;
use super::config::Resolution;
use super::hooks::HookRunner;
use crate::apply::local_engine::LocalEngine;
use crate::apply::progress::{ProgressDisplay, format_status, interrupted};
use crate::apply::with_journal_warnings;
use crate::output::note;
use crate::settings::Colors;
use crate::settings::apply::WaitPolicy;
use crate::settings::mig_parted::RunSettings;
use crate::text::{lines, wrap};
use crate::{CliError, Report, explain};

/// Time limit of all rounds together; each GPU has its own limit within.
const MAX_CHANGE_DURATION: std::time::Duration = std::time::Duration::from_mins(10);

/// The requested state.
pub(super) struct ChangeRequest<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Resolves it on an inventory.
    pub(super) resolve: &'a dyn Fn(&Inventory) -> Resolution,
    /// Message on success.
    pub(super) done: &'static str,
    /// Leaves GPUs alone that need a reset: their MIG mode remains pending.
    pub(super) skip_reset: bool,
}

/// A change in progress.
struct RunningChange<'a> {
    run: &'a RunSettings,
    change: &'a ChangeRequest<'a>,
    runner: &'a HookRunner<'a>,
    hardware: DriverHandle,
    hand: LocalEngine,
}

/// Reason for a failure: a message for the user, or an error.
enum ChangeFailure {
    Message(String),
    Error(CliError),
}

impl<E: Into<CliError>> From<E> for ChangeFailure {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// Changes the node.
pub(super) async fn change(
    open: OpenHardware<'_>,
    run: &RunSettings,
    change: &ChangeRequest<'_>,
    runner: &HookRunner<'_>,
) -> Result<Report, CliError> {
    let hardware = open(&run.hardware)?;
    let inventory = hardware.observe().await;
    let notes = match (change.resolve)(&inventory) {
        Resolution::Refused(errors) => return Ok(refused(errors + NOTHING_CHANGED, run)),
        Resolution::Resolved(resolved, notes) => {
            match impossible(&resolved.targets, run, &inventory) {
                None => notes,
                Some(rules) => return Ok(refused(notes + &rules + NOTHING_CHANGED, run)),
            }
        }
        Resolution::ModesOnly(_, notes) => notes,
    };
    let mut change = RunningChange {
        run,
        change,
        runner,
        hardware,
        hand: LocalEngine::open(&run.engine, engine_settings(run, change.skip_reset))?,
    };
    let result = match runner.run(HookPoint::ApplyStart).await {
        Ok(()) => change.steps().await,
        Err(error) => Err(error.into()),
    };
    let end = runner.run(HookPoint::ApplyExit).await;
    let output = match (result, end) {
        (Ok(output), Ok(())) => output,
        (Ok(_), Err(error)) => return Err(error.into()),
        (Err(stop), end) => {
            if let Err(error) = end {
                note(explain(&error.into()).trim_end());
            }
            return match stop {
                ChangeFailure::Message(message) => Ok(Report::failed(notes + &message)),
                ChangeFailure::Error(error) => Err(error),
            };
        }
    };
    Ok(Report { output, notes, ..Report::default() })
}

/// Reports errors, and interrupted earlier changes.
fn refused(errors: String, run: &RunSettings) -> Report {
    with_journal_warnings(Report::failed(errors), &run.engine.state_dir)
}

/// Prints interrupted changes of other layouts, and problems of the journal.
fn note_journal(status: &NodeLayoutStatus) {
    for line in status.notice.iter().chain(&interrupted(status)) {
        note(line);
    }
}

const NOTHING_CHANGED: &str = "error: nothing was changed\n";

fn engine_settings(run: &RunSettings, skip_reset: bool) -> Settings {
    let settings =
        Settings::new(&run.engine, &run.hardware.sys_root, DriftPolicy::Repair, "mig-parted");
    if skip_reset { Settings { resets: ResetMethods::default(), ..settings } } else { settings }
}

/// Returns the reasons that no hook and no wait could resolve.
fn impossible(targets: &Targets, run: &RunSettings, inventory: &Inventory) -> Option<String> {
    let planned = plan(&PlanInput {
        inventory,
        targets,
        holders: &[],
        policy: &run.engine.policy(),
        refused: &std::collections::BTreeSet::new(),
    });
    let rules = planned.devices.iter().filter_map(|device| {
        let DevicePlanResult::Infeasible(infeasible) = &device.verdict else {
            return None;
        };
        let formatter = PlanFormatter::new(inventory, device.pci);
        let rule = format!(
            "error: {}: {}",
            formatter.device(device.pci),
            formatter.rule(&infeasible.rule)
        );
        Some(wrap(&rule, 2))
    });
    let reasons = lines(rules);
    (!reasons.is_empty()).then_some(reasons)
}

impl RunningChange<'_> {
    /// Runs the steps between the first hook and the last.
    async fn steps(&mut self) -> Result<String, ChangeFailure> {
        let inventory = self.hardware.observe().await;
        let (targets, at_once) = match (self.change.resolve)(&inventory) {
            Resolution::Resolved(resolved, _) => (resolved.targets, true),
            Resolution::ModesOnly(resolved, _) => (resolved.targets, false),
            Resolution::Refused(errors) => return Err(ChangeFailure::Message(errors)),
        };
        let mode_differs = !compare_modes(&targets, &inventory).is_empty();
        if mode_differs {
            self.runner.run(HookPoint::PreApplyMode).await?;
        }
        let mode_only = self.run.mode.mode_only;
        let between = self.runner.has(HookPoint::PreApplyConfig) || !at_once;
        if mode_only || (mode_differs && between) {
            let output = self.modes(&targets).await?;
            if mode_only {
                return Ok(output);
            }
        }
        self.whole().await
    }

    /// Changes only MIG modes.
    async fn modes(&mut self, targets: &Targets) -> Result<String, ChangeFailure> {
        self.runner.print("Applying MIG mode change");
        let meant = |inventory: &Inventory| mode_targets(targets, inventory);
        let status = self.rounds(&meant).await?;
        let latest = self.hardware.observe().await;
        let differences = compare_modes(targets, &latest);
        if differences.is_empty() && modes_are_set(targets, &latest) {
            note_journal(&status);
            return Ok(self.done());
        }
        let waits = modes_are_set(targets, &latest);
        let mode_only = self.run.mode.mode_only;
        if waits && mode_only && self.change.skip_reset {
            let differences = format_differences(&differences);
            return Ok(format!(
                "{differences}the MIG mode is pending, because the required reset was skipped\n"
            ));
        }
        Err(not_applied(&status, &differences))
    }

    /// Changes modes and partitions.
    async fn whole(&mut self) -> Result<String, ChangeFailure> {
        let inventory = self.hardware.observe().await;
        let targets = match (self.change.resolve)(&inventory) {
            Resolution::Resolved(resolved, _) => resolved.targets,
            Resolution::ModesOnly(_, reasons) | Resolution::Refused(reasons) => {
                return Err(ChangeFailure::Message(reasons));
            }
        };
        if !compare(&targets, &inventory).is_empty() {
            self.runner.run(HookPoint::PreApplyConfig).await?;
            self.runner.print("Applying MIG device configuration");
        }
        // A device reports more once MIG mode is enabled.
        let change = self.change;
        let meant = |inventory: &Inventory| match (change.resolve)(inventory) {
            Resolution::Resolved(resolved, _) => resolved.targets,
            Resolution::ModesOnly(..) | Resolution::Refused(_) => targets.clone(),
        };
        let status = self.rounds(&meant).await?;
        let latest = self.hardware.observe().await;
        let differences = compare(&meant(&latest), &latest);
        if status.is_applied() && differences.is_empty() {
            note_journal(&status);
            return Ok(self.done());
        }
        Err(not_applied(&status, &differences))
    }

    async fn rounds(
        &mut self,
        meant: &dyn Fn(&Inventory) -> Targets,
    ) -> Result<NodeLayoutStatus, CliError> {
        self.hand.select_all();
        let show = ProgressDisplay::silent();
        let meant = (self.change.name, meant);
        let wait = (WaitPolicy::Once(MAX_CHANGE_DURATION), Instant::now() + MAX_CHANGE_DURATION);
        self.hand.rounds(&self.hardware, wait, meant, &show).await
    }

    fn done(&self) -> String {
        format!("{}\n", self.change.done)
    }
}

fn not_applied(status: &NodeLayoutStatus, differences: &[Difference]) -> ChangeFailure {
    let mut text = format_status(status, Colors::Off);
    if status.is_applied() {
        text.push_str(&format_differences(differences));
    }
    text.push_str("error: the GPUs do not match the configuration\n");
    ChangeFailure::Message(text)
}

fn format_differences(differences: &[Difference]) -> String {
    let all = differences.iter();
    lines(all.map(|one| wrap(&one.to_string(), 2)))
}
