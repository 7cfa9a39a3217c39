//! Settings of `nvidia-mig-parted`, which is also `octavo mig-parted`.

mod args;
mod resolve;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use octavo_settings::engine::EngineSettings;
use octavo_settings::hardware::HardwareSettings;

pub(super) use self::args::{EXAMPLES, MigPartedArgs, NvidiaMigPartedArgs};
use super::layouts::DocumentFormat;
use super::{Input, Shell};

/// Name under which this program behaves as NVIDIA's.
pub(super) const NAME: &str = "nvidia-mig-parted";

/// Parsed command line of mig-parted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigPartedSettings {
    command: MigPartedCommand,
    compat: Compat,
    talk: Verbosity,
}

/// The commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigPartedCommand {
    /// `apply`.
    Apply(ApplySettings),
    /// `assert`.
    Assert(AssertSettings),
    /// `export`.
    Export(ExportSettings),
    /// `checkpoint`.
    Checkpoint(CheckpointSettings),
    /// `restore`.
    Restore(RestoreSettings),
    /// `generate-config`.
    Generate(GenerateSettings),
    /// `completion`.
    Completion(Shell),
}

/// Whether harmless deviations of the original are reproduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compat {
    /// They are fixed.
    Lenient,
    /// They are reproduced.
    Strict,
}

/// Amount of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// Results only.
    Normal,
    /// Actions and the output of hooks, too.
    Debug,
}

/// Part of a configuration to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigScope {
    /// MIG modes.
    ModeOnly,
    /// All of it.
    Full,
}

/// Handling of a GPU that needs a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetPolicy {
    /// It is reset, if it is not in use.
    IfNeeded,
    /// It is not reset, and the mode remains pending.
    Skipped,
}

/// Assertion to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssertScope {
    /// The file is valid.
    FileOnly,
    /// The node has the configuration.
    Node,
}

/// A configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSettings {
    path: PathBuf,
    file: Input,
    selected: Option<String>,
}

/// Programs that run around a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HooksSettings {
    file: Option<PathBuf>,
    longest: Duration,
    folders: Vec<PathBuf>,
}

/// Settings of a change of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSettings {
    depth: ConfigScope,
    reset: ResetPolicy,
    hooks: HooksSettings,
    engine: EngineSettings,
    hardware: HardwareSettings,
}

/// Settings of `apply`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplySettings {
    config: ConfigSettings,
    run: RunSettings,
}

/// Settings of `assert`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssertSettings {
    config: ConfigSettings,
    depth: ConfigScope,
    validity: AssertScope,
    hardware: HardwareSettings,
}

/// Settings of `export`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportSettings {
    format: DocumentFormat,
    label: String,
    hardware: HardwareSettings,
}

/// Settings of `checkpoint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointSettings {
    file: Input,
    hardware: HardwareSettings,
}

/// Settings of `restore`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreSettings {
    path: PathBuf,
    file: Input,
    run: RunSettings,
}

/// Settings of `generate-config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerateSettings {
    file: Option<PathBuf>,
    format: DocumentFormat,
    hardware: HardwareSettings,
}

impl MigPartedSettings {
    /// Returns the command.
    pub fn command(&self) -> &MigPartedCommand {
        &self.command
    }

    /// Returns whether deviations are reproduced.
    pub fn compat(&self) -> Compat {
        self.compat
    }

    /// Returns the amount of output.
    pub fn verbosity(&self) -> Verbosity {
        self.talk
    }
}

impl ConfigSettings {
    /// Returns the path as specified by the user.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// Returns the configuration's name; `None` for the only one.
    pub fn selected(&self) -> Option<&str> {
        self.selected.as_deref()
    }
}

impl HooksSettings {
    /// Returns the hooks file.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the time limit of one hook.
    pub fn timeout(&self) -> Duration {
        self.longest
    }

    /// Returns the directories that are searched for a command without one: this process's `PATH`, except directories
    /// that depend on the working directory.
    pub fn search_path(&self) -> &[PathBuf] {
        &self.folders
    }
}

impl RunSettings {
    /// Returns which part of the configuration to use.
    pub fn scope(&self) -> ConfigScope {
        self.depth
    }

    /// Returns the handling of a GPU that needs a reset.
    pub fn reset(&self) -> ResetPolicy {
        self.reset
    }

    /// Returns the hooks.
    pub fn hooks(&self) -> &HooksSettings {
        &self.hooks
    }

    /// Returns how devices are changed.
    pub fn engine(&self) -> &EngineSettings {
        &self.engine
    }

    /// Returns the paths of the hardware.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }
}

impl ApplySettings {
    /// Returns the configuration to apply.
    pub fn config(&self) -> &ConfigSettings {
        &self.config
    }

    /// Returns the settings of the change.
    pub fn run(&self) -> &RunSettings {
        &self.run
    }
}

impl AssertSettings {
    /// Returns the configuration to compare with.
    pub fn config(&self) -> &ConfigSettings {
        &self.config
    }

    /// Returns which part of it to compare.
    pub fn scope(&self) -> ConfigScope {
        self.depth
    }

    /// Returns the assertion to check.
    pub fn validity(&self) -> AssertScope {
        self.validity
    }

    /// Returns the paths of the hardware.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }
}

impl ExportSettings {
    /// Returns the output format.
    pub fn format(&self) -> DocumentFormat {
        self.format
    }

    /// Returns the configuration's name.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the paths of the hardware.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }
}

impl CheckpointSettings {
    /// Returns the destination.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// Returns the paths of the hardware.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }
}

impl RestoreSettings {
    /// Returns the path as specified by the user.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the checkpoint's file.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// Returns the settings of the change.
    pub fn run(&self) -> &RunSettings {
        &self.run
    }
}

impl GenerateSettings {
    /// Returns the destination; `None` for standard output.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the output format.
    pub fn format(&self) -> DocumentFormat {
        self.format
    }

    /// Returns the paths of the hardware.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }
}

/// Converts Go's flags, which have one dash or two: `-config-file x` becomes `--config-file x`.
pub(super) fn with_two_dashes(arguments: Vec<OsString>) -> Vec<OsString> {
    const LONG: [&str; 13] = [
        "checkpoint-file",
        "config-file",
        "config-label",
        "debug",
        "help",
        "hooks-file",
        "mode-only",
        "output-file",
        "output-format",
        "selected-config",
        "skip-reset",
        "valid-config",
        "version",
    ];
    let doubled = |argument: OsString| {
        let rest = argument.to_str().and_then(|text| text.strip_prefix('-'));
        let name = rest.map(|rest| rest.split_once('=').map_or(rest, |(name, _)| name));
        match (rest, name) {
            (Some(rest), Some(name)) if LONG.contains(&name) => format!("--{rest}").into(),
            (Some(_) | None, Some(_) | None) => argument,
        }
    };
    arguments.into_iter().map(doubled).collect()
}

/// Returns whether these arguments are for `octavo mig-parted`.
pub(super) fn is_mig_parted(arguments: &[OsString]) -> bool {
    let mut words = arguments.iter().skip(1);
    words.find(|word| !word.to_string_lossy().starts_with('-'))
        == Some(&OsString::from("mig-parted"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "config is who reads the environment"
)]
fn path_of_process() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .collect()
}

#[cfg(test)]
mod tests {
    use octavo_settings::EarlyExitKind;

    use super::*;
    use crate::settings::{Command, Invocation, Terminal};

    fn parsed(arguments: &[&str]) -> MigPartedSettings {
        let invocation = Invocation::from_arguments(arguments, Terminal::Plain).unwrap();
        let Command::MigParted(settings) = invocation.command() else {
            panic!("{invocation:?}");
        };
        settings.clone()
    }

    #[test]
    fn program_name_and_subcommand_are_equivalent() {
        let rest = ["apply", "-f", "x.yaml", "-ms", "-c=y"];
        let one = parsed(&[&["/opt/bin/nvidia-mig-parted"], &rest[..]].concat());
        let other = parsed(&[&["octavo", "mig-parted"], &rest[..]].concat());
        assert_eq!(one, other);
        let MigPartedCommand::Apply(apply) = one.command() else {
            panic!("{one:?}");
        };
        assert_eq!(apply.config().selected(), Some("y"));
        assert_eq!(apply.run().scope(), ConfigScope::ModeOnly);
        assert_eq!(apply.run().reset(), ResetPolicy::Skipped);
    }

    #[test]
    fn go_style_flags_are_accepted() {
        let settings = parsed(&[
            "nvidia-mig-parted",
            "-debug=T",
            "assert",
            "-config-file",
            "-",
            "-selected-config=",
            "-valid-config=0",
        ]);
        assert_eq!(settings.verbosity(), Verbosity::Debug);
        let MigPartedCommand::Assert(assert) = settings.command() else {
            panic!("{settings:?}");
        };
        assert_eq!(assert.config().file(), &Input::Stdin);
        assert_eq!(assert.config().selected(), None);
        assert_eq!(assert.validity(), AssertScope::Node);
    }

    #[test]
    fn usage_error_has_the_general_failure_code() {
        for (arguments, kind) in [
            (&["nvidia-mig-parted", "apply"][..], EarlyExitKind::Failure),
            (
                &["octavo", "--color=never", "mig-parted", "frob"],
                EarlyExitKind::Failure,
            ),
            (
                &["octavo", "mig-parted", "apply", "--help"],
                EarlyExitKind::Requested,
            ),
            (
                &["octavo", "apply", "mig-parted", "--frob"],
                EarlyExitKind::UsageError,
            ),
        ] {
            let answer = Invocation::from_arguments(arguments, Terminal::Plain).unwrap_err();
            assert_eq!(answer.kind(), kind, "{arguments:?}");
        }
    }
}
