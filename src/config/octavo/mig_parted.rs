//! Settings of `nvidia-mig-parted`, which is `octavo mig-parted` too.

mod args;
mod resolve;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) use self::args::{EXAMPLES, MigPartedArgs, NvidiaMigPartedArgs};
use super::layouts::DocumentFormat;
use super::{Input, Shell};
use crate::config::engine::EngineSettings;
use crate::config::hardware::HardwareSettings;

/// The name under which this program is NVIDIA's.
pub(super) const NAME: &str = "nvidia-mig-parted";

/// What is asked for in mig-parted's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigPartedSettings {
    command: MigPartedCommand,
    compat: Compat,
    talk: Talk,
}

/// The verbs.
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

/// Whether oddities are kept that do no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compat {
    /// They are mended.
    Mended,
    /// They are kept.
    Strict,
}

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Talk {
    /// What came of it.
    Quiet,
    /// What is being done, and what hooks print, too.
    Debug,
}

/// How much of a configuration is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// MIG modes.
    ModeOnly,
    /// All of it.
    Whole,
}

/// What is done where a GPU needs a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// It is reset, as far as nobody uses it.
    IfNeeded,
    /// Nothing: the mode waits.
    Skipped,
}

/// What is asserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// That the file can be used.
    FileOnly,
    /// That the node has it.
    Node,
}

/// A configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSettings {
    path: PathBuf,
    file: Input,
    selected: Option<String>,
}

/// Programs that are run around a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HooksSettings {
    file: Option<PathBuf>,
    longest: Duration,
    folders: Vec<PathBuf>,
}

/// How a node is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSettings {
    depth: Depth,
    reset: Reset,
    hooks: HooksSettings,
    engine: EngineSettings,
    hardware: HardwareSettings,
}

/// What `apply` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplySettings {
    config: ConfigSettings,
    run: RunSettings,
}

/// What `assert` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssertSettings {
    config: ConfigSettings,
    depth: Depth,
    validity: Validity,
    hardware: HardwareSettings,
}

/// What `export` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportSettings {
    format: DocumentFormat,
    label: String,
    hardware: HardwareSettings,
}

/// What `checkpoint` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointSettings {
    file: Input,
    hardware: HardwareSettings,
}

/// What `restore` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreSettings {
    path: PathBuf,
    file: Input,
    run: RunSettings,
}

/// What `generate-config` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerateSettings {
    file: Option<PathBuf>,
    format: DocumentFormat,
    hardware: HardwareSettings,
}

impl MigPartedSettings {
    /// The verb.
    pub fn command(&self) -> &MigPartedCommand {
        &self.command
    }

    /// Whether oddities are kept.
    pub fn compat(&self) -> Compat {
        self.compat
    }

    /// How much is said.
    pub fn talk(&self) -> Talk {
        self.talk
    }
}

impl ConfigSettings {
    /// As it was typed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// The name; `None` where there is one only.
    pub fn selected(&self) -> Option<&str> {
        self.selected.as_deref()
    }
}

impl HooksSettings {
    /// The file they are in.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The longest that one may take.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Where a command without a folder is looked for: this process' `PATH`, as far as it does not depend on where we are.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }
}

impl RunSettings {
    /// How much of it is meant.
    pub fn depth(&self) -> Depth {
        self.depth
    }

    /// What is done where a GPU needs a reset.
    pub fn reset(&self) -> Reset {
        self.reset
    }

    /// What is run around it.
    pub fn hooks(&self) -> &HooksSettings {
        &self.hooks
    }

    /// How devices are changed.
    pub fn engine(&self) -> &EngineSettings {
        &self.engine
    }

    /// Where the hardware is found.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }
}

impl ApplySettings {
    /// What is to be had.
    pub fn config(&self) -> &ConfigSettings {
        &self.config
    }

    /// How it is done.
    pub fn run(&self) -> &RunSettings {
        &self.run
    }
}

impl AssertSettings {
    /// What is to be had.
    pub fn config(&self) -> &ConfigSettings {
        &self.config
    }

    /// How much of it.
    pub fn depth(&self) -> Depth {
        self.depth
    }

    /// What is asserted.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Where the hardware is found.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }
}

impl ExportSettings {
    /// In which form.
    pub fn format(&self) -> DocumentFormat {
        self.format
    }

    /// What it is called.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Where the hardware is found.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }
}

impl CheckpointSettings {
    /// Where it goes.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// Where the hardware is found.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }
}

impl RestoreSettings {
    /// As it was typed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it is.
    pub fn file(&self) -> &Input {
        &self.file
    }

    /// How it is done.
    pub fn run(&self) -> &RunSettings {
        &self.run
    }
}

impl GenerateSettings {
    /// Where it goes; `None` for standard output.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// In which form.
    pub fn format(&self) -> DocumentFormat {
        self.format
    }

    /// Where the hardware is found.
    pub fn hardware(&self) -> &HardwareSettings {
        &self.hardware
    }
}

/// Go's flags take one dash for two: `-config-file x` as `--config-file x`.
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

/// Whether these arguments are for `octavo mig-parted`.
pub(super) fn is_meant(arguments: &[OsString]) -> bool {
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
    use super::*;
    use crate::config::AnswerKind;
    use crate::config::octavo::{Command, Invocation, Terminal};

    fn parsed(arguments: &[&str]) -> MigPartedSettings {
        let invocation = Invocation::from_arguments(arguments, Terminal::Plain).unwrap();
        let Command::MigParted(settings) = invocation.command() else {
            panic!("{invocation:?}");
        };
        settings.clone()
    }

    #[test]
    fn the_name_of_the_program_and_the_command_are_one() {
        let rest = ["apply", "-f", "x.yaml", "-ms", "-c=y"];
        let one = parsed(&[&["/opt/bin/nvidia-mig-parted"], &rest[..]].concat());
        let other = parsed(&[&["octavo", "mig-parted"], &rest[..]].concat());
        assert_eq!(one, other);
        let MigPartedCommand::Apply(apply) = one.command() else {
            panic!("{one:?}");
        };
        assert_eq!(apply.config().selected(), Some("y"));
        assert_eq!(apply.run().depth(), Depth::ModeOnly);
        assert_eq!(apply.run().reset(), Reset::Skipped);
    }

    #[test]
    fn flags_are_read_as_go_reads_them() {
        let settings = parsed(&[
            "nvidia-mig-parted",
            "-debug=T",
            "assert",
            "-config-file",
            "-",
            "-selected-config=",
            "-valid-config=0",
        ]);
        assert_eq!(settings.talk(), Talk::Debug);
        let MigPartedCommand::Assert(assert) = settings.command() else {
            panic!("{settings:?}");
        };
        assert_eq!(assert.config().file(), &Input::Stdin);
        assert_eq!(assert.config().selected(), None);
        assert_eq!(assert.validity(), Validity::Node);
    }

    #[test]
    fn wrong_usage_is_a_failure_like_any_other() {
        for (arguments, kind) in [
            (&["nvidia-mig-parted", "apply"][..], AnswerKind::Failure),
            (
                &["octavo", "--color=never", "mig-parted", "frob"],
                AnswerKind::Failure,
            ),
            (
                &["octavo", "mig-parted", "apply", "--help"],
                AnswerKind::Asked,
            ),
            (
                &["octavo", "apply", "mig-parted", "--frob"],
                AnswerKind::UsageError,
            ),
        ] {
            let answer = Invocation::from_arguments(arguments, Terminal::Plain).unwrap_err();
            assert_eq!(answer.kind(), kind, "{arguments:?}");
        }
    }
}
