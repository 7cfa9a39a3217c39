//! `nvidia-mig-parted`, and `octavo mig-parted`: the commands of NVIDIA's program on Octavo's engine.
//! `docs/tasks/migrate-from-mig-parted.md` documents the differences and their reasons.
//!
//! ```text
//! config.rs    selection of a configuration, and its resolution on the node
//! assert.rs    comparison of the node with a configuration
//! change.rs    apply and restore, with hooks around them
//! hooks.rs     hooks
//! ```

mod assert;
mod change;
mod config;
mod hooks;

use std::collections::BTreeMap;

use octavo_hardware::DriverHandle;
use octavo_model::inventory::Inventory;
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{
    Dialect, ExportError, Layout, Layouts, MigSpec, ResolvedLayout, Rule, Selector, export,
    generate,
};
use octavo_settings::hardware::HardwareSettings;

use self::change::ChangeRequest;
use self::config::{Resolution, SelectedConfig};
use self::hooks::HookRunner;
use super::apply::with_journal_warnings;
use super::{CliError, MigPartedError, Report, checkpoint, explain, input, layouts};
use crate::settings::mig_parted::{
    ApplySettings, CheckpointSettings, ExportSettings, GenerateSettings, HooksSettings,
    MigPartedCommand, MigPartedSettings, RestoreSettings,
};
use crate::settings::{Input, mig_parted_completion_script};

/// Opens this machine's hardware.
pub(super) type OpenHardware<'a> = &'a dyn Fn(&HardwareSettings) -> Result<DriverHandle, CliError>;

/// Runs the command. Every failure exits with 1, as in mig-parted.
pub(super) async fn report(
    open: OpenHardware<'_>,
    settings: &MigPartedSettings,
) -> Result<Report, CliError> {
    let (strict, debug) = (settings.strict_compat, settings.debug);
    match &settings.command {
        MigPartedCommand::Apply(verb) => apply(open, verb, (strict, debug)).await,
        MigPartedCommand::Restore(settings) => restore(open, settings, debug).await,
        MigPartedCommand::Assert(verb) => assert::report(open, verb, strict).await,
        MigPartedCommand::Export(settings) => exported(open, settings).await,
        MigPartedCommand::Checkpoint(settings) => checkpointed(open, settings).await,
        MigPartedCommand::GenerateConfig(settings) => generated(open, settings).await,
        MigPartedCommand::Completion { shell } => {
            Ok(Report { output: mig_parted_completion_script(*shell), ..Report::default() })
        }
    }
}

async fn apply(
    open: OpenHardware<'_>,
    settings: &ApplySettings,
    (strict, debug): (bool, bool),
) -> Result<Report, CliError> {
    let (run, hooks) = (&settings.run, &settings.hooks);
    let state_dir = &run.engine.state_dir;
    let config = match SelectedConfig::read(&settings.config, strict) {
        Ok(config) => config,
        Err(error) => return Ok(with_journal_warnings(error.into_report(), state_dir)),
    };
    let variables = BTreeMap::from([
        ("MIG_PARTED_CONFIG_FILE", settings.config.config_file.path().display().to_string()),
        ("MIG_PARTED_SELECTED_CONFIG", config.name().to_owned()),
        ("MIG_PARTED_HOOKS_FILE", hooks_file(hooks)),
        ("MIG_PARTED_SKIP_RESET", settings.skip_reset.to_string()),
        ("MIG_PARTED_MODE_CHANGE_ONLY", run.mode.mode_only.to_string()),
    ]);
    let runner = HookRunner::new(hooks, variables, debug)?;
    let change = ChangeRequest {
        name: config.name(),
        resolve: &|inventory| config.meaning(inventory),
        done: "MIG configuration applied successfully",
        skip_reset: settings.skip_reset,
    };
    change::change(open, run, &change, &runner).await
}

async fn restore(
    open: OpenHardware<'_>,
    settings: &RestoreSettings,
    debug: bool,
) -> Result<Report, CliError> {
    let (run, hooks) = (&settings.run, &settings.hooks);
    let file = &settings.checkpoint.checkpoint_file;
    let text = match input::text(file, "a checkpoint") {
        Ok(text) => text,
        Err(error) => {
            return Ok(with_journal_warnings(error.into_report(), &run.engine.state_dir));
        }
    };
    let place = input::place(file);
    let variables = BTreeMap::from([
        ("MIG_PARTED_CHECKPOINT_FILE", file.path().display().to_string()),
        ("MIG_PARTED_HOOKS_FILE", hooks_file(hooks)),
        ("MIG_PARTED_MODE_CHANGE_ONLY", run.mode.mode_only.to_string()),
    ]);
    let runner = HookRunner::new(hooks, variables, debug)?;
    let meaning = |inventory: &Inventory| match octavo_files::checkpoint::read(&text, inventory) {
        Ok(targets) => {
            let covered = targets.devices.iter().map(|target| target.pci).collect();
            let resolved = ResolvedLayout { targets, covered, warnings: Vec::new() };
            Resolution::Resolved(resolved, String::new())
        }
        Err(source) => {
            let place = place.clone();
            Resolution::Refused(explain(&CliError::document("checkpoint", place, source)))
        }
    };
    let change = ChangeRequest {
        name: "(checkpoint)",
        resolve: &meaning,
        done: "MIG configuration restored successfully",
        skip_reset: false,
    };
    change::change(open, run, &change, &runner).await
}

fn hooks_file(settings: &HooksSettings) -> String {
    let file = settings.hooks_file.as_ref();
    file.map(|path| path.display().to_string()).unwrap_or_default()
}

async fn exported(open: OpenHardware<'_>, settings: &ExportSettings) -> Result<Report, CliError> {
    let inventory = open(&settings.hardware)?.observe().await;
    let layout = match export(&inventory, &settings.label, Dialect::MigParted) {
        Err(ExportError::NoPartitionableDevice) if !inventory.devices.is_empty() => {
            whole_gpus(&settings.label)
        }
        layout => layout.map_err(CliError::Export)?,
    };
    let layouts = Layouts { dialect: Dialect::MigParted, layouts: vec![layout] };
    layouts::document(&layouts, Dialect::MigParted, settings.output.format)
}

/// Returns the layout of GPUs that cannot be partitioned.
fn whole_gpus(name: &str) -> Layout {
    let rule = Rule {
        position: SourcePosition::default(),
        devices: Selector::All,
        mig: Some(MigSpec::Disabled),
        time_slicing: None,
        claims: false,
    };
    Layout { name: name.to_owned(), position: SourcePosition::default(), rules: vec![rule] }
}

async fn checkpointed(
    open: OpenHardware<'_>,
    settings: &CheckpointSettings,
) -> Result<Report, CliError> {
    let inventory = open(&settings.hardware)?.observe().await;
    let mut report = checkpoint::write_to(&inventory, &settings.checkpoint.checkpoint_file)?;
    if let Input::File(_) = settings.checkpoint.checkpoint_file {
        report.output = String::from("MIG configuration checkpointed successfully\n");
    }
    Ok(report)
}

async fn generated(
    open: OpenHardware<'_>,
    settings: &GenerateSettings,
) -> Result<Report, CliError> {
    let inventory = open(&settings.hardware)?.observe().await;
    let layouts = generate(&inventory, Dialect::MigParted);
    if layouts.layouts.is_empty() {
        return Err(MigPartedError::NothingToGenerate.into());
    }
    let mut report = layouts::document(&layouts, Dialect::MigParted, settings.output.format)?;
    if let Some(path) = &settings.output_file {
        checkpoint::write_file(path, &std::mem::take(&mut report.output))?;
    }
    Ok(report)
}
