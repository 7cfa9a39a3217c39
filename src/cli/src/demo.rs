//! `octavo demo`: a fleet on one machine. It runs the released aggregator and agents as real processes; only the
//! driver and the hardware below it are simulated.
//!
//! ```text
//! programs.rs    programs that the demo needs
//! scenario.rs    the machines, and their expected counts
//! machine.rs     one simulated machine in a directory
//! sharing_pods.rs pods that share a machine's GPU, as kubelet and the kernel report them
//! processes.rs   child processes: start, log, stop
//! events.rs      events on the machines
//! check.rs       expected state of the aggregator
//! runner.rs      the whole demo
//! ```

mod check;
mod events;
mod machine;
mod processes;
mod programs;
mod runner;
mod scenario;
mod sharing_pods;

use self::processes::ChildProcesses;
use self::programs::Programs;
use self::runner::{DemoOutcome, DemoRunner};
use super::watch::StopSignal;
use super::{CliError, DemoError, Exit, Report, output};
use crate::settings::Colors;
use crate::settings::demo::{DemoSettings, program_path};

/// Runs until it is stopped or its time is over, and removes everything it created.
pub(super) async fn run(settings: &DemoSettings, colors: Colors) -> Result<Report, CliError> {
    let mut stop = StopSignal::new().map_err(CliError::Runtime)?;
    let own = program_path();
    let programs = Programs::find(&settings.programs())?;
    let scenarios = scenario::all(settings.machines.as_deref())?;
    let folder = tempfile::Builder::new()
        .prefix("octavo-demo.")
        .tempdir()
        .map_err(DemoError::Folder)?;
    let mut children = ChildProcesses::new().await;
    let play = DemoRunner {
        settings,
        colors,
        programs: &programs,
        own: &own,
        folder: folder.path(),
    };
    let ending = tokio::select! {
        ending = play.run(&scenarios, &mut children) => ending,
        () = stop.received() => Ok(DemoOutcome::Stopped),
    };
    // A second Ctrl-C is not needed: a child that does not exit on request is killed.
    children.stop().await;
    folder.close().map_err(DemoError::Folder)?;
    let last = match ending? {
        DemoOutcome::Complete(summary) => Some(summary),
        DemoOutcome::Stopped => {
            Some("==> stopped: all processes ended, nothing is left".to_owned())
        }
        DemoOutcome::OutputClosed => None,
    };
    if let Some(last) = last {
        let _ = output::out(&format!("{last}\n"))?;
    }
    Ok(Report {
        exit: Exit::Done,
        ..Report::default()
    })
}
