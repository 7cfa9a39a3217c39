//! A fixed number of seeds. `make fleet-simulation` runs more.

use std::time::Duration;

use fleet_simulation::{Counts, Options, run};

/// Shorter than a long run: fewer nodes and less time without faults.
fn options() -> Options {
    Options {
        nodes: (3, 5),
        faults: Duration::from_hours(2),
        fault_interval: Duration::from_secs(30),
        ..Options::default()
    }
}

#[test]
fn i1_to_i12_hold_under_random_faults_and_the_fleet_converges() {
    let mut total = Counts::default();
    for seed in 0..6 {
        match run(seed, options()) {
            Ok(outcome) => total = total + outcome.counts,
            Err(failure) => panic!("{failure}"),
        }
    }
    // The seeds must contain what they are meant to test.
    assert!(total.kills > 50 && total.resumed > 20 && total.changes > 100, "{total}");
    assert!(total.faults > 1000 && total.messages > 10_000 && total.writes > 1000, "{total}");
}

#[test]
fn equal_seeds_have_equal_events() {
    let short = Options { faults: Duration::from_mins(30), ..options() };
    let outcomes = [7, 7, 8].map(|seed| run(seed, short).unwrap());
    assert_eq!(outcomes[0], outcomes[1]);
    assert_ne!(outcomes[0].digest, outcomes[2].digest);
}
