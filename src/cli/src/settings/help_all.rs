//! `--help-all`: the help of a command with the flags that most users never need.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

const FLAG: &str = "help-all";

/// Heading of the flags that `--help` omits: paths of drivers and of the host's directories.
const HEADING: &str = "Hardware";

/// Adds the flag to all commands with such flags.
pub(super) fn add_flag(command: Command) -> Command {
    let command = command.mut_subcommands(add_flag);
    if !command.get_arguments().any(is_omitted) {
        return command;
    }
    let flag = Arg::new(FLAG).long(FLAG).action(ArgAction::HelpLong).help_heading(None::<&str>);
    command.arg(flag.help("Print help, including the flags of hardware paths").display_order(1000))
}

/// Hides the flags from help, unless the arguments request all. Returns the arguments for clap.
pub(super) fn collapse(command: Command, mut arguments: Vec<OsString>) -> (Command, Vec<OsString>) {
    let flags = arguments.iter_mut().take_while(|argument| argument.as_os_str() != "--");
    let request = flags.into_iter().find(|argument| argument.as_os_str() == "--help-all");
    if let Some(request) = request {
        *request = OsString::from("--help");
        return (command, arguments);
    }
    (hide(command), arguments)
}

fn hide(command: Command) -> Command {
    let hidden = |argument: Arg| {
        let is_omitted = is_omitted(&argument);
        if is_omitted { argument.hide(true) } else { argument }
    };
    command.mut_args(hidden).mut_subcommands(hide)
}

fn is_omitted(argument: &Arg) -> bool {
    argument.get_help_heading() == Some(HEADING)
}

#[cfg(test)]
mod tests {
    use crate::settings::{Invocation, Terminal};

    fn help(arguments: &[&str]) -> String {
        Invocation::from_arguments(arguments, Terminal::Plain).unwrap_err().to_string()
    }

    #[test]
    fn hardware_flags_are_shown_on_request_only() {
        let short = help(&["octavo", "apply", "--help"]);
        assert!(!short.contains("--nvml-library") && short.contains("--help-all"), "{short}");
        let all = help(&["octavo", "apply", "--help-all"]);
        assert!(all.contains("--nvml-library"), "{all}");
        assert!(!help(&["octavo", "nodes", "--help"]).contains("--help-all"));
    }

    #[test]
    fn hidden_flags_are_accepted() {
        let arguments = ["octavo", "inspect", "--sys-root", "/x"];
        assert!(Invocation::from_arguments(arguments, Terminal::Plain).is_ok());
    }
}
