//! Resolution of command-line arguments to settings.

use super::args::{
    ApplyArgs, AssertArgs, ConfigArgs, ExportArgs, Format, GenerateArgs, HooksArgs, MigPartedArgs,
    MigPartedCommandArgs, ModeArgs, NvidiaMigPartedArgs, RestoreArgs,
};
use super::{
    ApplySettings, AssertScope, AssertSettings, CheckpointSettings, Compat, ConfigScope,
    ConfigSettings, ExportSettings, GenerateSettings, HooksSettings, MigPartedCommand,
    MigPartedSettings, ResetPolicy, RestoreSettings, RunSettings, Verbosity, path_of_process,
};
use crate::settings::Input;
use crate::settings::layouts::DocumentFormat;

impl From<NvidiaMigPartedArgs> for MigPartedSettings {
    fn from(args: NvidiaMigPartedArgs) -> Self {
        args.args.into()
    }
}

impl From<MigPartedArgs> for MigPartedSettings {
    fn from(args: MigPartedArgs) -> Self {
        let (compat, talk) = (
            if args.strict_compat {
                Compat::Strict
            } else {
                Compat::Lenient
            },
            if args.debug {
                Verbosity::Debug
            } else {
                Verbosity::Normal
            },
        );
        let command = match args.verb {
            MigPartedCommandArgs::Apply(args) => MigPartedCommand::Apply((*args).into()),
            MigPartedCommandArgs::Assert(args) => MigPartedCommand::Assert(args.into()),
            MigPartedCommandArgs::Export(args) => MigPartedCommand::Export(args.into()),
            MigPartedCommandArgs::Checkpoint(args) => {
                MigPartedCommand::Checkpoint(CheckpointSettings {
                    file: args.file.checkpoint_file.into(),
                    hardware: args.hardware,
                })
            }
            MigPartedCommandArgs::Restore(args) => MigPartedCommand::Restore((*args).into()),
            MigPartedCommandArgs::GenerateConfig(args) => MigPartedCommand::Generate(args.into()),
            MigPartedCommandArgs::Completion { shell } => MigPartedCommand::Completion(shell),
        };
        Self {
            command,
            compat,
            talk,
        }
    }
}

impl From<Format> for DocumentFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Json => Self::Json,
            Format::Yaml => Self::Yaml,
        }
    }
}

impl From<ConfigArgs> for ConfigSettings {
    fn from(args: ConfigArgs) -> Self {
        Self {
            path: args.config_file.clone(),
            file: Input::from(args.config_file),
            selected: args.selected_config.filter(|name| !name.is_empty()),
        }
    }
}

impl From<HooksArgs> for HooksSettings {
    fn from(args: HooksArgs) -> Self {
        Self {
            file: args.hooks_file.filter(|path| !path.as_os_str().is_empty()),
            longest: args.hook_timeout,
            folders: path_of_process(),
        }
    }
}

impl ModeArgs {
    fn depth(&self) -> ConfigScope {
        if self.mode_only {
            ConfigScope::ModeOnly
        } else {
            ConfigScope::Full
        }
    }
}

impl From<ApplyArgs> for ApplySettings {
    fn from(args: ApplyArgs) -> Self {
        Self {
            config: args.config.into(),
            run: RunSettings {
                depth: args.mode.depth(),
                reset: if args.skip_reset {
                    ResetPolicy::Skipped
                } else {
                    ResetPolicy::IfNeeded
                },
                hooks: args.hooks.into(),
                engine: args.engine,
                hardware: args.hardware,
            },
        }
    }
}

impl From<AssertArgs> for AssertSettings {
    fn from(args: AssertArgs) -> Self {
        Self {
            config: args.config.into(),
            depth: args.mode.depth(),
            validity: if args.valid_config {
                AssertScope::FileOnly
            } else {
                AssertScope::Node
            },
            hardware: args.hardware,
        }
    }
}

impl From<ExportArgs> for ExportSettings {
    fn from(args: ExportArgs) -> Self {
        Self {
            format: args.format.output_format.into(),
            label: args.config_label,
            hardware: args.hardware,
        }
    }
}

impl From<RestoreArgs> for RestoreSettings {
    fn from(args: RestoreArgs) -> Self {
        Self {
            path: args.file.checkpoint_file.clone(),
            file: args.file.checkpoint_file.into(),
            run: RunSettings {
                depth: args.mode.depth(),
                reset: ResetPolicy::IfNeeded,
                hooks: args.hooks.into(),
                engine: args.engine,
                hardware: args.hardware,
            },
        }
    }
}

impl From<GenerateArgs> for GenerateSettings {
    fn from(args: GenerateArgs) -> Self {
        Self {
            file: args.output_file.filter(|path| !path.as_os_str().is_empty()),
            format: args.format.output_format.into(),
            hardware: args.hardware,
        }
    }
}
