//! Shell completion scripts.

use clap::CommandFactory;

use super::{NvidiaMigPartedArgs, OctavoArgs, Shell, mig_parted};

/// Returns the script that completes `octavo` in `shell`.
pub fn completion_script(shell: Shell) -> String {
    script(shell, (&mut OctavoArgs::command(), "octavo"))
}

/// Returns the script that completes `nvidia-mig-parted` in `shell`.
pub fn mig_parted_completion_script(shell: Shell) -> String {
    let mut command = NvidiaMigPartedArgs::command();
    script(shell, (&mut command, mig_parted::NAME))
}

fn script(shell: Shell, (command, name): (&mut clap::Command, &str)) -> String {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
