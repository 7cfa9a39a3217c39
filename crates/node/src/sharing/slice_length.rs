//! Time slice length of each device: the commands to run, and their results.
//!
//! NVML can neither set nor read it; NVIDIA's program can only set it. So the last setting is remembered, and set
//! again after any event that may have reset it. Commands run one at a time, because each opens all devices.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_model::backoff::Backoff;
use octavo_model::id::{GpuUuid, PciAddress};
use octavo_model::inventory::{Condition, Inventory, NvmlState, Vendor};
use octavo_planner::layout::{Targets, TimeSlice};

/// Delay after a failure. It is bounded because the program may have been installed since.
const RETRY: Backoff = Backoff { initial: Duration::from_secs(10), max: Duration::from_mins(10) };

/// Time slice lengths of a node's devices. Times are relative to the start of the program.
#[derive(Debug, Default)]
pub struct SliceLengths {
    devices: BTreeMap<PciAddress, DeviceSliceLength>,
    running: Option<RunningCommand>,
}

/// The inputs of one reconciliation.
#[derive(Debug, Clone, Copy)]
pub struct SliceInput<'a> {
    /// The devices.
    pub inventory: &'a Inventory,
    /// The desired state of the devices.
    pub targets: &'a Targets,
    /// Devices that are being or will be changed. A change may reset the setting, and a program that has the device
    /// open would block it.
    pub unsteady: &'a BTreeSet<PciAddress>,
    /// True if a device is being changed now.
    pub is_busy: bool,
}

/// A command of NVIDIA's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetSliceLength {
    /// The device.
    pub pci: PciAddress,
    /// The name of the device for the program.
    pub uuid: GpuUuid,
    /// The desired length; `None` for the driver's default.
    pub length: Option<TimeSlice>,
}

/// A device without its desired time slice length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnmetSliceLength<'a> {
    /// The device.
    pub pci: PciAddress,
    /// The desired length; `None` for the driver's default.
    pub length: Option<TimeSlice>,
    /// Reason of the last failure; `None` if nothing has failed so far.
    pub reason: Option<&'a str>,
}

#[derive(Debug)]
struct DeviceSliceLength {
    uuid: GpuUuid,
    requested: Option<TimeSlice>,
    /// The last setting made by us; `None` if we made none.
    set: Option<Set>,
    failure: Option<Failure>,
    is_steady: bool,
}

#[derive(Debug, Clone, Copy)]
struct Set {
    length: Option<TimeSlice>,
    /// True if no event since may have reset it.
    is_certain: bool,
}

#[derive(Debug)]
struct Failure {
    reason: String,
    /// Failures before this one.
    earlier: u32,
    next: Duration,
}

#[derive(Debug)]
struct RunningCommand {
    order: SetSliceLength,
    /// True if no event since may have reset it.
    is_sure: bool,
}

impl SliceLengths {
    /// Compares the observation with the desired lengths. Returns the command to run now, if any; its result must be
    /// passed to [`SliceLengths::done`] before the next one.
    pub fn reconcile(&mut self, now: Duration, input: SliceInput<'_>) -> Option<SetSliceLength> {
        match input.inventory.nvml {
            NvmlState::Ready(_) => self.observe(input),
            // While a call into the driver does not return, the inventory contains nothing new.
            NvmlState::Loading | NvmlState::Stalled { .. } => return None,
            NvmlState::Absent { .. } | NvmlState::Lost { .. } => {
                for device in self.devices.values_mut() {
                    device.invalidate();
                }
                if let Some(running) = &mut self.running {
                    running.is_sure = false;
                }
                return None;
            }
        }
        if input.is_busy || self.running.is_some() {
            return None;
        }
        let due = |(_, device): &(&PciAddress, &DeviceSliceLength)| device.is_due(now);
        let (pci, device) = self.devices.iter().find(due)?;
        let order =
            SetSliceLength { pci: *pci, uuid: device.uuid.clone(), length: device.requested };
        self.running = Some(RunningCommand { order: order.clone(), is_sure: true });
        Some(order)
    }

    /// Records the result of the command.
    pub fn done(&mut self, now: Duration, outcome: Result<(), String>) {
        let Some(RunningCommand { order, is_sure }) = self.running.take() else {
            return;
        };
        let device = self.devices.get_mut(&order.pci);
        let Some(device) = device.filter(|device| device.uuid == order.uuid) else {
            return;
        };
        match outcome {
            Ok(()) => {
                device.failure = None;
                device.set = Some(Set { length: order.length, is_certain: is_sure });
            }
            // The desired length has changed since, and was not tried.
            Err(_) if device.requested != order.length => device.failure = None,
            Err(reason) => {
                let before = device.failure.as_ref();
                let earlier = before.map_or(0, |before| before.earlier.saturating_add(1));
                device.failure = Some(Failure {
                    reason,
                    earlier,
                    next: now.saturating_add(RETRY.delay(earlier)),
                });
            }
        }
    }

    /// Devices without their desired length, ordered by address. Devices that must not be touched now are not
    /// included.
    pub fn unmet(&self) -> impl Iterator<Item = UnmetSliceLength<'_>> {
        let all = self.devices.iter();
        all.filter(|(_, device)| device.is_unmet()).map(|(pci, device)| UnmetSliceLength {
            pci: *pci,
            length: device.requested,
            reason: device.failure.as_ref().map(|one| one.reason.as_str()),
        })
    }

    /// The time at which the next failed command is retried.
    pub fn again(&self) -> Option<Duration> {
        let all = self.devices.values().filter(|device| device.is_unmet());
        all.filter_map(|device| device.failure.as_ref()).map(|failure| failure.next).min()
    }

    fn observe(&mut self, input: SliceInput<'_>) {
        let mut known = std::mem::take(&mut self.devices);
        for device in &input.inventory.devices {
            let Some(uuid) = &device.uuid else {
                // A device that does not respond retains its state.
                if let Some(mut turn) = known.remove(&device.pci) {
                    turn.invalidate();
                    self.devices.insert(device.pci, turn);
                }
                continue;
            };
            if device.vendor != Vendor::Nvidia {
                continue;
            }
            let turn = known.remove(&device.pci);
            let mut turn = turn
                .filter(|turn| turn.uuid == *uuid)
                .unwrap_or_else(|| DeviceSliceLength::new(uuid));
            turn.set_desired(desired_length(input.targets, device.pci));
            let is_well = device.condition == Condition::Working;
            if is_well && !input.unsteady.contains(&device.pci) {
                turn.is_steady = true;
            } else {
                turn.invalidate();
            }
            self.devices.insert(device.pci, turn);
        }
        if let Some(running) = &mut self.running {
            let device = self.devices.get(&running.order.pci);
            running.is_sure &= device.is_some_and(|device| device.is_steady);
        }
    }
}

impl DeviceSliceLength {
    fn new(uuid: &GpuUuid) -> Self {
        Self { uuid: uuid.clone(), requested: None, set: None, failure: None, is_steady: true }
    }

    fn set_desired(&mut self, length: Option<TimeSlice>) {
        if self.requested != length {
            self.requested = length;
            self.failure = None;
        }
    }

    /// Records an event that may reset the setting.
    fn invalidate(&mut self) {
        self.is_steady = false;
        if let Some(set) = &mut self.set {
            set.is_certain = false;
        }
    }

    fn is_unmet(&self) -> bool {
        let is_met = match self.set {
            // The device was never changed by us.
            None => self.requested.is_none(),
            Some(set) => {
                set.length == self.requested && (set.is_certain || self.requested.is_none())
            }
        };
        self.is_steady && !is_met
    }

    fn is_due(&self, now: Duration) -> bool {
        let waits = self.failure.as_ref().is_some_and(|one| one.next > now);
        self.is_unmet() && !waits
    }
}

impl SetSliceLength {
    /// The value of [`TimeSlice::number`], or 0 for the driver's default.
    pub fn number(&self) -> u32 {
        self.length.map_or(0, TimeSlice::number)
    }
}

/// Desired time slice length of a device; `None` if it is not shared.
fn desired_length(targets: &Targets, pci: PciAddress) -> Option<TimeSlice> {
    let target = targets.devices.iter().find(|target| target.pci == pci)?;
    let sharing = target.time_slicing.as_ref()?;
    sharing.slice.filter(|_| sharing.is_sharing())
}

#[cfg(test)]
mod tests;
