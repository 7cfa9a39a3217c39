//! Manual pages, generated from the help of the programs. They are made when packages are built, so that no program
//! contains the generator.

use std::path::Path;
use std::{fs, io};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use octavo_agent::settings::agent_command;
use octavo_aggregator::settings::AggregatorSettings;
use octavo_cli::settings::octavo_command;

/// Writes a page for each program and each of its subcommands, such as `octavo-nodes.1`.
pub(crate) fn write(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for (mut command, section) in
        [(octavo_command(), "1"), (agent_command(), "8"), (AggregatorSettings::command(), "8")]
    {
        // Sets the names of pages of subcommands.
        command.build();
        write_tree(&command, section, directory)?;
    }
    Ok(())
}

fn write_tree(command: &Command, section: &str, directory: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|one| one.get_name() != "help") {
        write_tree(subcommand, section, directory)?;
    }
    let mut command = command.clone();
    if let Some(text) = command.get_after_long_help().map(ToString::to_string) {
        let text = text.strip_prefix("Examples:\n").unwrap_or(&text).to_owned();
        command = command.after_long_help(text);
    }
    let version = env!("CARGO_PKG_VERSION");
    let page = Man::new(command).section(section).source(format!("Octavo {version}"));
    let page = page.manual("Octavo manual");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = String::from_utf8_lossy(&text).replace("\n.SH EXTRA\n", "\n.SH EXAMPLES\n");
    fs::write(directory.join(page.get_filename()), text)
}
