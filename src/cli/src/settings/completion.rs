//! Shell completion scripts.

use clap_complete::{Shell, generate};

use super::{mig_parted, mig_parted_command, octavo_command};

/// Returns the script that completes `octavo` in `shell`.
pub fn completion_script(shell: Shell) -> String {
    script(shell, (&mut octavo_command(), "octavo"))
}

/// Returns the script that completes `nvidia-mig-parted` in `shell`.
pub fn mig_parted_completion_script(shell: Shell) -> String {
    let mut command = mig_parted_command();
    script(shell, (&mut command, mig_parted::NAME))
}

fn script(shell: Shell, (command, name): (&mut clap::Command, &str)) -> String {
    let mut script = Vec::new();
    generate(shell, command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
