//! Memory and CPU time of a process, from `/proc`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Memory of a process in MiB. Source: `/proc/PID/smaps_rollup`.
pub(crate) struct Memory {
    pub(crate) pss: f64,
    pub(crate) anonymous: f64,
}

/// CPU time of the running threads of a process, in milliseconds. Threads that have ended are not included.
pub(crate) fn cpu_ms(pid: u32) -> f64 {
    let per_thread = |thread: PathBuf| {
        let text = fs::read_to_string(thread.join("schedstat")).unwrap();
        let nanoseconds = text.split_whitespace().next().unwrap();
        nanoseconds.parse::<f64>().unwrap() / 1e6
    };
    threads(pid).map(per_thread).sum()
}

/// User and system time of a process in steps of 10 ms, including threads that have ended. Source: `proc_pid_stat(5)`, fields 14
/// and 15.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name of the program can contain spaces and brackets.
    let (_name, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(|ticks| ticks.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// Voluntary context switches of the running threads: how often each thread has waited and was woken up.
pub(crate) fn wakeups(pid: u32) -> f64 {
    let per_thread = |thread: PathBuf| {
        let text = fs::read_to_string(thread.join("status")).unwrap();
        value(&text, "voluntary_ctxt_switches")
    };
    threads(pid).map(per_thread).sum()
}

pub(crate) fn memory(pid: u32) -> Memory {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    Memory { pss: value(&rollup, "Pss:") / 1024.0, anonymous: value(&rollup, "Pss_Anon:") / 1024.0 }
}

/// Resident memory in MiB.
pub(crate) fn resident_mib(pid: u32) -> f64 {
    value(&status(pid), "VmRSS:") / 1024.0
}

/// Peak of the resident memory in MiB, without the current memory of mapped files, which hardly changes. Writing "5" to
/// `/proc/PID/clear_refs` resets the peak.
pub(crate) fn peak_anonymous_mib(pid: u32) -> f64 {
    let status = status(pid);
    (value(&status, "VmHWM:") - value(&status, "RssFile:")) / 1024.0
}

fn status(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/status")).unwrap()
}

fn value(text: &str, key: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn threads(pid: u32) -> impl Iterator<Item = PathBuf> {
    let directory = format!("/proc/{pid}/task");
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path())
}
