//! The `octavo` command line: obtains an inventory, or requests the fleet from an aggregator, and renders it.
//!
//! This module makes no decisions; the libraries interpret values. A command is a function from settings and input to a
//! report, which is printed once at the end, so that a closed pipe or a full disk is handled in one place only.
//! `watch` and `demo` produce continuous output, and print it through `output`. The caller provides this machine's
//! inventory: `src/bin/octavo.rs` passes the hardware in.

mod apply;
mod assert;
mod audit;
mod catalog;
mod checkpoint;
mod completion;
mod cost;
mod demo;
mod device_holders;
mod diagnostics;
mod doctor;
mod error;
mod estimate;
mod exit;
mod fleet;
mod generate;
mod history;
mod input;
mod inspect;
mod labels;
mod layout_source;
mod layouts;
mod matching;
mod mig_parted;
mod migration;
mod output;
mod plan;
mod pod_devices;
mod policy;
mod prices;
mod profiles;
mod quota_check;
mod resolved_layout;
pub mod settings;
mod sharing;
mod simulate;
mod slo;
mod support_bundle;
mod top;
mod usage;
mod validate;
mod version;
mod watch;

use std::future::Future;
use std::io::{self, Write};
use std::sync::Arc;

use octavo_engine::store::{self, InterruptedChanges};
use octavo_hardware::DriverHandle;
use octavo_model::accelerators::{Catalog, TypeOverride, identify_devices};
use octavo_model::inventory::Inventory;
use octavo_settings::hardware::HardwareSettings;
use octavo_settings::{EarlyExit, EarlyExitKind};
use octavo_terminal::{box_drawing, devices, slice_frame, style, text};
use serde::Serialize;

use self::device_holders::DeviceHolders;
use self::doctor::NodeDiagnosis;
use self::error::{CliError, MigPartedError, explain};
pub use self::exit::Exit;
use self::layouts::NamedInventory;
use self::output::publish;
use self::text::{lines, printable};
use crate::settings::apply::{CheckpointSettings, RunSettings};
use crate::settings::doctor::{DoctorSettings, DoctorSources};
use crate::settings::inspect::NamedSource;
use crate::settings::layouts::{LayoutsCommand, PlanSettings};
use crate::settings::sharing::SharingCommand;
use crate::settings::simulate::SimulateSettings;
use crate::settings::source::SourceSettings;
use crate::settings::{Charset, Colors, Command, Input, Invocation, OutputMode, completion_script};

/// Output of a command.
#[derive(Debug, Default)]
struct Report {
    /// For standard output.
    output: String,
    /// For standard error.
    notes: String,
    exit: Exit,
}

impl Report {
    /// Creates a report with notes on the output.
    fn with_notes(output: String, notes: &[impl AsRef<str>], exit: Exit) -> Self {
        let notes = notes.iter().map(|note| format!("note: {}", printable(note.as_ref())));
        Self { output, notes: lines(notes), exit }
    }

    /// Creates the report of a failure, with the reasons.
    fn failed(notes: String) -> Self {
        Self { output: String::new(), notes, exit: Exit::Failed }
    }

    /// Prepends notes.
    fn after(self, notes: String) -> Self {
        Self { notes: notes + &self.notes, ..self }
    }
}

/// Opens the hardware of this machine.
pub type OpenHardware = fn(&HardwareSettings) -> io::Result<DriverHandle>;

/// Runs the command line of this process. `open` is called at most once.
pub fn main(open: OpenHardware) -> Exit {
    if completion::answer() {
        return Exit::Done;
    }
    let invocation = match Invocation::from_process() {
        Ok(invocation) => invocation,
        Err(answer) => return print(&answer),
    };
    let result = match run(&invocation, open) {
        Err(CliError::Rejected(report)) => Ok(*report),
        result => result,
    };
    let result = result.map(|report| match (invocation.screen, invocation.charset) {
        (OutputMode::Redraw, Charset::Utf8) => {
            Report { output: box_drawing::draw(&report.output), ..report }
        }
        (OutputMode::Redraw, Charset::Ascii) | (OutputMode::Append, _) => report,
    });
    match result.and_then(|report| publish(&report).map(|()| report.exit)) {
        Ok(exit) => exit,
        Err(error) => {
            // If standard error is closed too, the exit code still reports the failure.
            let _ = io::stderr().write_all(explain(&error).as_bytes());
            Exit::Failed
        }
    }
}

fn print(answer: &EarlyExit) -> Exit {
    // As above: a closed standard output is no failure for help.
    let _ = answer.print();
    match answer.kind() {
        EarlyExitKind::Requested => Exit::Done,
        EarlyExitKind::UsageError => Exit::Usage,
        EarlyExitKind::Failure => Exit::Failed,
    }
}

fn run(invocation: &Invocation, open: OpenHardware) -> Result<Report, CliError> {
    let colors = invocation.colors;
    let terminal = (colors, invocation.screen, invocation.charset);
    match &invocation.command {
        Command::Inspect(settings) => {
            let (inventory, notes) = named_inventory(&settings.source, open)?;
            Ok(inspect::report(&inventory, settings, colors)?.after(notes))
        }
        Command::Labels(settings) => {
            let (inventory, notes) = named_inventory(&settings.source, open)?;
            Ok(labels::report(&inventory, settings, colors)?.after(notes))
        }
        Command::Doctor(settings) => diagnosed(settings, open, colors),
        Command::SupportBundle(settings) => {
            let here = || diagnosis_here(&settings.sources, open);
            block_on(support_bundle::collect(settings, &here))?
        }
        Command::Plan(settings) => planned(settings, open, colors),
        Command::Apply(settings) => {
            let open = |run: &RunSettings| opened(&run.hardware, open);
            block_on(apply::apply(&open, settings, terminal))?
        }
        Command::Restore(settings) => {
            let open = |run: &RunSettings| opened(&run.hardware, open);
            block_on(apply::restore(&open, settings, terminal))?
        }
        Command::History(settings) => history::report(settings, colors),
        Command::Checkpoint(settings) => checkpoint_here(settings, open),
        Command::Assert(request) => assert::report(&*inventory(&request.source, open)?, request),
        Command::Export(settings) => {
            layouts::export(&*inventory(&settings.source, open)?, settings)
        }
        Command::Layouts(command) => of_layouts(command, open, colors),
        Command::Simulate(settings) => simulated(settings, open, colors),
        Command::Sharing(command) => of_sharing(command, open, colors),
        Command::Catalog(command) => catalog::report(command, colors),
        Command::Prices(command) => prices::report(command, colors),
        Command::MigParted(settings) => {
            let open = |hardware: &HardwareSettings| opened(hardware, open);
            block_on(mig_parted::report(&open, settings))?
        }
        Command::Nodes(settings) if settings.watch => {
            block_on(watch::watch(&settings.into(), colors, invocation.screen))?
        }
        Command::Nodes(settings) => block_on(fleet::nodes(settings, colors))?,
        Command::Types(settings) => block_on(fleet::types(settings, colors))?,
        Command::Availability(settings) => block_on(fleet::availability(settings, colors))?,
        Command::Demand(settings) => block_on(fleet::demand(settings, colors))?,
        Command::Node(settings) => block_on(fleet::node(settings, colors))?,
        Command::Profiles(command) => block_on(profiles::run(command, colors, invocation.screen))?,
        Command::Policy(command) => block_on(policy::run(command, colors, invocation.screen))?,
        Command::Match(settings) => block_on(matching::matching(settings, colors))?,
        Command::Estimate(command) => block_on(estimate::estimate(command, colors))?,
        Command::Slo(settings) => block_on(slo::slo(settings, colors))?,
        Command::Generate(command) => block_on(generate::generate(command))?,
        Command::QuotaCheck(settings) => block_on(quota_check::quota_check(settings, colors))?,
        Command::Migrate(command) => block_on(migration::run(command, colors))?,
        Command::Audit(command) => block_on(audit::run(command))?,
        Command::Cost(settings) => block_on(cost::cost(settings, colors))?,
        Command::Usage(settings) => block_on(usage::usage(settings, colors))?,
        Command::Watch(settings) => block_on(watch::watch(settings, colors, invocation.screen))?,
        Command::Validate(settings) => block_on(validate::validate(settings, colors))?,
        Command::PodDevices(settings) => {
            block_on(pod_devices::report(&opened(&settings.hardware, open)?, settings))?
        }
        Command::Top(settings) => block_on(top::top(settings, colors, invocation.screen))?,
        Command::Version(settings) => block_on(version::version(settings, colors))?,
        Command::Demo(settings) => block_on(demo::run(settings, colors))?,
        Command::Completion { shell } => Ok(completion_report(*shell)),
    }
}

fn completion_report(shell: clap_complete::Shell) -> Report {
    Report { output: completion_script(shell), ..Report::default() }
}

fn checkpoint_here(settings: &CheckpointSettings, open: OpenHardware) -> Result<Report, CliError> {
    let handle = opened(&settings.hardware, open)?;
    checkpoint::write_to(&*block_on(handle.observe())?, &settings.file)
}

fn of_layouts(
    command: &LayoutsCommand,
    open: OpenHardware,
    colors: Colors,
) -> Result<Report, CliError> {
    let machine = |input: &Input| {
        Ok(NamedInventory { name: input::place(input), inventory: input::inventory(input)? })
    };
    match command {
        LayoutsCommand::Check(settings) => {
            let machines: Result<Vec<NamedInventory>, CliError> =
                settings.machines.iter().map(machine).collect();
            layouts::check(settings, &machines?)
        }
        LayoutsCommand::Show(settings) => {
            let machine = settings.machine.as_ref().map(machine).transpose()?;
            layouts::show(settings, machine.as_ref(), colors)
        }
        LayoutsCommand::Generate(settings) => {
            layouts::generate(&*inventory(&settings.source, open)?, settings)
        }
    }
}

fn of_sharing(
    command: &SharingCommand,
    open: OpenHardware,
    colors: Colors,
) -> Result<Report, CliError> {
    match command {
        SharingCommand::Check(settings) => {
            let inventory = inventory(&settings.request.source, open)?;
            sharing::check(&inventory, settings, colors)
        }
        SharingCommand::Diff(settings) => {
            let inventory = inventory(&settings.request.source, open)?;
            sharing::diff(&inventory, settings, colors)
        }
        SharingCommand::Import(settings) => sharing::import(settings),
    }
}

fn simulated(
    settings: &SimulateSettings,
    open: OpenHardware,
    colors: Colors,
) -> Result<Report, CliError> {
    simulate::simulate(&*inventory(&settings.source, open)?, settings, colors)
}

fn planned(
    settings: &PlanSettings,
    open: OpenHardware,
    colors: Colors,
) -> Result<Report, CliError> {
    let source = &settings.request.source;
    let inventory = inventory(source, open)?;
    let (users, interrupted) = match source.from {
        Some(_) => (device_holders::recorded(inventory), InterruptedChanges::default()),
        None => (
            device_holders::live(inventory, &settings.proc_root),
            store::interrupted(&settings.state_dir),
        ),
    };
    let DeviceHolders { inventory, holders, notes } = users;
    Ok(plan::report(&inventory, (&holders, interrupted), settings, colors)?.after(notes))
}

fn diagnosed(
    settings: &DoctorSettings,
    open: OpenHardware,
    colors: Colors,
) -> Result<Report, CliError> {
    if let Some(node) = &settings.node {
        return block_on(doctor::diagnose(node, settings, colors))?;
    }
    let diagnosis = block_on(diagnosis_here(&settings.sources, open))??;
    doctor::format_findings(diagnosis.findings, settings, colors)
}

/// Diagnoses this node, or a recorded one.
async fn diagnosis_here(
    sources: &DoctorSources,
    open: OpenHardware,
) -> Result<NodeDiagnosis, CliError> {
    let inventory = match &sources.source.from {
        Some(file) => input::inventory(file).map(Arc::new),
        None => Ok(opened(&sources.source.hardware, open)?.observe().await),
    };
    let inventory = inventory?;
    let facts = doctor::collect(&inventory, sources).await?;
    let findings = doctor::run(&facts);
    drop(facts);
    Ok(NodeDiagnosis { inventory, findings })
}

fn inventory(source: &SourceSettings, open: OpenHardware) -> Result<Arc<Inventory>, CliError> {
    match &source.from {
        Some(file) => input::inventory(file).map(Arc::new),
        None => block_on(opened(&source.hardware, open)?.observe()),
    }
}

/// Returns the inventory with the requested type of its unknown devices, and a note on the effect.
fn named_inventory(
    source: &NamedSource,
    open: OpenHardware,
) -> Result<(Arc<Inventory>, String), CliError> {
    let inventory = inventory(&source.inventory, open)?;
    let Some(text) = &source.type_override else {
        return Ok((inventory, String::new()));
    };
    let type_override = TypeOverride::new(text, &Catalog::built_in());
    let mut named = Arc::unwrap_or_clone(inventory);
    identify_devices(&mut named, Some(&type_override));
    let note = format!("note: {}\n", type_override.effect(&named).text);
    Ok((Arc::new(named), note))
}

fn opened(hardware: &HardwareSettings, open: OpenHardware) -> Result<DriverHandle, CliError> {
    input::check_library(hardware)?;
    open(hardware).map_err(|error| CliError::Observe(Box::new(error)))
}

/// Runs on this thread: the demo's child processes end with the thread that started them.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CliError::Runtime)?;
    let done = runtime.block_on(future);
    // Do not wait for a thread that is blocked in a file or a reset.
    runtime.shutdown_background();
    Ok(done)
}

fn json(value: &impl Serialize) -> Result<String, CliError> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| CliError::Serialize(Box::new(error)))?;
    text.push('\n');
    Ok(text)
}

/// Serializes a value on one line.
fn json_line(value: &impl Serialize) -> Result<String, CliError> {
    let text = serde_json::to_string(value);
    text.map(|text| text + "\n").map_err(|error| CliError::Serialize(Box::new(error)))
}

fn yaml(value: &impl Serialize) -> Result<String, CliError> {
    serde_saphyr::to_string(value).map_err(|error| CliError::Serialize(Box::new(error)))
}
