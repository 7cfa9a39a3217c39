//! Candidates for names in shell completion: nodes, types, layouts, policies and profiles.
//!
//! A shell waits for the answer while the user types, so an answer that takes longer than [`answer_limit`] is dropped.
//! Errors are dropped too, because a message would destroy the user's line.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::sync::{Arc, mpsc};
use std::thread;

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use octavo_client::{Client, RequestPath};
use octavo_fleet::api::{NodeList, TypeList};
use serde_json::Value;

use super::layout_source::LayoutSource;
use super::{CliError, block_on, input};
use crate::settings::{
    Input, answer_completion, answer_limit, flag_value, octavo_command, server_of,
};

/// Maximum number of candidates. A shell asks before it prints more than about a hundred.
const MAX_CANDIDATES: usize = 100;

/// Kind of names that an argument has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CandidateKind {
    Node,
    Type,
    /// A layout of the fleet.
    FleetLayout,
    /// A layout of a file, or one that is generated for a recorded machine.
    Layout,
    Policy,
    Profile,
}

/// Answers a completion script; `false` if this process was not started by one.
pub(super) fn answer() -> bool {
    answer_completion(|words| with_names(octavo_command(), &Arc::from(words)))
}

/// Adds completers to the arguments that have names.
fn with_names(command: Command, words: &Arc<[String]>) -> Command {
    let is_fleet = command.get_arguments().any(|argument| argument.get_id() == "server");
    let of = command.get_name().to_owned();
    let command = command.mut_args(|argument| match kind(&argument, &of, is_fleet) {
        Some(kind) => {
            let words = Arc::clone(words);
            argument.add(ArgValueCompleter::new(move |current: &OsStr| {
                candidates(kind, current, Arc::clone(&words))
            }))
        }
        None => argument,
    });
    command.mut_subcommands(|subcommand| with_names(subcommand, words))
}

fn kind(argument: &Arg, command: &str, is_fleet: bool) -> Option<CandidateKind> {
    let value = argument.get_value_names().and_then(|names| names.first());
    let value = value.map_or("", |name| name.as_str());
    match (argument.get_id().as_str(), command) {
        _ if value == "TYPE" => Some(CandidateKind::Type),
        _ if value == "NODE" => Some(CandidateKind::Node),
        _ if value == "POLICY" => Some(CandidateKind::Policy),
        ("name", "node") => Some(CandidateKind::Node),
        ("layout", _) if !is_fleet => Some(CandidateKind::Layout),
        ("layout" | "layouts", _) if argument.get_long() == Some("layout") => {
            Some(CandidateKind::FleetLayout)
        }
        ("profile", _) | ("name" | "names", "show" | "check") if is_fleet => {
            Some(CandidateKind::Profile)
        }
        _ => None,
    }
}

/// Returns the names that begin with `current`. The request runs on a thread, because a credential plugin of the
/// kubeconfig cannot be interrupted; the thread ends with the process.
fn candidates(
    kind: CandidateKind,
    current: &OsStr,
    words: Arc<[String]>,
) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str().map(str::to_owned) else {
        return Vec::new();
    };
    let limit = answer_limit(&words);
    let (sender, receiver) = mpsc::channel();
    let prefix = current.clone();
    let request = move || {
        let names = match kind {
            CandidateKind::Layout => layouts(&words),
            CandidateKind::Node
            | CandidateKind::Type
            | CandidateKind::FleetLayout
            | CandidateKind::Policy
            | CandidateKind::Profile => {
                block_on(fleet_names(kind, &prefix, &words)).and_then(|names| names)
            }
        };
        // Errors are not shown. After the time limit, there is no receiver.
        drop(sender.send(names.unwrap_or_default()));
    };
    let thread = thread::Builder::new().name("completion".to_owned()).spawn(request);
    let names = thread.ok().and_then(|_| receiver.recv_timeout(limit).ok());
    let names = names.unwrap_or_default().into_iter();
    let names = names.filter(|name| name.starts_with(&current));
    names.take(MAX_CANDIDATES).map(CompletionCandidate::new).collect()
}

async fn fleet_names(
    kind: CandidateKind,
    prefix: &str,
    words: &[String],
) -> Result<BTreeSet<String>, CliError> {
    let Some(server) = server_of(words) else {
        return Ok(BTreeSet::new());
    };
    let client = Client::connect(&server).await?;
    Ok(match kind {
        CandidateKind::Node => {
            let parameters = [("search", prefix), ("limit", "1000"), ("sort", "name")];
            let target = RequestPath::new("/api/v1/nodes").with(parameters);
            let nodes: NodeList = client.get(&target).await?;
            nodes.items.into_iter().map(|node| node.name).collect()
        }
        CandidateKind::Type => {
            let types: TypeList = client.get(&RequestPath::new("/api/v1/types")).await?;
            types.items.into_iter().filter_map(|row| row.of_all.type_name).collect()
        }
        CandidateKind::FleetLayout | CandidateKind::Layout => {
            let target = RequestPath::new("/api/v1/nodes").with([("limit", "1000")]);
            let nodes: NodeList = client.get(&target).await?;
            nodes.items.into_iter().filter_map(|node| node.layout?.name).collect()
        }
        CandidateKind::Policy | CandidateKind::Profile => {
            let path = if kind == CandidateKind::Policy { "policies" } else { "profiles" };
            let all: Value = client.get(&RequestPath::new(&format!("/api/v1/{path}"))).await?;
            let items = all.get("items").and_then(Value::as_array);
            let names = items.into_iter().flatten().filter_map(|item| item.get("name")?.as_str());
            names.map(str::to_owned).collect()
        }
    })
}

/// Returns the layouts of the file of a command line, or those that are possible on a recorded machine.
fn layouts(words: &[String]) -> Result<BTreeSet<String>, CliError> {
    let file = |flags: &[&str]| flag_value(words, flags).map(|path| Input::File(path.into()));
    let source = match (file(&["-f", "--layouts"]), file(&["--from", "--machine"])) {
        (Some(file), _) => LayoutSource::read(&file)?,
        (None, Some(machine)) => LayoutSource::generated(&input::inventory(&machine)?),
        (None, None) => return Ok(BTreeSet::new()),
    };
    Ok(source.layouts.layouts.into_iter().map(|layout| layout.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the arguments of a command that have names.
    fn named(path: &[&str]) -> Vec<(String, CandidateKind)> {
        let root = octavo_command();
        let command =
            path.iter().fold(&root, |command, name| command.find_subcommand(name).unwrap());
        let is_fleet = command.get_arguments().any(|argument| argument.get_id() == "server");
        let kinds = command.get_arguments().filter_map(|argument| {
            let kind = kind(argument, command.get_name(), is_fleet)?;
            Some((argument.get_id().to_string(), kind))
        });
        kinds.collect()
    }

    #[test]
    fn arguments_with_names_are_completed() {
        let of = |path: &[&str]| {
            let named = named(path);
            named.into_iter().map(|(_, kind)| kind).collect::<Vec<_>>()
        };
        assert_eq!(of(&["node"]), [CandidateKind::Node]);
        assert_eq!(of(&["doctor"]), [CandidateKind::Node]);
        assert_eq!(of(&["nodes"]), [CandidateKind::Type, CandidateKind::FleetLayout]);
        assert_eq!(of(&["types"]), [CandidateKind::Type]);
        assert_eq!(of(&["plan"]), [CandidateKind::Layout]);
        assert_eq!(of(&["apply"]), [CandidateKind::Layout]);
        assert_eq!(of(&["profiles", "show"]), [CandidateKind::Profile]);
        for command in ["plan", "status", "pause", "resume", "rollback", "history"] {
            assert_eq!(of(&["policy", command]), [CandidateKind::Policy], "{command}");
        }
        assert!(of(&["inspect"]).is_empty());
    }

    #[test]
    fn layouts_of_a_file_are_candidates() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("layouts.yaml");
        std::fs::write(
            &file,
            "apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts:\n  serving:\n  - devices: all\n    mig: disabled\n  small:\n  - devices: all\n    mig: {}\n",
        )
        .unwrap();
        let words = ["octavo", "plan", "-f", file.to_str().unwrap(), "s"].map(str::to_owned);
        let found = candidates(CandidateKind::Layout, OsStr::new("se"), Arc::from(words.to_vec()));
        let found: Vec<&OsStr> = found.iter().map(CompletionCandidate::get_value).collect();
        assert_eq!(found, ["serving"]);
        let none = candidates(CandidateKind::Layout, OsStr::new(""), Arc::from(Vec::new()));
        assert!(none.is_empty());
    }
}
