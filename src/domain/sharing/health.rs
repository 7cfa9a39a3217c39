//! Whether a unit is fit to be given out, and the way back.

use std::time::Duration;

use super::offer::Unit;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Condition, Inventory};

/// An error that a device reported by itself. Source: NVIDIA, "Xid Errors".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xid {
    /// The device.
    pub pci: PciAddress,
    /// The GPU instance that it is confined to, where the driver says so.
    pub gpu_instance: Option<u32>,
    /// The compute instance, where the driver says so.
    pub compute_instance: Option<u32>,
    /// Its number.
    pub number: u64,
}

/// Whether a unit is fit to be given out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Health {
    /// It is.
    #[default]
    Healthy,
    /// It is not.
    Unhealthy {
        /// Why, and what brings it back, in words for a person.
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
    failing: Vec<(PciAddress, String)>,
}

impl Monitor {
    /// Takes in a look at the hardware, and what the devices have reported since the last one.
    pub fn see(&mut self, _now: Duration, inventory: &Inventory, _xids: &[Xid]) {
        let failing = inventory.devices.iter().filter_map(|device| {
            let Condition::Failing { reason } = &device.condition else {
                return None;
            };
            Some((device.pci, reason.clone()))
        });
        self.failing = failing.collect();
    }

    /// How `unit` is.
    pub fn health(&self, unit: &Unit) -> Health {
        let found = self.failing.iter().find(|(pci, _)| *pci == unit.pci);
        found.map_or(Health::Healthy, |(_, reason)| Health::Unhealthy {
            reason: reason.clone(),
        })
    }

    /// When something of it changes by itself.
    pub fn again(&self) -> Option<Duration> {
        None
    }
}
