//! Health state of devices, and the issues behind it.

use strum::IntoStaticStr;

use super::{
    Condition, Device, Health, Identity, Inventory, NvmlState, RecoveryAction, RemappedRows, Vendor,
};
use crate::id::PciAddress;
use crate::tone::Tone;

/// Kernel drivers that reserve a device for a virtual machine. Source: Linux, "VFIO"; Xen, "PCI passthrough".
const PASSTHROUGH_DRIVERS: [&str; 3] = ["vfio-pci", "pci-stub", "pciback"];
/// Suffixes of vendors' own passthrough drivers, such as `nvgrace-gpu-vfio-pci`.
const VENDOR_PASSTHROUGH_SUFFIXES: [&str; 2] = ["-vfio-pci", "_vfio_pci"];

/// Health state of a device, ordered by severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum DeviceState {
    /// Healthy.
    Ok,
    /// Reserved for a virtual machine: unavailable to pods of this node.
    Passthrough,
    /// Bound to a kernel driver that Octavo does not read: pods may well use the device.
    NotRead,
    /// It works, but some of its data could not be read.
    Partial,
    /// The driver does not answer any more: the data was read before that.
    Stale,
    /// The driver requests an action that this version of Octavo does not know.
    NeedsAction,
    /// The driver requests that peer-to-peer traffic be drained.
    NeedsDrain,
    /// The driver requests a reset, or a bad memory row waits for one.
    NeedsReset,
    /// The driver requests a reboot of the node.
    NeedsReboot,
    /// Its memory can no longer be repaired.
    Replace,
    /// It has no driver library.
    NoDriver,
    /// Its driver returns errors for it, or it fell off the bus.
    Failing,
}

/// Severity of an issue, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For information.
    Note,
    /// Needs attention.
    Warning,
    /// Needs action.
    Critical,
}

/// Issue of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Description for users. It can contain driver messages and therefore any character.
    pub text: String,
    /// Severity.
    pub severity: Severity,
}

impl From<Severity> for Tone {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Note => Self::Neutral,
            Severity::Warning => Self::Warning,
            Severity::Critical => Self::Bad,
        }
    }
}

impl DeviceState {
    /// Word, such as `ok` or `needs-reset`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Inventory {
    /// Returns the device at this address.
    pub fn device(&self, pci: PciAddress) -> Option<&Device> {
        self.devices.iter().find(|device| device.pci == pci)
    }

    /// Returns `true` if the state of NVML is relevant to users: it is present, or it is missing although there is an
    /// NVIDIA device that is not passed through to a virtual machine.
    pub fn is_nvml_relevant(&self) -> bool {
        let mut devices = self.devices.iter();
        !matches!(self.nvml, NvmlState::Absent { .. })
            || devices.any(|one| one.vendor == Vendor::Nvidia && !one.condition.is_passthrough())
    }
}

impl NvmlState {
    /// Reason why the driver reports no devices or outdated ones; `None` while it works or is being loaded.
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Ready(_) | Self::Loading => None,
            Self::Absent { reason } => Some(format!("NVML is absent: {reason}")),
            Self::Lost { reason } => Some(format!("NVML is lost: {reason}")),
            Self::Stalled { call, .. } => Some(format!("NVML is stalled: {call} does not return")),
        }
    }

    /// Returns `true` if no library was found, as on a node without GPUs. For a library that was found but is
    /// unusable, the reason starts with the failure.
    pub fn is_without_library(&self) -> bool {
        matches!(self, Self::Absent { reason } if reason.starts_with("no "))
    }

    /// Placeholder for reading sysfs in place of an NVML function: it hangs if a device does not answer, whatever its
    /// vendor.
    pub const READING_SYS: &str = "reading /sys";

    /// Remedy for a call that does not return.
    pub fn remedy_of_stall(call: &str) -> &'static str {
        if call == Self::READING_SYS {
            "run `dmesg | tail` to find the PCI device that does not respond, and its driver; usually only a \
             reboot of the node helps"
        } else {
            "check `dmesg | grep -i xid`; a hanging driver requires a GPU reset or a reboot of the node"
        }
    }
}

impl Condition {
    /// Returns `true` if the device is passed through to a virtual machine, or reserved for that: it is unavailable
    /// to containers of this node.
    pub fn is_passthrough(&self) -> bool {
        match self {
            Self::PciOnly { kernel_driver } => {
                kernel_driver.as_deref().is_some_and(is_passthrough_driver)
            }
            Self::Working | Self::Failing { .. } => false,
        }
    }
}

/// Returns `true` if this kernel driver reserves devices for virtual machines.
pub fn is_passthrough_driver(driver: &str) -> bool {
    PASSTHROUGH_DRIVERS.contains(&driver)
        || VENDOR_PASSTHROUGH_SUFFIXES.iter().any(|end| driver.ends_with(end))
}

impl Device {
    /// Health state of the device. `nvml` determines whether its driver still answers.
    pub fn state(&self, nvml: &NvmlState) -> DeviceState {
        match &self.condition {
            Condition::Failing { .. } => return DeviceState::Failing,
            Condition::PciOnly { .. } if self.condition.is_passthrough() => {
                return DeviceState::Passthrough;
            }
            Condition::PciOnly { kernel_driver: Some(_) }
                if matches!(self.vendor, Vendor::Other(_)) =>
            {
                return DeviceState::NotRead;
            }
            Condition::PciOnly { .. } => return DeviceState::NoDriver,
            Condition::Working => {}
        }
        if let Some(need) = required_action(&self.health) {
            return need;
        }
        match nvml {
            NvmlState::Stalled { .. } | NvmlState::Lost { .. } if self.vendor == Vendor::Nvidia => {
                DeviceState::Stale
            }
            _ if !self.problems.is_empty() => DeviceState::Partial,
            NvmlState::Absent { .. }
            | NvmlState::Loading
            | NvmlState::Ready(_)
            | NvmlState::Lost { .. }
            | NvmlState::Stalled { .. } => DeviceState::Ok,
        }
    }

    /// Severity of its [`state`](Self::state); `None` if it is healthy.
    pub fn severity(&self, nvml: &NvmlState) -> Option<Severity> {
        match self.state(nvml) {
            DeviceState::Ok => None,
            DeviceState::Passthrough | DeviceState::NotRead => Some(Severity::Note),
            DeviceState::Partial
            | DeviceState::Stale
            | DeviceState::NeedsAction
            | DeviceState::NeedsDrain
            | DeviceState::NoDriver => Some(Severity::Warning),
            // A pending remapping can wait for the next opportunity; an action that the driver requests cannot.
            DeviceState::NeedsReset => match self.health.recovery_action {
                None | Some(RecoveryAction::None) => Some(Severity::Warning),
                Some(_) => Some(Severity::Critical),
            },
            DeviceState::NeedsReboot | DeviceState::Replace | DeviceState::Failing => {
                Some(Severity::Critical)
            }
        }
    }

    /// Color of its [`state`](Self::state).
    pub fn tone(&self, nvml: &NvmlState) -> Tone {
        self.severity(nvml).map_or(Tone::Good, Tone::from)
    }

    /// Note about a device that the catalog does not identify: its PCI ids, so that a user can look it up, and
    /// whether it was named manually.
    pub fn identity_note(&self) -> Option<Issue> {
        let text = match &self.identity {
            Identity::Known { .. } => return None,
            // Its ids are unknown too, which another issue explains.
            Identity::Unknown if self.pci.is_unreported() => return None,
            Identity::Manual { .. } => {
                format!("its type was set manually; its PCI id is {}", self.pci_ids)
            }
            Identity::Unknown => {
                format!("its type is unknown; its PCI id is {}", self.pci_ids)
            }
        };
        Some(Issue::new(text, Severity::Note))
    }

    /// Issues of the device, which [`state`](Self::state) summarizes, except for the state of NVML.
    pub fn issues(&self) -> Vec<Issue> {
        let condition = condition(&self.condition, self.vendor);
        let requested = self.health.recovery_action.and_then(requested_action_issue);
        let problems = self.problems.iter().map(|problem| {
            let text = format!("{}: {}", problem.source, problem.error);
            Issue::new(text, Severity::Note)
        });
        let issues = condition.into_iter().chain(requested);
        issues.chain(memory(&self.health)).chain(problems).collect()
    }
}

impl Issue {
    fn new(text: impl Into<String>, severity: Severity) -> Self {
        Self { text: text.into(), severity }
    }
}

/// Required action, in order of precedence: a failed remapping, the driver's request, a pending remapping.
fn required_action(health: &Health) -> Option<DeviceState> {
    let rows = health.remapped_rows.unwrap_or_default();
    if rows.failed {
        return Some(DeviceState::Replace);
    }
    match health.recovery_action {
        Some(RecoveryAction::RebootNode) => Some(DeviceState::NeedsReboot),
        Some(RecoveryAction::ResetGpu | RecoveryAction::DrainAndReset) => {
            Some(DeviceState::NeedsReset)
        }
        Some(RecoveryAction::DrainP2p) => Some(DeviceState::NeedsDrain),
        Some(RecoveryAction::Other(_)) => Some(DeviceState::NeedsAction),
        Some(RecoveryAction::None) | None => rows.pending.then_some(DeviceState::NeedsReset),
    }
}

fn condition(condition: &Condition, vendor: Vendor) -> Option<Issue> {
    match condition {
        Condition::Working => None,
        Condition::Failing { reason } => {
            Some(Issue::new(format!("failing: {reason}"), Severity::Critical))
        }
        Condition::PciOnly { kernel_driver } => {
            if let Some(driver) =
                kernel_driver.as_deref().filter(|name| is_passthrough_driver(name))
            {
                let text =
                    format!("reserved for a virtual machine: bound to the kernel driver {driver}");
                return Some(Issue::new(text, Severity::Note));
            }
            if let (Vendor::Other(_), Some(driver)) = (vendor, kernel_driver) {
                let text = format!(
                    "bound to the kernel driver {driver}, which Octavo does not read: its health and usage are \
                     unknown"
                );
                return Some(Issue::new(text, Severity::Note));
            }
            let driver = kernel_driver.as_deref().map_or_else(
                || "it has no kernel driver".to_owned(),
                |driver| format!("it is bound to the kernel driver {driver}"),
            );
            let text = format!("no driver library reports it; {driver}");
            Some(Issue::new(text, Severity::Warning))
        }
    }
}

fn requested_action_issue(action: RecoveryAction) -> Option<Issue> {
    let text = match action {
        RecoveryAction::None => return None,
        RecoveryAction::ResetGpu => "the driver requests a GPU reset".to_owned(),
        RecoveryAction::RebootNode => "the driver requests a reboot of the node".to_owned(),
        RecoveryAction::DrainP2p => {
            "the driver requests a drain of peer-to-peer traffic".to_owned()
        }
        RecoveryAction::DrainAndReset => {
            "the driver requests a drain and a reset of the GPU".to_owned()
        }
        RecoveryAction::Other(number) => format!(
            "the driver requests recovery action {number}, which this version does not know"
        ),
    };
    Some(Issue::new(text, Severity::Critical))
}

fn memory(health: &Health) -> Vec<Issue> {
    let mut issues = Vec::new();
    let RemappedRows { pending, failed, .. } = health.remapped_rows.unwrap_or_default();
    if failed {
        let text = "remapping a bad memory row failed: replace the board";
        issues.push(Issue::new(text, Severity::Critical));
    } else if pending {
        let text = "a bad memory row will be remapped by the next GPU reset";
        issues.push(Issue::new(text, Severity::Warning));
    }
    if let Some(errors) = health.uncorrected_errors.filter(|errors| *errors > 0) {
        let text = format!("{errors} uncorrected memory errors since the driver was loaded");
        issues.push(Issue::new(text, Severity::Warning));
    }
    issues
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::gpu;
    use crate::inventory::ReadProblem;

    fn rows(pending: bool, failed: bool) -> RemappedRows {
        RemappedRows { pending, failed, ..RemappedRows::default() }
    }

    fn with_health(health: Health) -> Device {
        let mut device = gpu();
        device.health = health;
        device
    }

    fn asks(recovery_action: RecoveryAction, remapped_rows: Option<RemappedRows>) -> Device {
        with_health(Health {
            recovery_action: Some(recovery_action),
            remapped_rows,
            ..Health::default()
        })
    }

    fn waits(pending: bool, failed: bool) -> Device {
        with_health(Health { remapped_rows: Some(rows(pending, failed)), ..Health::default() })
    }

    fn conditioned(condition: Condition) -> Device {
        let mut device = gpu();
        device.condition = condition;
        device
    }

    fn failing() -> Device {
        conditioned(Condition::Failing { reason: "GPU is lost".to_owned() })
    }

    fn unread(mut device: Device) -> Device {
        device.problems = vec![ReadProblem {
            source: "nvmlDeviceGetFoo".to_owned(),
            error: "Unknown Error".to_owned(),
        }];
        device
    }

    fn amd(mut device: Device) -> Device {
        device.vendor = Vendor::Amd;
        device
    }

    fn stalled() -> NvmlState {
        NvmlState::Stalled { call: "nvmlDeviceGetFoo".to_owned(), driver: None }
    }

    fn lost() -> NvmlState {
        NvmlState::Lost { reason: "unloaded".to_owned() }
    }

    #[track_caller]
    fn check(device: &Device, nvml: &NvmlState, word: &str, severity: Option<Severity>) {
        assert_eq!(device.state(nvml).as_str(), word, "{device:?} {nvml:?}");
        assert_eq!(device.severity(nvml), severity, "{device:?} {nvml:?}");
    }

    #[test]
    fn state_follows_condition_and_health() {
        use RecoveryAction::{DrainAndReset, DrainP2p, None as Nothing, Other, RebootNode};
        let (notice, bad) = (Some(Severity::Warning), Some(Severity::Critical));
        let pending = Some(rows(true, false));
        let bus_only = conditioned(Condition::PciOnly { kernel_driver: None });
        let passed = conditioned(Condition::PciOnly { kernel_driver: Some("pci-stub".to_owned()) });
        let mut others =
            conditioned(Condition::PciOnly { kernel_driver: Some("habanalabs".to_owned()) });
        others.vendor = Vendor::Other(0x1da3);
        for (device, word, severity) in [
            (gpu(), "ok", None),
            (unread(gpu()), "partial", notice),
            (asks(Nothing, None), "ok", None),
            (asks(Other(9), None), "needs-action", notice),
            (asks(Other(9), pending), "needs-action", notice),
            (asks(DrainP2p, None), "needs-drain", notice),
            (asks(DrainP2p, pending), "needs-drain", notice),
            (asks(RecoveryAction::ResetGpu, None), "needs-reset", bad),
            (asks(DrainAndReset, pending), "needs-reset", bad),
            (asks(Nothing, pending), "needs-reset", notice),
            (waits(true, false), "needs-reset", notice),
            (unread(waits(true, false)), "needs-reset", notice),
            (asks(RebootNode, pending), "needs-reboot", bad),
            (asks(RebootNode, Some(rows(false, true))), "replace", bad),
            (waits(true, true), "replace", bad),
            (waits(false, false), "ok", None),
            (bus_only, "no-driver", notice),
            (passed, "passthrough", Some(Severity::Note)),
            (others, "not-read", Some(Severity::Note)),
            (failing(), "failing", bad),
        ] {
            check(&device, &NvmlState::Loading, word, severity);
        }
    }

    #[test]
    fn broken_driver_link_makes_only_its_working_devices_stale() {
        for nvml in [lost(), stalled()] {
            let notice = Some(Severity::Warning);
            check(&gpu(), &nvml, "stale", notice);
            check(&unread(gpu()), &nvml, "stale", notice);
            check(&waits(true, false), &nvml, "needs-reset", notice);
            check(&failing(), &nvml, "failing", Some(Severity::Critical));
            check(&amd(gpu()), &nvml, "ok", None);
            check(&amd(unread(gpu())), &nvml, "partial", notice);
        }
        let absent = NvmlState::Absent { reason: "no library".to_owned() };
        check(&gpu(), &absent, "ok", None);
    }

    #[test]
    fn states_are_ordered_by_severity() {
        let mut states = [
            DeviceState::Failing,
            DeviceState::NeedsReset,
            DeviceState::Ok,
            DeviceState::NoDriver,
            DeviceState::Stale,
            DeviceState::NeedsReboot,
            DeviceState::NeedsDrain,
            DeviceState::Replace,
            DeviceState::Partial,
            DeviceState::Passthrough,
            DeviceState::NotRead,
            DeviceState::NeedsAction,
        ];
        states.sort_unstable();
        let words = states.map(DeviceState::as_str).join(", ");
        let expected = "ok, passthrough, not-read, partial, stale, needs-action, needs-drain, needs-reset, needs-reboot, replace, no-driver, failing";
        assert_eq!(words, expected);
        assert!(Severity::Note < Severity::Warning && Severity::Warning < Severity::Critical);
    }

    #[track_caller]
    fn complains(device: &Device, expected: &[(&str, Severity)]) {
        let found = device.issues();
        let found: Vec<(&str, Severity)> =
            found.iter().map(|complaint| (complaint.text.as_str(), complaint.severity)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn healthy_device_has_no_issues() {
        complains(&gpu(), &[]);
        complains(&asks(RecoveryAction::None, Some(rows(false, false))), &[]);
        let mut device = gpu();
        device.health.uncorrected_errors = Some(0);
        complains(&device, &[]);
    }

    #[test]
    fn every_issue_has_a_description() {
        let bound = |driver: Option<&str>| {
            conditioned(Condition::PciOnly { kernel_driver: driver.map(ToOwned::to_owned) })
        };
        for (device, text, severity) in [
            (failing(), "failing: GPU is lost", Severity::Critical),
            (
                bound(None),
                "no driver library reports it; it has no kernel driver",
                Severity::Warning,
            ),
            (
                bound(Some("nouveau")),
                "no driver library reports it; it is bound to the kernel driver nouveau",
                Severity::Warning,
            ),
            (
                bound(Some("vfio-pci")),
                "reserved for a virtual machine: bound to the kernel driver vfio-pci",
                Severity::Note,
            ),
            (
                bound(Some("nvgrace-gpu-vfio-pci")),
                "reserved for a virtual machine: bound to the kernel driver nvgrace-gpu-vfio-pci",
                Severity::Note,
            ),
            (
                asks(RecoveryAction::ResetGpu, None),
                "the driver requests a GPU reset",
                Severity::Critical,
            ),
            (
                asks(RecoveryAction::RebootNode, None),
                "the driver requests a reboot of the node",
                Severity::Critical,
            ),
            (
                asks(RecoveryAction::DrainP2p, None),
                "the driver requests a drain of peer-to-peer traffic",
                Severity::Critical,
            ),
            (
                asks(RecoveryAction::DrainAndReset, None),
                "the driver requests a drain and a reset of the GPU",
                Severity::Critical,
            ),
            (
                asks(RecoveryAction::Other(9), None),
                "the driver requests recovery action 9, which this version does not know",
                Severity::Critical,
            ),
            (
                waits(true, true),
                "remapping a bad memory row failed: replace the board",
                Severity::Critical,
            ),
            (
                waits(true, false),
                "a bad memory row will be remapped by the next GPU reset",
                Severity::Warning,
            ),
            (unread(gpu()), "nvmlDeviceGetFoo: Unknown Error", Severity::Note),
        ] {
            complains(&device, &[(text, severity)]);
        }
    }

    #[test]
    fn issues_are_listed_by_condition_driver_memory_and_read_errors() {
        let mut device = unread(failing());
        device.health = Health {
            uncorrected_errors: Some(3),
            remapped_rows: Some(rows(true, false)),
            recovery_action: Some(RecoveryAction::ResetGpu),
            ..Health::default()
        };
        complains(
            &device,
            &[
                ("failing: GPU is lost", Severity::Critical),
                ("the driver requests a GPU reset", Severity::Critical),
                ("a bad memory row will be remapped by the next GPU reset", Severity::Warning),
                ("3 uncorrected memory errors since the driver was loaded", Severity::Warning),
                ("nvmlDeviceGetFoo: Unknown Error", Severity::Note),
            ],
        );
    }
}
