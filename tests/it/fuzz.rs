//! Fuzzing of every decoder of untrusted bytes: a short run of each target here, and longer runs with `make fuzz`.
//!
//! A target is a decoder with its seeds and properties. Every input must be decoded without a panic and in bounded time. An
//! accepted input must survive encoding and decoding where there is an encoder, and an error must have a location.
//!
//! Add an input that violated a property to `tests/fixtures/fuzz/TARGET`; every run begins with these files.

mod fuzzer;
mod mutation;
mod seeds;
mod targets;

use fuzzer::Fuzzer;
use targets::{TARGETS, target};

/// Executions of each target besides its seeds.
const EXECUTIONS: u64 = 250;

#[test]
fn mutated_inputs_violate_no_property_of_any_decoder() {
    for (name, _) in TARGETS {
        let target = target(name);
        let executions = EXECUTIONS + target.seeds.len() as u64;
        let mut fuzzer = Fuzzer::new(target, 1);
        while fuzzer.runs < executions {
            assert!(fuzzer.step(), "{name}: {:?}", String::from_utf8_lossy(&fuzzer.last));
        }
        // Otherwise the seeds are not of this format, and the properties of accepted inputs are not checked.
        assert!(fuzzer.accepted >= 5, "{name}: {} of {}", fuzzer.accepted, fuzzer.runs);
        assert!(fuzzer.accepted < fuzzer.runs, "{name}: no input is rejected");
    }
}
