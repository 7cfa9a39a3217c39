//! kubectl as an administrator.

use std::env;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::time_limits::Finish;

/// The kubectl program and its cluster.
#[derive(Clone)]
pub(crate) struct Kubectl {
    pub(super) program: PathBuf,
    pub(super) kubeconfig: PathBuf,
    /// Its discovery cache of this server.
    pub(super) cache: PathBuf,
}

impl Kubectl {
    pub(crate) fn attempt(&self, arguments: &[&str]) -> Output {
        self.command(arguments).finish()
    }

    /// Runs it and returns its output.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        reported(arguments, self.attempt(arguments))
    }

    /// Runs it with a text as its standard input.
    #[track_caller]
    pub(crate) fn feed(&self, arguments: &[&str], text: &str) -> String {
        // A file, so that the writer does not wait for the reader.
        let mut input = tempfile::tempfile().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        input.rewind().unwrap();
        let output = self.command(arguments).finish_reading(input);
        reported(arguments, output)
    }

    /// Configures another command for kubectl and the cluster; programs in `first` take precedence.
    pub(crate) fn equip<'a>(&self, command: &'a mut Command, first: &Path) -> &'a mut Command {
        let usual = env::var_os("PATH").unwrap_or_default();
        let own = [first, self.program.parent().unwrap()].map(Path::to_owned);
        let path = env::join_paths(own.into_iter().chain(env::split_paths(&usual)));
        command
            .stdin(Stdio::null())
            .env("PATH", path.unwrap())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", &self.cache)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.env("KUBECACHEDIR", &self.cache);
        // A run is short, and collecting its garbage takes a third of its time.
        command.env("GOGC", "off");
        command.args(arguments);
        command
    }
}

#[track_caller]
fn reported(arguments: &[&str], output: Output) -> String {
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "kubectl {}: {}\n{stdout}{}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    stdout
}
