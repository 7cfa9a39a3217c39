//! Whether a unit is fit to be given out, and the way back.
//!
//! ```text
//!   Xids ----------------> xid: what each asks for --+
//!                                                    +--> patient, one a device: troubles, each with its end --> Health of a unit
//!   a look at the hardware: condition, counters -----+
//! ```
//!
//! Every trouble ends. One that the device itself shows (it does not answer, the driver asks for a reset) lasts for as long as it
//! is shown; one that was only reported lasts until there was a reset, or for a while without another report. In both cases the
//! device then has to be read without a fault for some time, so that one that comes and goes is not given out each time it comes;
//! and where a trouble is back soon after it ended, that time doubles, up to an hour. The look at the hardware is the probe: nothing
//! ends without one that answered.

mod patient;
mod xid;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

pub use xid::{Class, Ignored, IgnoredError, Table, Xid};

use self::patient::{FORGET, Patient, Sight};
use super::offer::Unit;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Inventory, NvmlState, Vendor};

/// How long a driver may say nothing before what was fit is not any more.
///
/// A call that does not return says nothing of the devices: programs that run go on, and driver calls take tens of seconds while
/// somebody resets a device or changes partitions. So at first all stays as it was, or one slow call would keep a node's pods
/// away. But a driver that hangs for good hangs for each container that starts as well, and then it is kinder to keep them away.
const HOLD: Duration = Duration::from_mins(2);

/// How many devices are remembered that are not there any more; those that are there are as many as there are.
const REMEMBERED: usize = 256;

/// Whether a unit is fit to be given out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Health {
    /// It is.
    #[default]
    Healthy,
    /// It is not.
    Unhealthy {
        /// Why, and what brings it back, in words for a person. It stays the same for as long as that is so.
        reason: String,
    },
}

impl Health {
    /// Whether it is fit.
    pub fn is_healthy(&self) -> bool {
        *self == Self::Healthy
    }
}

/// What is known of the health of a node's devices. Times are since the program began.
#[derive(Debug, Default)]
pub struct Monitor {
    table: Table,
    patients: BTreeMap<PciAddress, Patient>,
    silence: Option<Silence>,
}

/// Nothing can be read of any device.
#[derive(Debug, Clone, Copy)]
struct Silence {
    since: Duration,
    /// The last look in it.
    until: Duration,
}

impl Monitor {
    /// One that goes by `table`.
    pub fn new(table: Table) -> Self {
        Self {
            table,
            ..Self::default()
        }
    }

    /// Takes in what devices have reported, without a look at the hardware: nothing ends by it.
    pub fn hear(&mut self, now: Duration, xids: &[Xid]) {
        for xid in xids {
            // One of a device that nobody has ever seen is nobody's.
            if let Some(patient) = self.patients.get_mut(&xid.pci) {
                patient.report(now, xid, self.table.look_up(xid.number));
            }
        }
    }

    /// Takes in a look at the hardware, and what the devices have reported since the last one.
    pub fn see(&mut self, now: Duration, inventory: &Inventory, xids: &[Xid]) {
        let ours = inventory.devices.iter();
        let ours = ours.filter(|device| device.vendor == Vendor::Nvidia);
        for device in ours.clone() {
            self.patients.entry(device.pci).or_default();
        }
        self.hear(now, xids);
        let driver = match &inventory.nvml {
            NvmlState::Loading => return self.hear_nothing(now, "it is being started"),
            NvmlState::Stalled { call, .. } => {
                return self.hear_nothing(now, &format!("{call} does not return"));
            }
            NvmlState::Absent { reason } | NvmlState::Lost { reason } => Some(reason.as_str()),
            NvmlState::Ready(_) => None,
        };
        self.silence = None;
        let mut devices: BTreeMap<PciAddress, Sight<'_>> = BTreeMap::new();
        for device in ours {
            let sight = driver.map_or(Sight::Device(device), Sight::NoDriver);
            devices.insert(device.pci, sight);
        }
        for (pci, patient) in &mut self.patients {
            let sight = devices.remove(pci).unwrap_or(Sight::Gone);
            patient.look(now, sight);
        }
        self.forget(now);
    }

    /// How `unit` is.
    pub fn health(&self, unit: &Unit) -> Health {
        let Some(patient) = self.patients.get(&unit.pci) else {
            return Health::Unhealthy {
                reason: "nobody has seen the device; it is fit once it is there and answers"
                    .to_owned(),
            };
        };
        patient
            .reason(unit)
            .map_or(Health::Healthy, |reason| Health::Unhealthy { reason })
    }

    /// When something of it changes by itself: a look is due then. `None` where only a change of the hardware brings one.
    pub fn again(&self) -> Option<Duration> {
        if let Some(silence) = self.silence {
            let end = silence.since.saturating_add(HOLD);
            return (end > silence.until).then_some(end);
        }
        self.patients.values().filter_map(Patient::due).min()
    }

    fn hear_nothing(&mut self, now: Duration, why: &str) {
        let since = self.silence.map_or(now, |silence| silence.since);
        self.silence = Some(Silence { since, until: now });
        if now.saturating_sub(since) >= HOLD {
            for patient in self.patients.values_mut() {
                patient.look(now, Sight::Silent(why));
            }
        }
    }

    /// Devices that are gone for good are forgotten, the longest gone first where there are too many.
    fn forget(&mut self, now: Duration) {
        self.patients
            .retain(|_, patient| patient.gone_for(now).is_none_or(|time| time < FORGET));
        let mut gone: Vec<(Duration, PciAddress)> = self
            .patients
            .iter()
            .filter_map(|(pci, patient)| Some((patient.gone_for(now)?, *pci)))
            .collect();
        gone.sort_unstable();
        let excess = gone.len().saturating_sub(REMEMBERED);
        for (_, pci) in gone.into_iter().rev().take(excess) {
            self.patients.remove(&pci);
        }
    }
}
