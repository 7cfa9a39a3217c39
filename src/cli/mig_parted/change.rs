//! `apply` and `restore`: a change with hooks around it.
//!
//! Files are read, names resolved and the plan computed before the first hook runs, so that an infeasible layout
//! disturbs no workload. The order of hooks is: apply-start; pre-apply-mode if a mode differs; pre-apply-config if
//! partitions differ; always apply-exit. Modes and partitions are one transaction, unless a hook runs between the two
//! or a driver reports its profiles only after the mode change.

use tokio::time::Instant;

use super::config::Meaning;
use super::hooks::Runner;
use super::{Open, failed};
use crate::apply::engine::Settings;
use crate::apply::reset::Resets;
use crate::cli::apply::direct::Hand;
use crate::cli::apply::show::{Show, interrupted, people};
use crate::cli::apply::warned;
use crate::cli::print::note;
use crate::cli::text::{folded, lines};
use crate::cli::{CliError, Report, explain};
use crate::config::octavo::apply::Patience;
use crate::config::octavo::mig_parted::{Depth, Reset, RunSettings};
use crate::config::octavo::{Colors, Screen};
use crate::domain::inventory::Inventory;
use crate::domain::layout::{Difference, Targets, compare, compare_modes, modes, modes_are_set};
use crate::domain::plan::words::Words;
use crate::domain::plan::{Question, Verdict, plan};
use crate::domain::reconcile::Drift;
use crate::hw::Handle;
use crate::wire::hooks::Moment;
use crate::wire::local::Status;

/// Time limit of all rounds together; each GPU has its own limit within.
const LONGEST: std::time::Duration = std::time::Duration::from_mins(10);

/// The requested state.
pub(super) struct Wish<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Resolves it on an inventory.
    pub(super) meaning: &'a dyn Fn(&Inventory) -> Meaning,
    /// Message on success.
    pub(super) done: &'static str,
}

/// A change in progress.
struct Change<'a> {
    run: &'a RunSettings,
    wish: &'a Wish<'a>,
    runner: &'a Runner<'a>,
    hardware: Handle,
    hand: Hand,
}

/// Reason for a failure: a message for the user, or an error.
enum Stop {
    Told(String),
    Error(CliError),
}

impl<E: Into<CliError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// Changes the node.
pub(super) async fn change(
    open: Open<'_>,
    run: &RunSettings,
    wish: &Wish<'_>,
    runner: &Runner<'_>,
) -> Result<Report, CliError> {
    let hardware = open(run.hardware())?;
    let inventory = hardware.observe().await;
    let notes = match (wish.meaning)(&inventory) {
        Meaning::Refused(errors) => return Ok(refused(errors + NOTHING, run)),
        Meaning::Whole(resolved, notes) => match impossible(&resolved.targets, run, &inventory) {
            None => notes,
            Some(rules) => return Ok(refused(notes + &rules + NOTHING, run)),
        },
        Meaning::ModesFirst(_, notes) => notes,
    };
    let mut change = Change {
        run,
        wish,
        runner,
        hardware,
        hand: Hand::take(run.engine(), how(run))?,
    };
    let result = match runner.run(Moment::ApplyStart).await {
        Ok(()) => change.steps().await,
        Err(error) => Err(error.into()),
    };
    let end = runner.run(Moment::ApplyExit).await;
    let said = match (result, end) {
        (Ok(said), Ok(())) => said,
        (Ok(_), Err(error)) => return Err(error.into()),
        (Err(stop), end) => {
            if let Err(error) = end {
                note(explain(&error.into()).trim_end());
            }
            return match stop {
                Stop::Told(told) => Ok(failed(notes + &told)),
                Stop::Error(error) => Err(error),
            };
        }
    };
    Ok(Report {
        output: said,
        notes,
        ..Report::default()
    })
}

/// Reports errors, and interrupted earlier changes.
fn refused(errors: String, run: &RunSettings) -> Report {
    warned(failed(errors), run.engine().state_dir())
}

/// Prints interrupted changes of other layouts, and problems of the journal.
fn note_journal(status: &Status) {
    for line in status.notice.iter().chain(&interrupted(status)) {
        note(line);
    }
}

const NOTHING: &str = "error: nothing was changed\n";

fn how(run: &RunSettings) -> Settings {
    let settings = Settings::new(
        run.engine(),
        run.hardware().sys_root(),
        Drift::Repair,
        "mig-parted",
    );
    match run.reset() {
        Reset::IfNeeded => settings,
        Reset::Skipped => Settings {
            resets: Resets::default(),
            ..settings
        },
    }
}

/// Returns the reasons that no hook and no wait could resolve.
fn impossible(targets: &Targets, run: &RunSettings, inventory: &Inventory) -> Option<String> {
    let planned = plan(&Question {
        inventory,
        targets,
        holders: &[],
        policy: &run.engine().policy(),
        refused: &std::collections::BTreeSet::new(),
    });
    let rules = planned.devices.iter().filter_map(|device| {
        let Verdict::Infeasible(infeasible) = &device.verdict else {
            return None;
        };
        let words = Words::new(inventory, device.pci);
        let rule = format!(
            "error: {}: {}",
            words.device(device.pci),
            words.rule(&infeasible.rule)
        );
        Some(folded(&rule, 2))
    });
    let told = lines(rules);
    (!told.is_empty()).then_some(told)
}

impl Change<'_> {
    /// Runs the steps between the first hook and the last.
    async fn steps(&mut self) -> Result<String, Stop> {
        let inventory = self.hardware.observe().await;
        let (targets, at_once) = match (self.wish.meaning)(&inventory) {
            Meaning::Whole(resolved, _) => (resolved.targets, true),
            Meaning::ModesFirst(resolved, _) => (resolved.targets, false),
            Meaning::Refused(errors) => return Err(Stop::Told(errors)),
        };
        let mode_differs = !compare_modes(&targets, &inventory).is_empty();
        if mode_differs {
            self.runner.run(Moment::PreApplyMode).await?;
        }
        let mode_only = self.run.depth() == Depth::ModeOnly;
        let between = self.runner.has(Moment::PreApplyConfig) || !at_once;
        if mode_only || (mode_differs && between) {
            let said = self.modes(&targets).await?;
            if mode_only {
                return Ok(said);
            }
        }
        self.whole().await
    }

    /// Changes only MIG modes.
    async fn modes(&mut self, targets: &Targets) -> Result<String, Stop> {
        self.runner.say("Applying MIG mode change");
        let meant = |inventory: &Inventory| modes(targets, inventory);
        let status = self.rounds(&meant).await?;
        let latest = self.hardware.observe().await;
        let differences = compare_modes(targets, &latest);
        if differences.is_empty() && modes_are_set(targets, &latest) {
            note_journal(&status);
            return Ok(self.done());
        }
        let waits = modes_are_set(targets, &latest);
        let mode_only = self.run.depth() == Depth::ModeOnly;
        if waits && mode_only && self.run.reset() == Reset::Skipped {
            let told = told(&differences);
            return Ok(format!(
                "{told}MIG mode waits for a reset, which was not done\n"
            ));
        }
        Err(not_had(&status, &differences))
    }

    /// Changes modes and partitions.
    async fn whole(&mut self) -> Result<String, Stop> {
        let inventory = self.hardware.observe().await;
        let targets = match (self.wish.meaning)(&inventory) {
            Meaning::Whole(resolved, _) => resolved.targets,
            Meaning::ModesFirst(_, told) | Meaning::Refused(told) => return Err(Stop::Told(told)),
        };
        if !compare(&targets, &inventory).is_empty() {
            self.runner.run(Moment::PreApplyConfig).await?;
            self.runner.say("Applying MIG device configuration");
        }
        // A device reports more once MIG mode is enabled.
        let meant = |inventory: &Inventory| match (self.wish.meaning)(inventory) {
            Meaning::Whole(resolved, _) => resolved.targets,
            Meaning::ModesFirst(..) | Meaning::Refused(_) => targets.clone(),
        };
        self.hand.select();
        let show = Show::new(Screen::Scroll);
        let patience = (Patience::Once(LONGEST), Instant::now() + LONGEST);
        let rounds = self
            .hand
            .rounds(&self.hardware, patience, (self.wish.name, &meant), &show);
        let status = rounds.await?;
        let latest = self.hardware.observe().await;
        let differences = compare(&meant(&latest), &latest);
        if status.is_applied() && differences.is_empty() {
            note_journal(&status);
            return Ok(self.done());
        }
        Err(not_had(&status, &differences))
    }

    async fn rounds(&mut self, meant: &dyn Fn(&Inventory) -> Targets) -> Result<Status, CliError> {
        self.hand.select();
        let show = Show::new(Screen::Scroll);
        let meant = (self.wish.name, meant);
        let patience = (Patience::Once(LONGEST), Instant::now() + LONGEST);
        self.hand
            .rounds(&self.hardware, patience, meant, &show)
            .await
    }

    fn done(&self) -> String {
        format!("{}\n", self.wish.done)
    }
}

fn not_had(status: &Status, differences: &[Difference]) -> Stop {
    let mut text = people(status, Colors::Off);
    if status.is_applied() {
        text.push_str(&told(differences));
    }
    text.push_str("error: the GPUs do not have what was asked for\n");
    Stop::Told(text)
}

fn told(differences: &[Difference]) -> String {
    let all = differences.iter();
    lines(all.map(|one| folded(&one.to_string(), 2)))
}
