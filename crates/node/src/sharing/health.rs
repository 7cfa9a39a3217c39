//! Health of units, and their recovery.
//!
//! ```text
//!   Xids ----------------> xid: the required action --+
//!                                                     +--> device_health, one per device: faults --> Health of a unit
//!   inventory: condition, counters -------------------+
//! ```
//!
//! Every fault ends. A fault that the device itself shows (it does not respond, or the driver requests a reset) lasts
//! for as long as it is shown. A fault that was only reported lasts until a reset, or until some time has passed
//! without another report. In both cases the device must then be read without a fault for some time, so that an
//! intermittent fault does not make it healthy each time. If a fault returns soon after it ended, that time doubles,
//! up to an hour. Reading the inventory is the probe: no fault ends without a successful reading.

mod device_health;
mod xid;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Inventory, NvmlState, Vendor};
use octavo_model::sharing_status::Health;
use octavo_model::xid::Xid;

use self::device_health::{DeviceHealth, DeviceObservation, RECURRENCE_WINDOW};
use super::offer::Unit;
pub use xid::{IgnoredXids, IgnoredXidsError, XidClass, XidTable};

/// Time for which the driver may be silent before healthy units become unhealthy.
///
/// A call that does not return is no evidence about the devices: running programs continue, and driver calls take
/// tens of seconds during a reset or repartitioning. So health is unchanged at first, or one slow call would prevent
/// pods from starting. But a driver that hangs permanently also hangs each starting container, so new pods are better
/// kept away.
const DRIVER_SILENCE_TIMEOUT: Duration = Duration::from_mins(2);

/// Maximum number of absent devices to remember. Present devices are always remembered.
const MAX_ABSENT_DEVICES: usize = 256;

/// Health of a node's devices. Times are relative to the start of the program.
#[derive(Debug, Default)]
pub struct HealthMonitor {
    table: XidTable,
    devices: BTreeMap<PciAddress, DeviceHealth>,
    silence: Option<DriverSilence>,
}

/// A period in which no device can be read.
#[derive(Debug, Clone, Copy)]
struct DriverSilence {
    since: Duration,
    /// The last attempt to read in this period.
    until: Duration,
}

impl HealthMonitor {
    /// Creates a monitor that classifies errors by `table`.
    pub fn new(table: XidTable) -> Self {
        Self { table, ..Self::default() }
    }

    /// Records errors reported by devices, without an inventory. This ends no fault.
    pub fn record_errors(&mut self, now: Duration, xids: &[Xid]) {
        for xid in xids {
            // Ignore reports of unknown devices.
            if let Some(device) = self.devices.get_mut(&xid.pci) {
                device.report(now, xid, self.table.classify(xid.number));
            }
        }
    }

    /// Records an inventory, and the errors reported since the last one.
    pub fn record_inventory(&mut self, now: Duration, inventory: &Inventory, xids: &[Xid]) {
        let ours = inventory.devices.iter();
        let ours = ours.filter(|device| device.vendor == Vendor::Nvidia);
        for device in ours.clone() {
            self.devices.entry(device.pci).or_default();
        }
        self.record_errors(now, xids);
        let driver = match &inventory.nvml {
            NvmlState::Loading => return self.record_silence(now, "it is starting"),
            NvmlState::Stalled { call, .. } => {
                return self.record_silence(now, &format!("{call} does not return"));
            }
            NvmlState::Absent { reason } | NvmlState::Lost { reason } => Some(reason.as_str()),
            NvmlState::Ready(_) => None,
        };
        self.silence = None;
        let mut devices: BTreeMap<PciAddress, DeviceObservation<'_>> = BTreeMap::new();
        for device in ours {
            let observation =
                driver.map_or(DeviceObservation::Device(device), DeviceObservation::NoDriver);
            devices.insert(device.pci, observation);
        }
        for (pci, device) in &mut self.devices {
            let observation = devices.remove(pci).unwrap_or(DeviceObservation::Gone);
            device.observe(now, observation);
        }
        self.evict_absent(now);
    }

    /// The health of `unit`.
    pub fn health(&self, unit: &Unit) -> Health {
        let Some(device) = self.devices.get(&unit.pci) else {
            return Health::Unhealthy {
                reason: "the device has not been detected yet; it becomes healthy after it is detected and responds"
                    .to_owned(),
            };
        };
        device.reason(unit).map_or(Health::Healthy, |reason| Health::Unhealthy { reason })
    }

    /// The error that a device reported, with the condition of its recovery, if its state does not show the error: of the
    /// whole device, or of the partition with these ids of its GPU instance and compute instance.
    pub fn reported_fault(&self, pci: PciAddress, partition: Option<(u32, u32)>) -> Option<String> {
        self.devices.get(&pci)?.reported_fault(partition)
    }

    /// Time of the next change that happens without an event, at which a reading is due; `None` if there is none.
    pub fn again(&self) -> Option<Duration> {
        if let Some(silence) = self.silence {
            let end = silence.since.saturating_add(DRIVER_SILENCE_TIMEOUT);
            return (end > silence.until).then_some(end);
        }
        self.devices.values().filter_map(DeviceHealth::next_end).min()
    }

    fn record_silence(&mut self, now: Duration, why: &str) {
        let since = self.silence.map_or(now, |silence| silence.since);
        self.silence = Some(DriverSilence { since, until: now });
        if now.saturating_sub(since) >= DRIVER_SILENCE_TIMEOUT {
            for device in self.devices.values_mut() {
                device.observe(now, DeviceObservation::Silent(why));
            }
        }
    }

    /// Forgets devices that are permanently gone, and the longest absent ones beyond the limit.
    fn evict_absent(&mut self, now: Duration) {
        self.devices
            .retain(|_, device| device.gone_for(now).is_none_or(|time| time < RECURRENCE_WINDOW));
        let mut gone: Vec<(Duration, PciAddress)> = self
            .devices
            .iter()
            .filter_map(|(pci, device)| Some((device.gone_for(now)?, *pci)))
            .collect();
        gone.sort_unstable();
        let excess = gone.len().saturating_sub(MAX_ABSENT_DEVICES);
        for (_, pci) in gone.into_iter().rev().take(excess) {
            self.devices.remove(&pci);
        }
    }
}
