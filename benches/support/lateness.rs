//! How late a change in the cluster is seen: from the API server's answer to it until the aggregator's shows it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

use crate::clients::Client;
use crate::filled::{self, PROBE, PROBE_PROFILE};
use crate::spread::Spread;

pub(crate) const HEAD: &str = "| pods change, and one more comes and goes | changes | what is to be had, ms p50 / p99 / most | its profile, ms p50 / p99 / most | age that the API says, s p50 / p99 / most | answers called stale |\n|---|---|---|---|---|---|";

/// Between two looks.
const PACE: Duration = Duration::from_millis(5);
/// A change that is never seen.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// When changes were seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// In availability, and in a profile: milliseconds.
    late: [Vec<f64>; 2],
    /// What the API says of itself, with each answer: seconds.
    ages: Vec<f64>,
    stale: usize,
}

/// Has a pod come and go, and looks for it.
pub(crate) async fn look(client: &kube::Client, http: SocketAddr, span: Duration) -> Seen {
    let mut seen = Seen::default();
    let [mut had, mut profile] = [Client::connect(http).await, Client::connect(http).await];
    let start = Instant::now();
    let mut comes = true;
    // What is there when it begins is seen before anything changes.
    until(&mut had, &mut profile, !comes, &mut Seen::default()).await;
    for number in 0_u64.. {
        // Not in step with how often it is counted.
        tokio::time::sleep(Duration::from_millis(number * 37 % 300)).await;
        if start.elapsed() >= span && comes {
            break;
        }
        filled::probe(client, comes).await;
        until(&mut had, &mut profile, comes, &mut seen).await;
        comes = !comes;
    }
    seen
}

/// Asks both until both have seen that it is there, or is there no more.
async fn until(had: &mut Client, profile: &mut Client, is_there: bool, seen: &mut Seen) {
    let start = Instant::now();
    let [of_type, of_profile] = [
        format!("/api/v1/availability?type={PROBE}"),
        format!("/api/v1/profiles/team-0/{PROBE_PROFILE}"),
    ];
    let mut when: [Option<Duration>; 2] = [None; 2];
    while when.iter().any(Option::is_none) {
        if when[0].is_none() {
            let list: Value = serde_json::from_slice(had.get(&of_type).await.0).unwrap();
            let at: Timestamp = list["asOf"].as_str().unwrap().parse().unwrap();
            let age = Timestamp::now().duration_since(at).as_secs_f64();
            seen.ages.push(age);
            seen.stale += usize::from(list["stale"] == true);
            if (list["items"][0]["requested"] == 1) == is_there {
                when[0] = Some(start.elapsed());
            }
        }
        if when[1].is_none() {
            let one: Value = serde_json::from_slice(profile.get(&of_profile).await.0).unwrap();
            if (one["available"] == 7) == is_there {
                when[1] = Some(start.elapsed());
            }
        }
        assert!(start.elapsed() < TIME_LIMIT, "a change was never seen");
        tokio::time::sleep(PACE).await;
    }
    for (late, when) in seen.late.iter_mut().zip(when) {
        late.push(when.unwrap().as_secs_f64() * 1e3);
    }
}

/// Prints a row.
pub(crate) fn print(what: &str, seen: Seen) {
    let Seen { late, ages, stale } = seen;
    let count = late[0].len();
    let [had, profile] = late.map(Spread::of);
    let ages = Spread::of(ages);
    let [p50, p99, most] = [50, 99, 100].map(|percent| ages.at(percent));
    println!(
        "| {what} | {count} | {had} | {profile} | {p50:.1} / {p99:.1} / {most:.1} | {stale} |"
    );
}
