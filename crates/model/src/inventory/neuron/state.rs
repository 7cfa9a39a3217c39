//! Health state of Neuron devices, and the issues behind it.

use strum::IntoStaticStr;

use super::{DriverLayout, Neuron, NeuronDevice};
use crate::inventory::{Condition, Device, Inventory, Issue, Severity, Vendor};
use crate::tone::Tone;

/// Name of the kernel driver.
const DRIVER: &str = "neuron";

/// Health state of a Neuron device, ordered by severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum NeuronState {
    /// The driver counts errors, and there are none.
    Ok,
    /// The chip or its driver reports no health data, which must not count as healthy.
    Unknown,
    /// Some data could not be read.
    Partial,
    /// Its memory had uncorrected errors since the driver was loaded.
    Errors,
    /// The driver reports an unhealthy part.
    Failing,
}

impl NeuronState {
    /// Name in documents.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Severity; `None` if the device is healthy or its health is unknown.
    pub fn severity(self) -> Option<Severity> {
        match self {
            Self::Ok | Self::Unknown => None,
            Self::Partial | Self::Errors => Some(Severity::Warning),
            Self::Failing => Some(Severity::Critical),
        }
    }
}

impl NeuronState {
    /// Color of the state. Unknown health must not look healthy.
    pub fn tone(self) -> Tone {
        match (self, self.severity()) {
            (Self::Ok, _) => Tone::Good,
            (_, Some(severity)) => Tone::from(severity),
            (_, None) => Tone::Neutral,
        }
    }
}

impl NeuronDevice {
    /// Health state of the device.
    pub fn state(&self) -> NeuronState {
        let counts = self.counts();
        if self.unhealthy.as_ref().is_some_and(|parts| !parts.is_empty()) {
            NeuronState::Failing
        } else if counts.iter().any(|(count, _)| count.is_some_and(|n| n > 0)) {
            NeuronState::Errors
        } else if !self.problems.is_empty() {
            NeuronState::Partial
        } else if self.unhealthy.is_none() && counts.iter().all(|(count, _)| count.is_none()) {
            NeuronState::Unknown
        } else {
            NeuronState::Ok
        }
    }

    /// Issues of the device, which [`state`](Self::state) summarizes.
    pub fn issues(&self) -> Vec<Issue> {
        let unhealthy = self.unhealthy.iter().flatten().map(|part| Issue {
            text: format!("its driver reports it as unhealthy: {part}"),
            severity: Severity::Critical,
        });
        let errors = self.counts().into_iter().filter_map(|(count, what)| {
            let count = count.filter(|count| *count > 0)?;
            Some(Issue {
                text: format!("{what} since the driver was loaded: {count}"),
                severity: Severity::Warning,
            })
        });
        let problems = self.problems.iter().map(|problem| Issue {
            text: format!("{}: {}", problem.source, problem.error),
            severity: Severity::Note,
        });
        unhealthy.chain(errors).chain(problems).collect()
    }

    fn counts(&self) -> [(Option<u64>, &'static str); 3] {
        let errors = &self.errors;
        [
            (errors.memory_uncorrected, "uncorrected errors of device memory"),
            (errors.memory_repairable, "repairable uncorrected errors of device memory"),
            (errors.sram_uncorrected, "uncorrected errors of on-chip memory"),
        ]
    }
}

impl Neuron {
    /// Name of the problem that the number of devices differs from the number of PCI functions.
    pub const COUNT_MISMATCH: &str = "number of devices";

    /// Issues that do not concern a single device.
    pub fn issues(&self) -> Vec<Issue> {
        let layout = (self.driver_layout == DriverLayout::Unknown).then(|| Issue {
            text:
                "the files of this driver are not where releases up to 2.30 have them: only values that were found \
                 by file name are shown"
                    .to_owned(),
            severity: Severity::Warning,
        });
        let problems = self.problems.iter().map(|problem| Issue {
            text: format!("{}: {}", problem.source, problem.error),
            severity: Severity::Warning,
        });
        layout.into_iter().chain(problems).collect()
    }

    /// Logical cores of a device; `None` if either number is unknown or they do not divide.
    pub fn logical_cores(&self, device: &NeuronDevice) -> Option<u32> {
        let (cores, size) = (device.cores?, self.logical?.size);
        (cores.checked_rem(size)? == 0).then(|| cores.checked_div(size))?
    }
}

impl Inventory {
    /// Returns `true` if a PCI function is bound to the Neuron driver, which reports its devices itself.
    pub fn is_reported_by_neuron(&self, device: &Device) -> bool {
        let held = |driver: &Option<String>| driver.as_deref() == Some(DRIVER);
        let has_devices = self.neuron.as_ref().is_some_and(|neuron| !neuron.devices.is_empty());
        device.vendor == Vendor::Aws
            && has_devices
            && matches!(&device.condition, Condition::PciOnly { kernel_driver } if held(kernel_driver))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::inventory::{LogicalCores, LogicalSource, NeuronErrors, ReadProblem};

    fn errors(count: u64) -> NeuronErrors {
        NeuronErrors { memory_uncorrected: Some(count), ..NeuronErrors::default() }
    }

    fn problem() -> ReadProblem {
        ReadProblem {
            source: "core_count".to_owned(),
            error: "Permission denied (os error 13)".to_owned(),
        }
    }

    #[test]
    fn state_is_the_most_severe() {
        let mut device = NeuronDevice::default();
        assert_eq!(device.state(), NeuronState::Unknown);
        device.errors = errors(0);
        assert_eq!(device.state(), NeuronState::Ok);
        device.problems.push(problem());
        assert_eq!(device.state(), NeuronState::Partial);
        device.errors = errors(3);
        assert_eq!(device.state(), NeuronState::Errors);
        device.unhealthy = Some(vec![]);
        assert_eq!(device.state(), NeuronState::Errors);
        device.unhealthy = Some(vec!["hbm".to_owned()]);
        assert_eq!(device.state(), NeuronState::Failing);
        let issues: Vec<String> = device.issues().into_iter().map(|c| c.text).collect();
        assert_eq!(
            issues,
            [
                "its driver reports it as unhealthy: hbm",
                "uncorrected errors of device memory since the driver was loaded: 3",
                "core_count: Permission denied (os error 13)",
            ]
        );
    }

    #[test]
    fn logical_cores_are_counted_where_both_numbers_are_known() {
        let mut neuron = Neuron {
            driver_version: None,
            driver_layout: DriverLayout::Known,
            logical: None,
            ultraserver: BTreeMap::new(),
            devices: Vec::new(),
            problems: Vec::new(),
        };
        let device = |cores| NeuronDevice { cores, ..NeuronDevice::default() };
        assert_eq!(neuron.logical_cores(&device(Some(8))), None);
        neuron.logical = Some(LogicalCores { size: 2, source: LogicalSource::Default });
        assert_eq!(neuron.logical_cores(&device(Some(8))), Some(4));
        assert_eq!(neuron.logical_cores(&device(Some(3))), None);
        assert_eq!(neuron.logical_cores(&device(None)), None);
    }
}
