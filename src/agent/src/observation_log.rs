//! Deduplicated log of the agent's observations: a condition is logged once, however long it lasts.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, Device, Inventory, NvmlState};
use octavo_model::reason::{Reason, Severity};
use octavo_toolkit::error::chain;
use tracing::{debug, info, warn};

use crate::sink::{Published, SinkError};

/// Logs `message` at the level of its reason's severity.
pub(super) fn log_by_severity(reason: Reason, message: &str) {
    match reason.kind() {
        Severity::Normal => info!(reason = %reason.as_str(), "{message}"),
        Severity::Warning => warn!(reason = %reason.as_str(), "{message}"),
    }
}

/// Remembers what was last logged, and logs only changes.
#[derive(Debug, Default)]
pub(super) struct ObservationLog {
    nvml: Option<NvmlState>,
    /// Why the PCI bus could not be read.
    bus: Option<String>,
    /// Whether the driver was unloaded or stopped responding, and has not recovered since.
    away: bool,
    devices: BTreeMap<PciAddress, String>,
    failure: Option<String>,
}

impl ObservationLog {
    pub(super) fn inventory(&mut self, inventory: &Arc<Inventory>) {
        if self.nvml.as_ref() != Some(&inventory.nvml) {
            self.log_nvml(&inventory.nvml);
            self.nvml = Some(inventory.nvml.clone());
        }
        self.log_bus(inventory.machine.bus_error.as_deref());
        let devices: BTreeMap<PciAddress, String> = inventory
            .devices
            .iter()
            .map(|device| (device.pci, describe(device, inventory)))
            .collect();
        for (pci, device) in &devices {
            match self.devices.get(pci) {
                None => info!(%device, "device found"),
                Some(before) if before != device => info!(%device, "device changed"),
                Some(_) => {}
            }
        }
        for (_, gone) in self.devices.iter().filter(|(pci, _)| !devices.contains_key(pci)) {
            info!(device = %gone, "device removed");
        }
        self.devices = devices;
    }

    fn log_bus(&mut self, error: Option<&str>) {
        if self.bus.as_deref() == error {
            return;
        }
        if let Some(error) = error {
            warn!(%error, "cannot read the PCI bus; using the previous reading");
        } else {
            info!("the PCI bus is readable again");
        }
        self.bus = error.map(ToOwned::to_owned);
    }

    fn log_nvml(&mut self, state: &NvmlState) {
        match state {
            NvmlState::Absent { reason } => {
                info!(error = %reason, reason = %Reason::NoDriver.as_str(), "nvml: absent");
            }
            NvmlState::Loading => info!("nvml: loading"),
            NvmlState::Ready(driver) if self.away => {
                let reason = Reason::DriverBack.as_str();
                info!(driver = %driver.version, reason = %reason, "nvml: ready");
                self.away = false;
            }
            NvmlState::Ready(driver) => info!(driver = %driver.version, "nvml: ready"),
            NvmlState::Lost { reason } => {
                warn!(error = %reason, reason = %Reason::NvmlLost.as_str(), "nvml: lost");
                self.away = true;
            }
            NvmlState::Stalled { call, .. } => {
                let reason = Reason::NvmlStalled.as_str();
                warn!(%call, reason = %reason, "nvml: stalled: the call does not return; labels stay unchanged");
                self.away = true;
            }
        }
    }

    pub(super) fn publishing(&mut self, outcome: Result<Published, SinkError>) {
        match outcome {
            Ok(published) => {
                if self.failure.take().is_some() {
                    info!("publishing labels works again");
                }
                match published {
                    Published::Changed => info!("labels published"),
                    Published::Refreshed => debug!("expiry time of the labels extended"),
                    Published::Unchanged => {}
                }
            }
            Err(error) => {
                let failure = chain(&error);
                if self.failure.as_ref() != Some(&failure) {
                    warn!(error = %failure, "cannot publish labels; retrying, previously published labels remain");
                    self.failure = Some(failure);
                }
            }
        }
    }
}

fn describe(device: &Device, inventory: &Inventory) -> String {
    let place = format!("{} {}", device.pci, device.identity);
    if inventory.is_reported_by_neuron(device) {
        return format!("{place}, read through the Neuron driver");
    }
    match &device.condition {
        Condition::Working => place,
        Condition::Failing { reason } => format!("{place}, failing: {reason}"),
        Condition::PciOnly { kernel_driver } => {
            let driver = kernel_driver.as_deref().unwrap_or("none");
            format!("{place}, found on the PCI bus only (kernel driver: {driver})")
        }
    }
}
