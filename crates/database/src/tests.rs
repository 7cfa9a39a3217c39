//! Tests with SQLite. The integration tests run the same statements on PostgreSQL.

mod audit;
mod sums;

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_fleet::cluster::PodOwner;
use octavo_fleet::price::{PriceKey, PurchaseOption};
use octavo_ledger::{
    Activity, Container, Day, Device, DeviceState, Dimension, Holder, Interval, MeasuredPart,
    Method, PPM, Part, Recorder, UsageQuery, UsageState, UsageSum,
};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::{ClosedDay, Database, DatabaseError, DatabaseUrl, LedgerWriter, in_time};

const START: i64 = 1_799_971_200;
const DAY: i64 = 86_400;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn url(directory: &TempDir) -> DatabaseUrl {
    format!("sqlite://{}/ledger.db", directory.path().display()).parse().unwrap()
}

fn device(number: u32) -> Device {
    Device {
        node: format!("node-{}", number % 3).parse().unwrap(),
        id: format!("GPU-{number}"),
        price_key: (number != 4).then(|| PriceKey {
            type_name: "nvidia-h100-80gb".parse().unwrap(),
            option: PurchaseOption::Spot,
            instance_type: None,
            region: (number == 1).then(|| "eu-central-1".to_owned()),
        }),
    }
}

fn part(holder: u32, ppm: u32) -> MeasuredPart {
    let container = Container {
        namespace: format!("team-{}", holder % 2),
        pod: format!("pod-{holder}"),
        uid: format!("uid-{holder}"),
        container: "main".to_owned(),
        claim: None,
        owner: (holder.is_multiple_of(2))
            .then(|| PodOwner { kind: "Job".to_owned(), name: "train".to_owned() }),
        team: None,
    };
    let holder_of = match holder {
        0 => Holder::Unallocated,
        _ => Holder::Container(Arc::new(container)),
    };
    let part = Part {
        partition: Some("MIG-1".into()),
        profile: Some("1g.10gb".into()),
        method: Method::MigMemorySlices,
        holder: holder_of,
        activity: if holder.is_multiple_of(3) { Activity::Idle } else { Activity::Active },
        ppm,
    };
    MeasuredPart::new(part, Some(40))
}

fn state(number: u32, holders: &[u32]) -> DeviceState {
    let share = PPM / 8;
    let mut parts: BTreeMap<Part, MeasuredPart> = BTreeMap::new();
    let mut left = PPM;
    for holder in holders.iter().take(8) {
        let one = part(*holder + 1, share);
        if parts.insert(one.part.clone(), one).is_none() {
            left -= share;
        }
    }
    let free = part(0, left);
    parts.insert(free.part.clone(), free);
    let parts = parts.into_values().filter(|one| one.part.ppm > 0).collect();
    DeviceState { device: device(number), parts }
}

fn query(from: i64, until: i64, by: &[Dimension]) -> UsageQuery {
    UsageQuery {
        from: Timestamp::from_second(from).unwrap(),
        until: Timestamp::from_second(until).unwrap(),
        by: by.to_vec(),
        filters: Vec::new(),
        price_changes: Vec::new(),
    }
}

/// Sums by value and state.
fn totals(sums: &[UsageSum]) -> BTreeMap<(Vec<Option<String>>, UsageState), i64> {
    let mut totals = BTreeMap::new();
    for sum in sums {
        *totals.entry((sum.values.clone(), sum.state)).or_default() += sum.ppm_seconds;
    }
    totals
}

/// The same sums, computed without a database.
fn expected(
    intervals: &[Interval],
    (from, until): (i64, i64),
    value: impl Fn(&Interval) -> Option<String>,
) -> BTreeMap<(Vec<Option<String>>, UsageState), i64> {
    let mut totals = BTreeMap::new();
    for interval in intervals {
        let seconds = interval.end.min(until) - interval.start.max(from);
        if seconds <= 0 {
            continue;
        }
        let state = match (&interval.part.holder, interval.part.activity) {
            (Holder::Container(_), Activity::Idle) => UsageState::Idle,
            (Holder::Container(_), _) => UsageState::Used,
            (Holder::Unallocated, _) => UsageState::Unallocated,
            (Holder::Unknown, _) => UsageState::Unknown,
        };
        *totals.entry((vec![value(interval)], state)).or_default() +=
            seconds * i64::from(interval.part.ppm);
    }
    totals
}

fn container(interval: &Interval) -> Option<&Container> {
    interval.part.holder.container().map(|container| &**container)
}

fn workload(container: &Container) -> String {
    let owner = container.owner.as_ref();
    let owner = owner.map(|owner| format!("{}/{}", owner.kind, owner.name));
    let owner = owner.unwrap_or_else(|| format!("Pod/{}", container.pod));
    format!("{}/{owner}", container.namespace)
}

/// Random history of three nodes: steps with a time, a node and the holders of its devices.
fn history() -> impl Strategy<Value = Vec<(i64, u32, Vec<u32>)>> {
    let step = (1_i64..30_000, 0_u32..6, prop::collection::vec(0_u32..6, 0..5));
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn sums_equal_the_intervals_before_and_after_days_are_closed(
        steps in history(),
        range in (0_i64..3 * DAY, 1_i64..4 * DAY),
    ) {
        let directory = TempDir::new().unwrap();
        runtime().block_on(async {
            let (mut writer, last) = LedgerWriter::open(&url(&directory)).await.unwrap();
            prop_assert!(last.is_empty());
            let mut recorder = Recorder::default();
            let mut all: BTreeMap<_, Interval> = BTreeMap::new();
            let mut now = START;
            for (number, (seconds, device, holders)) in steps.into_iter().enumerate() {
                now += seconds;
                let state = state(device, &holders);
                let node = state.device.node.clone();
                recorder.observe(&node, now, 10_000, vec![state]);
                if number % 7 == 6 {
                    writer.close_days(Day::of(now).start_time()).await.unwrap();
                }
                if number % 3 == 0 {
                    let changed = recorder.take_changed();
                    writer.write(&changed).await.unwrap();
                    writer.forget_unused(&changed);
                    all.extend(changed.into_iter().map(|one| (one.key(), one)));
                }
                if number % 11 == 10 {
                    // The aggregator is killed: what was not written is lost, what was written continues.
                    let (new, last) = LedgerWriter::open(&url(&directory)).await.unwrap();
                    writer = new;
                    recorder = Recorder::recover(last);
                }
            }
            let changed = recorder.take_changed();
            writer.write(&changed).await.unwrap();
            all.extend(changed.into_iter().map(|one| (one.key(), one)));
            let all: Vec<Interval> = all.into_values().collect();
            let range = (START + range.0, START + range.0 + range.1);
            for _closed in 0..2 {
                let usage = async |by| {
                    let found = writer.database().usage(&query(range.0, range.1, &[by])).await;
                    totals(&found.unwrap().unwrap())
                };
                let namespace = |one: &Interval| container(one).map(|one| one.namespace.clone());
                prop_assert_eq!(usage(Dimension::Namespace).await, expected(&all, range, namespace));
                let day = |one: &Interval| Some(one.day().date().to_string());
                prop_assert_eq!(usage(Dimension::Day).await, expected(&all, range, day));
                let node = |one: &Interval| Some(one.device.node.to_string());
                prop_assert_eq!(usage(Dimension::Node).await, expected(&all, range, node));
                let by_workload = |one: &Interval| container(one).map(workload);
                prop_assert_eq!(usage(Dimension::Workload).await, expected(&all, range, by_workload));
                writer.close_days(Day::of(now).start_time()).await.unwrap();
            }
            Ok(())
        })?;
    }
}

/// Writes three days of one device.
async fn three_days(writer: &mut LedgerWriter) {
    let mut recorder = Recorder::default();
    let node = device(0).node;
    for step in 0..=72 {
        recorder.observe(&node, START + step * 3600, 3600, vec![state(0, &[1])]);
    }
    writer.write(&recorder.take_changed()).await.unwrap();
}

#[test]
fn intervals_of_old_days_are_deleted_and_their_sums_remain() {
    let directory = TempDir::new().unwrap();
    runtime().block_on(async {
        let (mut writer, _) = LedgerWriter::open(&url(&directory)).await.unwrap();
        three_days(&mut writer).await;
        let first = Day::of(START);
        writer.close_days(Day(first.0 + 3).start_time()).await.unwrap();
        writer.delete_before(Day(first.0 + 2), Day(first.0 + 1)).await.unwrap();
        let database = writer.database();
        let by_day = database
            .usage(&query(START, START + 3 * DAY, &[Dimension::Day]))
            .await
            .unwrap()
            .unwrap();
        let days: BTreeMap<_, i64> =
            by_day.iter().fold(BTreeMap::new(), |mut days: BTreeMap<_, i64>, sum| {
                *days.entry(sum.values[0].clone().unwrap()).or_default() += sum.ppm_seconds;
                days
            });
        let whole = DAY * i64::from(PPM);
        let date = |day: i32| Day(first.0 + day).date().to_string();
        assert_eq!(days, BTreeMap::from([(date(1), whole), (date(2), whole)]));
        let by_pod = database
            .usage(&query(START, START + 3 * DAY, &[Dimension::Pod]))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(by_pod.iter().map(|sum| sum.ppm_seconds).sum::<i64>(), whole);
        assert_eq!(database.first_day().await.unwrap(), Some(Day(first.0 + 1)));
    });
}

/// The intervals of a day, as its reader returns them.
async fn read(database: &Database, day: Day) -> Vec<Interval> {
    let mut reader = database.day_reader(day);
    let mut all = Vec::new();
    loop {
        let batch = reader.next_batch().await.unwrap();
        if batch.is_empty() {
            return all;
        }
        all.extend(batch);
    }
}

#[test]
fn closed_days_have_the_sum_of_their_intervals() {
    let directory = TempDir::new().unwrap();
    runtime().block_on(async {
        let (mut writer, _) = LedgerWriter::open(&url(&directory)).await.unwrap();
        let mut recorder = Recorder::default();
        for step in 0..3000_i64 {
            for number in 0..2 {
                let holder = u32::try_from(step % 5).unwrap();
                let state = state(number, &[2 * holder, 2 * holder + 1]);
                let node = state.device.node.clone();
                recorder.observe(&node, START + step * 60, 60, vec![state]);
            }
        }
        let written = recorder.take_changed();
        writer.write(&written).await.unwrap();
        let first = Day::of(START);
        writer.close_days(Day(first.0 + 1).start_time()).await.unwrap();
        let whole = DAY * i64::from(PPM) * 2;
        let database = writer.database().clone();
        let days = database.closed_days().await.unwrap();
        assert_eq!(days, [ClosedDay { day: first, ppm_seconds: whole }]);
        let mut expected: Vec<Interval> =
            written.into_iter().filter(|one| one.day() == first).collect();
        assert!(expected.len() > 5000);
        expected.sort_by_key(|one| (one.device.id.clone(), one.start, one.slot));
        assert_eq!(read(&database, first).await, expected);

        // A late interval increases the sum, and a deleted day is not listed.
        let late = Interval { device: Arc::new(device(2)), ..expected[0].clone() };
        writer.write(std::slice::from_ref(&late)).await.unwrap();
        assert_eq!(database.closed_days().await.unwrap(), []);
        writer.close_days(Day(first.0 + 1).start_time()).await.unwrap();
        let ppm_seconds = whole + late.seconds() * i64::from(late.part.ppm);
        let days = database.closed_days().await.unwrap();
        assert_eq!(days, [ClosedDay { day: first, ppm_seconds }]);
        writer.delete_before(Day(first.0 + 1), first).await.unwrap();
        assert_eq!(database.closed_days().await.unwrap(), []);
    });
}

#[test]
fn price_changes_divide_the_sums() {
    let directory = TempDir::new().unwrap();
    runtime().block_on(async {
        let (mut writer, _) = LedgerWriter::open(&url(&directory)).await.unwrap();
        three_days(&mut writer).await;
        let mut wanted = query(START, START + 3 * DAY, &[Dimension::Type]);
        wanted.price_changes = vec![Timestamp::from_second(START + DAY).unwrap()];
        wanted.filters = vec![(Dimension::Namespace, "team-0".to_owned())];
        let found = writer.database().usage(&wanted).await.unwrap().unwrap();
        let periods: Vec<_> = found.iter().map(|sum| (sum.period, sum.ppm_seconds)).collect();
        let share = DAY * i64::from(PPM / 8);
        assert_eq!(periods, [(0, share), (1, 2 * share)]);
    });
}

#[test]
fn full_disk_loses_nothing() {
    let directory = TempDir::new().unwrap();
    runtime().block_on(async {
        let (mut writer, _) = LedgerWriter::open(&url(&directory)).await.unwrap();
        three_days(&mut writer).await;
        let pool = writer.database().pool.clone();
        let limit = async |pages: &str| {
            let statement = format!("PRAGMA max_page_count = {pages}");
            sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&pool).await.unwrap();
        };
        // SQLite reports the limit with the same error as a full disk.
        limit("1").await;
        let mut recorder = Recorder::default();
        let number = 1;
        let node = device(number).node;
        for step in 0..400_u32 {
            let holders: Vec<u32> = (0..8).map(|holder| holder + step * 8).collect();
            let at = START + i64::from(step) * 60;
            recorder.observe(&node, at, 60, vec![state(number, &holders)]);
        }
        let changed = recorder.take_changed();
        let error = writer.write(&changed).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot write the ledger");
        recorder.put_back(changed);
        limit("1000000").await;
        writer.write(&recorder.take_changed()).await.unwrap();
        let usage = writer.database().usage(&query(START, START + DAY, &[Dimension::Type])).await;
        let total: i64 = usage.unwrap().unwrap().iter().map(|sum| sum.ppm_seconds).sum();
        assert_eq!(total, (DAY + 399 * 60) * i64::from(PPM));
    });
}

#[test]
fn earlier_writer_gets_an_error_that_names_the_cause() {
    let directory = TempDir::new().unwrap();
    runtime().block_on(async {
        let (mut one, _) = LedgerWriter::open(&url(&directory)).await.unwrap();
        three_days(&mut one).await;
        let (mut other, last) = LedgerWriter::open(&url(&directory)).await.unwrap();
        assert_eq!(last.len(), 2);
        let mut recorder = Recorder::default();
        let node = device(1).node;
        for at in [START, START + 60] {
            recorder.observe(&node, at, 60, vec![state(1, &[2])]);
        }
        let changed = recorder.take_changed();
        let error = one.write(&changed).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "another program writes to the ledger: only one aggregator may use it with --ledger"
        );
        other.write(&changed).await.unwrap();
        // A write whose confirmation was lost is repeated.
        other.write(&changed).await.unwrap();
        let usage = other.database().usage(&query(START, START + 60, &[Dimension::Node])).await;
        let total: i64 = usage.unwrap().unwrap().iter().map(|sum| sum.ppm_seconds).sum();
        assert_eq!(total, 2 * 60 * i64::from(PPM));
    });
}

#[test]
fn each_transaction_shows_that_the_writer_has_not_ended() {
    let directory = TempDir::new().unwrap();
    runtime().block_on(async {
        let (mut one, _) = LedgerWriter::open(&url(&directory)).await.unwrap();
        let (mut other, _) = LedgerWriter::open(&url(&directory)).await.unwrap();
        let mut activities = vec![one.activity().await.unwrap()];
        assert_eq!(one.activity().await.unwrap(), activities[0]);
        other.write(&[]).await.unwrap();
        activities.push(one.activity().await.unwrap());
        other.append(&[]).await.unwrap();
        activities.push(one.activity().await.unwrap());
        assert!(matches!(one.write(&[]).await, Err(DatabaseError::OtherWriter)));
        assert_eq!(one.activity().await.unwrap(), activities[2]);
        activities.dedup();
        assert_eq!(activities.len(), 3);
    });
}

#[test]
fn ledger_is_taken_over_only_without_activity_of_its_writer() {
    let directory = TempDir::new().unwrap();
    runtime().block_on(async {
        let (mut other, _) = LedgerWriter::open(&url(&directory)).await.unwrap();
        let observed = other.activity().await.unwrap();
        three_days(&mut other).await;
        assert!(LedgerWriter::take_over(&url(&directory), &observed).await.unwrap().is_none());
        other.write(&[]).await.unwrap();
        let observed = other.activity().await.unwrap();
        let taken = LedgerWriter::take_over(&url(&directory), &observed).await.unwrap();
        let (mut new, last) = taken.unwrap();
        assert_eq!(last.len(), 2);
        assert!(matches!(other.write(&[]).await, Err(DatabaseError::OtherWriter)));
        new.write(&[]).await.unwrap();
        // Of several programs that have observed the same activity, only the first one takes over.
        assert!(LedgerWriter::take_over(&url(&directory), &observed).await.unwrap().is_none());
        new.write(&[]).await.unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn access_that_does_not_end_has_a_time_limit() {
    let limit = Duration::from_secs(30);
    let error = in_time(limit, pending::<Result<(), DatabaseError>>()).await.unwrap_err();
    assert_eq!(error.to_string(), "the ledger did not respond within 30s");
    in_time(limit, async { Ok(()) }).await.unwrap();
}

#[test]
fn names_with_nul_do_not_prevent_a_write() {
    let directory = TempDir::new().unwrap();
    runtime().block_on(async {
        let (mut writer, _) = LedgerWriter::open(&url(&directory)).await.unwrap();
        let mut recorder = Recorder::default();
        let mut hostile = state(0, &[1]);
        let container = Container { namespace: "a\0b".to_owned(), ..Container::default() };
        hostile.parts[0].part.holder = Holder::Container(Arc::new(container));
        let node = device(0).node;
        for at in [START, START + 60] {
            recorder.observe(&node, at, 60, vec![hostile.clone()]);
        }
        writer.write(&recorder.take_changed()).await.unwrap();
        let by_namespace = query(START, START + 60, &[Dimension::Namespace]);
        let usage = writer.database().usage(&by_namespace).await.unwrap().unwrap();
        assert!(usage.iter().any(|sum| sum.values == [Some("a\u{fffd}b".to_owned())]), "{usage:?}");
    });
}

#[test]
fn reader_of_a_missing_file_gets_an_error_without_password() {
    runtime().block_on(async {
        let url: DatabaseUrl = "sqlite:///nonexistent/ledger.db".parse().unwrap();
        let error = Database::open(&url, 1).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot open the ledger sqlite:///nonexistent/ledger.db");
        let url: DatabaseUrl = "postgres://octavo:secret@db/ledger?password=x".parse().unwrap();
        assert_eq!(url.to_string(), "postgres://db/ledger");
        assert_eq!(format!("{url:?}"), "postgres://db/ledger");
        let error = "mysql://db/ledger".parse::<DatabaseUrl>().unwrap_err();
        assert!(error.to_string().contains("use sqlite:///PATH"), "{error}");
    });
}
