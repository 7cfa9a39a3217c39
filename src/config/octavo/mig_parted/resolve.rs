//! Resolution of command-line arguments to settings.

use super::args::{
    ApplyArgs, AssertArgs, ConfigArgs, ExportArgs, Format, GenerateArgs, HooksArgs, MigPartedArgs,
    ModeArgs, NvidiaMigPartedArgs, RestoreArgs, Verb,
};
use super::{
    ApplySettings, AssertSettings, CheckpointSettings, Compat, ConfigSettings, Depth,
    ExportSettings, GenerateSettings, HooksSettings, MigPartedCommand, MigPartedSettings, Reset,
    RestoreSettings, RunSettings, Talk, Validity, path_of_process,
};
use crate::config::octavo::Input;
use crate::config::octavo::layouts::DocumentFormat;

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
                Compat::Mended
            },
            if args.debug { Talk::Debug } else { Talk::Quiet },
        );
        let command = match args.verb {
            Verb::Apply(args) => MigPartedCommand::Apply((*args).into()),
            Verb::Assert(args) => MigPartedCommand::Assert(args.into()),
            Verb::Export(args) => MigPartedCommand::Export(args.into()),
            Verb::Checkpoint(args) => MigPartedCommand::Checkpoint(CheckpointSettings {
                file: args.file.checkpoint_file.into(),
                hardware: args.hardware.into(),
            }),
            Verb::Restore(args) => MigPartedCommand::Restore((*args).into()),
            Verb::GenerateConfig(args) => MigPartedCommand::Generate(args.into()),
            Verb::Completion { shell } => MigPartedCommand::Completion(shell),
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
    fn depth(&self) -> Depth {
        if self.mode_only {
            Depth::ModeOnly
        } else {
            Depth::Whole
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
                    Reset::Skipped
                } else {
                    Reset::IfNeeded
                },
                hooks: args.hooks.into(),
                engine: args.engine.into(),
                hardware: args.hardware.into(),
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
                Validity::FileOnly
            } else {
                Validity::Node
            },
            hardware: args.hardware.into(),
        }
    }
}

impl From<ExportArgs> for ExportSettings {
    fn from(args: ExportArgs) -> Self {
        Self {
            format: args.format.output_format.into(),
            label: args.config_label,
            hardware: args.hardware.into(),
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
                reset: Reset::IfNeeded,
                hooks: args.hooks.into(),
                engine: args.engine.into(),
                hardware: args.hardware.into(),
            },
        }
    }
}

impl From<GenerateArgs> for GenerateSettings {
    fn from(args: GenerateArgs) -> Self {
        Self {
            file: args.output_file.filter(|path| !path.as_os_str().is_empty()),
            format: args.format.output_format.into(),
            hardware: args.hardware.into(),
        }
    }
}
