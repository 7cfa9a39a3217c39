//! By this process, which then holds the lock of the state directory, as an agent would.

use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep_until, timeout_at};

use super::show::Show;
use crate::apply::engine::{Engine, Settings, Wanted};
use crate::apply::executor::Board;
use crate::apply::settings::witness;
use crate::cli::CliError;
use crate::config::octavo::apply::{Patience, RunSettings};
use crate::domain::inventory::Inventory;
use crate::domain::layout::Targets;
use crate::domain::reconcile::Drift;
use crate::hw::Handle;
use crate::wire::local::Status;

/// How often it is looked whether what was in the way has gone; processes say nothing when they end.
const LOOK: Duration = Duration::from_secs(1);

/// Rounds until everything is done, or was tried, as far as there is patience.
pub(super) async fn run(
    hardware: &Handle,
    settings: &RunSettings,
    (layout, meant): (&str, &dyn Fn(&Inventory) -> Targets),
    show: &Show,
) -> Result<Status, CliError> {
    let patience = settings.patience();
    let end = Instant::now() + patience.limit();
    let how = Settings::new(
        settings.engine(),
        settings.hardware().sys_root(),
        Drift::Repair,
        "command",
    );
    let progress = watch::Sender::new(Board::new());
    let mut board = progress.subscribe();
    let folder = settings.engine().state_dir();
    let mut engine =
        Engine::open(folder, how, witness(settings.engine()), progress).map_err(CliError::State)?;
    let mut hints = hardware.hints();
    loop {
        let inventory = hardware.observe().await;
        let targets = meant(&inventory);
        let wanted = Wanted {
            layout,
            targets: &targets,
        };
        let round = {
            let mut round = std::pin::pin!(engine.round(hardware, &inventory, wanted));
            loop {
                tokio::select! {
                    round = &mut round => break round,
                    Ok(()) = board.changed() => show.board(&inventory, &board.borrow_and_update()),
                }
            }
        };
        let status = Status::from(&engine.status(&hardware.latest(), Some(layout)));
        show.progress(&status);
        if status.is_applied() || Instant::now() >= end {
            return Ok(status);
        }
        if !round.outcomes.is_empty() {
            continue;
        }
        match patience {
            Patience::Once(_) => return Ok(status),
            Patience::UntilDone(_) => {
                let again = Instant::now() + round.again.unwrap_or(LOOK).min(LOOK);
                let hint = timeout_at(again, hints.changed());
                tokio::select! {
                    _ = hint => {}
                    () = sleep_until(end) => return Ok(status),
                }
            }
        }
    }
}
