//! Runs a program of the driver's, and says why it failed in the program's own words.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// A reset takes seconds; NVIDIA's program waits for persistence daemons, and may wait for ever.
pub(super) const LONGEST: Duration = Duration::from_mins(1);

/// Runs `command` without anything of our environment, for a minute at most. The error is its last line.
pub async fn run(command: &mut Command) -> Result<(), String> {
    let program = command.as_std().get_program().to_owned();
    let program = program.display();
    command.env_clear().stdin(Stdio::null());
    let output = timeout(LONGEST, command.output())
        .await
        .map_err(|_| format!("{program} does not end"))?
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.unwrap_or("nvidia-smi failed and said nothing");
    Err(last.trim().to_owned())
}
