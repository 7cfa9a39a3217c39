//! Groups of subcommands in the help of `octavo`, by what they need.

use std::fmt::Write;

use clap::Command;

/// Titles of the groups with the names of their subcommands, in the order of the help.
pub const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Node (run on a node)",
        &[
            "inspect",
            "doctor",
            "labels",
            "plan",
            "apply",
            "assert",
            "history",
            "export",
            "checkpoint",
            "restore",
        ],
    ),
    (
        "Fleet (needs an aggregator)",
        &[
            "nodes",
            "node",
            "types",
            "policy",
            "watch",
            "top",
            "usage",
            "cost",
            "audit",
            "support-bundle",
        ],
    ),
    (
        "Capacity and profiles (need an aggregator)",
        &[
            "availability",
            "demand",
            "match",
            "estimate",
            "slo",
            "profiles",
            "generate",
            "quota-check",
        ],
    ),
    ("Layouts and sharing", &["layouts", "sharing", "simulate", "migrate", "mig-parted"]),
    ("Tools", &["validate", "pod-devices", "catalog", "prices", "demo", "completion", "version"]),
];

const HELP_ABOUT: &str = "Print the help of a command";

/// Lists the subcommands by group. clap has headings for arguments only, so the help template contains the list.
pub(super) fn group_subcommands(command: Command) -> Command {
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max();
    let width = width.unwrap_or_default();
    let mut template = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (title, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(template, "\n{header}{title}:{header:#}");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(template, "  {literal}{name:width$}{literal:#}  {about}");
        }
    }
    // clap adds this command when it parses.
    let _ = writeln!(template, "  {literal}{:width$}{literal:#}  {HELP_ABOUT}", "help");
    let _ = write!(template, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    // One `help` is enough: `octavo help layouts check` shows the help of any command.
    command.mut_subcommands(|one| one.disable_help_subcommand(true)).help_template(template)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{as_plugin, mig_parted_command, octavo_command};

    #[test]
    fn every_subcommand_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        grouped.sort_unstable();
        let command = octavo_command();
        let mut all: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    #[test]
    fn help_fits_eighty_columns() {
        let help = octavo_command().render_help().to_string();
        for line in help.lines().take_while(|line| *line != "Options:") {
            assert!(line.len() <= 80, "{line}");
        }
    }

    #[test]
    fn help_command_prints_the_help_of_any_command() {
        for (arguments, about) in [
            (vec!["octavo", "help"], "Manage the accelerators"),
            (vec!["octavo", "help", "plan"], "Preview the changes that a layout"),
            (vec!["octavo", "help", "layouts", "check"], "Validate layout files"),
        ] {
            let error = octavo_command().try_get_matches_from(&arguments).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelp, "{arguments:?}");
            assert!(error.to_string().starts_with(about), "{error}");
        }
        let help = octavo_command().render_help().to_string();
        assert!(help.contains(&format!("  help            {HELP_ABOUT}\n")), "{help}");
        assert!(octavo_command().try_get_matches_from(["octavo", "layouts", "help"]).is_err());
    }

    /// Returns the help texts below the options of a command and its subcommands.
    fn texts(command: &Command) -> Vec<String> {
        let own = command.get_after_long_help().map(ToString::to_string);
        own.into_iter().chain(command.get_subcommands().flat_map(texts)).collect()
    }

    #[test]
    fn examples_fit_eighty_columns() {
        let plugin = as_plugin(octavo_command());
        for text in texts(&plugin).into_iter().chain(texts(&mig_parted_command())) {
            for line in text.lines().filter(|line| line.starts_with(' ')) {
                assert!(line.len() <= 80, "{line}");
            }
        }
    }
}
