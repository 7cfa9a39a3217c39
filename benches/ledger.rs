//! Usage ledger with 10,000 pods a day for 90 days: `cargo bench --profile release --bench ledger [-- URL]`.
//!
//! Without a URL, the ledger is a SQLite file in a temporary directory. It prints tables in Markdown for `docs/performance.md` and never
//! fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first error"
)]

use std::env;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use octavo_database::{Database, DatabaseUrl, LedgerWriter};
use octavo_fleet::cluster::PodOwner;
use octavo_fleet::price::{PriceKey, PurchaseOption};
use octavo_ledger::report::report;
use octavo_ledger::{
    Activity, Container, Day, Device, DeviceState, Dimension, Holder, MeasuredPart, Part, Recorder,
    UsageQuery,
};
use octavo_model::id::NodeName;
use tempfile::TempDir;

const NODES: usize = 250;
const DEVICES: usize = 8;
const PODS_PER_DAY: usize = 10_000;
const DAYS: i64 = 90;
const NAMESPACES: usize = 100;
const TYPES: [&str; 4] =
    ["nvidia-h100-80gb", "nvidia-h200-141gb", "nvidia-a100-80gb", "nvidia-l40s-48gb"];
/// Start of a day, in seconds since 1970.
const START: i64 = 1_799_971_200;
const DAY: i64 = 86_400;
const REPETITIONS: usize = 100;

fn device(number: usize) -> Device {
    let node = number / DEVICES;
    let type_name = TYPES[node % TYPES.len()].parse().unwrap();
    Device {
        node: format!("gpu-{node:04}").parse().unwrap(),
        id: format!("GPU-00000000-0000-0000-0000-{number:012}"),
        price_key: Some(PriceKey::new(type_name, PurchaseOption::OnDemand)),
    }
}

fn part(pod: usize) -> Part {
    let namespace = pod * 7919 % NAMESPACES;
    let container = Container {
        namespace: format!("team-{namespace:02}"),
        pod: format!("train-{pod}"),
        uid: format!("00000000-0000-0000-0000-{pod:012}"),
        container: "main".to_owned(),
        claim: None,
        owner: Some(PodOwner { kind: "Job".to_owned(), name: format!("train-{}", pod / 4) }),
        team: Some(format!("group-{}", namespace % 10)),
    };
    let activity = if pod.is_multiple_of(9) { Activity::Idle } else { Activity::Active };
    Part { activity, ..Part::whole(Holder::Container(Arc::new(container))) }
}

/// Records and writes all days: each device has a sequence of pods with equal times.
async fn fill(writer: &mut LedgerWriter) -> (Duration, usize) {
    let devices = NODES * DEVICES;
    let per_device = PODS_PER_DAY / devices;
    let length = DAY / i64::try_from(per_device).unwrap();
    let mut recorder = Recorder::default();
    let (mut rows, mut took) = (0, Duration::ZERO);
    let mut pod = 0;
    for step in 0..=DAYS * i64::try_from(per_device).unwrap() {
        let at = START + step * length;
        for node in 0..NODES {
            let states: Vec<DeviceState> = (0..DEVICES)
                .map(|index| {
                    let part = MeasuredPart::new(part(pod + index), Some(80));
                    DeviceState { device: device(node * DEVICES + index), parts: vec![part] }
                })
                .collect();
            pod += DEVICES;
            let name: NodeName = states[0].device.node.clone();
            recorder.observe(&name, at, length, states);
        }
        let changed = recorder.take_changed();
        rows += changed.len();
        let began = Instant::now();
        writer.write(&changed).await.unwrap();
        writer.forget_unused(&changed);
        took += began.elapsed();
        eprint!("\rday {} of {DAYS}", (at - START) / DAY);
    }
    eprintln!();
    (took, rows)
}

/// Median, 99th percentile and number of rows of a report over a number of days up to the end.
async fn measure(database: &Database, by: &[Dimension], days: i64) -> (Duration, Duration, usize) {
    let end = START + DAYS * DAY;
    let time = |seconds| Timestamp::from_second(seconds).unwrap();
    let query = UsageQuery {
        // The report begins and ends within a day.
        from: time(end - days * DAY + 3600),
        until: time(end - 3600),
        by: by.to_vec(),
        filters: Vec::new(),
        price_changes: Vec::new(),
    };
    let mut times = Vec::new();
    let mut rows = 0;
    for _repetition in 0..REPETITIONS {
        let began = Instant::now();
        let sums = database.usage(&query).await.unwrap().unwrap_or_default();
        rows = report(&query, sums, None, &[], 1000).items.len();
        times.push(began.elapsed());
    }
    times.sort();
    (times[REPETITIONS / 2], times[REPETITIONS * 99 / 100], rows)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let directory = TempDir::new().unwrap();
    let file = format!("sqlite://{}/ledger.db", directory.path().display());
    let url = env::args().skip(1).find(|argument| !argument.starts_with("--")).unwrap_or(file);
    let url: DatabaseUrl = url.parse().unwrap();
    let (mut writer, _) = LedgerWriter::open(&url).await.unwrap();
    let (took, rows) = fill(&mut writer).await;
    let rate = f64::from(u32::try_from(rows).unwrap()) / took.as_secs_f64();
    let began = Instant::now();
    writer.close_days(Day::of(START + DAYS * DAY).start_time()).await.unwrap();
    let closing = began.elapsed() / u32::try_from(DAYS).unwrap();
    let mib = |bytes: u64| bytes / (1 << 20);
    let size = mib(writer.database().bytes().await.unwrap());
    println!(
        "Ledger: {url}. {PODS_PER_DAY} pods a day on {} devices, {DAYS} days.\n",
        NODES * DEVICES
    );
    println!(
        "| intervals | written per second | size, MiB | closing a day, ms |\n|---|---|---|---|"
    );
    println!("| {rows} | {rate:.0} | {size} | {} |\n", closing.as_millis());
    println!("| report | days | groups | median, ms | p99, ms |\n|---|---|---|---|---|");
    let database = Database::open(&url, 1).await.unwrap();
    for (by, days) in [
        (vec![Dimension::Namespace], 90),
        (vec![Dimension::Namespace, Dimension::Type], 90),
        (vec![Dimension::Team, Dimension::Day], 90),
        (vec![Dimension::Namespace], 30),
        (vec![Dimension::Node], 30),
        (vec![Dimension::Workload], 1),
    ] {
        let (median, worst, groups) = measure(&database, &by, days).await;
        let names: Vec<String> = by.iter().map(ToString::to_string).collect();
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        println!(
            "| {} | {days} | {groups} | {:.0} | {:.0} |",
            names.join(", "),
            ms(median),
            ms(worst)
        );
    }
    let began = Instant::now();
    let today = Day::of(START + DAYS * DAY);
    writer.delete_before(today, Day(today.0 - 365)).await.unwrap();
    println!("\nDeletion of all details: {:.1} s.", began.elapsed().as_secs_f64());
}
