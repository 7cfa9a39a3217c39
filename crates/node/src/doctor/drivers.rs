//! Checks of vendors' kernel drivers.

use octavo_model::inventory::{Device, Vendor};

use super::facts::{Facts, ModuleState};
use super::{Check, Finding, Subject, count_noun, format_list};

/// Kernel driver of a vendor.
#[derive(Debug, Clone, Copy)]
pub(super) struct VendorDriver {
    pub(super) vendor: Vendor,
    /// Name of the vendor's devices.
    pub(super) name: &'static str,
    pub(super) check: Check,
    /// Kernel module.
    pub(super) module: &'static str,
    /// How to install the driver.
    pub(super) remedy: &'static str,
}

/// State of a vendor's driver on this node.
#[derive(Debug)]
pub(super) struct DriverStatus<'a> {
    /// The vendor's devices on this node.
    pub(super) devices: Vec<&'a Device>,
    /// Number of devices, including those that the driver reports but the bus does not show.
    pub(super) count: usize,
    pub(super) loaded: ModuleState,
    pub(super) finding: Finding,
}

impl VendorDriver {
    /// Determines the state of the driver on this node.
    pub(super) fn status<'a>(&self, facts: &'a Facts<'_>) -> DriverStatus<'a> {
        let devices = facts.usable_devices(self.vendor);
        let reported = facts.driver_device_count(self.vendor);
        let count = devices.len().max(reported);
        let mut loaded = facts.module_state(self.module, &devices);
        if reported > 0 && !matches!(loaded, ModuleState::Yes(_)) {
            loaded = ModuleState::Yes("it reports its devices".to_owned());
        }
        DriverStatus { finding: self.finding(facts, count, &loaded), devices, count, loaded }
    }

    /// Evidence for a node without devices of this vendor.
    pub(super) fn no_devices_evidence(&self) -> String {
        format!("this machine has no usable {} device", self.name)
    }

    fn finding(&self, facts: &Facts<'_>, count: usize, loaded: &ModuleState) -> Finding {
        if count == 0 {
            return self.check.not_applicable(self.no_devices_evidence());
        }
        let devices = count_noun(count, "device", "devices");
        let devices = format!("{devices} of {}", self.name);
        match loaded {
            ModuleState::Yes(how) => self.check.ok(Subject::Node, how.clone()),
            ModuleState::No(how) => {
                let evidence = format!("{devices}, but the driver is not loaded: {how}");
                let module = self.module;
                if facts.is_module_available(module) == Some(true) {
                    let remedy = format!(
                        "load it: `modprobe {module}`. If that fails, `dmesg | tail` shows why. \
                         If it succeeds, find out why it was not loaded at boot: `grep -r \
                         {module} /etc/modprobe.d`"
                    );
                    return self.check.failing(Subject::Node, evidence, &remedy);
                }
                self.check.failing(Subject::Node, evidence, self.remedy)
            }
            ModuleState::Unknown(why) => {
                let evidence = format!("{devices}, but the state of the driver is unknown: {why}");
                self.check.unknown(Subject::Node, evidence)
            }
        }
    }
}

impl DriverStatus<'_> {
    /// Returns `true` if there are devices and their driver is certainly loaded.
    pub(super) fn is_working(&self) -> bool {
        self.count > 0 && matches!(self.loaded, ModuleState::Yes(_))
    }
}

/// Compares the device files that a driver's devices need with those that exist. `missing` creates the finding for the
/// evidence that some are missing.
pub(super) fn device_files(
    facts: &Facts<'_>,
    check: Check,
    wanted: impl Iterator<Item = String>,
    missing: impl FnOnce(String) -> Finding,
) -> Finding {
    let files = match &facts.files {
        Ok(files) => files,
        Err(why) => return check.unknown(Subject::Node, why.clone()),
    };
    let (present, absent): (Vec<String>, Vec<String>) =
        wanted.partition(|name| files.0.contains(name));
    let dev = &facts.roots.dev;
    if absent.is_empty() {
        return check.ok(Subject::Node, format!("{dev} has {}", format_list(&present)));
    }
    missing(format!("{dev} has no {}", format_list(&absent)))
}
