//! The call log: one JSON object per line, appended to the file in `NVML_SIM_LOG`, for tests that count calls.
//!
//! Each line is one `write` to a file opened for appending, so lines of many threads and processes never mix. The
//! standard library's streams are not used: their thread-local buffers would prevent unloading.

use std::ffi::CString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use super::pointer::Argument;
use super::setting::setting;

/// An entry of the log.
pub(super) struct Entry<'a> {
    pub(super) function: &'a str,
    pub(super) arguments: &'a [&'a dyn Argument],
    pub(super) started: Clock,
}

/// A point in time: wall clock for readers, monotonic clock for durations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    wall_ns: u64,
    steady_ns: u64,
}

impl Clock {
    pub(super) fn now() -> Self {
        Self { wall_ns: nanoseconds(libc::CLOCK_REALTIME), steady_ns: steady_ns() }
    }
}

/// Nanoseconds of the monotonic clock.
pub(super) fn steady_ns() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC)
}

/// Microseconds since 1970, as in NVML's timestamps.
pub(super) fn wall_us() -> u64 {
    nanoseconds(libc::CLOCK_REALTIME) / 1000
}

fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct is a local that outlives the call; an unknown clock would leave it zero.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// True if logging is on; checked first, so that an unlogged call formats nothing.
pub(super) fn is_on() -> bool {
    file() >= 0
}

/// Appends one line. Write errors are ignored: the log must never affect the program.
pub(super) fn write(entry: &Entry<'_>, result: &str) {
    static SEQUENCE: AtomicU64 = AtomicU64::new(1);
    let duration = steady_ns().saturating_sub(entry.started.steady_ns);
    let mut line = String::with_capacity(256);
    let _ = write!(
        line,
        "{{\"seq\":{},\"pid\":{},\"tid\":{},\"function\":\"{}\",\"arguments\":[",
        SEQUENCE.fetch_add(1, Ordering::Relaxed),
        std::process::id(),
        thread_id(),
        entry.function,
    );
    for (at, argument) in entry.arguments.iter().enumerate() {
        if at > 0 {
            line.push(',');
        }
        write_quoted(&mut line, *argument);
    }
    let _ = writeln!(
        line,
        "],\"result\":\"{result}\",\"start_ns\":{},\"duration_ns\":{duration}}}",
        entry.started.wall_ns,
    );
    append(file(), line.as_bytes());
}

/// Prints to standard error without the standard library's stream.
pub(super) fn complain(text: &str) {
    append(libc::STDERR_FILENO, format!("nvml-sim: {text}\n").as_bytes());
}

fn append(file: libc::c_int, bytes: &[u8]) {
    // SAFETY: the buffer is a local of this length; an invalid descriptor only fails.
    let _ = unsafe { libc::write(file, bytes.as_ptr().cast(), bytes.len()) };
}

fn write_quoted(line: &mut String, argument: &dyn Argument) {
    let mut plain = String::new();
    let _ = argument.write(&mut plain);
    line.push('"');
    for letter in plain.chars() {
        match letter {
            '"' | '\\' => {
                line.push('\\');
                line.push(letter);
            }
            control if u32::from(control) < 0x20 => {
                let _ = write!(line, "\\u{:04x}", u32::from(control));
            }
            other => line.push(other),
        }
    }
    line.push('"');
}

fn thread_id() -> libc::pid_t {
    // SAFETY: has no arguments and always succeeds.
    unsafe { libc::gettid() }
}

/// The descriptor of the log; -1 for none, -2 for unknown.
static FILE: AtomicI32 = AtomicI32::new(-2);

/// Opens the log at the first call and retains it until the library is unloaded.
fn file() -> libc::c_int {
    let known = FILE.load(Ordering::Acquire);
    if known != -2 {
        return known;
    }
    let opened = open();
    match FILE.compare_exchange(-2, opened, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => opened,
        Err(other) => {
            close(opened);
            other
        }
    }
}

fn open() -> libc::c_int {
    let path = setting("NVML_SIM_LOG");
    let Some(path) = path.and_then(|path| CString::new(path.into_vec()).ok()) else {
        return -1;
    };
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // SAFETY: the path is a NUL-terminated string that outlives the call.
    unsafe { libc::open(path.as_ptr(), flags, 0o644) }
}

fn close(file: libc::c_int) {
    if file >= 0 {
        // SAFETY: has no memory arguments, and the descriptor comes from `open`.
        unsafe { libc::close(file) };
    }
}

/// Closes the descriptor when the library is unloaded.
pub(super) fn forget() {
    close(FILE.swap(-2, Ordering::AcqRel));
}
