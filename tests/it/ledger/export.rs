//! Parquet files of closed days: written by the shipped aggregator, read by `DuckDB`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::Timestamp;
use octavo_database::LedgerWriter;
use octavo_fleet::cluster::PodOwner;
use octavo_ledger::{
    Activity, Container, Day, Device, DeviceState, Holder, Interval, MeasuredPart, PPM, Part,
    Recorder,
};
use serde_json::Value;
use tempfile::TempDir;

use super::postgres::Postgres;
use crate::fleet_api::Api;
use crate::process::{Aggregator, Program};
use crate::python;
use crate::support::root;
use crate::time_limits::{Finish, eventually};

const HOUR: i64 = 3600;
const DRAFT_PREFIX: &str = ".usage.parquet.";
const WRITE_INTERVAL: &str = "--ledger-write-interval=200ms";

/// A Python with `DuckDB`.
static PYTHON: LazyLock<PathBuf> = LazyLock::new(|| {
    let requirements = root().join("hack/duckdb.txt");
    let text = fs::read_to_string(&requirements).unwrap();
    let package = text.lines().find(|line| line.starts_with("duckdb==")).unwrap();
    let name = format!("python-{}", package.trim_end_matches(" \\").replace("==", "-"));
    let requirements = requirements.to_str().unwrap();
    python::with_packages(&name, &["--require-hashes", "--requirement", requirements])
});

/// Returns what `DuckDB` prints for a Python expression about `query`.
fn duckdb(expression: &str, query: &str) -> String {
    let program = format!("import duckdb, json, sys; print({expression})");
    let output = Command::new(&*PYTHON).args(["-c", &program, query]).finish();
    assert!(output.status.success(), "{query}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Yesterday, and the day before.
fn days() -> [Day; 2] {
    let today = Day::of(Timestamp::now().as_second()).0;
    [Day(today - 1), Day(today - 2)]
}

/// A ledger, and the directory of its export.
struct Ledger {
    url: String,
    files: TempDir,
}

impl Ledger {
    /// A ledger in SQLite.
    fn new() -> Self {
        let files = TempDir::new().unwrap();
        let url = format!("sqlite://{}", files.path().join("ledger.db").display());
        Self::at(url, files)
    }

    /// The ledger at a URL.
    fn at(url: String, files: TempDir) -> Self {
        fs::create_dir(files.path().join("export")).unwrap();
        Self { url, files }
    }

    fn export(&self) -> PathBuf {
        self.files.path().join("export")
    }

    fn file(&self, day: Day) -> PathBuf {
        self.export().join(format!("day={}/usage.parquet", day.date()))
    }

    /// Incomplete files of a day.
    fn drafts(&self, day: Day) -> Vec<PathBuf> {
        let directory = self.file(day).with_file_name("");
        let files = fs::read_dir(directory).into_iter().flatten();
        let files = files.map(|entry| entry.unwrap());
        let is_draft = |name: &str| name.starts_with(DRAFT_PREFIX);
        let drafts = files.filter(|file| is_draft(file.file_name().to_str().unwrap()));
        drafts.map(|file| file.path()).collect()
    }

    async fn write(&self, intervals: &[Interval]) {
        let (mut writer, _last) = LedgerWriter::open(&self.url.parse().unwrap()).await.unwrap();
        writer.write(intervals).await.unwrap();
        writer.database().close().await;
    }

    fn aggregator(&self) -> Aggregator {
        let export = format!("--ledger-export-directory={}", self.export().display());
        let ledger = format!("--ledger={}", self.url);
        Aggregator::start(&["--plaintext", WRITE_INTERVAL, &ledger, &export])
    }

    /// Number of rows in the file of a day, which `DuckDB` reads completely.
    fn rows(&self, day: Day) -> usize {
        let file = self.file(day);
        let query = format!("SELECT count(*) FROM (SELECT DISTINCT * FROM '{}')", file.display());
        duckdb("duckdb.sql(sys.argv[1]).fetchall()[0][0]", &query).trim().parse().unwrap()
    }

    /// Device seconds in the file of a day, in parts per million, by namespace and state.
    fn exported(&self, day: Day) -> BTreeMap<String, i64> {
        let query = format!(
            "SELECT coalesce(namespace, '') || ':' || state, CAST(sum(device_seconds) * 1000000 AS BIGINT) \
             FROM '{}' GROUP BY ALL",
            self.file(day).display()
        );
        let printed = duckdb("json.dumps(dict(duckdb.sql(sys.argv[1]).fetchall()))", &query);
        serde_json::from_str(&printed).unwrap()
    }
}

fn device(id: &str) -> Device {
    Device { node: "gpu-1".parse().unwrap(), id: id.to_owned(), price_key: None }
}

fn part(namespace: &str, activity: Activity, ppm: u32) -> Part {
    let container = Container {
        namespace: namespace.to_owned(),
        pod: "train".to_owned(),
        uid: format!("uid-{namespace}"),
        container: "main".to_owned(),
        owner: Some(PodOwner { kind: "Job".to_owned(), name: "train".to_owned() }),
        ..Container::default()
    };
    Part { ppm, activity, ..Part::whole(Holder::Container(Arc::new(container))) }
}

/// A day of a device: shared for ten hours, allocated to one pod for ten hours, not reported for four hours.
fn usage(day: Day, id: &str) -> Vec<Interval> {
    let free = |ppm| Part { ppm, ..Part::whole(Holder::Unallocated) };
    let mut recorder = Recorder::default();
    for hour in (0..=20).chain([24]) {
        let parts = match hour {
            0..10 => vec![
                part("team-a", Activity::Active, 375_000),
                part("team-b", Activity::Idle, 333_333),
                free(291_667),
            ],
            10..20 => vec![part("team-b", Activity::Active, PPM)],
            _ => vec![free(PPM)],
        };
        let parts = parts.into_iter().map(|part| MeasuredPart::new(part, Some(50))).collect();
        let state = DeviceState { device: device(id), parts };
        recorder.observe(&"gpu-1".parse().unwrap(), day.start() + hour * HOUR, HOUR, vec![state]);
    }
    recorder.take_changed()
}

/// Device seconds by namespace and state of the days of `devices` devices.
fn expected(devices: i64) -> BTreeMap<String, i64> {
    let hours = [
        ("team-a:used", 3_750_000),
        ("team-b:idle", 3_333_330),
        ("team-b:used", 10_000_000),
        (":unallocated", 2_916_670),
        (":unknown", 4_000_000),
    ];
    hours.map(|(group, ppm)| (group.to_owned(), devices * ppm * HOUR)).into()
}

/// Device seconds by namespace and state that `octavo cost` prints.
fn reported(aggregator: &Aggregator, day: Day) -> BTreeMap<String, i64> {
    let (from, until) = (day.date().to_string(), Day(day.0 + 1).date().to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    command.args(["cost", "--by=namespace", "-o=json", "--from", &from, "--until", &until]);
    let output = command.arg(format!("--server=http://{}", aggregator.http)).finish();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut sums = BTreeMap::new();
    for item in report["items"].as_array().unwrap() {
        let namespace = item["group"]["namespace"].as_str().unwrap_or_default();
        for state in ["used", "idle", "unallocated", "unknown"] {
            // Reports have six decimals.
            let micros = item["deviceHours"][state].to_string().parse::<f64>().unwrap() * 1e6;
            let micros: i64 = format!("{micros:.0}").parse().unwrap();
            if micros > 0 {
                sums.insert(format!("{namespace}:{state}"), micros * HOUR);
            }
        }
    }
    sums
}

/// The query and its output in `docs/tasks/cost.md`.
fn documented() -> (String, String) {
    let page = fs::read_to_string(root().join("docs/tasks/cost.md")).unwrap();
    let block = |text: &str, kind: &str| {
        let (_, rest) = text.split_once(&format!("```{kind}\n")).unwrap();
        let (block, rest) = rest.split_once("```").unwrap();
        (block.to_owned(), rest.to_owned())
    };
    let (query, rest) = block(&page, "sql");
    (query, block(&rest, "text").0)
}

#[tokio::test]
async fn f5_exported_day_of_sqlite_equals_the_report_and_late_usage_replaces_it() {
    life(&Ledger::new()).await;
}

#[tokio::test]
async fn f5_exported_day_of_postgresql_equals_the_report_and_late_usage_replaces_it() {
    let server = Postgres::start();
    server.sql("SELECT 1");
    life(&Ledger::at(server.url(), TempDir::new().unwrap())).await;
}

/// An exported day, late usage, and a restart.
async fn life(ledger: &Ledger) {
    let [day, earlier] = days();
    ledger.write(&usage(day, "GPU-1")).await;
    ledger.write(&usage(earlier, "GPU-1")).await;
    let mut aggregator = ledger.aggregator();
    for day in [day, earlier] {
        eventually("export", || ledger.file(day).exists());
        assert_eq!(ledger.exported(day), expected(1));
        assert_eq!(reported(&aggregator, day), expected(1));
    }
    let (query, output) = documented();
    let query = query.replace("2026-11-27", &day.date().to_string());
    let query = query.replace("/var/lib/octavo-export", ledger.export().to_str().unwrap());
    assert_eq!(duckdb("duckdb.sql(sys.argv[1])", &query).trim(), output.trim());

    aggregator.kill();
    ledger.write(&usage(day, "GPU-2")).await;
    let inode = |day| fs::metadata(ledger.file(day)).unwrap().ino();
    let (unchanged, replaced) = (inode(earlier), inode(day));
    aggregator.restart();
    eventually("export of late usage", || inode(day) != replaced);
    assert_eq!(ledger.exported(day), expected(2));
    assert_eq!(reported(&aggregator, day), expected(2));
    assert_eq!(inode(earlier), unchanged);

    // A day that is not over has no file.
    let days: Vec<_> = fs::read_dir(ledger.export()).unwrap().collect();
    assert_eq!(days.len(), 2, "{days:?}");
}

/// A day of two devices: a pod has a partition of one, and another pod has the other one.
fn partitioned(day: Day) -> Vec<Interval> {
    let parts =
        [(0, "team-a", Some("3g.40gb"), 500_000), (0, "", None, 500_000), (1, "team-b", None, PPM)];
    let parts = parts.into_iter().zip(0..).map(|((number, namespace, profile, ppm), slot)| {
        let part = match namespace {
            "" => Part { ppm, ..Part::whole(Holder::Unallocated) },
            namespace => part(namespace, Activity::Active, ppm),
        };
        Interval {
            device: Arc::new(device(&format!("GPU-{number}"))),
            start: day.start(),
            end: day.start() + 24 * HOUR,
            slot,
            part: Part {
                partition: profile.map(|_| "MIG-1".into()),
                profile: profile.map(Arc::from),
                ..part
            },
            inferred: false,
            utilization: octavo_ledger::Utilization::default(),
        }
    });
    parts.collect()
}

#[tokio::test]
async fn f5_exported_usage_of_partitions_is_a_trace() {
    let ledger = Ledger::new();
    let [day, earlier] = days();
    ledger.write(&[partitioned(day), partitioned(earlier)].concat()).await;
    let _aggregator = ledger.aggregator();
    eventually("export", || ledger.file(day).exists() && ledger.file(earlier).exists());
    let trace = ledger.files.path().join("usage.csv");
    let page = fs::read_to_string(root().join("docs/tasks/simulate.md")).unwrap();
    let query = page.split_once("```sql\n").unwrap().1.split_once("```").unwrap().0;
    let query = query.replace("/var/lib/octavo-export", ledger.export().to_str().unwrap());
    let query = query.replace("usage.csv", trace.to_str().unwrap());
    duckdb("duckdb.sql(sys.argv[1])", &query);
    let machine = root().join("tests/golden/cli/machines/h100x8.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    command.args(["simulate", "--strategy=octavo", "-o=json", "--from"]).arg(machine);
    let output = command.arg("--trace").arg(&trace).finish();
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The pod has its partition on both days.
    assert_eq!(document["items"][0]["requests"], 1, "{document}");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("not simulated"), "{output:?}");
}

/// A day with so many intervals that its export takes a while.
fn many(day: Day, devices: usize) -> Vec<Interval> {
    let parts = part("team-a", Activity::Active, PPM);
    let of_device = |number: usize| {
        let device = Arc::new(device(&format!("GPU-{number}")));
        let part = parts.clone();
        (0..100).map(move |slot| Interval {
            device: Arc::clone(&device),
            start: day.start() + slot * 864,
            end: day.start() + slot * 864 + 864,
            slot: 0,
            part: part.clone(),
            inferred: false,
            utilization: octavo_ledger::Utilization::default(),
        })
    };
    (0..devices).flat_map(of_device).collect()
}

#[tokio::test]
async fn f5_killed_export_leaves_the_earlier_file_and_its_draft_is_removed_later() {
    let ledger = Ledger::new();
    let [day, _] = days();
    ledger.write(&many(day, 300)).await;
    let mut aggregator = ledger.aggregator();
    eventually("draft", || !ledger.drafts(day).is_empty());
    aggregator.kill();
    let drafts = ledger.drafts(day);
    assert_eq!(drafts.len(), 1, "the export ended before the signal");
    assert!(!ledger.file(day).exists());

    let draft = File::options().write(true).open(&drafts[0]).unwrap();
    let modified = draft.metadata().unwrap().modified().unwrap();
    draft.set_modified(modified - Duration::from_hours(2)).unwrap();
    aggregator.restart();
    eventually("export", || ledger.file(day).exists());
    assert_eq!(ledger.rows(day), 30_000);
    assert_eq!(ledger.drafts(day), Vec::<PathBuf>::new());

    aggregator.kill();
    ledger.write(&usage(day, "late")).await;
    aggregator.restart();
    eventually("draft", || !ledger.drafts(day).is_empty());
    aggregator.kill();
    let drafts = ledger.drafts(day);
    assert_eq!(drafts.len(), 1, "the export ended before the signal");
    assert_eq!(ledger.rows(day), 30_000);

    // Another aggregator could be writing the draft, so it remains.
    let inode = || fs::metadata(ledger.file(day)).unwrap().ino();
    let replaced = inode();
    aggregator.restart();
    eventually("export of late usage", || inode() != replaced);
    assert_eq!(ledger.rows(day), 30_000 + usage(day, "late").len());
    assert_eq!(ledger.drafts(day), drafts);
}

/// Runs a command in the mount namespace of `program`.
fn in_namespace(program: &Program, command: &[&str]) {
    let target = format!("--target={}", program.id());
    let mut enter = Command::new("nsenter");
    let entered =
        enter.args([&target, "--user", "--mount", "--preserve-credentials"]).args(command);
    let output = entered.finish();
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test]
async fn f5_full_disk_delays_the_export() {
    let ledger = Ledger::new();
    let [day, _] = days();
    ledger.write(&many(day, 300)).await;
    let script = r#"mount -t tmpfs -o size=4k tmpfs "$1" && shift && exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    command.arg(ledger.export()).arg(env!("CARGO_BIN_EXE_octavo-aggregator"));
    command.args(["--plaintext", WRITE_INTERVAL, "--grpc-listen=127.0.0.1:0"]);
    command.args(["--http-listen=127.0.0.1:0", &format!("--ledger={}", ledger.url)]);
    command.arg(format!("--ledger-export-directory={}", ledger.export().display()));
    let mut aggregator = Program::start(&mut command);
    let line = aggregator.expect_log("listening for HTTP clients on ");
    aggregator.rewind();
    let (_, address) = line.split_once("clients on ").unwrap();
    let api = Api::at(address.split(' ').next().unwrap().parse().unwrap());

    let draft = ledger.file(day).with_file_name(DRAFT_PREFIX);
    let line = aggregator.expect_log("cannot export usage; trying again");
    assert!(line.contains(draft.to_str().unwrap()), "{line}");
    assert!(line.contains("No space left on device"), "{line}");
    let metrics = api.get("/metrics").await.body;
    assert!(metrics.contains("\noctavo_ledger_export_pending_days 1\n"), "{metrics}");
    assert!(!metrics.contains("\noctavo_ledger_export_failures_total 0\n"), "{metrics}");
    // Usage is recorded meanwhile.
    assert!(metrics.contains("\noctavo_ledger_failures_total 0\n"), "{metrics}");

    let export = ledger.export();
    in_namespace(&aggregator, &["mount", "-o", "remount,size=64m", export.to_str().unwrap()]);
    aggregator.expect_log("usage is exported again");
    let metrics = api.get("/metrics").await.body;
    assert!(metrics.contains("\noctavo_ledger_export_pending_days 0\n"), "{metrics}");
    let seen = Path::new("/proc").join(aggregator.id().to_string()).join("root");
    let seen = seen.join(ledger.file(day).strip_prefix("/").unwrap());
    fs::create_dir(ledger.file(day).parent().unwrap()).unwrap();
    fs::copy(seen, ledger.file(day)).unwrap();
    assert_eq!(ledger.rows(day), 30_000);
    let log = aggregator.kill();
    let errors = log.iter().filter(|line| line.contains("cannot export usage")).count();
    assert_eq!(errors, 1, "{log:#?}");
}
