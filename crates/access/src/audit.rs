//! Audit log: changes and refusals, one log line each, with the target `octavo::audit` and stable field names. With a ledger, they
//! are also appended to the audit trail in its database.
//!
//! Every change is logged. Unauthenticated clients can cause any number of refusals, so at most ten per identity and
//! minute are logged; the next logged one reports how many were dropped. The ledger has a lower limit: one per identity
//! and ten minutes, with its own count. Half of its queue is reserved for changes. No line contains a token or another
//! secret, because callers pass names only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use octavo_ledger::audit::{
    AuditEvent, AuditRecord, ChangeEvent, ChangeOutcome, ChangeVerb, PolicyEvent, RefusalEvent,
};
use octavo_store::stats::Stats;
use octavo_toolkit::random::random;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tracing::info;

/// Writer of the audit log. Clones share the rate limits.
#[derive(Debug, Clone)]
pub struct AuditLog {
    limiter: Arc<Mutex<RefusalLimiter>>,
    ledger: Option<AuditSender>,
}

/// Sender of events to the writer of the ledger.
#[derive(Debug, Clone)]
struct AuditSender {
    events: mpsc::Sender<QueuedRecord>,
    limiter: Arc<Mutex<RefusalLimiter>>,
    stats: Stats,
}

/// Events that wait for the writer of the ledger.
pub type AuditQueue = mpsc::Receiver<QueuedRecord>;

/// An event that waits for the writer of the ledger.
#[derive(Debug)]
pub struct QueuedRecord {
    /// The event.
    pub record: AuditRecord,
    stored: Option<oneshot::Sender<()>>,
}

/// Refused request.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// Caller; empty if unknown.
    pub caller: &'a str,
    /// Address of the client.
    pub peer: &'a str,
    /// HTTP method.
    pub verb: &'a str,
    /// Path.
    pub object: &'a str,
    /// Reason.
    pub why: &'a str,
}

/// Change, or an attempt at one.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// Caller.
    pub caller: &'a str,
    /// Operation.
    pub verb: ChangeVerb,
    /// Namespace of the object.
    pub namespace: &'a str,
    /// Kind, namespace and name of the object.
    pub object: &'a str,
    /// Previous state; empty if there was none or nothing was created.
    pub before: &'a str,
    /// New state, desired state, or the reason for the failure.
    pub after: &'a str,
    /// Reason that the caller gave.
    pub why: &'a str,
}

/// Rate limit of refusals, and those that were recently admitted.
#[derive(Debug)]
struct RefusalLimiter {
    /// Limit of admitted refusals per identity in each interval.
    limit: u32,
    /// Time after which the identity has its whole limit again.
    interval: Duration,
    /// Limit of identities with a rate limit of their own; all others share one.
    max_identities: usize,
    /// By identity: start of the interval, admitted refusals, dropped refusals.
    recent: BTreeMap<String, (Instant, u32, u32)>,
}

/// Maximum number of events that wait for the writer of the ledger.
const MAX_WAITING: usize = 1024;
/// Time limit of waiting until a change is stored.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of a field, in characters.
const MAX_FIELD_CHARS: usize = 512;
/// Maximum length of the `before` and `after` fields, in characters; they hold objects as text.
const MAX_STATE_CHARS: usize = 8192;

impl AuditLog {
    /// Creates an audit log whose events are also sent to the writer of the ledger.
    pub fn with_ledger(stats: Stats) -> (Self, AuditQueue) {
        let (events, queue) = mpsc::channel(MAX_WAITING);
        let limiter = Arc::new(Mutex::new(RefusalLimiter::for_ledger()));
        let ledger = Some(AuditSender { events, limiter, stats });
        (Self { ledger, ..Self::default() }, queue)
    }

    /// Logs a refusal and sends it to the writer of the ledger. Each of them has its own rate limit, beyond which refusals are counted.
    pub fn refused(&self, refusal: &Refusal<'_>) {
        let identity = if refusal.caller.is_empty() { refusal.peer } else { refusal.caller };
        let now = Instant::now();
        if let Some(omitted) = admit(&self.limiter, identity, now) {
            let event = refusal.event(omitted);
            info!(
                target: "octavo::audit",
                who = event.user,
                peer = event.peer,
                verb = event.verb,
                object = event.object,
                outcome = "refused",
                why = event.reason,
                untold = event.omitted,
                "audit"
            );
        }
        let ledger = self.ledger.as_ref();
        if let Some(omitted) = ledger.and_then(|ledger| admit(&ledger.limiter, identity, now)) {
            self.send(AuditEvent::Refusal(refusal.event(omitted)));
        }
    }

    /// Logs a change, and waits until the ledger has stored it. If the ledger does not respond in time, the change proceeds: the log
    /// has it, and it is counted.
    pub async fn log_change(&self, change: &Change<'_>, outcome: ChangeOutcome) {
        let event = ChangeEvent {
            user: single_line(change.caller, MAX_FIELD_CHARS),
            verb: change.verb,
            namespace: change.namespace.to_owned(),
            object: single_line(change.object, MAX_FIELD_CHARS),
            outcome,
            before: single_line(change.before, MAX_STATE_CHARS),
            after: single_line(change.after, MAX_STATE_CHARS),
            reason: single_line(change.why, MAX_FIELD_CHARS),
        };
        info!(
            target: "octavo::audit",
            who = event.user,
            verb = <&str>::from(event.verb),
            object = event.object,
            outcome = <&str>::from(event.outcome),
            before = event.before,
            after = event.after,
            why = event.reason,
            "audit"
        );
        let Some((stats, stored)) = self.send(AuditEvent::Change(event)) else { return };
        if !matches!(timeout(STORE_TIMEOUT, stored).await, Ok(Ok(()))) {
            stats.count_audit_failure("late");
        }
    }

    /// Records the new state of a policy, which its controller has logged.
    pub fn record_policy(&self, event: PolicyEvent) {
        let _is_stored = self.send(AuditEvent::Policy(event));
    }

    /// Sends an event to the writer of the ledger, if there is one. Returns a receiver that resolves when it is stored. Half of the queue
    /// is reserved for changes, so that refusals, which any client can cause, do not displace them.
    fn send(&self, event: AuditEvent) -> Option<(&Stats, oneshot::Receiver<()>)> {
        let AuditSender { events, stats, .. } = self.ledger.as_ref()?;
        let is_change = matches!(event, AuditEvent::Change(_));
        if !is_change && events.capacity() < events.max_capacity() / 2 {
            stats.count_audit_failure("full");
            return None;
        }
        let source = format!("event/{:016x}{:016x}", random(), random());
        let record = AuditRecord { time: now(), source, event };
        let (stored, is_stored) = oneshot::channel();
        if events.try_send(QueuedRecord { record, stored: Some(stored) }).is_err() {
            stats.count_audit_failure("full");
            return None;
        }
        Some((stats, is_stored))
    }
}

/// An audit log without a ledger.
impl Default for AuditLog {
    fn default() -> Self {
        Self { limiter: Arc::new(Mutex::new(RefusalLimiter::for_log())), ledger: None }
    }
}

impl QueuedRecord {
    /// Announces that the event is stored.
    pub fn confirm(self) {
        // The request may have ended.
        let _is_awaited = self.stored.map(|stored| stored.send(()));
    }
}

/// An event that is not awaited.
impl From<AuditRecord> for QueuedRecord {
    fn from(record: AuditRecord) -> Self {
        Self { record, stored: None }
    }
}

/// The time in milliseconds.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

impl Refusal<'_> {
    /// The event, before which `omitted` refusals of the identity were dropped.
    fn event(&self, omitted: u32) -> RefusalEvent {
        RefusalEvent {
            user: single_line(self.caller, MAX_FIELD_CHARS),
            peer: self.peer.to_owned(),
            verb: single_line(self.verb, MAX_FIELD_CHARS),
            object: single_line(self.object, MAX_FIELD_CHARS),
            reason: single_line(self.why, MAX_FIELD_CHARS),
            omitted,
        }
    }
}

impl RefusalLimiter {
    /// Limits the lines of the log.
    fn for_log() -> Self {
        Self::new(10, Duration::from_mins(1), 1000)
    }

    /// Limits the entries of the ledger, which stores them for years.
    fn for_ledger() -> Self {
        Self::new(1, Duration::from_mins(10), 100)
    }

    fn new(limit: u32, interval: Duration, max_identities: usize) -> Self {
        Self { limit, interval, max_identities, recent: BTreeMap::new() }
    }

    /// Applies the rate limit of the identity. Returns the number of dropped refusals if this one is admitted.
    fn admit(&mut self, identity: &str, now: Instant) -> Option<u32> {
        let known = self.recent.contains_key(identity);
        if !known && self.recent.len() >= self.max_identities {
            self.recent.retain(|_, (since, ..)| now.duration_since(*since) < self.interval);
        }
        let shared = !known && self.recent.len() >= self.max_identities;
        let identity = if shared { "" } else { identity };
        let entry = self.recent.entry(identity.to_owned());
        let (since, admitted, dropped) = entry.or_insert((now, 0, 0));
        if now.duration_since(*since) >= self.interval {
            (*since, *admitted) = (now, 0);
        }
        if *admitted >= self.limit {
            *dropped = dropped.saturating_add(1);
            return None;
        }
        *admitted = admitted.saturating_add(1);
        Some(std::mem::take(dropped))
    }
}

/// Applies a shared rate limit. Returns the number of dropped refusals of the identity if this one is admitted.
fn admit(limiter: &Mutex<RefusalLimiter>, identity: &str, now: Instant) -> Option<u32> {
    limiter.lock().unwrap_or_else(PoisonError::into_inner).admit(identity, now)
}

/// Truncates external text and replaces control characters, so that it fits on one line.
fn single_line(text: &str, longest: usize) -> String {
    let text = text.chars().take(longest);
    text.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_rate_limited_per_identity() {
        let mut limiter = RefusalLimiter::for_log();
        let start = Instant::now();
        let admitted = (0..100).filter_map(|_| limiter.admit("ada", start));
        assert_eq!(admitted.collect::<Vec<_>>(), vec![0; 10]);
        assert_eq!(limiter.admit("bob", start), Some(0), "refusals of other users are logged");
        assert_eq!(limiter.admit("ada", start + limiter.interval), Some(90));
        assert_eq!(limiter.admit("ada", start + limiter.interval), Some(0));
    }

    #[test]
    fn number_of_tracked_identities_is_bounded() {
        let mut limiter = RefusalLimiter::for_log();
        let start = Instant::now();
        let mut admitted = 0;
        for number in 0..10_000 {
            admitted += u32::from(limiter.admit(&number.to_string(), start).is_some());
        }
        assert!(limiter.recent.len() <= limiter.max_identities + 1);
        assert_eq!(admitted, 1000 + limiter.limit);
        assert_eq!(limiter.admit("later", start + limiter.interval), Some(0));
        assert!(limiter.recent.len() <= 2);
    }

    fn change() -> Change<'static> {
        Change {
            caller: "ada",
            verb: ChangeVerb::Create,
            namespace: "team",
            object: "HardwareProfile team/large",
            before: "",
            after: "{}",
            why: "",
        }
    }

    #[tokio::test(start_paused = true)]
    async fn change_waits_until_it_is_stored_and_proceeds_without_the_ledger() {
        let (log, mut queue) = AuditLog::with_ledger(Stats::default());
        let begun = Instant::now();
        let write = async {
            let queued = queue.recv().await.unwrap();
            assert!(matches!(queued.record.event, AuditEvent::Change(_)));
            queued.confirm();
        };
        let change = change();
        tokio::join!(log.log_change(&change, ChangeOutcome::Started), write);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        log.log_change(&change, ChangeOutcome::Succeeded).await;
        assert_eq!(begun.elapsed(), STORE_TIMEOUT);
        // The event remains in the queue, and is stored later.
        assert!(queue.try_recv().is_ok());
        drop(queue);
        log.log_change(&change, ChangeOutcome::Succeeded).await;
        assert_eq!(begun.elapsed(), STORE_TIMEOUT);
    }

    fn refusal(caller: &str) -> Refusal<'_> {
        Refusal {
            caller,
            peer: "192.0.2.1",
            verb: "GET",
            object: "/api/v1/nodes",
            why: "not authorized",
        }
    }

    fn policy(revision: usize) -> PolicyEvent {
        PolicyEvent {
            policy: "serving".to_owned(),
            revision: revision.to_string(),
            before: "Waiting".to_owned(),
            after: "RollingOut".to_owned(),
            message: String::new(),
        }
    }

    fn change_event() -> AuditEvent {
        AuditEvent::Change(ChangeEvent {
            user: "ada".to_owned(),
            verb: ChangeVerb::Create,
            namespace: "team".to_owned(),
            object: "HardwareProfile team/large".to_owned(),
            outcome: ChangeOutcome::Started,
            before: String::new(),
            after: "{}".to_owned(),
            reason: String::new(),
        })
    }

    #[test]
    fn half_of_the_queue_is_reserved_for_changes() {
        let (log, queue) = AuditLog::with_ledger(Stats::default());
        for number in 0..MAX_WAITING {
            log.record_policy(policy(number));
        }
        // The last one is sent while exactly half of the places are free.
        let others = MAX_WAITING / 2 + 1;
        assert_eq!(queue.len(), others);
        log.refused(&refusal("ada"));
        assert_eq!(queue.len(), others);
        let sent = (0..MAX_WAITING).filter(|_| log.send(change_event()).is_some()).count();
        assert_eq!((sent, queue.len()), (MAX_WAITING - others, MAX_WAITING));
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_reach_the_ledger_at_a_lower_rate_than_the_log() {
        let (log, mut queue) = AuditLog::with_ledger(Stats::default());
        let mut omitted = || {
            let AuditEvent::Refusal(event) = queue.try_recv().ok()?.record.event else {
                return None;
            };
            Some((event.user, event.omitted))
        };
        for _ in 0..30 {
            log.refused(&refusal("ada"));
        }
        log.refused(&refusal("bob"));
        assert_eq!(omitted(), Some(("ada".to_owned(), 0)));
        assert_eq!(omitted(), Some(("bob".to_owned(), 0)));
        tokio::time::advance(Duration::from_mins(9)).await;
        // The log admits this one, and reports the dropped ones of its own.
        assert_eq!(admit(&log.limiter, "ada", Instant::now()), Some(20));
        log.refused(&refusal("ada"));
        assert_eq!(omitted(), None);
        tokio::time::advance(Duration::from_mins(1)).await;
        log.refused(&refusal("ada"));
        assert_eq!(omitted(), Some(("ada".to_owned(), 30)));
        assert_eq!(omitted(), None);
    }

    #[test]
    fn field_is_truncated_to_one_line() {
        assert_eq!(single_line("a\nb\x1b[2J", 512), "a b [2J");
        assert_eq!(single_line(&"x".repeat(9000), MAX_FIELD_CHARS).len(), MAX_FIELD_CHARS);
    }
}
