//! What the agent logs of what it sees: each thing once, so that a long night of the same trouble is one line.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::{debug, info, warn};

use crate::agent::sink::{Published, SinkError};
use crate::domain::error::chain;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Condition, Device, Inventory, NvmlState};

/// Remembers what was last said, and says only what is new.
#[derive(Debug, Default)]
pub(super) struct Log {
    nvml: Option<NvmlState>,
    devices: BTreeMap<PciAddress, String>,
    failure: Option<String>,
}

impl Log {
    pub(super) fn inventory(&mut self, inventory: &Arc<Inventory>) {
        if self.nvml.as_ref() != Some(&inventory.nvml) {
            say_nvml(&inventory.nvml);
            self.nvml = Some(inventory.nvml.clone());
        }
        let devices: BTreeMap<PciAddress, String> = inventory
            .devices
            .iter()
            .map(|device| (device.pci, describe(device)))
            .collect();
        for (pci, device) in &devices {
            match self.devices.get(pci) {
                None => info!("device: {device}"),
                Some(before) if before != device => info!("device now: {device}"),
                Some(_) => {}
            }
        }
        for (_, gone) in self
            .devices
            .iter()
            .filter(|(pci, _)| !devices.contains_key(pci))
        {
            info!("device gone: {gone}");
        }
        self.devices = devices;
    }

    pub(super) fn publishing(&mut self, outcome: Result<Published, SinkError>) {
        match outcome {
            Ok(published) => {
                if self.failure.take().is_some() {
                    info!("labels can be published again");
                }
                match published {
                    Published::Changed => info!("labels published"),
                    Published::Refreshed => debug!("the labels' time of expiry moved"),
                    Published::Unchanged => {}
                }
            }
            Err(error) => {
                let failure = chain(&error);
                if self.failure.as_ref() != Some(&failure) {
                    warn!("{failure}; what was published before stays, and it is tried again");
                    self.failure = Some(failure);
                }
            }
        }
    }
}

fn say_nvml(state: &NvmlState) {
    match state {
        NvmlState::Absent { reason } => info!("nvml: absent: {reason}"),
        NvmlState::Loading => info!("nvml: loading"),
        NvmlState::Ready(driver) => info!("nvml: ready, driver {}", driver.version),
        NvmlState::Lost { reason } => warn!("nvml: lost: {reason}"),
        NvmlState::Stalled { call, .. } => {
            warn!("nvml: stalled: {call} does not return; the labels stay as they are");
        }
    }
}

fn describe(device: &Device) -> String {
    let place = format!("{} {}", device.pci, device.identity);
    match &device.condition {
        Condition::Working => place,
        Condition::Failing { reason } => format!("{place}, failing: {reason}"),
        Condition::PciOnly { kernel_driver } => {
            let driver = kernel_driver.as_deref().unwrap_or("none");
            format!("{place}, seen on the PCI bus only (kernel driver: {driver})")
        }
    }
}
