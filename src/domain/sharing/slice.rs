//! How long a turn is on each device: what is to be run for it, and what came of that.
//!
//! NVML has no call for it and nothing tells how it is; NVIDIA's program can set it. So it is remembered what was set, and set again
//! after whatever may have undone it. One call at a time: each opens all devices.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::domain::id::{GpuUuid, PciAddress};
use crate::domain::inventory::{Condition, Inventory, NvmlState, Vendor};
use crate::domain::layout::{SliceLength, Targets};

/// How long it is waited after a failure; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// The longest: somebody may have installed the program.
const LONGEST_WAIT: Duration = Duration::from_mins(10);

/// How long turns are on the devices of a node. Times are since the program began.
#[derive(Debug, Default)]
pub struct Slices {
    devices: BTreeMap<PciAddress, Turn>,
    running: Option<Running>,
}

/// What there is to be looked at.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The devices.
    pub inventory: &'a Inventory,
    /// What is asked of them.
    pub targets: &'a Targets,
    /// Devices that are being changed, or are to be: a change may undo what was set, and a program that has the device open is
    /// in its way.
    pub unsteady: &'a BTreeSet<PciAddress>,
    /// Whether a device is being changed just now.
    pub is_busy: bool,
}

/// A call of NVIDIA's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The device.
    pub pci: PciAddress,
    /// By which name the program is told of it.
    pub uuid: GpuUuid,
    /// How long its turns shall be; `None` is the driver's own choice.
    pub length: Option<SliceLength>,
}

/// A device whose turns are not as long as they shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unmet<'a> {
    /// The device.
    pub pci: PciAddress,
    /// How long its turns shall be; `None` is the driver's own choice.
    pub length: Option<SliceLength>,
    /// Why they are not; `None` where nothing has failed so far.
    pub reason: Option<&'a str>,
}

#[derive(Debug)]
struct Turn {
    uuid: GpuUuid,
    asked: Option<SliceLength>,
    /// What we have set last; `None` where we have set nothing.
    set: Option<Set>,
    failure: Option<Failure>,
    is_steady: bool,
}

#[derive(Debug, Clone, Copy)]
struct Set {
    length: Option<SliceLength>,
    /// Whether nothing has happened since that may have undone it.
    is_sure: bool,
}

#[derive(Debug)]
struct Failure {
    reason: String,
    wait: Duration,
    next: Duration,
}

#[derive(Debug)]
struct Running {
    order: Order,
    /// Whether nothing has happened since that may have undone it.
    is_sure: bool,
}

impl Slices {
    /// Takes in a look; what is to be run now, of which [`Slices::done`] is told before the next.
    pub fn look(&mut self, now: Duration, scene: Scene<'_>) -> Option<Order> {
        match scene.inventory.nvml {
            NvmlState::Ready(_) => self.see(scene),
            // Whoever waits for a call to return knows nothing new.
            NvmlState::Loading | NvmlState::Stalled { .. } => return None,
            NvmlState::Absent { .. } | NvmlState::Lost { .. } => {
                for turn in self.devices.values_mut() {
                    turn.shake();
                }
                if let Some(running) = &mut self.running {
                    running.is_sure = false;
                }
                return None;
            }
        }
        if scene.is_busy || self.running.is_some() {
            return None;
        }
        let due = |(_, turn): &(&PciAddress, &Turn)| turn.is_due(now);
        let (pci, turn) = self.devices.iter().find(due)?;
        let order = Order {
            pci: *pci,
            uuid: turn.uuid.clone(),
            length: turn.asked,
        };
        self.running = Some(Running {
            order: order.clone(),
            is_sure: true,
        });
        Some(order)
    }

    /// What came of that which was to be run.
    pub fn done(&mut self, now: Duration, outcome: Result<(), String>) {
        let Some(Running { order, is_sure }) = self.running.take() else {
            return;
        };
        let turn = self.devices.get_mut(&order.pci);
        let Some(turn) = turn.filter(|turn| turn.uuid == order.uuid) else {
            return;
        };
        match outcome {
            Ok(()) => {
                turn.failure = None;
                turn.set = Some(Set {
                    length: order.length,
                    is_sure,
                });
            }
            // Something else is asked meanwhile, and was not tried.
            Err(_) if turn.asked != order.length => turn.failure = None,
            Err(reason) => {
                let before = turn.failure.as_ref();
                let wait = before.map_or(FIRST_WAIT, |before| before.wait.saturating_mul(2));
                let wait = wait.min(LONGEST_WAIT);
                turn.failure = Some(Failure {
                    reason,
                    wait,
                    next: now.saturating_add(wait),
                });
            }
        }
    }

    /// Devices whose turns are not as long as they shall be, ordered by address; not those that are not to be touched now.
    pub fn unmet(&self) -> impl Iterator<Item = Unmet<'_>> {
        let all = self.devices.iter();
        all.filter(|(_, turn)| turn.is_unmet())
            .map(|(pci, turn)| Unmet {
                pci: *pci,
                length: turn.asked,
                reason: turn.failure.as_ref().map(|one| one.reason.as_str()),
            })
    }

    /// When what has failed is tried again.
    pub fn again(&self) -> Option<Duration> {
        let all = self.devices.values().filter(|turn| turn.is_unmet());
        all.filter_map(|turn| turn.failure.as_ref())
            .map(|failure| failure.next)
            .min()
    }

    fn see(&mut self, scene: Scene<'_>) {
        let mut known = std::mem::take(&mut self.devices);
        for device in &scene.inventory.devices {
            let Some(uuid) = &device.uuid else {
                // One that does not answer keeps what is known of it.
                if let Some(mut turn) = known.remove(&device.pci) {
                    turn.shake();
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
                .unwrap_or_else(|| Turn::new(uuid));
            turn.ask(asked(scene.targets, device.pci));
            let is_well = device.condition == Condition::Working;
            if is_well && !scene.unsteady.contains(&device.pci) {
                turn.is_steady = true;
            } else {
                turn.shake();
            }
            self.devices.insert(device.pci, turn);
        }
        if let Some(running) = &mut self.running {
            let turn = self.devices.get(&running.order.pci);
            running.is_sure &= turn.is_some_and(|turn| turn.is_steady);
        }
    }
}

impl Turn {
    fn new(uuid: &GpuUuid) -> Self {
        Self {
            uuid: uuid.clone(),
            asked: None,
            set: None,
            failure: None,
            is_steady: true,
        }
    }

    fn ask(&mut self, length: Option<SliceLength>) {
        if self.asked != length {
            self.asked = length;
            self.failure = None;
        }
    }

    /// Something happens that may undo what was set.
    fn shake(&mut self) {
        self.is_steady = false;
        if let Some(set) = &mut self.set {
            set.is_sure = false;
        }
    }

    fn is_unmet(&self) -> bool {
        let is_met = match self.set {
            // Nobody has touched it.
            None => self.asked.is_none(),
            Some(set) => set.length == self.asked && (set.is_sure || self.asked.is_none()),
        };
        self.is_steady && !is_met
    }

    fn is_due(&self, now: Duration) -> bool {
        let waits = self.failure.as_ref().is_some_and(|one| one.next > now);
        self.is_unmet() && !waits
    }
}

impl Order {
    /// What [`SliceLength::number`] says, and 0 for the driver's own choice.
    pub fn number(&self) -> u32 {
        self.length.map_or(0, SliceLength::number)
    }
}

/// How long turns of a device shall be; where nothing is shared there are none.
fn asked(targets: &Targets, pci: PciAddress) -> Option<SliceLength> {
    let target = targets.devices.iter().find(|target| target.pci == pci)?;
    let sharing = target.time_slicing.as_ref()?;
    sharing.slice.filter(|_| sharing.shares_anything())
}

#[cfg(test)]
mod tests;
