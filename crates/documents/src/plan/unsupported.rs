//! The document of a layout that the hardware does not support. There is no plan; each device has the rule that forbids
//! its part.

use octavo_model::id::PciAddress;
use octavo_planner::layout::{RuleError, RuleErrorKind};

use super::write::{PlanInputs, current_device};
use super::{API_VERSION, DisruptionJson, Document, InfeasibleJson, OutcomeJson, VerdictJson};

/// Creates the document from the `errors` that prevented a plan for `subject`. Returns `None` if any of the errors is
/// not a limitation of the hardware.
pub fn refused(subject: &PlanInputs<'_>, errors: &[RuleError]) -> Option<Document> {
    let rules: Option<Vec<&str>> = errors
        .iter()
        .map(|error| hardware_rule(&error.reason))
        .collect();
    let mut devices: Vec<(PciAddress, InfeasibleJson)> = Vec::new();
    for (error, rule) in errors.iter().zip(rules?) {
        for device in &error.devices {
            // Each device occurs once, with the first rule that it violates.
            if devices.iter().all(|(known, _)| *known != device.pci) {
                let why = InfeasibleJson {
                    rule: rule.to_owned(),
                    message: error.reason.to_string(),
                    nearest: Vec::new(),
                };
                devices.push((device.pci, why));
            }
        }
    }
    devices.sort_by_key(|(pci, _)| *pci);
    let devices = devices.into_iter().map(|(pci, why)| {
        let mut json = current_device(subject, pci, None);
        json.verdict = VerdictJson::Infeasible;
        json.infeasible = Some(why);
        json
    });
    Some(Document {
        api_version: API_VERSION.to_owned(),
        kind: "Plan".to_owned(),
        layout: subject.layout.to_owned(),
        node: subject.node.map(str::to_owned),
        outcome: OutcomeJson::Infeasible,
        disruption: DisruptionJson::None,
        destroyed: 0,
        created: 0,
        warnings: subject.warnings.to_vec(),
        devices: devices.collect(),
    })
}

impl Document {
    /// Adds the devices of `other` that are not in the document yet, and its disruption and counts. Keeps the outcome.
    pub fn merge(&mut self, other: Self) {
        let Self {
            disruption,
            destroyed,
            created,
            devices,
            ..
        } = other;
        self.disruption = self.disruption.max(disruption);
        self.destroyed = self.destroyed.saturating_add(destroyed);
        self.created = self.created.saturating_add(created);
        for device in devices {
            if self.devices.iter().all(|known| known.pci != device.pci) {
                self.devices.push(device);
            }
        }
        self.devices.sort_by(|one, other| one.pci.cmp(&other.pci));
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
