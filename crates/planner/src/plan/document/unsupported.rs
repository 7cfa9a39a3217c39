//! The document of a layout that the hardware does not support. There is no plan; each device has the rule that forbids
//! its part.

use super::build::current_device;
use super::{DeviceVerdict, InfeasibleDevice, PlanDocument, PlanInputs};
use crate::layout::{RuleError, RuleErrorKind};
use crate::plan::PlanOutcome;
use octavo_model::id::PciAddress;

impl PlanDocument {
    /// Creates the document from the `errors` that prevented a plan for `subject`. Returns `None` if any of the errors
    /// is not a limitation of the hardware.
    pub fn refused(subject: &PlanInputs<'_>, errors: &[RuleError]) -> Option<Self> {
        let rules: Option<Vec<&'static str>> =
            errors.iter().map(|error| hardware_rule(&error.reason)).collect();
        let mut devices: Vec<(PciAddress, InfeasibleDevice)> = Vec::new();
        for (error, rule) in errors.iter().zip(rules?) {
            for device in &error.devices {
                // Each device occurs once, with the first rule that it violates.
                if devices.iter().all(|(known, _)| *known != device.pci) {
                    let why = InfeasibleDevice {
                        rule,
                        message: error.reason.to_string(),
                        nearest: Vec::new(),
                    };
                    devices.push((device.pci, why));
                }
            }
        }
        devices.sort_by_key(|(pci, _)| *pci);
        let devices = devices.into_iter().map(|(pci, why)| {
            let mut device = current_device(subject, pci, None);
            device.verdict = DeviceVerdict::Infeasible;
            device.infeasible = Some(why);
            device
        });
        Some(Self {
            outcome: PlanOutcome::Infeasible,
            devices: devices.collect(),
            ..Self::without_devices(subject)
        })
    }

    /// Adds the devices of `other` that are not in the document yet, and its disruption and counts. Keeps the outcome.
    pub fn merge(&mut self, other: Self) {
        self.disruption = self.disruption.max(other.disruption);
        self.destroyed = self.destroyed.saturating_add(other.destroyed);
        self.created = self.created.saturating_add(other.created);
        for device in other.devices {
            if self.devices.iter().all(|known| known.pci != device.pci) {
                self.devices.push(device);
            }
        }
        self.devices.sort_by_key(|device| device.pci);
    }
}

/// Returns the violated hardware rule, if the reason is one.
fn hardware_rule(reason: &RuleErrorKind) -> Option<&'static str> {
    match reason {
        RuleErrorKind::NotMigCapable => Some("notMigCapable"),
        RuleErrorKind::UnknownProfile { .. } => Some("noSuchProfile"),
        RuleErrorKind::ComputeSplit { .. } => Some("computeSplit"),
        RuleErrorKind::TooMany { .. } | RuleErrorKind::TooManyGpuInstances { .. } => {
            Some("tooMany")
        }
        RuleErrorKind::NoMatchingDevice { .. }
        | RuleErrorKind::NoDeviceSelected { .. }
        | RuleErrorKind::NoSuchIndex { .. }
        | RuleErrorKind::Conflict { .. }
        | RuleErrorKind::NoProfiles { .. }
        | RuleErrorKind::AmbiguousProfile { .. }
        | RuleErrorKind::DuplicateProfileName { .. } => None,
    }
}
