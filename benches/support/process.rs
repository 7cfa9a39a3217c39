//! What a process has and does, from `/proc`.

use std::fs;
use std::path::PathBuf;

/// Memory of a process in MiB. Source: `/proc/PID/smaps_rollup`.
pub(crate) struct Memory {
    pub(crate) pss: f64,
    pub(crate) anonymous: f64,
}

/// CPU time of all threads of a process so far, in milliseconds.
pub(crate) fn cpu_ms(pid: u32) -> f64 {
    let per_thread = |thread: PathBuf| {
        let text = fs::read_to_string(thread.join("schedstat")).unwrap();
        let nanoseconds = text.split_whitespace().next().unwrap();
        nanoseconds.parse::<f64>().unwrap() / 1e6
    };
    threads(pid).map(per_thread).sum()
}

/// How often its threads have gone to sleep, and so have been woken.
pub(crate) fn wakeups(pid: u32) -> f64 {
    let per_thread = |thread: PathBuf| {
        let text = fs::read_to_string(thread.join("status")).unwrap();
        value(&text, "voluntary_ctxt_switches")
    };
    threads(pid).map(per_thread).sum()
}

/// Its memory, its share of what it shares.
pub(crate) fn memory(pid: u32) -> Memory {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    Memory { pss: value(&rollup, "Pss:") / 1024.0, anonymous: value(&rollup, "Pss_Anon:") / 1024.0 }
}

fn value(text: &str, key: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn threads(pid: u32) -> impl Iterator<Item = PathBuf> {
    let directory = format!("/proc/{pid}/task");
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path())
}
