//! Shell completion scripts, and requests of these scripts for candidates.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use clap::{Args, Command, FromArgMatches};
use clap_complete::env::{Bash, EnvCompleter, Fish, Shells, Zsh};
use clap_complete::{CompleteEnv, Shell, generate};
use octavo_client::ServerSettings;
use octavo_settings::duration;

use super::{mig_parted, mig_parted_command};

/// Variable with which a script requests candidates.
const VARIABLE: &str = "OCTAVO_COMPLETE";

/// File name under which kubectl requests candidates for its plugin `octavo`.
const PLUGIN_COMPLETION: &str = "kubectl_complete-octavo";

/// Last line of an answer to kubectl: do not complete file names. Source: Kubernetes, `plugin_completion.go`.
const NO_FILES: &str = ":4";

/// Maximum time of an answer, because the user waits for it.
const DEFAULT_LIMIT: Duration = Duration::from_secs(1);
/// Longest timeout of the user that applies to completion.
const MAX_LIMIT: Duration = Duration::from_secs(5);

/// Characters at which bash splits words, besides blanks.
const BASH_BREAKS: [char; 2] = [':', '='];

/// Flags of [`ServerSettings`] that select an aggregator.
const SERVER_FLAGS: [&str; 8] = [
    "--server",
    "--kubeconfig",
    "--context",
    "--octavo-namespace",
    "--certificate-authority",
    "--ca",
    "--tls-server-name",
    "--token-file",
];

/// Returns the script that completes `octavo` in `shell`. The script requests candidates from the program.
pub fn completion_script(shell: Shell) -> String {
    let shell: &dyn EnvCompleter = if shell == Shell::Zsh {
        &Zsh
    } else if shell == Shell::Fish {
        &Fish
    } else {
        &BashWords
    };
    let mut script = Vec::new();
    // Writing to memory cannot fail.
    let _ = shell.write_registration(VARIABLE, "octavo", "octavo", "octavo", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Returns the script that completes `nvidia-mig-parted` in `shell`.
pub fn mig_parted_completion_script(shell: Shell) -> String {
    let mut script = Vec::new();
    generate(shell, &mut mig_parted_command(), mig_parted::NAME, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Prints the candidates that a completion script requests; `false` if this process was not started by one. `describe`
/// returns the command with the completers of its arguments, given the words of the command line.
pub fn answer_completion(describe: impl Fn(Vec<String>) -> Command) -> bool {
    let arguments: Vec<OsString> = env::args_os().collect();
    let words: Vec<String> =
        arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = arguments.first().map(Path::new).and_then(Path::file_name);
    if program.is_some_and(|name| name == PLUGIN_COMPLETION) {
        print(&plugin_candidates(&mut describe(words), &arguments));
        return true;
    }
    let completer = CompleteEnv::with_factory(|| describe(words.clone()));
    let completer = completer.var(VARIABLE).shells(Shells(&[&BashWords, &Zsh, &Fish]));
    let directory = env::current_dir().ok();
    // The shell has no place for an error.
    completer.try_complete(arguments, directory.as_deref()).unwrap_or(true)
}

fn plugin_candidates(command: &mut Command, arguments: &[OsString]) -> String {
    command.build();
    let last = arguments.len().saturating_sub(1);
    let candidates = clap_complete::engine::complete(command, arguments.to_vec(), last, None);
    let mut text = String::new();
    for candidate in candidates.unwrap_or_default() {
        text.push_str(&candidate.get_value().to_string_lossy());
        text.push('\n');
    }
    text.push_str(NO_FILES);
    text.push('\n');
    text
}

fn print(text: &str) {
    let mut output = io::stdout().lock();
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}

/// Returns the aggregator that the words of a command line and the environment select.
pub fn server_of(words: &[String]) -> Option<ServerSettings> {
    let command = Command::new("octavo").no_binary_name(true);
    let flags = SERVER_FLAGS.iter().filter_map(|flag| {
        let value = flag_value(words, &[*flag])?;
        Some([(*flag).to_owned(), value])
    });
    let matches = ServerSettings::augment_args(command).try_get_matches_from(flags.flatten());
    ServerSettings::from_arg_matches(&matches.ok()?).ok()
}

/// Returns the maximum time of an answer: the user's timeout of requests, if there is one, up to five seconds.
pub fn answer_limit(words: &[String]) -> Duration {
    let timeout = flag_value(words, &["--timeout"]).or_else(|| variable("OCTAVO_TIMEOUT"));
    let timeout = timeout.and_then(|text| duration::positive(&text).ok());
    timeout.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT)
}

/// Returns the value of the first of these flags in the words of a command line, which may be split as in bash.
pub fn flag_value(words: &[String], flags: &[&str]) -> Option<String> {
    let (words, _) = merged(words.to_vec(), words.len());
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        for flag in flags {
            match word.strip_prefix(flag) {
                Some("") => return words.next().map(str::to_owned),
                Some(rest) if rest.starts_with('=') => return rest.get(1..).map(str::to_owned),
                Some(_) | None => {}
            }
        }
    }
    None
}

/// Bash with its words as the user typed them: bash splits them at `:` and `=` too, and replaces only the last part.
struct BashWords;

impl EnvCompleter for BashWords {
    fn name(&self) -> &'static str {
        Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        Bash.is(name)
    }

    fn write_registration(
        &self,
        variable: &str,
        name: &str,
        program: &str,
        completer: &str,
        script: &mut dyn Write,
    ) -> io::Result<()> {
        Bash.write_registration(variable, name, program, completer, script)
    }

    fn write_complete(
        &self,
        command: &mut Command,
        arguments: Vec<OsString>,
        directory: Option<&Path>,
        answer: &mut dyn Write,
    ) -> io::Result<()> {
        let index = variable("_CLAP_COMPLETE_INDEX").and_then(|index| index.parse().ok());
        let words = arguments.into_iter().map(|word| word.to_string_lossy().into_owned());
        let (words, index) = merged(words.collect(), index.unwrap_or_default());
        let current = words.get(index).map_or("", String::as_str);
        let replaced_from = current.rfind(BASH_BREAKS).map_or(0, |at| at.saturating_add(1));
        let words = words.iter().map(OsString::from).collect();
        let candidates = clap_complete::engine::complete(command, words, index, directory)?;
        let values = candidates.iter().filter_map(|candidate| {
            let value = candidate.get_value().to_str()?;
            // Flags are many, and hide the names that the user looks for.
            let is_shown = current.starts_with('-') || !value.starts_with('-');
            value.get(replaced_from..).filter(|_| is_shown).map(str::to_owned)
        });
        let separator = variable("_CLAP_IFS").unwrap_or_else(|| "\n".to_owned());
        answer.write_all(values.collect::<Vec<String>>().join(&separator).as_bytes())
    }
}

/// Joins words that bash has split. Returns the words, and the index of the same word.
fn merged(words: Vec<String>, index: usize) -> (Vec<String>, usize) {
    let mut merged: Vec<String> = Vec::new();
    let mut merged_index = 0;
    let mut is_joined = false;
    for (at, word) in words.into_iter().enumerate() {
        let is_break = word.len() == 1 && word.starts_with(BASH_BREAKS);
        match merged.last_mut() {
            Some(last) if is_break || is_joined => last.push_str(&word),
            Some(_) | None => merged.push(word),
        }
        is_joined = is_break;
        if at <= index {
            merged_index = merged.len().saturating_sub(1);
        }
    }
    (merged, merged_index)
}

#[expect(clippy::disallowed_methods, reason = "settings read the environment")]
fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregator_is_selected_by_the_words() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let line = words("octavo nodes --type x --server http://127.0.0.1:1 --context=c --bad");
        let server = server_of(&line).unwrap();
        assert_eq!(server.server.map(|url| url.to_string()).unwrap(), "http://127.0.0.1:1");
        assert_eq!(server.context.as_deref(), Some("c"));
        let file = flag_value(&words("octavo plan --layouts = a.yaml x"), &["-f", "--layouts"]);
        assert_eq!(file.as_deref(), Some("a.yaml"));
        assert_eq!(flag_value(&words("octavo plan"), &["-f"]), None);
    }

    #[test]
    fn words_of_bash_are_joined() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let line = words("octavo node --server = http : //h : 80 a");
        let (joined, index) = merged(line, 9);
        assert_eq!(joined, words("octavo node --server=http://h:80 a"));
        assert_eq!(index, 3);
        let (joined, index) = merged(words("octavo nodes --type = nv"), 4);
        assert_eq!((joined.last().map(String::as_str), index), (Some("--type=nv"), 2));
    }
}
