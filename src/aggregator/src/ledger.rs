//! Records the usage of all devices in the ledger.
//!
//! ```text
//!  Fleet, cluster --device_states--> Recorder --changed intervals--> LedgerWriter --> SQLite, PostgreSQL
//!                                                                      closed days --> LedgerExporter --> Parquet
//!  AuditLog --AuditQueue--> PendingRecords -----------events-------------^
//!  Fleet ------changes----------^
//! ```
//!
//! `run` starts it if enabled. Changes of allocations are recorded within a second, and all nodes before each write. While the
//! database cannot be written, the intervals remain in memory up to a limit. Usage beyond the limit, and usage that a killed
//! aggregator had not written, is recorded as a gap. Audit events are written immediately.

mod audit;
mod export;
mod metrics;
pub(crate) mod observation;
mod other_writer;
mod usage_file;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_access::audit::AuditQueue;
use octavo_database::{DatabaseError, DatabaseUrl, LedgerWriter, in_time};
use octavo_kube::cluster::WatchedCluster;
use octavo_ledger::{Day, Interval, MAX_PAST_SECONDS, Recorder, transactions};
use octavo_store::fleet::{Fleet, Node};
use octavo_store::view::FleetView;
use octavo_toolkit::error::chain;
use tokio::sync::{Notify, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, Interval as Timer, MissedTickBehavior, interval, sleep, timeout};
use tracing::{debug, error, info, warn};

use self::audit::PendingRecords;
use self::export::LedgerExporter;
pub use self::metrics::LedgerMetrics;
use self::observation::{PodDirectory, device_states, past_states};
use self::other_writer::OtherWriter;
use crate::settings::LedgerSettings;

/// Interval of scans for changed nodes.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of attempts to open the database.
const OPEN_INTERVAL: Duration = Duration::from_secs(10);
/// Time limit of a transaction, which no scan interrupts.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of an attempt to take over the ledger, which delays the recording.
const TAKE_OVER_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of write intervals without a write after which another writer has ended.
const MISSED_WRITES: u32 = 10;
/// If the clock is more than this ahead of the last usage at the start, it may be wrong, and nothing is deleted.
const MAX_SILENT_DAYS: i32 = 30;
/// Interval of closing days and deleting old intervals.
const MAINTENANCE_INTERVAL: Duration = Duration::from_hours(1);
/// Time limit of opening the database, and of closing days and deleting old intervals, which delays the recording.
const MAINTENANCE_TIMEOUT: Duration = Duration::from_mins(5);
/// Maximum number of intervals that wait for the database. Beyond it, nothing is recorded until it can be written.
const MAX_WAITING: usize = 500_000;
/// Time limit for audit events at shutdown; slightly more than that of the last changes.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(4700);
/// Nodes that are read before other tasks of the thread run.
const NODES_PER_BATCH: usize = 50;

/// Recorder of the usage.
#[derive(Debug)]
pub struct LedgerRecorder {
    url: DatabaseUrl,
    view: FleetView,
    cluster: Option<watch::Receiver<Arc<WatchedCluster>>>,
    settings: LedgerSettings,
    metrics: LedgerMetrics,
    /// Notified after days are closed.
    closed: Arc<Notify>,
}

/// State of the recorder while the database is open.
struct Recording<'a> {
    task: &'a LedgerRecorder,
    writer: LedgerWriter,
    recorder: Recorder,
    fleet: Fleet,
    audit: PendingRecords,
    maintained: Option<Instant>,
    /// Day on which the head of the audit chain was last logged.
    logged: Option<Day>,
    /// False if the clock may be wrong.
    may_delete: bool,
    is_failing: bool,
    /// True after a failure to append to the audit trail; independent of the usage.
    is_audit_failing: bool,
    other_writer: OtherWriter,
}

impl LedgerRecorder {
    /// Creates a recorder. It does not access the database before it runs.
    pub fn new(
        url: DatabaseUrl,
        view: FleetView,
        cluster: Option<watch::Receiver<Arc<WatchedCluster>>>,
        settings: LedgerSettings,
    ) -> Self {
        let metrics = LedgerMetrics::default();
        Self { url, view, cluster, settings, metrics, closed: Arc::default() }
    }

    /// Its metrics.
    pub fn metrics(&self) -> LedgerMetrics {
        self.metrics.clone()
    }

    /// Runs until `stop`, and then writes the usage until that time, and the events of `audit` until their senders have ended.
    pub async fn run(self, audit: AuditQueue, stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.record(audit, stop) => {}
            () = self.export() => {}
        }
    }

    /// Exports closed days, if enabled.
    async fn export(&self) {
        let Some(directory) = self.settings.export_directory.clone() else {
            return pending().await;
        };
        let (url, metrics) = (self.url.clone(), self.metrics.clone());
        LedgerExporter { url, directory, closed: Arc::clone(&self.closed), metrics }.run().await;
    }

    async fn record(&self, audit: AuditQueue, mut stop: watch::Receiver<bool>) {
        let (writer, last) = tokio::select! {
            opened = self.open() => opened,
            _stopped = stop.wait_for(|stopped| *stopped) => return,
        };
        // The program has written its claim. A fleet whose first usage is not yet written must not cause an alert.
        self.metrics.set_written(self.now());
        Recording::new(self, writer, last, audit).run(stop).await;
    }

    /// Opens the database, and tries again until it succeeds.
    async fn open(&self) -> (LedgerWriter, Vec<Interval>) {
        let mut is_failing = false;
        loop {
            match in_time(MAINTENANCE_TIMEOUT, LedgerWriter::open(&self.url)).await {
                Ok(opened) => {
                    info!(ledger = %self.url, "recording the usage of devices");
                    return opened;
                }
                Err(error) => {
                    self.metrics.count_failure();
                    if !std::mem::replace(&mut is_failing, true) {
                        error!(error = %chain(&error), "no usage is recorded until the ledger can be opened");
                    }
                }
            }
            sleep(OPEN_INTERVAL).await;
        }
    }

    /// Seconds since 1970, by the clock of the fleet.
    fn now(&self) -> i64 {
        self.time().as_second()
    }

    /// The time, by the clock of the fleet.
    fn time(&self) -> Timestamp {
        let clock = self.view.clock();
        clock.wall(clock.now())
    }
}

impl<'a> Recording<'a> {
    fn new(
        task: &'a LedgerRecorder,
        writer: LedgerWriter,
        last: Vec<Interval>,
        audit: AuditQueue,
    ) -> Self {
        let now = task.now();
        let end = last.iter().map(|interval| interval.end).max().unwrap_or(now);
        let silent_days = Day::of(now).0.saturating_sub(Day::of(end).0);
        let may_delete = silent_days <= MAX_SILENT_DAYS;
        if end > now {
            warn!(
                seconds = end.saturating_sub(now),
                "the ledger has usage in the future: the clock was set back, and nothing is recorded until it catches up"
            );
        }
        if !may_delete {
            warn!(
                "the last usage in the ledger is old: if the clock is right, restart the aggregator to delete old usage"
            );
        }
        Self {
            task,
            writer,
            recorder: Recorder::recover(last),
            fleet: Fleet::default(),
            audit: PendingRecords::new(audit),
            maintained: None,
            logged: None,
            may_delete,
            is_failing: false,
            is_audit_failing: false,
            other_writer: OtherWriter::default(),
        }
    }

    /// Runs until `stop`, which ends it between two steps: the intervals of an interrupted write would be lost.
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        let mut scans = interval(SCAN_INTERVAL.min(self.task.settings.ledger_write_interval));
        scans.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut written = Instant::now();
        loop {
            let has_events = tokio::select! {
                _at = scans.tick() => false,
                true = self.audit.receive() => true,
                _stopped = stop.wait_for(|stopped| *stopped) => break,
            };
            if has_events {
                self.append().await;
                continue;
            }
            if written.elapsed() < self.task.settings.ledger_write_interval {
                self.observe_changed().await;
                continue;
            }
            self.observe_all().await;
            self.write(&mut stop).await;
            self.maintain().await;
            written = Instant::now();
        }
        self.observe_all().await;
        self.write(&mut stop).await;
        let _ended = timeout(DRAIN_TIMEOUT, self.drain(&mut scans)).await;
    }

    /// Appends the remaining events until their senders have ended, and repeats a failed attempt at the next of `retries`.
    async fn drain(&mut self, retries: &mut Timer) {
        let nodes: Vec<Arc<Node>> = self.fleet.local_nodes().cloned().collect();
        loop {
            let has_events = !self.audit.is_empty()
                || self.audit.take_changes(&nodes, self.task.view.clock())
                || self.audit.receive().await;
            if !has_events {
                return;
            }
            if !self.append().await {
                // The interval can be overdue, and must not repeat the attempt immediately.
                retries.reset();
                retries.tick().await;
            }
        }
    }

    /// Records the nodes whose reports have changed.
    async fn observe_changed(&mut self) {
        let fleet = self.task.view.fleet();
        let before = std::mem::replace(&mut self.fleet, fleet.clone());
        let changed: Vec<Arc<Node>> = fleet
            .since(&before)
            .changed
            .into_iter()
            .filter(|node| node.is_local())
            .cloned()
            .collect();
        self.observe(&changed).await;
        let nodes = if self.audit.has_untaken_nodes() {
            self.fleet.local_nodes().cloned().collect()
        } else {
            changed
        };
        self.record_changes(&nodes).await;
    }

    /// Records all nodes, also those whose Node or pods have changed.
    async fn observe_all(&mut self) {
        self.fleet = self.task.view.fleet();
        let nodes: Vec<Arc<Node>> = self.fleet.local_nodes().cloned().collect();
        self.observe(&nodes).await;
        self.audit.retain(&nodes);
        self.record_changes(&nodes).await;
        self.recorder.forget(self.task.now().saturating_sub(MAX_PAST_SECONDS));
    }

    async fn observe(&mut self, nodes: &[Arc<Node>]) {
        if self.recorder.changed_count() > MAX_WAITING {
            return;
        }
        let clock = self.task.view.clock();
        let cluster = self.task.cluster.as_ref().map(|cluster| Arc::clone(&cluster.borrow()));
        // Before the first list of Nodes and pods, prices, workloads and teams are not known.
        if cluster.as_ref().is_some_and(|cluster| cluster.current_at.is_none()) {
            return;
        }
        let directory = PodDirectory {
            cluster: cluster.as_ref().map(|cluster| &*cluster.snapshot),
            team_label: self.task.settings.team_label.as_deref(),
        };
        for batch in nodes.chunks(NODES_PER_BATCH) {
            // A node without an agent reports no usage, and a stale one has not reported since its last confirmation.
            for node in batch.iter().filter(|node| node.has_agent()) {
                let at = clock.wall(node.freshness.confirmed()).as_second();
                let bound = node.freshness.bound().as_secs();
                let max_silence = i64::try_from(bound).unwrap_or(i64::MAX);
                let mut history = past_states(node, directory);
                history.push((at, device_states(node, node.usage_by_pod().as_ref(), directory)));
                self.recorder.observe_history(&node.name, max_silence, history);
            }
            yield_now().await;
        }
    }

    /// Appends the changes of layouts on these nodes to the audit trail, up to a limit. Then the next scan continues.
    async fn record_changes(&mut self, nodes: &[Arc<Node>]) {
        if self.audit.take_changes(nodes, self.task.view.clock()) {
            self.append().await;
        }
    }

    /// Appends the pending events to the audit trail, and returns whether all of them are stored. After a failure, `write` and `drain`
    /// repeat it.
    async fn append(&mut self) -> bool {
        while !self.audit.is_empty() {
            let result = in_time(WRITE_TIMEOUT, self.writer.append(self.audit.chunk())).await;
            if let Ok(head) = &result {
                self.audit.confirm_chunk();
                self.task.metrics.set_audit_head(head.seq);
            }
            self.log_append(result.err());
            if self.is_audit_failing {
                return false;
            }
        }
        true
    }

    async fn write(&mut self, stop: &mut watch::Receiver<bool>) {
        let mut result = self.write_intervals().await;
        if matches!(result, Err(DatabaseError::OtherWriter)) && self.take_over(stop).await {
            result = self.write_intervals().await;
        }
        self.task.metrics.set_waiting(self.recorder.changed_count());
        self.log_result(result.map(|()| self.task.now()));
        if !self.audit.is_empty() {
            self.append().await;
        }
    }

    /// Writes the waiting intervals in several transactions. After a failure, the intervals that are not written wait again.
    async fn write_intervals(&mut self) -> Result<(), DatabaseError> {
        let mut changed = self.recorder.take_changed();
        let mut written = 0_usize;
        let mut result = Ok(());
        for transaction in transactions(&changed) {
            result = in_time(WRITE_TIMEOUT, self.writer.write(transaction)).await;
            if result.is_err() {
                break;
            }
            written = written.saturating_add(transaction.len());
        }
        if result.is_ok() {
            self.writer.forget_unused(&changed);
        } else {
            // Repeating a transaction that may have succeeded changes nothing.
            self.recorder.put_back(changed.split_off(written));
        }
        result
    }

    /// Opens the ledger again if its other writer has ended, unless `stop` comes first. The usage that was recorded meanwhile is retained.
    /// Returns whether it is open.
    async fn take_over(&mut self, stop: &mut watch::Receiver<bool>) -> bool {
        let max_silence = self.task.settings.ledger_write_interval.saturating_mul(MISSED_WRITES);
        let open = async {
            let activity = self.writer.activity().await?;
            if self.other_writer.silence(&activity) < max_silence {
                return Ok(None);
            }
            LedgerWriter::take_over(&self.task.url, &activity).await
        };
        let opened = tokio::select! {
            biased;
            _stopped = stop.wait_for(|stopped| *stopped) => return false,
            opened = in_time(TAKE_OVER_TIMEOUT, open) => opened,
        };
        match opened {
            Ok(Some((writer, last))) => {
                info!("the other program has stopped writing to the ledger; taking it over");
                self.writer = writer;
                let since = self.task.now().saturating_sub(MAX_PAST_SECONDS);
                let discarded = self.recorder.resume(last, since);
                if discarded > 0 {
                    warn!(intervals = discarded, "usage is too old for the ledger; discarded");
                }
                self.other_writer = OtherWriter::default();
                true
            }
            Ok(None) => false,
            Err(error) => {
                if self.other_writer.record_failure() {
                    warn!(error = %chain(&error), "cannot take over the ledger; retrying");
                } else {
                    debug!(error = %chain(&error), "cannot take over the ledger; retrying");
                }
                false
            }
        }
    }

    /// Closes the days that are over, and deletes old intervals.
    async fn maintain(&mut self) {
        let is_due = self.maintained.is_none_or(|at| at.elapsed() >= MAINTENANCE_INTERVAL);
        if !is_due || self.is_failing {
            return;
        }
        self.maintained = Some(Instant::now());
        let now = self.task.time();
        let today = Day::of(now.as_second());
        let (details, sums) = self.task.settings.retention(today);
        let maintenance = async {
            self.writer.close_days(now).await?;
            if self.may_delete {
                self.writer.delete_before(details, sums).await?;
            }
            let database = self.writer.database();
            Ok((database.bytes().await?, database.audit_head().await?))
        };
        let result = in_time(MAINTENANCE_TIMEOUT, maintenance).await;
        if let Ok((bytes, head)) = &result {
            self.task.metrics.set_bytes(*bytes);
            self.task.metrics.set_audit_head(head.seq);
            self.task.closed.notify_one();
            if self.logged.replace(today) != Some(today) {
                info!(target: "octavo::audit", seq = head.seq, hash = head.hash, "last audit entry");
            }
        }
        self.log_result(result.map(|_| self.task.now()));
    }

    /// Logs the first of several failures to append to the audit trail, and the end of them.
    fn log_append(&mut self, failure: Option<DatabaseError>) {
        let was_failing = std::mem::replace(&mut self.is_audit_failing, failure.is_some());
        match failure {
            None if was_failing => info!("the audit trail can be written again"),
            None => {}
            Some(error) => {
                self.task.metrics.count_audit_failure();
                if !was_failing {
                    error!(error = %chain(&error), "audit events wait in memory until the ledger can be written");
                }
            }
        }
    }

    /// Logs the first of several failures to store usage, and the end of them.
    fn log_result(&mut self, result: Result<i64, DatabaseError>) {
        match result {
            Ok(now) => {
                self.task.metrics.set_written(now);
                if std::mem::take(&mut self.is_failing) {
                    info!("the ledger can be written again");
                }
            }
            Err(error) => {
                self.task.metrics.count_failure();
                if !std::mem::replace(&mut self.is_failing, true) {
                    error!(error = %chain(&error), "usage waits in memory until the ledger can be written");
                }
            }
        }
    }
}
