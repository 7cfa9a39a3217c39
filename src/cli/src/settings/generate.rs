//! Settings of `octavo generate`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use octavo_client::ServerSettings;
use octavo_generate::kueue::KueueApi;
use octavo_model::id::is_label_name;
use octavo_model::text::shell_word;
use octavo_toolkit::choice::{Choice, choice};

/// Versions of Kueue's API.
const KUEUE_APIS: &[Choice<KueueApi>] = &[
    ("v1beta2", "Kueue 0.15 and later", KueueApi::V1Beta2),
    ("v1beta1", "Kueue 0.14", KueueApi::V1Beta1),
];

/// Settings of `octavo generate`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum GenerateCommand {
    /// Generate flavors and queues of Kueue
    #[command(after_long_help = include_str!("../../help/generate.txt"))]
    Kueue(KueueSettings),
    /// Generate quotas and limits of namespaces
    #[command(after_long_help = include_str!("../../help/generate.txt"))]
    Quotas(GenerateSettings),
}

/// Settings of `octavo generate kueue`.
#[derive(Debug, Clone, Args)]
pub struct KueueSettings {
    /// Version of Kueue's API
    #[arg(
        long,
        value_name = "VERSION",
        default_value = "v1beta2",
        value_parser = choice(KUEUE_APIS)
    )]
    pub kueue_api: KueueApi,

    /// Settings of all generators.
    #[command(flatten)]
    pub common: GenerateSettings,
}

/// Settings of all generators.
#[derive(Debug, Clone, Args)]
pub struct GenerateSettings {
    /// Namespace to generate a queue or quota for; repeat for several
    #[arg(
        short,
        long = "namespace",
        value_name = "NAMESPACE",
        value_delimiter = ',',
        value_parser = object_name
    )]
    pub namespaces: Vec<String>,

    /// Names of priority classes to generate, the highest priority first
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = object_name)]
    pub priorities: Vec<String>,

    /// Generate only for this type; repeat for several
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub types: Vec<String>,

    /// Write one file per kind to this directory, instead of standard output
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output_dir: Option<PathBuf>,

    /// Compare with the files of --output-dir, and write nothing
    #[arg(long, requires = "output_dir")]
    pub check: bool,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

impl GenerateCommand {
    /// Returns an error for a repeated name of a priority class.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let names = &self.common().priorities;
        let distinct: BTreeSet<&String> = names.iter().collect();
        let is_valid = distinct.len() == names.len();
        is_valid.then_some(()).ok_or("--priorities contains the same name more than once")
    }

    /// Returns the common settings.
    pub fn common(&self) -> &GenerateSettings {
        match self {
            Self::Kueue(settings) => &settings.common,
            Self::Quotas(settings) => settings,
        }
    }

    /// Returns the command line that generates the same manifests, without the aggregator and the directory.
    pub fn command_line(&self) -> String {
        let (name, api) = match self {
            Self::Kueue(settings) => ("kueue", Some(settings.kueue_api)),
            Self::Quotas(_) => ("quotas", None),
        };
        let api = api.filter(|api| *api != KueueApi::V1Beta2);
        let api = api.and_then(|api| KUEUE_APIS.iter().find(|(_, _, known)| *known == api));
        let common = self.common();
        let lists = [
            ("namespace", &common.namespaces),
            ("priorities", &common.priorities),
            ("type", &common.types),
        ];
        let lists = lists.map(|(flag, names)| (flag, names.join(",")));
        let mut flags: Vec<(&str, &str)> =
            api.iter().map(|(version, _, _)| ("kueue-api", *version)).collect();
        let given = lists.iter().filter(|(_, names)| !names.is_empty());
        flags.extend(given.map(|(flag, names)| (*flag, names.as_str())));
        let flags =
            flags.into_iter().map(|(flag, value)| format!(" --{flag} {}", shell_word(value)));
        format!("octavo generate {name}{}", flags.collect::<String>())
    }
}

/// Parses the name of a namespace or priority class.
fn object_name(text: &str) -> Result<String, &'static str> {
    let name = is_label_name(text).then(|| text.to_owned());
    name.ok_or(
        "use at most 63 lowercase letters, digits and '-', and a letter or digit at each end",
    )
}

#[cfg(test)]
mod tests {
    use crate::settings::{Command, Invocation, Terminal};

    #[test]
    fn command_line_repeats_what_determines_the_manifests() {
        let line = |arguments: &[&str]| {
            let program = ["octavo", "generate"].iter();
            let parsed =
                Invocation::from_arguments(program.chain(arguments), Terminal::Plain).unwrap();
            let Command::Generate(command) = parsed.command else { panic!("another command") };
            command.command_line()
        };
        assert_eq!(line(&["quotas", "--output-dir=x", "--check"]), "octavo generate quotas");
        let same = "octavo generate kueue --kueue-api v1beta1 --namespace a,b --priorities high \
                    --type 'nvidia-l4-24gb,a b'";
        let words = [
            "kueue",
            "-n",
            "a,b",
            "--priorities=high",
            "--kueue-api=v1beta1",
            "--type=nvidia-l4-24gb",
            "--type=a b",
            "--server=https://x",
        ];
        assert_eq!(line(&words), same);
    }

    #[test]
    fn invalid_and_repeated_names_are_rejected() {
        for (flag, expected) in [
            ("--namespace=Team_A", "'Team_A' for '--namespace <NAMESPACE>': use at most 63"),
            ("--priorities=high,a.b", "'a.b' for '--priorities <NAME>': use at most 63"),
            ("--priorities=high,low,high", "--priorities contains the same name more than once"),
        ] {
            let arguments = ["octavo", "generate", "quotas", flag];
            let error = Invocation::from_arguments(arguments, Terminal::Plain).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
