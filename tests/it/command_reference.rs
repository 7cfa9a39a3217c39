//! The reference page of all commands, generated from their help. Tools such as clap-markdown do not render environment
//! variables, groups of options and examples as needed here.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};
use octavo_agent::settings::agent_command;
use octavo_aggregator::settings::AggregatorSettings;
use octavo_cli::settings::command_groups::GROUPS;
use octavo_cli::settings::octavo_command;

use crate::golden::golden;

const HEAD: &str = "# Commands

This page lists the commands, options, environment variables and exit codes of `octavo`, `octavo-agent` and
`octavo-aggregator`, for users and authors of scripts. It is generated from the help of the programs (`make golden`).
[Use the command line](../tasks/command-line.md) explains how to work with the commands.

An option takes precedence over its environment variable. An empty environment variable counts as unset.
";
const WIDTH: usize = 118;
/// An option group that this many commands share is described once.
const MIN_SHARED: usize = 3;

/// Options of a command by heading, in the order of the help.
type OptionGroups = Vec<(String, String)>;

/// Wraps text, with `indent` before all lines but the first.
fn wrap(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().unwrap();
        if last.trim().is_empty() {
            last.push_str(word);
        } else if last.len() + 1 + word.len() <= WIDTH {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(format!("{indent}{word}"));
        }
    }
    lines.join("\n")
}

/// Formats a word of a help text: links to pages, and code where Markdown would interpret characters.
fn format_word(word: &str) -> String {
    let core = word.trim_end_matches(['.', ',', ';', ':', ')', '\'']);
    let end = &word[core.len()..];
    let open = if core.starts_with(['(', '[']) { &core[..1] } else { "" };
    let core = &core[open.len()..];
    if let Some(page) = core.strip_prefix("docs/") {
        return format!("{open}[{page}](../{page}){end}");
    }
    let is_code = core.starts_with('-')
        || core.contains(['_', '*', '<', '=', '^', '{'])
        || core.contains('/') && core.contains(['.', ':']);
    if is_code { format!("{open}`{core}`{end}") } else { word.to_owned() }
}

/// Formats words; a flag and its value are one piece of code.
fn format_words(text: &str) -> String {
    const VALUES: [&str; 13] = [
        "cdi",
        "embedded",
        "file",
        "hand-off",
        "json",
        "mig-manager",
        "nodefeature",
        "node",
        "none",
        "proxy-header",
        "reboot",
        "token-review",
        "yaml",
    ];
    let mut words = text.split(' ').peekable();
    let mut formatted: Vec<String> = Vec::new();
    while let Some(word) = words.next() {
        let value =
            words.peek().map_or("", |next| next.trim_end_matches(['.', ',', ';', ':', ')', ']']));
        if word.starts_with('-') && word.len() > 1 && VALUES.contains(&value) {
            let next = words.next().unwrap_or_default();
            formatted.push(format!("`{word} {value}`{}", &next[value.len()..]));
        } else {
            formatted.push(format_word(word));
        }
    }
    formatted.join(" ")
}

/// Formats a paragraph of help. Text in backticks is not changed.
fn format_text(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(number, part)| {
        if number % 2 == 1 {
            return format!("`{part}`");
        }
        format_words(part)
    });
    parts.collect()
}

/// Formats help as sentences: the first paragraph of help has no full stop.
fn sentences(help: &str) -> String {
    let paragraphs = help.split("\n\n").map(|paragraph| {
        let text = format_text(&paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
        if text.ends_with('.') { text } else { format!("{text}.") }
    });
    paragraphs.collect::<Vec<_>>().join(" ")
}

fn option(arg: &Arg) -> String {
    let mut names: Vec<String> = Vec::new();
    let values = arg.get_value_names().unwrap_or_default().join("> <");
    if arg.is_positional() {
        let name =
            if arg.is_required_set() { format!("<{values}>") } else { format!("[{values}]") };
        names.push(format!("`{name}`"));
    }
    names.extend(arg.get_short().map(|short| format!("`-{short}`")));
    if let Some(long) = arg.get_long() {
        let is_optional = arg.get_num_args().is_some_and(|count| count.min_values() == 0);
        let value = match (arg.get_action().takes_values(), is_optional) {
            (false, _) => String::new(),
            (true, false) => format!(" <{values}>"),
            (true, true) => format!("[=<{values}>]"),
        };
        names.push(format!("`--{long}{value}`"));
    }
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let mut text = format!("{}: {}", names.join(", "), sentences(&help.unwrap().to_string()));
    let possible: Vec<_> =
        arg.get_possible_values().into_iter().filter(|one| !one.is_hide_set()).collect();
    let has_values = arg.get_action().takes_values() && !arg.is_hide_possible_values_set();
    let with_help = possible.iter().any(|one| one.get_help().is_some());
    if has_values && !with_help && !possible.is_empty() {
        let all: Vec<String> = possible.iter().map(|one| format!("`{}`", one.get_name())).collect();
        write!(text, " Values: {}.", all.join(", ")).unwrap();
    }
    let defaults = arg.get_default_values();
    if !defaults.is_empty() && arg.get_action().takes_values() && !arg.is_hide_default_value_set() {
        let all: Vec<_> = defaults.iter().map(|one| format!("`{}`", one.display())).collect();
        write!(text, " Default: {}.", all.join(" ")).unwrap();
    }
    for alias in arg.get_visible_aliases().unwrap_or_default() {
        write!(text, " Alias: `--{alias}`.").unwrap();
    }
    if let Some(variable) = arg.get_env() {
        write!(text, " Environment variable: `{}`.", variable.display()).unwrap();
    }
    let mut text = format!("- {}\n", wrap(&text, "  "));
    if has_values && with_help {
        for one in possible {
            let help = one.get_help().map(|help| sentences(&help.to_string())).unwrap_or_default();
            let line = format!("`{}`: {help}", one.get_name());
            writeln!(text, "  - {}", wrap(&line, "    ")).unwrap();
        }
    }
    text
}

fn option_groups(command: &Command, is_root: bool) -> OptionGroups {
    let mut groups = OptionGroups::new();
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let args = args.filter(|arg| {
        let is_common = arg.is_global_set() && command.get_name() != "mig-parted"
            || ["help", "version"].contains(&arg.get_id().as_str());
        is_root || !is_common
    });
    for arg in args {
        let heading = arg
            .get_help_heading()
            .unwrap_or_else(|| if arg.is_positional() { "Arguments" } else { "Options" });
        match groups.iter_mut().find(|(name, _)| name == heading) {
            Some((_, text)) => text.push_str(&option(arg)),
            None => groups.push((heading.to_owned(), option(arg))),
        }
    }
    groups
}

/// Formats examples and the text below them.
fn after_help(help: &str) -> String {
    let (examples, rest) = match help.strip_prefix("Examples:\n") {
        None => ("", help),
        Some(text) => {
            let end = text.find("\n\n").map(|_| {
                let lines = text.split_inclusive('\n');
                let mut length = 0;
                for line in lines {
                    if !line.starts_with(' ') && !line.trim().is_empty() {
                        break;
                    }
                    length += line.len();
                }
                length
            });
            text.split_at(end.unwrap_or(text.len()))
        }
    };
    let mut text = String::new();
    if !examples.is_empty() {
        let lines = examples.trim_end().lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
        write!(text, "\nExamples:\n\n```sh\n{}\n```\n", lines.collect::<Vec<_>>().join("\n"))
            .unwrap();
    }
    for paragraph in rest.split("\n\n").filter(|text| !text.trim().is_empty()) {
        write!(text, "\n{}\n", wrap(&sentences(paragraph), "")).unwrap();
    }
    text
}

fn anchor(title: &str) -> String {
    title.to_lowercase().replace(' ', "-")
}

/// Commands of a program by their full names.
fn commands<'a>(command: &'a Command, name: &str, all: &mut Vec<(String, &'a Command)>) {
    all.push((name.to_owned(), command));
    for subcommand in command.get_subcommands().filter(|one| one.get_name() != "help") {
        commands(subcommand, &format!("{name} {}", subcommand.get_name()), all);
    }
}

fn section(name: &str, command: &Command, shared: &BTreeMap<(String, String), usize>) -> String {
    let is_root = !name.contains(' ');
    let mut page = format!("\n{} {name}\n", if is_root { "##" } else { "###" });
    let about = command.get_long_about().or_else(|| command.get_about()).unwrap();
    write!(page, "\n{}\n", wrap(&sentences(&about.to_string()), "")).unwrap();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").lines().map(str::trim);
    write!(page, "\n```text\n{}\n```\n", usage.collect::<Vec<_>>().join("\n")).unwrap();
    let list = |page: &mut String, names: &[&str]| {
        page.push('\n');
        for one in names {
            let about = command.find_subcommand(one).and_then(Command::get_about).unwrap();
            let full = format!("{name} {one}");
            let line = format!("[`{one}`](#{}): {}", anchor(&full), sentences(&about.to_string()));
            writeln!(page, "- {}", wrap(&line, "  ")).unwrap();
        }
    };
    let subcommands = command.get_subcommands().map(Command::get_name);
    let subcommands: Vec<&str> = subcommands.filter(|name| *name != "help").collect();
    if name == "octavo" {
        for (title, names) in GROUPS {
            write!(page, "\n{title}:\n").unwrap();
            list(&mut page, names);
        }
    } else if !subcommands.is_empty() {
        page.push_str("\nSubcommands:\n");
        list(&mut page, &subcommands);
    }
    for (heading, text) in option_groups(command, is_root) {
        let title = format!("{heading} options");
        if shared.contains_key(&(heading.clone(), text.clone())) {
            write!(page, "\nAlso accepts the [{title}](#{}).\n", anchor(&title)).unwrap();
        } else if ["Options", "Arguments"].contains(&heading.as_str()) {
            write!(page, "\n{heading}:\n\n{text}").unwrap();
        } else {
            write!(page, "\n{title}:\n\n{text}").unwrap();
        }
    }
    page
}

#[test]
fn reference_page_lists_every_command() {
    let mut programs = [
        ("octavo", octavo_command()),
        ("octavo-agent", agent_command()),
        ("octavo-aggregator", AggregatorSettings::command()),
    ];
    for (_, command) in &mut programs {
        command.build();
    }
    let mut all = Vec::new();
    for (name, command) in &programs {
        commands(command, name, &mut all);
    }
    let mut shared: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (name, command) in &all {
        for group in option_groups(command, !name.contains(' ')) {
            let count = shared.entry(group).or_default();
            *count += 1;
        }
    }
    shared.retain(|(heading, _), count| {
        *count >= MIN_SHARED && !["Options", "Arguments"].contains(&heading.as_str())
    });
    let mut page = HEAD.to_owned();
    let mut last = (String::new(), "");
    for (name, command) in &all {
        page.push_str(&section(name, command, &shared));
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        if name.starts_with(last.1) && help == last.0 && !help.is_empty() {
            write!(page, "\nExamples and exit codes: [`{}`](#{}).\n", last.1, anchor(last.1))
                .unwrap();
        } else {
            page.push_str(&after_help(&help));
            last = (help, name);
        }
    }
    page.push_str("\n## Shared options\n\nSeveral commands accept these options.\n");
    for (heading, text) in shared.keys() {
        write!(page, "\n### {heading} options\n\n{text}").unwrap();
    }
    golden("../../docs/reference/cli.md", &page);
}
