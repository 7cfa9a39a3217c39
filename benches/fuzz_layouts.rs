//! Fuzzes the reader of layout files for a while: `make fuzz`.
//!
//! `FUZZ_SECONDS` is how long (60 unless said), `FUZZ_SEED` where to begin. An input that breaks something ends the run, is
//! printed, and comes again with the same seed.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a fuzzer is a script: it looks at the clock, prints, and stops at the first thing out of order"
)]

#[path = "../tests/it/layouts/checks.rs"]
mod checks;
#[path = "../tests/it/layouts/fuzz.rs"]
mod fuzz;
#[path = "../tests/it/layouts/table.rs"]
#[expect(dead_code, reason = "the fuzzer takes nothing but the inputs")]
mod table;

use std::time::{Duration, Instant};

/// What takes longer hangs: a usual input takes some microseconds.
const HANGS: Duration = Duration::from_secs(1);

fn main() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seconds = Duration::from_secs(number("FUZZ_SECONDS").unwrap_or(60));
    let seed = number("FUZZ_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed}");
    let mut fuzzer = fuzz::Fuzzer::new(seed);
    let start = Instant::now();
    while start.elapsed() < seconds {
        let before = Instant::now();
        let again = format!("again with FUZZ_SEED={seed}");
        match fuzzer.step() {
            Err(input) => panic!("does not hold, run {}; {again}\n{input:?}", fuzzer.runs),
            Ok(input) if before.elapsed() > HANGS && hangs(&input) => {
                panic!("takes too long, run {}; {again}\n{input:?}", fuzzer.runs)
            }
            Ok(_) => {}
        }
    }
    let rate = u128::from(fuzzer.runs) * 1000 / start.elapsed().as_millis().max(1);
    println!(
        "{} inputs, {} of them accepted, {rate} a second; nothing found",
        fuzzer.runs, fuzzer.accepted
    );
}

/// On a machine with other work anything may be slow once, and nothing three times more.
fn hangs(input: &str) -> bool {
    let machines = checks::machines();
    (0..3).all(|_| {
        let before = Instant::now();
        checks::check(input, &machines);
        before.elapsed() > HANGS
    })
}
