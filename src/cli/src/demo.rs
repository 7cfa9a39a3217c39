//! `octavo demo`: a cluster on one machine. It runs the real aggregator and agents as real processes; Kubernetes, the
//! kubelets, the drivers and the hardware are simulated.

use octavo_demo::{DemoError, DemoOptions, DemoOutcome, DemoRunner, Programs, scenario};

use super::watch::{StopSignal, node_diff};
use super::{CliError, Exit, Report, output};
use crate::settings::Colors;
use crate::settings::demo::{DemoSettings, program_path};

/// Runs until it is stopped or its time is over, and removes everything it created.
pub(super) async fn run(settings: &DemoSettings, colors: Colors) -> Result<Report, CliError> {
    let mut stop = StopSignal::new().map_err(CliError::Runtime)?;
    let own = program_path();
    let programs = Programs::find(&settings.programs())?;
    let scenarios = scenario::all(settings.machines.as_deref())?;
    let directory =
        tempfile::Builder::new().prefix("octavo-demo.").tempdir().map_err(DemoError::Folder)?;
    let play = DemoRunner {
        options: DemoOptions {
            port: settings.port,
            tour: settings.tour,
            built_in: settings.machines.is_none(),
            duration: settings.duration(),
        },
        colors,
        describe: node_diff::words,
        programs: &programs,
        own: &own,
        directory: directory.path(),
    };
    let outcome = play.run(&scenarios, stop.received()).await;
    directory.close().map_err(DemoError::Folder)?;
    let last = match outcome? {
        DemoOutcome::Complete(summary) => Some(summary),
        DemoOutcome::Stopped => Some(
            "==> stopped: all processes have exited and temporary files are removed".to_owned(),
        ),
        DemoOutcome::OutputClosed => None,
    };
    if let Some(last) = last {
        let _ = output::out(&format!("{last}\n"))?;
    }
    Ok(Report { exit: Exit::Done, ..Report::default() })
}
