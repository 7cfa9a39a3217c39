//! Changes made by this process, which holds the lock of the state directory as an agent would.

use std::sync::Arc;

use octavo_engine::claims::{ClaimProbe, RecordedClaims};
use octavo_engine::engine::{DesiredLayout, Engine, Settings};
use octavo_engine::executor::ProgressByDevice;
use octavo_engine::settings::usage_probe;
use octavo_hardware::DriverHandle;
use octavo_model::inventory::Inventory;
use octavo_planner::layout::Targets;
use octavo_planner::reconcile::{DriftPolicy, NodeLayoutStatus};
use octavo_settings::engine::EngineSettings;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, interval_at, sleep_until, timeout_at};

use super::progress::ProgressDisplay;
use crate::CliError;
use crate::settings::apply::{RunSettings, WaitPolicy};

/// Interval of checks for blockers: the end of a process causes no notification.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Name of this program in the history and in the lock.
pub(super) const ACTOR: &str = "command";

/// Engine of this process, while it owns the state directory.
#[derive(Debug)]
pub(crate) struct LocalEngine {
    engine: Engine,
    board: watch::Receiver<ProgressByDevice>,
}

/// A layout's name, and a function that resolves it on an inventory.
pub(crate) type NamedResolver<'a> = (&'a str, &'a dyn Fn(&Inventory) -> Targets);

/// Runs rounds until the layout is applied or `settings` allow no further attempt.
pub(super) async fn run(
    hardware: &DriverHandle,
    settings: &RunSettings,
    meant: NamedResolver<'_>,
    (show, end): (&ProgressDisplay, Instant),
) -> Result<NodeLayoutStatus, CliError> {
    let engine = &settings.engine;
    let how = Settings::new(engine, &settings.hardware.sys_root, DriftPolicy::Repair, ACTOR);
    let mut hand = LocalEngine::open(engine, how)?;
    let wait = settings.wait_policy();
    hand.rounds(hardware, (wait, end), meant, show).await
}

impl LocalEngine {
    /// Acquires the state directory. The error names its current owner.
    pub(crate) fn open(settings: &EngineSettings, how: Settings) -> Result<Self, CliError> {
        let progress = watch::Sender::new(ProgressByDevice::new());
        let board = progress.subscribe();
        // An agent that is not running may have prepared claims.
        let claims = Arc::new(RecordedClaims::new(&settings.state_dir));
        let probe = Arc::new(ClaimProbe::new(usage_probe(settings), claims));
        let engine =
            Engine::open(&settings.state_dir, how, probe, progress).map_err(CliError::State)?;
        Ok(Self { engine, board })
    }

    /// Marks all devices as selected again, after the desired layout changed.
    pub(crate) fn select_all(&mut self) {
        self.engine.select_all();
    }

    /// Runs rounds until the layout is applied or `wait` allows no further attempt.
    pub(crate) async fn rounds(
        &mut self,
        hardware: &DriverHandle,
        (wait, end): (WaitPolicy, Instant),
        (layout, meant): NamedResolver<'_>,
        show: &ProgressDisplay,
    ) -> Result<NodeLayoutStatus, CliError> {
        let Self { engine, board } = self;
        engine.set_reset_deadline(end);
        let mut hints = hardware.changes();
        loop {
            let inventory = match observe(hardware, end).await {
                Ok(inventory) => inventory,
                Err(call) => {
                    let status = engine.status(&hardware.latest(), Some(layout));
                    return unanswered(status, call);
                }
            };
            let targets = meant(&inventory);
            let wanted = DesiredLayout { layout, targets: &targets };
            let round = {
                let mut round = std::pin::pin!(engine.round(hardware, &inventory, wanted));
                let mut late = interval_at(end, POLL_INTERVAL);
                let mut ticks = show.ticks();
                loop {
                    tokio::select! {
                        round = &mut round => break Ok(round),
                        Ok(()) = board.changed() => show.board(&inventory, &board.borrow_and_update()),
                        _ = ticks.tick() => show.refresh(),
                        // A change in progress is completed unless a driver call hangs.
                        _ = late.tick() => if let Some(call) = hardware.long_running_call(POLL_INTERVAL) {
                            break Err(call);
                        },
                    }
                }
            };
            let status = engine.status(&hardware.latest(), Some(layout));
            show.progress(&status);
            let round = match round {
                Ok(round) => round,
                Err(call) => return unanswered(status, call),
            };
            if !round.outcomes.is_empty() && Instant::now() < end {
                // Repeat immediately: with a catalog the layout may resolve differently.
                continue;
            }
            if status.is_applied() || Instant::now() >= end {
                return Ok(status);
            }
            match wait {
                WaitPolicy::Once(_) => return Ok(status),
                WaitPolicy::UntilDone(_) => {
                    let again =
                        Instant::now() + round.again.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL);
                    let hint = timeout_at(again, hints.changed());
                    tokio::select! {
                        _ = hint => {}
                        () = sleep_until(end) => return Ok(status),
                    }
                }
            }
        }
    }
}

/// Reads the hardware. The error is the driver call that had not returned at `end`.
pub(super) async fn observe(
    hardware: &DriverHandle,
    end: Instant,
) -> Result<Arc<Inventory>, &'static str> {
    let mut observed = std::pin::pin!(hardware.observe());
    let mut late = interval_at(end, POLL_INTERVAL);
    loop {
        tokio::select! {
            inventory = &mut observed => return Ok(inventory),
            _ = late.tick() => if let Some(call) = hardware.long_running_call(POLL_INTERVAL) {
                return Err(call);
            },
        }
    }
}

/// Returns the status at the time limit, while `call` of the driver has not returned. It is an error if no device was
/// read yet, because a status without devices would be a success.
fn unanswered(status: NodeLayoutStatus, call: &'static str) -> Result<NodeLayoutStatus, CliError> {
    if status.devices.is_empty() {
        return Err(CliError::DriverTimeout(call));
    }
    let stall = format!(
        "the driver does not return from {call}; the change is recorded in the journal and \
         resumes at the next start"
    );
    let notices: Vec<String> = status.notice.into_iter().chain([stall]).collect();
    Ok(NodeLayoutStatus { notice: Some(notices.join("; ")), ..status })
}
