//! Fuzzes the parser of layout files: `make fuzz`.
//!
//! `FUZZ_SECONDS` sets the duration (60), and `FUZZ_SEED` the seed. The run stops at the first input that violates a property, and
//! prints it. The same seed reproduces the input.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a fuzzer is a script: it measures the wall clock, prints, and stops at the first error"
)]

#[path = "../tests/it/layouts/checks.rs"]
mod checks;
#[path = "../tests/it/layouts/fuzz.rs"]
mod fuzz;
#[path = "../tests/it/layouts/table.rs"]
#[expect(dead_code, reason = "the fuzzer uses only the inputs")]
mod table;

use std::time::{Duration, Instant};

/// Maximum time for one input. A typical input takes some microseconds.
const TIME_LIMIT: Duration = Duration::from_secs(1);

fn main() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seconds = Duration::from_secs(number("FUZZ_SECONDS").unwrap_or(60));
    let seed = number("FUZZ_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed}");
    let mut fuzzer = fuzz::Fuzzer::new(seed);
    let start = Instant::now();
    while start.elapsed() < seconds {
        let start = Instant::now();
        let reproduce = format!("reproduce with FUZZ_SEED={seed}");
        match fuzzer.step() {
            Err(input) => panic!("property violated, run {}; {reproduce}\n{input:?}", fuzzer.runs),
            Ok(input) if start.elapsed() > TIME_LIMIT && is_slow(&input) => {
                panic!("input takes too long, run {}; {reproduce}\n{input:?}", fuzzer.runs)
            }
            Ok(_) => {}
        }
    }
    let rate = u128::from(fuzzer.runs) * 1000 / start.elapsed().as_millis().max(1);
    println!(
        "{} inputs, {} of them accepted, {rate} per second; no error",
        fuzzer.runs, fuzzer.accepted
    );
}

/// Returns `true` if the input exceeds the limit three more times. Once can be due to other load on the machine.
fn is_slow(input: &str) -> bool {
    let machines = checks::machines();
    (0..3).all(|_| {
        let start = Instant::now();
        checks::check(input, &machines);
        start.elapsed() > TIME_LIMIT
    })
}
