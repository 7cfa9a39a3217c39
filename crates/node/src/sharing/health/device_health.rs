//! Health of one device: its current faults and their recovery.

use std::collections::BTreeMap;
use std::time::Duration;

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
/// Caps the exponent: beyond this, every duration is [`MAX_DURATION`].
const MAX_DOUBLINGS: u32 = 12;

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
    troubles: BTreeMap<FaultKey, Fault>,
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
    /// True if the device was down or absent since the report.
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
        if self.troubles.len() >= MAX_FAULTS && !self.troubles.contains_key(&key) {
            key.part = None;
        }
        let number = xid.number;
        let what = match meaning {
            "" => format!("it reported Xid {number}, which nobody knows"),
            meaning => format!("it reported Xid {number}, {meaning}"),
        };
        self.trouble(key).record(now, what);
    }

    /// Records a reading. Faults end only here.
    pub(super) fn observe(&mut self, now: Duration, sight: DeviceObservation<'_>) {
        let shown = shown_faults(sight);
        for (key, trouble) in &mut self.troubles {
            trouble.is_shown = shown.iter().any(|(cause, _)| *cause == key.cause);
        }
        let is_clean = shown.is_empty();
        let is_down = shown.iter().any(|(cause, _)| cause.is_ended_by_reset());
        for (cause, what) in shown {
            let trouble = self.trouble(FaultKey { cause, part: None });
            trouble.record(now, what);
            trouble.is_shown = true;
        }
        let mut was_reset = false;
        if let DeviceObservation::Device(device) = sight
            && is_clean
        {
            was_reset = self.count_errors(now, device);
            let wish = device.health.recovery_action;
            self.reports_recovery_action = wish.is_some();
        }
        for trouble in self.troubles.values_mut() {
            trouble.note_reset(now, is_down, was_reset && trouble.last < now);
        }
        let since = is_clean.then(|| self.clean_since.unwrap_or(now));
        self.clean_since = since;
        let is_gone = matches!(sight, DeviceObservation::Gone);
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
            let what = "it had memory errors that cannot be corrected".to_owned();
            let key = FaultKey {
                cause: FaultCause::Memory,
                part: None,
            };
            self.trouble(key).record(now, what);
        }
        after < before
    }

    fn end(&mut self, now: Duration) {
        let (clean, tells_wishes) = (self.clean_since, self.reports_recovery_action);
        for (key, trouble) in &mut self.troubles {
            if trouble
                .due(*key, clean, tells_wishes)
                .is_some_and(|due| due <= now)
            {
                trouble.over = Some(now);
            }
        }
        self.troubles.retain(|_, trouble| {
            let over = trouble.over;
            over.is_none_or(|over| now.saturating_sub(over) < RECURRENCE_WINDOW)
        });
    }

    fn trouble(&mut self, key: FaultKey) -> &mut Fault {
        self.troubles.entry(key).or_default()
    }

    /// The time at which the next fault ends, if no event intervenes.
    pub(super) fn next_end(&self) -> Option<Duration> {
        let troubles = self.troubles.iter();
        let due = troubles.filter_map(|(key, trouble)| {
            trouble.due(*key, self.clean_since, self.reports_recovery_action)
        });
        due.min()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.troubles.len()
    }

    /// Time for which the device has been absent.
    pub(super) fn gone_for(&self, now: Duration) -> Option<Duration> {
        self.gone_since.map(|since| now.saturating_sub(since))
    }

    /// The reason why `unit` of this device is unhealthy, and the condition of its recovery.
    pub(super) fn reason(&self, unit: &Unit) -> Option<String> {
        let mut troubles = self.troubles.iter();
        let (key, trouble) =
            troubles.find(|(key, trouble)| trouble.over.is_none() && key.affects(unit))?;
        let what = &trouble.what;
        let back = trouble.recovery_condition(*key, self.reports_recovery_action);
        Some(format!("{what}; {back}"))
    }
}

/// The faults that a reading shows.
fn shown_faults(sight: DeviceObservation<'_>) -> Vec<(FaultCause, String)> {
    let device = match sight {
        DeviceObservation::Device(device) => device,
        DeviceObservation::Gone => {
            return vec![(FaultCause::Away, "it is not there any more".to_owned())];
        }
        DeviceObservation::NoDriver(reason) => {
            return vec![(
                FaultCause::NoDriver,
                format!("there is no driver: {reason}"),
            )];
        }
        DeviceObservation::Silent(why) => {
            return vec![(FaultCause::Silent, format!("NVML does not answer: {why}"))];
        }
    };
    match &device.condition {
        Condition::Working => {}
        Condition::Failing { reason } => {
            return vec![(
                FaultCause::Away,
                format!("the driver cannot read it: {reason}"),
            )];
        }
        Condition::PciOnly { .. } => {
            return vec![(
                FaultCause::Away,
                "the driver does not speak for it".to_owned(),
            )];
        }
    }
    let mut shown = Vec::new();
    let wish = match device.health.recovery_action {
        None | Some(RecoveryAction::None) => None,
        Some(RecoveryAction::ResetGpu) => Some("a reset".to_owned()),
        Some(RecoveryAction::RebootNode) => Some("the machine to be restarted".to_owned()),
        Some(RecoveryAction::DrainP2p) => Some("traffic between devices to end".to_owned()),
        Some(RecoveryAction::DrainAndReset) => Some("it to be drained and reset".to_owned()),
        Some(RecoveryAction::Other(number)) => Some(format!("recovery action {number}")),
    };
    if let Some(wish) = wish {
        shown.push((FaultCause::Recovery, format!("the driver wants {wish}")));
    }
    if let Some(rows) = device.health.remapped_rows {
        if rows.failed {
            let what = "a row of its memory could not be remapped, and it is to be replaced";
            shown.push((FaultCause::RowsFailed, what.to_owned()));
        }
        if rows.pending {
            let what = "rows of its memory are remapped by the next reset";
            shown.push((FaultCause::RowsPending, what.to_owned()));
        }
    }
    shown
}

impl FaultKey {
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
        matches!(
            self,
            Self::NoDriver | Self::Away | Self::Recovery | Self::RowsPending
        )
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
            self.returns = if is_back {
                self.returns.saturating_add(1)
            } else {
                0
            };
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
    fn wait(&self, key: FaultKey, tells_wishes: bool) -> Duration {
        let is_driver = matches!(key.cause, FaultCause::NoDriver | FaultCause::Silent);
        let first = if is_driver {
            DRIVER_SETTLE_TIME
        } else if !key.cause.asks_for_reset() || self.was_reset {
            QUIET_PERIOD
        } else if tells_wishes {
            RESET_TIMEOUT
        } else {
            RESET_TIMEOUT_UNREPORTED
        };
        self.with_backoff(first)
    }

    fn with_backoff(&self, time: Duration) -> Duration {
        let times = 1_u32 << self.returns.min(MAX_DOUBLINGS);
        time.saturating_mul(times).min(MAX_DURATION)
    }

    /// The time at which the fault ends, if no event intervenes; `None` if it is over or still shown.
    fn due(&self, key: FaultKey, clean: Option<Duration>, tells_wishes: bool) -> Option<Duration> {
        if self.over.is_some() || self.is_shown {
            return None;
        }
        let since = self.last.max(clean?);
        Some(since.saturating_add(self.wait(key, tells_wishes)))
    }

    fn recovery_condition(&self, key: FaultKey, tells_wishes: bool) -> String {
        let wait = format_duration(self.wait(key, tells_wishes));
        match key.cause {
            FaultCause::NoDriver => format!("it is fit {wait} after there is one"),
            FaultCause::Silent => format!("it is fit {wait} after NVML answers"),
            FaultCause::Away => format!("it is fit after it has answered for {wait}"),
            FaultCause::RowsFailed | FaultCause::Recovery | FaultCause::RowsPending => {
                format!("it is fit {wait} after the driver says otherwise")
            }
            FaultCause::Reset | FaultCause::Machine if !self.was_reset => {
                let first = format_duration(self.with_backoff(QUIET_PERIOD));
                let what = if key.cause == FaultCause::Reset {
                    "a reset"
                } else {
                    "the machine was restarted"
                };
                format!("it is fit {first} after {what}, or after {wait} without another")
            }
            FaultCause::Reset
            | FaultCause::Machine
            | FaultCause::Memory
            | FaultCause::Unknown
            | FaultCause::Passing => {
                format!("it is fit after {wait} without another")
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
