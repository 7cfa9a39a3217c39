//! Statements that must not read the whole ledger in PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_database::{Database, LedgerWriter};
use octavo_fleet::price::{PriceKey, PurchaseOption};
use octavo_ledger::{
    Activity, Container, Day, Device, Dimension, Holder, Interval, Part, UsageQuery, Utilization,
};
use tokio::time::timeout;

use super::postgres::Postgres;
use crate::time_limits::until;

const DAYS: i32 = 60;
const DEVICES: usize = 20;
const FIRST: Day = Day(20_758);
/// One pass takes a tenth of a second, and one for each holder 47 s.
const MAX_DELETION: Duration = Duration::from_secs(15);

/// Intervals of an hour on each device, for a day.
fn intervals(day: Day) -> Vec<Interval> {
    let one = |number: usize, hour: i64| {
        let container = Container {
            namespace: format!("team-{}", number % 4),
            pod: format!("train-{}-{number}-{hour}", day.0),
            ..Container::default()
        };
        let device = Device {
            node: "gpu-1".parse().unwrap(),
            id: format!("GPU-{number}"),
            price_key: Some(PriceKey::new(
                "nvidia-l4-24gb".parse().unwrap(),
                PurchaseOption::OnDemand,
            )),
        };
        let part = Part::whole(Holder::Container(Arc::new(container)));
        Interval {
            device: Arc::new(device),
            start: day.start() + hour * 3600,
            end: day.start() + (hour + 1) * 3600,
            slot: 0,
            part: Part { activity: Activity::Active, ..part },
            inferred: false,
            utilization: Utilization::default(),
        }
    };
    (0..DEVICES).flat_map(|number| (0..24).map(move |hour| one(number, hour))).collect()
}

/// Writes all days to a new server, and closes them.
async fn closed_days() -> (Postgres, LedgerWriter) {
    let server = Postgres::start();
    server.sql("SELECT 1");
    let (mut writer, _) = LedgerWriter::open(&server.url().parse().unwrap()).await.unwrap();
    for day in 0..DAYS {
        let written = intervals(Day(FIRST.0 + day));
        writer.write(&written).await.unwrap();
        writer.forget_unused(&written);
    }
    writer.close_days(Day(FIRST.0 + DAYS).start_time()).await.unwrap();
    server.sql("VACUUM ANALYZE");
    (server, writer)
}

/// Rows of `ledger_interval` that all connections have read. A connection counts its rows at the latest when it ends, so this waits for the
/// end of all others.
#[track_caller]
fn read_rows(server: &Postgres) -> String {
    let others = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    until("the end of all connections", || server.sql(others), |count| count.trim() == "0");
    server.sql("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'ledger_interval'")
}

#[tokio::test]
async fn report_in_postgresql_does_not_read_the_intervals_of_closed_days() {
    let (server, writer) = closed_days().await;
    writer.database().close().await;
    let before = read_rows(&server);
    let database = Database::open(&server.url().parse().unwrap(), 1).await.unwrap();
    let time = |seconds: i64| Timestamp::from_second(seconds).unwrap();
    let query = UsageQuery {
        // The report begins and ends within a day.
        from: time(FIRST.start() + 3600),
        until: time(Day(FIRST.0 + DAYS).start() - 3600),
        by: vec![Dimension::Namespace],
        filters: Vec::new(),
        price_changes: Vec::new(),
    };
    let sums = database.usage(&query).await.unwrap().unwrap();
    assert_eq!(sums.len(), 4);
    database.close().await;
    assert_eq!(read_rows(&server), before, "the report reads all intervals");
}

#[tokio::test]
async fn unused_holders_in_postgresql_are_deleted_in_one_pass() {
    let (server, writer) = closed_days().await;
    writer.database().close().await;
    // The intervals exceed the memory of a statement, as those of a large ledger do with the default value.
    server.sql("ALTER DATABASE postgres SET work_mem = '64kB'");
    let (mut writer, _) = LedgerWriter::open(&server.url().parse().unwrap()).await.unwrap();
    let delete = writer.delete_before(Day(FIRST.0 + 1), FIRST);
    timeout(MAX_DELETION, delete).await.expect("the deletion is slow").unwrap();
    let holders = DEVICES * 24 * usize::try_from(DAYS - 1).unwrap();
    assert_eq!(server.sql("SELECT COUNT(*) FROM ledger_holder").trim(), holders.to_string());
}
