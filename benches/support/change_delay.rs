//! The delay of changes in the cluster: from the API server's confirmation until a response of the aggregator includes the change.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

use crate::clients::Client;
use crate::cluster_data::{self, PROBE_PROFILE, PROBE_TYPE};
use crate::distribution::Distribution;

pub(crate) const TABLE_HEAD: &str = "| delay of changes of one pod while others change | changes | availability, ms p50 / p99 / maximum | profile, ms p50 / p99 / maximum | reported age, s p50 / p99 / maximum | responses marked as stale |\n|---|---|---|---|---|---|";

/// Pause between two requests.
const INTERVAL: Duration = Duration::from_millis(5);
/// Maximum delay of a change.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// Delays of all changes.
#[derive(Default)]
pub(crate) struct Delays {
    /// Milliseconds until availability and until the profile included each change.
    times_ms: [Vec<f64>; 2],
    /// Age of the data in each response, in seconds.
    ages: Vec<f64>,
    /// Number of responses that were marked as stale.
    stale: usize,
}

/// Creates and deletes a pod for `span`, and requests the aggregator's view of it.
pub(crate) async fn measure(client: &kube::Client, http: SocketAddr, span: Duration) -> Delays {
    let mut delays = Delays::default();
    let [mut availability, mut profile] =
        [Client::connect(http).await, Client::connect(http).await];
    let start = Instant::now();
    let mut create = true;
    // The aggregator must report the initial state before the first change.
    wait(&mut availability, &mut profile, !create, &mut Delays::default()).await;
    for number in 0_u64.. {
        // Varies the time between changes, so that they do not align with the recalculation.
        tokio::time::sleep(Duration::from_millis(number * 37 % 300)).await;
        if start.elapsed() >= span && create {
            break;
        }
        cluster_data::set_probe(client, create).await;
        wait(&mut availability, &mut profile, create, &mut delays).await;
        create = !create;
    }
    delays
}

/// Waits until availability and the profile show that the pod exists or is deleted.
async fn wait(availability: &mut Client, profile: &mut Client, exists: bool, delays: &mut Delays) {
    let start = Instant::now();
    let [availability_path, profile_path] = [
        format!("/api/v1/availability?type={PROBE_TYPE}"),
        format!("/api/v1/profiles/team-0/{PROBE_PROFILE}"),
    ];
    let mut times: [Option<Duration>; 2] = [None; 2];
    while times.iter().any(Option::is_none) {
        if times[0].is_none() {
            let list: Value =
                serde_json::from_slice(availability.get(&availability_path).await.0).unwrap();
            let as_of: Timestamp = list["asOf"].as_str().unwrap().parse().unwrap();
            let age = Timestamp::now().duration_since(as_of).as_secs_f64();
            delays.ages.push(age);
            delays.stale += usize::from(list["stale"] == true);
            if (list["items"][0]["requested"] == 1) == exists {
                times[0] = Some(start.elapsed());
            }
        }
        if times[1].is_none() {
            let document: Value =
                serde_json::from_slice(profile.get(&profile_path).await.0).unwrap();
            if (document["available"] == 7) == exists {
                times[1] = Some(start.elapsed());
            }
        }
        assert!(start.elapsed() < TIME_LIMIT, "the change is not visible after {TIME_LIMIT:?}");
        tokio::time::sleep(INTERVAL).await;
    }
    for (times_ms, time) in delays.times_ms.iter_mut().zip(times) {
        times_ms.push(time.unwrap().as_secs_f64() * 1e3);
    }
}

/// Prints a row.
pub(crate) fn print(name: &str, delays: Delays) {
    let Delays { times_ms, ages, stale } = delays;
    let count = times_ms[0].len();
    let [availability, profile] = times_ms.map(Distribution::new);
    let ages = Distribution::new(ages);
    let [p50, p99, maximum] = [50, 99, 100].map(|percent| ages.percentile(percent));
    println!(
        "| {name} | {count} | {availability} | {profile} | {p50:.1} / {p99:.1} / {maximum:.1} | {stale} |"
    );
}
