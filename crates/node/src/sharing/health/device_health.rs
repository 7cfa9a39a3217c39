//! Health of one device: its current faults and their recovery.

use std::collections::BTreeMap;
use std::time::Duration;

use octavo_model::backoff::Backoff;
use octavo_model::inventory::{Condition, Device, RecoveryAction};
use octavo_model::xid::Xid;

use super::xid::XidClass;
use crate::sharing::offer::Unit;

/// Time for which a device must show no fault before it is healthy again: longer than a restarted program needs to
/// fail again.
const QUIET_PERIOD: Duration = Duration::from_mins(1);
/// The same after a fault of the driver, which is no evidence about the device.
const DRIVER_SETTLE_TIME: Duration = Duration::from_secs(10);
/// Duration of an error that requires a reset, if no reset was seen but the driver reports that it needs no recovery
/// action.
const RESET_TIMEOUT: Duration = Duration::from_mins(5);
/// The same if the driver does not report a recovery action, as before R565. A reset between two readings may leave
/// no trace, and an administrator has had time to recover the device manually.
const RESET_TIMEOUT_UNREPORTED: Duration = Duration::from_mins(30);
/// Maximum duration of a fault, however often it returned.
const MAX_DURATION: Duration = Duration::from_hours(1);
/// Time after which the same fault counts as a new one.
pub(super) const RECURRENCE_WINDOW: Duration = Duration::from_hours(2);
/// Maximum number of faults of one device that are recorded by partition: more than there are partitions.
const MAX_FAULTS: usize = 64;

/// Result of reading a device.
#[derive(Debug, Clone, Copy)]
pub(super) enum DeviceObservation<'a> {
    Device(&'a Device),
    /// The device is absent.
    Gone,
    /// No driver is loaded.
    NoDriver(&'a str),
    /// The driver has not responded for too long.
    Silent(&'a str),
}

/// Recorded faults of one device.
#[derive(Debug, Default)]
pub(super) struct DeviceHealth {
    faults: BTreeMap<FaultKey, Fault>,
    /// Start of the current period without a fault.
    clean_since: Option<Duration>,
    gone_since: Option<Duration>,
    /// The last reading of the counter of uncorrected errors.
    uncorrected: Option<u64>,
    /// True if the driver reports a recovery action. If it does, a device that shows no fault needs no recovery.
    reports_recovery_action: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FaultKey {
    cause: FaultCause,
    /// The GPU instance and the compute instance to which the fault is confined, if any.
    part: Option<(u32, Option<u32>)>,
}

/// Cause of a fault, in the order in which faults are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FaultCause {
    NoDriver,
    Silent,
    Away,
    RowsFailed,
    Recovery,
    RowsPending,
    Machine,
    Reset,
    Memory,
    Unknown,
    Passing,
}

#[derive(Debug, Default)]
struct Fault {
    what: String,
    /// True if the last reading showed it.
    is_shown: bool,
    /// Time of its last sign: shown, reported, or a reset seen afterwards.
    last: Duration,
    /// True if the device was down or absent at the report or since.
    was_down: bool,
    was_reset: bool,
    /// Number of times it returned soon after it had ended.
    returns: u32,
    over: Option<Duration>,
}

impl DeviceHealth {
    /// Records an error reported by the device.
    pub(super) fn report(&mut self, now: Duration, xid: &Xid, (class, meaning): (XidClass, &str)) {
        let cause = match class {
            XidClass::Application | XidClass::Notice => return,
            XidClass::RestartApplication => FaultCause::Passing,
            XidClass::Unknown => FaultCause::Unknown,
            XidClass::Reset => FaultCause::Reset,
            XidClass::Machine => FaultCause::Machine,
        };
        let part = xid.gpu_instance.map(|gi| (gi, xid.compute_instance));
        let mut key = FaultKey { cause, part };
        if self.faults.len() >= MAX_FAULTS && !self.faults.contains_key(&key) {
            key.part = None;
        }
        let number = xid.number;
        let what = match meaning {
            "" => format!("it reported the unknown Xid {number}"),
            meaning => format!("it reported Xid {number} ({meaning})"),
        };
        // An error is often reported after the reading that found its device down.
        let is_down =
            self.faults.iter().any(|(key, fault)| fault.is_shown && key.cause.is_ended_by_reset());
        let fault = self.fault(key);
        fault.record(now, what);
        fault.was_down = is_down;
    }

    /// Records a reading. Faults end only here.
    pub(super) fn observe(&mut self, now: Duration, observation: DeviceObservation<'_>) {
        let shown = shown_faults(observation);
        for (key, fault) in &mut self.faults {
            fault.is_shown = shown.iter().any(|(cause, _)| *cause == key.cause);
        }
        let is_clean = shown.is_empty();
        let is_down = shown.iter().any(|(cause, _)| cause.is_ended_by_reset());
        for (cause, what) in shown {
            let fault = self.fault(FaultKey { cause, part: None });
            fault.record(now, what);
            fault.is_shown = true;
        }
        let mut was_reset = false;
        if let DeviceObservation::Device(device) = observation
            && is_clean
        {
            was_reset = self.count_errors(now, device);
            let action = device.health.recovery_action;
            self.reports_recovery_action = action.is_some();
        }
        for fault in self.faults.values_mut() {
            fault.note_reset(now, is_down, was_reset && fault.last < now);
        }
        let since = is_clean.then(|| self.clean_since.unwrap_or(now));
        self.clean_since = since;
        let is_gone = matches!(observation, DeviceObservation::Gone);
        self.gone_since = is_gone.then(|| self.gone_since.unwrap_or(now));
        self.end(now);
    }

    /// Records the counter of uncorrected errors and returns whether the device was reset: the counter starts when
    /// the driver binds the device, so a lower value implies a reset.
    fn count_errors(&mut self, now: Duration, device: &Device) -> bool {
        let count = device.health.uncorrected_errors;
        let Some((before, after)) = self.uncorrected.zip(count) else {
            self.uncorrected = count.or(self.uncorrected);
            return false;
        };
        self.uncorrected = Some(after);
        if after > before {
            let what = "it had uncorrectable memory errors".to_owned();
            let key = FaultKey { cause: FaultCause::Memory, part: None };
            self.fault(key).record(now, what);
        }
        after < before
    }

    fn end(&mut self, now: Duration) {
        let (clean, reports_action) = (self.clean_since, self.reports_recovery_action);
        for (key, fault) in &mut self.faults {
            if fault.due(*key, clean, reports_action).is_some_and(|due| due <= now) {
                fault.over = Some(now);
            }
        }
        self.faults.retain(|_, fault| {
            let over = fault.over;
            over.is_none_or(|over| now.saturating_sub(over) < RECURRENCE_WINDOW)
        });
    }

    fn fault(&mut self, key: FaultKey) -> &mut Fault {
        self.faults.entry(key).or_default()
    }

    /// The time at which the next fault ends, if no event intervenes.
    pub(super) fn next_end(&self) -> Option<Duration> {
        let faults = self.faults.iter();
        let due = faults.filter_map(|(key, fault)| {
            fault.due(*key, self.clean_since, self.reports_recovery_action)
        });
        due.min()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.faults.len()
    }

    /// Time for which the device has been absent.
    pub(super) fn gone_for(&self, now: Duration) -> Option<Duration> {
        self.gone_since.map(|since| now.saturating_sub(since))
    }

    /// The reason why `unit` of this device is unhealthy, and the condition of its recovery.
    pub(super) fn reason(&self, unit: &Unit) -> Option<String> {
        self.describe(|key| key.affects(unit))
    }

    /// The reported fault of the device, or of the partition with these ids, and the condition of its recovery.
    pub(super) fn reported_fault(&self, partition: Option<(u32, u32)>) -> Option<String> {
        self.describe(|key| key.cause.is_reported() && key.is_in(partition))
    }

    fn describe(&self, is_wanted: impl Fn(FaultKey) -> bool) -> Option<String> {
        let mut faults = self.faults.iter();
        let (key, fault) = faults.find(|(key, fault)| fault.over.is_none() && is_wanted(**key))?;
        let what = &fault.what;
        let back = fault.recovery_condition(*key, self.reports_recovery_action);
        Some(format!("{what}; {back}"))
    }
}

/// The faults that a reading shows.
fn shown_faults(observation: DeviceObservation<'_>) -> Vec<(FaultCause, String)> {
    let device = match observation {
        DeviceObservation::Device(device) => device,
        DeviceObservation::Gone => {
            return vec![(FaultCause::Away, "it is no longer present".to_owned())];
        }
        DeviceObservation::NoDriver(reason) => {
            return vec![(FaultCause::NoDriver, format!("there is no driver: {reason}"))];
        }
        DeviceObservation::Silent(why) => {
            return vec![(FaultCause::Silent, format!("NVML does not respond: {why}"))];
        }
    };
    match &device.condition {
        Condition::Working => {}
        Condition::Failing { reason } => {
            return vec![(FaultCause::Away, format!("the driver cannot read it: {reason}"))];
        }
        Condition::PciOnly { .. } => {
            return vec![(FaultCause::Away, "the driver does not report it".to_owned())];
        }
    }
    let mut shown = Vec::new();
    let action = match device.health.recovery_action {
        None | Some(RecoveryAction::None) => None,
        Some(RecoveryAction::ResetGpu) => Some("a reset".to_owned()),
        Some(RecoveryAction::RebootNode) => Some("a restart of the machine".to_owned()),
        Some(RecoveryAction::DrainP2p) => Some("a drain of the traffic between devices".to_owned()),
        Some(RecoveryAction::DrainAndReset) => Some("a drain and a reset".to_owned()),
        Some(RecoveryAction::Other(number)) => Some(format!("recovery action {number}")),
    };
    if let Some(action) = action {
        shown.push((FaultCause::Recovery, format!("the driver requests {action}")));
    }
    if let Some(rows) = device.health.remapped_rows {
        if rows.failed {
            let what = "a row of its memory could not be remapped, and it must be replaced";
            shown.push((FaultCause::RowsFailed, what.to_owned()));
        }
        if rows.pending {
            let what = "rows of its memory will be remapped by the next reset";
            shown.push((FaultCause::RowsPending, what.to_owned()));
        }
    }
    shown
}

impl FaultKey {
    /// Returns whether the fault is one of the whole device, or confined to the partition with these ids.
    fn is_in(self, partition: Option<(u32, u32)>) -> bool {
        match (self.part, partition) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some((gi, ci)), Some(own)) => gi == own.0 && ci.is_none_or(|ci| ci == own.1),
        }
    }

    /// Returns whether the fault affects `unit`. A fault of the whole device affects all its partitions. Instance ids
    /// are reused: a fault affects whichever instance has the id now, for as long as it lasts.
    fn affects(self, unit: &Unit) -> bool {
        let (Some((gi, ci)), Some(partition)) = (self.part, &unit.partition) else {
            return true;
        };
        partition.gpu_instance == gi && ci.is_none_or(|ci| ci == partition.compute_instance)
    }
}

impl FaultCause {
    /// Returns whether a device that no longer shows the cause was reset, reloaded or recovered.
    const fn is_ended_by_reset(self) -> bool {
        matches!(self, Self::NoDriver | Self::Away | Self::Recovery | Self::RowsPending)
    }

    /// Returns whether only errors show the cause, and readings do not.
    const fn is_reported(self) -> bool {
        matches!(self, Self::Machine | Self::Reset | Self::Memory | Self::Unknown | Self::Passing)
    }

    const fn asks_for_reset(self) -> bool {
        matches!(self, Self::Reset | Self::Machine)
    }
}

impl Fault {
    /// Records that the fault is shown or reported.
    fn record(&mut self, now: Duration, what: String) {
        if let Some(over) = self.over.take() {
            let is_back = now.saturating_sub(over) < RECURRENCE_WINDOW;
            self.returns = if is_back { self.returns.saturating_add(1) } else { 0 };
        }
        self.what = what;
        self.last = now;
        (self.was_down, self.was_reset) = (false, false);
    }

    /// Records a reading in which the device is down or was reset.
    fn note_reset(&mut self, now: Duration, is_down: bool, was_reset: bool) {
        if self.over.is_some() || self.was_reset {
            return;
        }
        if is_down {
            self.was_down = true;
        } else if self.was_down || was_reset {
            self.was_reset = true;
            self.last = now;
        }
    }

    /// Time from the last sign of the fault to its end.
    fn wait(&self, key: FaultKey, reports_recovery_action: bool) -> Duration {
        let is_driver = matches!(key.cause, FaultCause::NoDriver | FaultCause::Silent);
        let first = if is_driver {
            DRIVER_SETTLE_TIME
        } else if !key.cause.asks_for_reset() || self.was_reset {
            QUIET_PERIOD
        } else if reports_recovery_action {
            RESET_TIMEOUT
        } else {
            RESET_TIMEOUT_UNREPORTED
        };
        self.with_backoff(first)
    }

    fn with_backoff(&self, initial: Duration) -> Duration {
        let max = MAX_DURATION;
        Backoff { initial, max }.delay(self.returns)
    }

    /// The time at which the fault ends, if no event intervenes; `None` if it is over or still shown.
    fn due(
        &self,
        key: FaultKey,
        clean: Option<Duration>,
        reports_recovery_action: bool,
    ) -> Option<Duration> {
        if self.over.is_some() || self.is_shown {
            return None;
        }
        let since = self.last.max(clean?);
        Some(since.saturating_add(self.wait(key, reports_recovery_action)))
    }

    fn recovery_condition(&self, key: FaultKey, reports_recovery_action: bool) -> String {
        let wait = format_duration(self.wait(key, reports_recovery_action));
        match key.cause {
            FaultCause::NoDriver => {
                format!("it becomes healthy {wait} after a driver is available")
            }
            FaultCause::Silent => format!("it becomes healthy {wait} after NVML responds"),
            FaultCause::Away => format!("it becomes healthy after it has responded for {wait}"),
            FaultCause::RowsFailed | FaultCause::Recovery | FaultCause::RowsPending => {
                format!("it becomes healthy {wait} after the driver no longer reports this")
            }
            FaultCause::Reset | FaultCause::Machine if !self.was_reset => {
                let first = format_duration(self.with_backoff(QUIET_PERIOD));
                let what = if key.cause == FaultCause::Reset {
                    "a reset"
                } else {
                    "a restart of the machine"
                };
                format!(
                    "it becomes healthy {first} after {what}, or after {wait} without another such error"
                )
            }
            FaultCause::Reset
            | FaultCause::Machine
            | FaultCause::Memory
            | FaultCause::Unknown
            | FaultCause::Passing => {
                format!("it becomes healthy after {wait} without another such error")
            }
        }
    }
}

/// Formats a duration: `60 s`, `5 min`.
fn format_duration(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds > 60 && seconds.is_multiple_of(60) {
        format!("{} min", seconds / 60)
    } else {
        format!("{seconds} s")
    }
}
