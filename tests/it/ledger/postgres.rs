//! A PostgreSQL server of the test.

use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use tempfile::TempDir;

use crate::time_limits::{Finish, Lines, ends, until};

/// A running server, reachable at a socket in its directory. Dropping it stops it.
pub(super) struct Postgres {
    directory: TempDir,
    server: Child,
}

/// A transaction; dropping it rolls it back.
pub(super) struct OpenTransaction {
    session: Child,
    _input: ChildStdin,
}

/// Directory of the server's programs, which Debian does not put on the path.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .unwrap_or_else(|error| panic!("PostgreSQL is not installed; run hack/setup.sh: {error}"));
    let mut versions: Vec<PathBuf> = versions.map(|entry| entry.unwrap().path()).collect();
    versions.sort();
    versions.pop().unwrap().join("bin")
}

/// The command as a user that the server accepts, because it refuses to run as root.
fn unprivileged(program: &Path) -> Command {
    if !Uid::effective().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    command
}

impl Postgres {
    pub(super) fn start() -> Self {
        let directory = TempDir::new().unwrap();
        if let Some(user) =
            User::from_name("postgres").unwrap().filter(|_| Uid::effective().is_root())
        {
            chown(directory.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
        let data = directory.path().join("data");
        let mut init = unprivileged(&programs().join("initdb"));
        init.args(["--username=octavo", "--auth=trust", "--no-sync", "--pgdata"]).arg(&data);
        let done = init.current_dir("/").finish();
        assert!(done.status.success(), "{done:?}");
        let server = unprivileged(&programs().join("postgres"))
            .current_dir("/")
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(directory.path())
            .args(["-c", "listen_addresses=", "-c", "fsync=off"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { directory, server }
    }

    /// URL of its database. The aggregator connects again until the server accepts connections.
    pub(super) fn url(&self) -> String {
        format!("postgres://octavo@localhost/postgres?host={}", self.directory.path().display())
    }

    fn psql(&self) -> Command {
        let mut command = Command::new(programs().join("psql"));
        let options = ["--no-psqlrc", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"];
        command.args(options).arg("--dbname").arg(self.url());
        command
    }

    /// Runs statements once the server accepts connections, and returns their output.
    #[track_caller]
    pub(super) fn sql(&self, statements: &str) -> String {
        let run = || self.psql().args(["--command", statements]).finish();
        let done = until("psql", run, |output| output.status.success());
        String::from_utf8(done.stdout).unwrap()
    }

    /// Runs statements in a transaction.
    pub(super) fn transaction(&self, statements: &str) -> OpenTransaction {
        let mut command = self.psql();
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut session = piped.spawn().unwrap();
        let mut input = session.stdin.take().unwrap();
        writeln!(input, "BEGIN; {statements}; SELECT 'done';").unwrap();
        Lines::of(session.stdout.take().unwrap()).find_line("done");
        OpenTransaction { session, _input: input }
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        let _already_ended = self.session.kill();
        let _status = ends(&mut self.session);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let server = Pid::from_raw(i32::try_from(self.server.id()).unwrap());
        let _already_ended = kill(server, Signal::SIGINT);
        let _status = ends(&mut self.server);
    }
}
