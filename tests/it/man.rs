//! The manual pages that `make man` writes.

use std::collections::BTreeSet;
use std::fs;

use clap::{Command, CommandFactory};
use octavo_agent::settings::agent_command;
use octavo_aggregator::settings::AggregatorSettings;
use octavo_cli::settings::octavo_command;

#[path = "../../examples/man/pages.rs"]
mod pages;

/// Adds the file names of the pages of a command and its subcommands.
fn collect_names(command: &Command, name: &str, section: &str, names: &mut BTreeSet<String>) {
    names.insert(format!("{name}.{section}"));
    for subcommand in command.get_subcommands() {
        collect_names(subcommand, &format!("{name}-{}", subcommand.get_name()), section, names);
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    pages::write(directory.path()).unwrap();
    let mut expected = BTreeSet::new();
    collect_names(&octavo_command(), "octavo", "1", &mut expected);
    collect_names(&agent_command(), "octavo-agent", "8", &mut expected);
    collect_names(&AggregatorSettings::command(), "octavo-aggregator", "8", &mut expected);
    let files = fs::read_dir(directory.path()).unwrap();
    let files: BTreeSet<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(files, expected);
    assert!(files.contains("octavo-layouts-check.1"), "{files:?}");
    let page = fs::read_to_string(directory.path().join("octavo-nodes.1")).unwrap();
    assert!(page.contains(".SH EXAMPLES") && page.contains("sort\\-by"), "{page}");
    let page = fs::read_to_string(directory.path().join("octavo-agent.8")).unwrap();
    assert!(page.contains("OCTAVO_LABEL_SINK"), "{page}");
}
