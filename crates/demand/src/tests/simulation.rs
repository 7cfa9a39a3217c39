//! Simulations and their traces.

use std::num::NonZeroUsize;
use std::time::Duration;

use octavo_model::examples::h100;
use octavo_policy::PolicyDemand;
use proptest::prelude::*;
use strum::VariantArray;

use super::five_profiles;
use crate::fleet::Fleet;
use crate::simulation::{
    Discipline, Job, Load, MAX_SAMPLES, Mix, NodeLimits, Options, Sample, Strategy, TimeSeries,
    compare, parse_trace, random_profiles, run,
};

fn fleet(count: usize) -> Fleet {
    let mut fleet = Fleet::default();
    fleet.add(five_profiles(), count);
    fleet
}

fn jobs(text: &str) -> Vec<Job> {
    parse_trace(&format!("arrival,duration,profile\n{text}")).unwrap().jobs
}

fn options(strategy: Strategy, discipline: Discipline) -> Options {
    Options { strategy, discipline, warm_up: 0 }
}

#[test]
fn released_instance_goes_first_to_a_request_that_needs_no_change() {
    let jobs = jobs("0,100,7g.80gb\n10,50,3g.40gb\n20,50,7g.80gb\n");
    let queue = Discipline::Queue { reserve_after: None, limits: None };
    let outcome = run(fleet(1), &jobs, options(Strategy::Octavo, queue));
    // The scheduler places the second 7g, which needs no change, before the older 3g, which does.
    let waits: Vec<u64> = outcome.waits.values().flatten().map(Duration::as_secs).collect();
    assert_eq!((outcome.accepted, waits), (3, vec![140, 0, 80]));
    // 7g, then 3g in its place.
    assert_eq!(outcome.operations, 3);
    // Strategies that destroy idle instances place the oldest request first.
    let outcome = run(fleet(1), &jobs, options(Strategy::FirstFit, queue));
    let waits: Vec<u64> = outcome.waits.values().flatten().map(Duration::as_secs).collect();
    assert_eq!((waits, outcome.operations), (vec![90, 0, 130], 6));
    let lost = run(fleet(1), &jobs, options(Strategy::Octavo, Discipline::Loss));
    assert_eq!((lost.accepted, lost.requests), (1, 3));
}

#[test]
fn reservation_ends_the_starvation_of_a_large_request() {
    // A 1g arrives every minute for two hours and stays for 20 minutes: one device is never empty.
    let mut rows: Vec<String> =
        (0..120).map(|minute| format!("{},1200,1g.10gb", minute * 60)).collect();
    rows.push("1300,600,7g.80gb".to_owned());
    let jobs = jobs(&rows.join("\n"));
    let wait = |reserve_after: Option<Duration>| {
        let queue = Discipline::Queue { reserve_after, limits: None };
        let outcome = run(fleet(3), &jobs, options(Strategy::Spread, queue));
        assert_eq!(outcome.accepted, 121);
        outcome.waits[&"7g.80gb".parse().unwrap()][0]
    };
    let hour = Duration::from_hours(1);
    assert!(wait(None) > hour, "{:?}", wait(None));
    assert!(wait(Some(Duration::from_mins(10))) < hour);
}

/// Standard deviation of the acceptance of traces with 5,000 requests, rounded down.
const TOLERANCE: f64 = 0.01;

#[test]
fn octavo_accepts_as_many_requests_as_the_other_strategies_with_few_operations() {
    let strategies = [Strategy::Octavo, Strategy::ExpectedFragmentation];
    let fleet = fleet(100);
    for mix in Mix::VARIANTS {
        let load = Load { slices: fleet.slices(), factor: 1.0 };
        let traces = [mix.jobs(&random_profiles(&h100().catalog), load, 5_000, 0)];
        let all = compare(&fleet, &traces, &strategies, Discipline::Loss, 1_500);
        let [octavo, other] = all.strategies.as_slice() else { panic!("two strategies") };
        let (accepted, best) = (octavo.acceptance.mean, other.acceptance.mean);
        let operations = octavo.operations_per_request.mean;
        let pooled = all.pool_acceptance.unwrap().mean;
        let summary = format!("{mix:?}: {accepted:?}, best {best}, pooled {pooled}, {operations}");
        assert!(accepted >= best - TOLERANCE, "{summary}");
        assert!(accepted <= pooled + TOLERANCE, "{summary}");
        assert!(operations <= 0.35, "{summary}");
    }
}

#[test]
fn equal_seeds_give_equal_traces() {
    let catalog = h100().catalog;
    let load = Load { slices: 70, factor: 1.0 };
    let jobs = |seed| Mix::Drift.jobs(&random_profiles(&catalog), load, 100, seed);
    assert_eq!(jobs(1), jobs(1));
    assert_ne!(jobs(1), jobs(2));
}

#[test]
fn invalid_traces_name_the_line() {
    for (text, expected) in [
        (
            "arrival,duration\n1,2\n",
            "it is not a CSV file with the columns arrival, duration and profile, or with",
        ),
        ("arrival,duration,profile\n", "it has no requests"),
        (
            "# comment\narrival,duration,profile\n1,2,1g.10gb\n1,-2,1g.10gb\n",
            "line 4: duration must be",
        ),
        ("arrival,duration,profile\nNaN,2,1g.10gb\n", "line 2: arrival must be"),
        ("arrival,duration,profile\n1,2,big\n", "line 2: profile: \"big\" is not a profile name"),
    ] {
        let error = parse_trace(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn bimodal_requests_of_three_profiles_are_mostly_small_or_large() {
    let catalog = h100().catalog;
    let all = random_profiles(&catalog);
    let names: Vec<String> = all.iter().map(|profile| profile.name.to_string()).collect();
    assert_eq!(names, ["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]);
    let load = Load { slices: 70, factor: 1.0 };
    let jobs = Mix::Bimodal.jobs(&[all[0], all[1], all[4]], load, 1_000, 0);
    let medium = jobs.iter().filter(|job| job.profile == all[1].name).count();
    assert!((50..200).contains(&medium), "{medium}");
}

#[test]
fn arrivals_and_ends_at_the_same_time_are_counted() {
    let jobs = jobs("0,60,7g.80gb\n0,0,1g.10gb\n0,60,7g.80gb\n60,60,7g.80gb\n");
    let queue = Discipline::Queue { reserve_after: None, limits: None };
    let outcome = run(fleet(1), &jobs, options(Strategy::FirstFit, queue));
    assert_eq!((outcome.accepted, outcome.operations), (4, 8));
    // Until the last request gets its instance, the device is in use for two minutes.
    assert!((outcome.used - 120.0 * 7.0).abs() < 0.01, "{outcome:?}");
    let lost = run(fleet(1), &jobs, options(Strategy::FirstFit, Discipline::Loss));
    assert_eq!((lost.accepted, lost.operations), (2, 4));
}

#[test]
fn samples_show_the_slices_after_each_change() {
    // A sample each 0.5 s until the last arrival.
    let jobs = jobs("0,50,7g.80gb\n50,100,4g.40gb\n100,1,1g.10gb\n");
    let outcome = run(fleet(1), &jobs, options(Strategy::FirstFit, Discipline::Loss));
    let series = outcome.series;
    assert_eq!((series.samples.len(), series.end), (MAX_SAMPLES, Duration::from_secs(100)));
    let sample = |seconds: u64| state_at(&series, Duration::from_secs(seconds));
    assert_eq!(sample(0), Sample { used: 7.0, fragmented: 0.0, free: 0.0 });
    assert_eq!(sample(49).used.to_string(), "7");
    // Beside a 4g, three slices are free, which neither a 4g nor a 7g can use.
    let expected = Sample { used: 4.0, fragmented: 1.2, free: 1.8 };
    let later = sample(75);
    assert_eq!((later.used, later.fragmented), (expected.used, expected.fragmented));
    assert!((later.free - expected.free).abs() < 1e-9, "{later:?}");
}

#[test]
fn samples_begin_at_the_first_arrival() {
    // Unix timestamps, not in order.
    let jobs = jobs("1700000100,1,1g.10gb\n1700000000,50,7g.80gb\n1700000050,100,4g.40gb\n");
    let arrivals: Vec<u64> = jobs.iter().map(|job| job.arrival.as_secs()).collect();
    assert_eq!(arrivals, [0, 50, 100]);
    let series = run(fleet(1), &jobs, options(Strategy::FirstFit, Discipline::Loss)).series;
    assert_eq!((series.samples.len(), series.end), (MAX_SAMPLES, Duration::from_secs(100)));
    assert_eq!(series.measured_from, Duration::ZERO);
    assert_eq!(state_at(&series, Duration::ZERO).used.to_string(), "7");
}

/// The last sample until this time.
fn state_at(series: &TimeSeries, time: Duration) -> Sample {
    let times = (0_u32..).map(|number| series.step * number);
    let until = times.zip(&series.samples).take_while(|(at, _)| *at <= time);
    *until.last().unwrap().1
}

#[test]
fn samples_stay_bounded_while_requests_wait_after_the_last_arrival() {
    let rows: Vec<String> = (0..400).map(|_| "0,60,7g.80gb".to_owned()).collect();
    let queue = Discipline::Queue { reserve_after: None, limits: None };
    let series = run(fleet(1), &jobs(&rows.join("\n")), options(Strategy::Octavo, queue)).series;
    assert!((MAX_SAMPLES / 2..=MAX_SAMPLES).contains(&series.samples.len()), "{series:?}");
    assert_eq!(series.end, Duration::from_mins(399));
    let count = u32::try_from(series.samples.len()).unwrap();
    assert!(series.step * (count - 1) < series.end && series.end <= series.step * count);
}

#[test]
fn series_without_passing_time_has_no_samples() {
    let outcome =
        run(fleet(1), &jobs("0,60,7g.80gb\n"), options(Strategy::Octavo, Discipline::Loss));
    assert_eq!((outcome.series.samples, outcome.accepted), (Vec::new(), 1));
}

proptest! {
    #[test]
    fn each_sample_adds_up_to_the_slices_of_the_fleet(
        rows in proptest::collection::vec((0..5_000_u32, 0..2_000_u32, 0..5_usize), 1..80),
        gpus in 1..4_usize,
        strategy in proptest::sample::select(Strategy::VARIANTS),
        waits: bool,
    ) {
        let names = ["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];
        let rows = rows.iter().map(|(arrival, duration, profile)| {
            format!("{arrival},{duration},{}\n", names[*profile])
        });
        let jobs = jobs(&rows.collect::<String>());
        let queue = Discipline::Queue { reserve_after: Some(Duration::from_mins(5)), limits: None };
        let discipline = if waits { queue } else { Discipline::Loss };
        let fleet = fleet(gpus);
        let series = run(fleet.clone(), &jobs, options(strategy, discipline)).series;
        prop_assert!(series.samples.len() <= MAX_SAMPLES);
        prop_assert_eq!(series.samples.is_empty(), series.end.is_zero());
        for sample in series.samples {
            let error = sample.slices() - f64::from(fleet.slices());
            prop_assert!(error.abs() < 1e-6, "{:?}", sample);
            prop_assert!(sample.used >= 0.0 && sample.fragmented >= 0.0 && sample.free > -1e-6);
        }
    }
}

#[test]
fn limits_of_a_policy_delay_changes_of_a_node_and_nothing_else() {
    let jobs =
        jobs("0,60,3g.40gb\n0,7200,1g.10gb\n1000,600,2g.20gb\n1010,600,2g.20gb\n2000,60,1g.10gb");
    let wait = |demand: PolicyDemand, gpus_per_node: usize| {
        let gpus_per_node = NonZeroUsize::new(gpus_per_node).unwrap();
        let limits = Some(NodeLimits { demand, gpus_per_node });
        let queue = Discipline::Queue { reserve_after: None, limits };
        let outcome = run(fleet(2), &jobs, options(Strategy::Octavo, queue));
        assert_eq!(outcome.accepted, 5);
        // The strategies for comparison have no limits.
        let other = run(fleet(2), &jobs, options(Strategy::BestFit, queue));
        assert!(other.waits.values().flatten().all(Duration::is_zero));
        let waits = |profile: &str| -> Vec<u64> {
            outcome.waits[&profile.parse().unwrap()].iter().map(Duration::as_secs).collect()
        };
        [waits("3g.40gb"), waits("1g.10gb"), waits("2g.20gb")]
    };
    let demand = PolicyDemand { changes_per_hour: 60, ..PolicyDemand::default() };
    // The hold of one minute follows the first 10 s. Both 2g are one change.
    assert_eq!(wait(demand, 2), [vec![70], vec![70, 70], vec![70, 60]]);
    let rare = PolicyDemand { changes_per_hour: 1, ..demand };
    assert_eq!(wait(rare, 2), [vec![70], vec![70, 1_670], vec![2_670, 2_660]]);
    // The other node can be changed earlier.
    assert_eq!(wait(rare, 1), [vec![70], vec![70, 1_670], vec![70, 60]]);
}

/// The aggregator plans all waiting pods in one fleet, so nodes wait for their holds at the same time.
#[test]
fn requests_are_held_for_different_nodes_at_the_same_time() {
    let rows: Vec<String> = (0..6).map(|_number| "0,600,7g.80gb".to_owned()).collect();
    let gpus_per_node = NonZeroUsize::new(2).unwrap();
    let limits = Some(NodeLimits { demand: PolicyDemand::default(), gpus_per_node });
    let queue = Discipline::Queue { reserve_after: None, limits };
    let outcome = run(fleet(6), &jobs(&rows.join("\n")), options(Strategy::Octavo, queue));
    let mut waits = outcome.waits.values().flatten().map(Duration::as_secs);
    assert!(waits.all(|wait| wait == 70), "{:?}", outcome.waits);
}
