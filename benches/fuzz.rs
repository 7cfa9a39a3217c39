//! Decodes randomly changed inputs: `make fuzz`.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `FUZZ_TARGET` | one of the targets in `tests/it/fuzz/targets.rs` | all, one after another |
//! | `FUZZ_SECONDS` | duration, divided among the targets | 60 |
//! | `FUZZ_SEED` | seed: the same one produces the same inputs | the process ID |
//! | `FUZZ_INPUT` | file with the only input, for one target | none |
//!
//! The run stops at the first input that violates a property, and writes it to a file.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a fuzzer is a script: it measures the wall clock, prints, and stops at the first error"
)]

#[path = "../tests/it/fuzz"]
mod fuzz {
    pub(crate) mod fuzzer;
    pub(crate) mod mutation;
    pub(crate) mod seeds;
    pub(crate) mod targets;
}
#[path = "../tests/it/layouts"]
mod layouts {
    pub(crate) mod checks;
    #[expect(dead_code, reason = "the fuzzer uses only the inputs")]
    pub(crate) mod table;
}
#[path = "../tests/support/tree.rs"]
#[expect(dead_code, reason = "the fuzzer uses only one function")]
mod tree;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fuzz::fuzzer::Fuzzer;
use fuzz::targets::{TARGETS, target};

/// Maximum time for one input. A typical input takes some microseconds.
const TIME_LIMIT: Duration = Duration::from_secs(1);
/// Maximum growth of the process during the run of a target. The corpus of a target has at most 16 MiB.
const MEMORY_LIMIT_MIB: u64 = 128;

/// Directory of the repository, for `tree`.
fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

fn main() {
    let text = |name| std::env::var(name).ok();
    let number = |name| text(name).map(|text| text.parse::<u64>().unwrap());
    let seconds = number("FUZZ_SECONDS").unwrap_or(60);
    let seed = number("FUZZ_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let chosen = text("FUZZ_TARGET");
    if let Some(file) = text("FUZZ_INPUT") {
        let name = chosen.unwrap_or_else(|| panic!("set FUZZ_TARGET as well"));
        let outcome = (target(&name).check)(&fs::read(file).unwrap());
        return println!("{name}: {outcome:?}");
    }
    let names: Vec<&str> = match &chosen {
        Some(name) => vec![name],
        None => TARGETS.iter().map(|(name, _)| *name).collect(),
    };
    let time = Duration::from_secs(seconds) / u32::try_from(names.len()).unwrap();
    println!(
        "seed {seed}\n\n| target | executions | accepted | per second | MiB |\n|---|---|---|---|---|"
    );
    let total: u64 = names.iter().map(|name| run(name, seed, time)).sum();
    println!("\n{total} executions, no error");
}

/// Runs a target and returns the number of executions.
fn run(name: &str, seed: u64, time: Duration) -> u64 {
    let mut fuzzer = Fuzzer::new(target(name), seed);
    // Resets the peak. Source: proc_pid_clear_refs(5).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let (start, memory) = (Instant::now(), peak_memory_mib());
    // VmHWM is the peak, so it never falls.
    let growth_mib = |fuzzer: &Fuzzer| {
        let growth = peak_memory_mib().saturating_sub(memory);
        if growth > MEMORY_LIMIT_MIB {
            fail(fuzzer, name, seed, "or an earlier input needs too much memory");
        }
        growth
    };
    while start.elapsed() < time {
        let before = Instant::now();
        if !fuzzer.step() {
            fail(&fuzzer, name, seed, "violates a property");
        }
        if before.elapsed() > TIME_LIMIT && is_slow(&mut fuzzer) {
            fail(&fuzzer, name, seed, "takes too long");
        }
        if fuzzer.runs.is_multiple_of(1024) {
            growth_mib(&fuzzer);
        }
    }
    let growth = growth_mib(&fuzzer);
    let rate = u128::from(fuzzer.runs) * 1000 / start.elapsed().as_millis().max(1);
    println!("| {name} | {} | {} | {rate} | {growth} |", fuzzer.runs, fuzzer.accepted);
    fuzzer.runs
}

fn fail(fuzzer: &Fuzzer, name: &str, seed: u64, problem: &str) -> ! {
    let file = std::env::temp_dir().join(format!("octavo-fuzz-{name}-{seed}-{}", fuzzer.runs));
    fs::write(&file, &fuzzer.last).unwrap();
    println!("{:?}", String::from_utf8_lossy(&fuzzer.last));
    panic!(
        "{name}: input {} of seed {seed} {problem}; reproduce with FUZZ_TARGET={name} FUZZ_INPUT={}",
        fuzzer.runs,
        file.display()
    );
}

/// Returns `true` if the last input exceeds the limit three more times. Once can be due to other load on the machine.
fn is_slow(fuzzer: &mut Fuzzer) -> bool {
    let input = fuzzer.last.clone();
    (0..3).all(|_| {
        let start = Instant::now();
        fuzzer.check(&input);
        start.elapsed() > TIME_LIMIT
    })
}

/// Peak of the resident memory of this process.
fn peak_memory_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}
