//! Time limits for everything that tests wait for.
//!
//! A wait without a limit turns one failure into an endless run that names no test. Each helper panics with the awaited
//! condition and the last state. [`watch`] is the fallback: it aborts the process and names its tests if one runs far
//! too long.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Longer than any operation on a loaded machine; only a failing test waits this long.
pub(crate) const TIME_LIMIT: Duration = Duration::from_mins(3);

/// Longer than the longest `kubectl wait --timeout`.
pub(crate) const MAX_RUN_TIME: Duration = Duration::from_mins(6);

/// Longer than the longest test, which may have to build images first.
const MAX_TEST_TIME: Duration = Duration::from_mins(20);

/// Between two reads of a state whose changes are not reported.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls a state until it satisfies `wanted` and returns it.
#[track_caller]
pub(crate) fn until<T: Debug>(
    what: &str,
    mut read: impl FnMut() -> T,
    wanted: impl Fn(&T) -> bool,
) -> T {
    watch();
    let began = Instant::now();
    loop {
        let last = read();
        if wanted(&last) {
            return last;
        }
        assert!(
            began.elapsed() < TIME_LIMIT,
            "{what}: not within {TIME_LIMIT:?}; last seen: {last:#?}"
        );
        thread::park_timeout(POLL_INTERVAL);
    }
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn eventually(what: &str, holds: impl FnMut() -> bool) {
    until(what, holds, |holds| *holds);
}

/// Polls a state until it satisfies `wanted` and returns it. A hanging read counts toward the limit.
pub(crate) async fn until_async<T: Debug>(
    what: &str,
    mut read: impl AsyncFnMut() -> T,
    wanted: impl Fn(&T) -> bool,
) -> T {
    watch();
    let mut last = None;
    let reading = async {
        let mut pace = tokio::time::interval(POLL_INTERVAL * 4);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            let now = read().await;
            if wanted(&now) {
                return now;
            }
            last = Some(now);
        }
    };
    let found = tokio::time::timeout(TIME_LIMIT, reading).await;
    found.unwrap_or_else(|_late| {
        panic!("{what}: not within {TIME_LIMIT:?}; last seen: {last:#?}");
    })
}

/// Awaits a result for at most [`TIME_LIMIT`].
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    watch();
    let done = tokio::time::timeout(TIME_LIMIT, future).await;
    done.unwrap_or_else(|_late| panic!("{what}: not within {TIME_LIMIT:?}"))
}

/// Programs that must exit by themselves.
pub(crate) trait Finish {
    /// Runs the program without standard input, and returns its output.
    fn finish(&mut self) -> Output;

    /// Runs the program with this standard input, and returns its output.
    fn finish_reading(&mut self, input: impl Into<Stdio>) -> Output;
}

impl Finish for Command {
    #[track_caller]
    fn finish(&mut self) -> Output {
        self.finish_reading(Stdio::null())
    }

    #[track_caller]
    fn finish_reading(&mut self, input: impl Into<Stdio>) -> Output {
        let command = self.stdin(input).stdout(Stdio::piped());
        let child = command.stderr(Stdio::piped()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        output(child, &format!("{command:?}"))
    }
}

/// The output of a program that must exit by itself; it is killed otherwise.
#[track_caller]
pub(crate) fn output(child: Child, name: &str) -> Output {
    watch();
    let pid = child.id();
    let (sender, ended) = channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(MAX_RUN_TIME) else {
        let _ended_meanwhile = kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL);
        // Another process may hold its pipes open.
        let printed = ended.recv_timeout(Duration::from_secs(10));
        panic!("{name} did not end within {MAX_RUN_TIME:?}: {printed:#?}");
    };
    output.unwrap()
}

/// The exit status of a program that exits or was asked to; it is killed otherwise.
#[track_caller]
pub(crate) fn exit_status(child: &mut Child) -> ExitStatus {
    let status = ends(child);
    status.unwrap_or_else(|| panic!("process {} did not end within {TIME_LIMIT:?}", child.id()))
}

/// The same for `drop`, which must not panic: `None` if the program had to be killed.
pub(crate) fn ends(child: &mut Child) -> Option<ExitStatus> {
    watch();
    let began = Instant::now();
    while began.elapsed() < TIME_LIMIT {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        thread::park_timeout(POLL_INTERVAL);
    }
    let _ended_meanwhile = child.kill();
    None
}

/// The lines that a program prints.
pub(crate) struct Lines {
    receiver: Receiver<String>,
    printed: Vec<String>,
    /// Number of printed lines that were read.
    read: usize,
}

impl Lines {
    /// Reads this pipe completely, so that the program never blocks.
    pub(crate) fn of(pipe: impl Read + Send + 'static) -> Self {
        watch();
        let (sender, receiver) = channel();
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                // Reading continues without a receiver.
                let _dropped = sender.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
        Self { receiver, printed: Vec::new(), read: 0 }
    }

    /// Starts over at the first printed line.
    pub(crate) fn rewind(&mut self) {
        self.read = 0;
    }

    /// The next line with `text` in it.
    #[track_caller]
    pub(crate) fn find_line(&mut self, text: &str) -> String {
        self.find(&format!("{text:?}"), |line| line.contains(text))
    }

    /// Reads lines until each of `texts` was in one of them, in any order.
    #[track_caller]
    pub(crate) fn find_lines(&mut self, texts: &[&str]) {
        let mut missing = texts.to_vec();
        self.find(&format!("{texts:?}"), |line| {
            missing.retain(|text| !line.contains(text));
            missing.is_empty()
        });
    }

    /// The next line that satisfies `wanted`. The limit covers all lines before it.
    #[track_caller]
    pub(crate) fn find(&mut self, what: &str, mut wanted: impl FnMut(&str) -> bool) -> String {
        let end = Instant::now() + TIME_LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let why = match self.next(left) {
                Ok(line) => {
                    if wanted(&line) {
                        return line;
                    }
                    if !left.is_zero() {
                        continue;
                    }
                    format!("within {TIME_LIMIT:?}")
                }
                Err(RecvTimeoutError::Timeout) => format!("within {TIME_LIMIT:?}"),
                Err(RecvTimeoutError::Disconnected) => "before it closed its output".to_owned(),
            };
            let printed = self.printed.join("\n");
            panic!("the program did not print {what} {why}; it printed:\n{printed}");
        }
    }

    /// The next line, waiting at most `limit` for it.
    pub(crate) fn next(&mut self, limit: Duration) -> Result<String, RecvTimeoutError> {
        if self.read == self.printed.len() {
            self.printed.push(self.receiver.recv_timeout(limit)?);
        }
        self.read += 1;
        Ok(self.printed[self.read - 1].clone())
    }

    /// The next line.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        self.find_line("")
    }

    /// All printed lines, once the program has exited.
    #[track_caller]
    pub(crate) fn all(&mut self) -> Vec<String> {
        let end = Instant::now() + TIME_LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.next(left) {
                Ok(_line) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.rewind();
                    return std::mem::take(&mut self.printed);
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("the output was not closed within {TIME_LIMIT:?}");
                }
            }
        }
    }
}

/// Running tests, with the time when each was first watched.
pub(crate) static RUNNING: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());

/// Aborts the process and names its tests if the test of this thread runs longer than [`MAX_TEST_TIME`].
///
/// Every fixture that starts something calls this: it covers waits without their own limit.
pub(crate) fn watch() {
    static WATCHDOG: Once = Once::new();
    thread_local! {
        static TEST: Running = Running::new();
    }
    // A full sweep takes half an hour.
    if std::env::var_os("OCTAVO_CRASH_SWEEP").is_none() {
        WATCHDOG.call_once(|| drop(thread::spawn(watchdog)));
        // A fixture that is dropped with its thread registers nothing.
        let _ending = TEST.try_with(|_| ());
    }
}

/// The test of a thread, which libtest names after it; registered until the thread ends.
struct Running(Option<String>);

impl Running {
    fn new() -> Self {
        let thread = thread::current();
        let name = thread.name().filter(|name| name.contains("::"));
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.extend(name.map(|name| (name.to_owned(), Instant::now())));
        Self(name.map(ToOwned::to_owned))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.take().map(|name| running.remove(&name));
    }
}

fn watchdog() {
    loop {
        thread::park_timeout(Duration::from_secs(10));
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if running.values().any(|began| began.elapsed() > MAX_TEST_TIME) {
            // Not `eprintln!`, which libtest captures in threads of tests.
            let mut error = io::stderr().lock();
            for (name, began) in &*running {
                let seconds = began.elapsed().as_secs();
                let _unread = writeln!(error, "test {name} has been running for {seconds} s");
            }
            let limit = MAX_TEST_TIME.as_secs();
            let _unread = writeln!(error, "aborted: no test may run longer than {limit} s");
            std::process::abort();
        }
    }
}
