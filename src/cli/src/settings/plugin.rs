//! The program as the kubectl plugin `octavo`.

/// File name under which kubectl finds a program as its plugin `octavo`.
pub(super) const PLUGIN_NAME: &str = "kubectl-octavo";

/// Rewrites usage and examples for a program that kubectl starts. Source: "Extend kubectl with plugins" in the
/// documentation of Kubernetes; krew's naming guide.
pub(super) fn as_plugin(command: clap::Command) -> clap::Command {
    let reworded = |command: clap::Command| {
        let Some(help) = command.get_after_long_help() else {
            return command;
        };
        // A command line in the help follows a blank, a backtick or a bracket, and continues with a command.
        let help = [" ", "`", "("].into_iter().fold(help.to_string(), |help, before| {
            let (own, plugin) = ("octavo ", "kubectl octavo ");
            help.replace(&format!("{before}{own}"), &format!("{before}{plugin}"))
        });
        command.after_long_help(help)
    };
    reworded(command).bin_name("kubectl octavo").mut_subcommands(&reworded)
}
