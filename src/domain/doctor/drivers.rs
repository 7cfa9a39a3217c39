//! Checks of vendors' kernel drivers.

use super::facts::{Facts, Loaded};
use super::{Check, Finding, Subject, counted};
use crate::domain::inventory::{Device, Vendor};

/// Kernel driver of a vendor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Maker {
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
pub(super) struct Standing<'a> {
    /// The vendor's devices on this node.
    pub(super) devices: Vec<&'a Device>,
    /// Number of devices, including those that the driver reports but the bus does not show.
    pub(super) count: usize,
    pub(super) loaded: Loaded,
    pub(super) finding: Finding,
}

impl Maker {
    /// Determines the state of the driver on this node.
    pub(super) fn standing<'a>(&self, facts: &'a Facts<'_>) -> Standing<'a> {
        let devices = facts.here(self.vendor);
        let told = facts.told(self.vendor);
        let count = devices.len().max(told);
        let mut loaded = facts.loaded(self.module, &devices);
        if told > 0 && !matches!(loaded, Loaded::Yes(_)) {
            loaded = Loaded::Yes("it tells of its devices".to_owned());
        }
        Standing {
            finding: self.finding(facts, count, &loaded),
            devices,
            count,
            loaded,
        }
    }

    /// Evidence for a node without devices of this vendor.
    pub(super) fn nothing(&self) -> String {
        format!("there is no {} device for this machine to use", self.name)
    }

    fn finding(&self, facts: &Facts<'_>, count: usize, loaded: &Loaded) -> Finding {
        if count == 0 {
            return self.check.not_applicable(self.nothing());
        }
        let devices = counted(count, "device", "devices");
        let devices = format!("{devices} of {}", self.name);
        match loaded {
            Loaded::Yes(how) => self.check.ok(Subject::Node, how.clone()),
            Loaded::No(how) => {
                let evidence = format!("{devices}, and its driver is not loaded: {how}");
                let module = self.module;
                if facts.is_installed(module) == Some(true) {
                    let remedy = format!(
                        "load it: `modprobe {module}`. If that fails, `dmesg | tail` says why; if it works, look for what kept it away at boot: \
                         `grep -r {module} /etc/modprobe.d`"
                    );
                    return self.check.failing(Subject::Node, evidence, &remedy);
                }
                self.check.failing(Subject::Node, evidence, self.remedy)
            }
            Loaded::Untold(why) => {
                let evidence = format!("{devices}, and nobody tells of the driver: {why}");
                self.check.unknown(Subject::Node, evidence)
            }
        }
    }
}

impl Standing<'_> {
    /// Returns `true` if there are devices and their driver is certainly loaded.
    pub(super) fn works(&self) -> bool {
        self.count > 0 && matches!(self.loaded, Loaded::Yes(_))
    }
}
