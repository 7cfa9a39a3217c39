//! Runs hooks as mig-parted does: with the variables of its flags and the hooks' own, and nothing else of the
//! environment.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use octavo_files::hooks::{Hook, HookPoint, Hooks};
use octavo_toolkit::files;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::output::note;
use crate::settings::Input;
use crate::settings::mig_parted::HooksSettings;
use crate::text::printable;
use crate::{CliError, MigPartedError, input};

/// Maximum number of shown bytes of a failed hook's output.
const MAX_SHOWN_BYTES: u64 = 16 << 10;

/// Hooks and their environment.
#[derive(Debug)]
pub(super) struct HookRunner<'a> {
    hooks: Hooks,
    settings: &'a HooksSettings,
    variables: BTreeMap<&'static str, String>,
    debug: bool,
}

impl<'a> HookRunner<'a> {
    /// Reads the file, if there is one.
    pub(super) fn new(
        settings: &'a HooksSettings,
        variables: BTreeMap<&'static str, String>,
        debug: bool,
    ) -> Result<Self, CliError> {
        let hooks = match &settings.hooks_file {
            None => Hooks::default(),
            Some(path) => {
                let text = input::text(&Input::File(path.clone()), "hooks")?;
                Hooks::parse(&text)
                    .map_err(|source| MigPartedError::Hooks { path: path.clone(), source })?
            }
        };
        Ok(Self { hooks, settings, variables, debug })
    }

    /// Returns whether there are hooks for the event.
    pub(super) fn has(&self, moment: HookPoint) -> bool {
        !self.hooks.at(moment).is_empty()
    }

    /// Runs the hooks of an event in sequence, until one fails.
    pub(super) async fn run(&self, moment: HookPoint) -> Result<(), MigPartedError> {
        for hook in self.hooks.at(moment) {
            self.print(&format!("Running {moment} hook {}", hook.command));
            self.one(moment, hook).await?;
        }
        Ok(())
    }

    /// Prints a debug message.
    pub(super) fn print(&self, text: &str) {
        if self.debug {
            note(&printable(text));
        }
    }

    async fn one(&self, moment: HookPoint, hook: &Hook) -> Result<(), MigPartedError> {
        let failed =
            |source| MigPartedError::HookStart { moment, command: hook.command.clone(), source };
        let program = self.program(hook).map_err(failed)?;
        // If no temporary file can be created, the output is shown directly, rather than not running the hook.
        let captured = if self.debug { None } else { tempfile::tempfile().ok() };
        let mut command = self.command(&program, hook);
        if let Some(file) = &captured {
            command.stdout(file.try_clone().map_err(failed)?);
            command.stderr(file.try_clone().map_err(failed)?);
        }
        let mut child = command.spawn().map_err(failed)?;
        let longest = self.settings.timeout;
        let error = match timeout(longest, child.wait()).await {
            Ok(Ok(status)) if status.success() => return Ok(()),
            Ok(Ok(status)) => {
                MigPartedError::HookFailed { moment, command: hook.command.clone(), status }
            }
            Ok(Err(source)) => failed(source),
            Err(_) => {
                end(&mut child).await;
                MigPartedError::HookTimedOut { moment, command: hook.command.clone(), longest }
            }
        };
        if let Some(printed) = captured.and_then(|file| tail(file).ok()) {
            show(moment, hook, &printed);
        }
        Err(error)
    }

    fn command(&self, program: &Path, hook: &Hook) -> Command {
        let mut command = Command::new(program);
        command
            .args(hook.args.iter().flatten())
            .env_clear()
            .envs(hook.envs.iter().flatten())
            .envs(&self.variables)
            .stdin(Stdio::null())
            // Allows killing the hook together with its children.
            .process_group(0)
            .kill_on_drop(true);
        if let Some(directory) = hook.workdir.as_ref().filter(|it| !it.as_os_str().is_empty()) {
            command.current_dir(directory);
        }
        command
    }

    /// Returns the program's path. A name without a directory is searched in this process's `PATH`, as the hook has
    /// none.
    fn program(&self, hook: &Hook) -> io::Result<PathBuf> {
        if hook.command.contains('/') {
            return Ok(PathBuf::from(&hook.command));
        }
        let directories = self.settings.search_path().into_iter();
        let mut programs = directories.map(|directory| directory.join(&hook.command));
        let runs = |path: &PathBuf| {
            fs::metadata(path)
                .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        };
        programs
            .find(runs)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "not found in PATH"))
    }
}

/// Kills a hook and its children in the same process group.
async fn end(child: &mut Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(group) = group {
        let _gone_already = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let _gone_already = child.wait().await;
}

/// Returns the end of the output.
fn tail(mut file: File) -> io::Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_SHOWN_BYTES)))?;
    let bytes = files::prefix_of(file, MAX_SHOWN_BYTES)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn show(moment: HookPoint, hook: &Hook, printed: &str) {
    if printed.trim().is_empty() {
        return;
    }
    note(&printable(&format!("The {moment} hook {} printed:", hook.command)));
    for line in printed.lines() {
        note(&format!("  {}", printable(line)));
    }
}
