//! Layouts: the desired partitioning and sharing of a node's devices, as written by users.
//!
//! A layout has a name and rules; a rule selects devices and describes their desired state. Octavo reads three dialects
//! of layout files and writes two (`octavo_files::layouts`); this module holds their common meaning. A layout does not depend
//! on devices: [`resolve`] converts it into [`Targets`] for the devices of one node, using the catalog of each.

mod compare;
mod error;
mod export;
mod generate;
pub(crate) mod limits;
mod modes;
mod resolve;
mod selector;
mod sharing;

use std::borrow::Cow;

use octavo_model::catalog::Placement;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{MigMode, MigState};
use octavo_model::profile::ProfileName;
use octavo_model::source_position::SourcePosition;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

pub use self::compare::{Difference, DifferenceKind, compare, current_target};
pub use self::error::{DeviceRef, RuleError, RuleErrorKind, RuleWarning, RuleWarningKind};
pub use self::export::{ExportError, export};
pub use self::generate::generate;
pub use self::modes::{compare_modes, mode_targets, modes_are_set, without_missing_devices};
pub use self::resolve::{ResolvedLayout, resolve};
pub use self::selector::{Criteria, DeviceFilter, IndexRange, Selector};
pub use self::sharing::{
    ResourceRename, Share, ShareTarget, TimeSlice, TimeSlicing, UnitRef, UnitSelector,
};

/// A layout file, in file order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layouts {
    /// The dialect of the file, which defines the meaning of overlapping rules.
    pub dialect: Dialect,
    /// The layouts, with unique names.
    pub layouts: Vec<Layout>,
}

/// The file formats of layouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `apiVersion: octavo.dev/v1`, `kind: Layouts`. Two rules that select one device are an error.
    Octavo,
    /// `version: v1`, `mig-configs:`. If several rules select one device, the last one counts. Source: NVIDIA
    /// mig-parted v0.15.0, `cmd/nvidia-mig-parted/util`.
    MigParted,
    /// `version: v1` with `flags`, `resources`, `sharing` or `imex`: the configuration of NVIDIA's device plugin. One
    /// layout with one rule for all devices. Source: NVIDIA k8s-device-plugin v0.20.0, `api/config/v1`.
    DevicePlugin,
}

/// A named set of rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The name that nodes select the layout by.
    pub name: String,
    /// Position of the name in the file.
    pub position: SourcePosition,
    /// The rules; at least one.
    pub rules: Vec<Rule>,
}

/// The desired state of some devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Start of the rule in the file.
    pub position: SourcePosition,
    /// Selects the devices.
    pub devices: Selector,
    /// Desired partitioning; `None` leaves partitioning unchanged.
    pub mig: Option<MigSpec>,
    /// Desired sharing of the devices or their partitions; `None` leaves sharing unchanged.
    pub time_slicing: Option<TimeSlicing>,
    /// True if resource claims determine the partitions. The rule then lists none.
    pub claims: bool,
}

/// Partitioning as written by users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigSpec {
    /// MIG mode off: a whole GPU.
    Disabled,
    /// MIG mode on with exactly these partitions, possibly none.
    Enabled(Vec<ProfileCount>),
}

/// A number of partitions of one profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileCount {
    /// Position of the profile name in the file.
    pub position: SourcePosition,
    /// The profile name as written; a device may spell it differently.
    pub profile: ProfileName,
    /// The count; never zero.
    pub count: u32,
}

impl Layout {
    /// Creates a layout that is in no file.
    pub(crate) fn generated(name: &str, rules: Vec<Rule>) -> Self {
        Self { name: name.to_owned(), position: SourcePosition::default(), rules }
    }
}

impl Rule {
    /// Creates a rule that is in no file and only partitions.
    pub(crate) fn generated(devices: Selector, mig: MigSpec) -> Self {
        Self {
            position: SourcePosition::default(),
            devices,
            mig: Some(mig),
            time_slicing: None,
            claims: false,
        }
    }

    /// Returns the part of a device that the rule determines.
    pub(crate) fn scope(&self) -> TargetScope {
        if self.claims { TargetScope::Mode } else { TargetScope::Layout }
    }
}

impl ProfileCount {
    /// Creates a count that is in no file.
    pub(crate) fn generated(profile: ProfileName, count: u32) -> Self {
        Self { position: SourcePosition::default(), profile, count }
    }
}

impl DeviceTarget {
    /// Creates a target of the partitions of a device that is in no file.
    pub fn generated(pci: PciAddress, mig: MigTarget, scope: TargetScope) -> Self {
        let rule = SourcePosition::default();
        Self { pci, rule, mig: Some(mig), time_slicing: None, scope }
    }

    /// Returns the desired partitioning of the device with this MIG state. With [`TargetScope::Mode`], a device in the
    /// desired mode keeps its partitions: `None` if nothing has to be done.
    pub fn partitioning(&self, state: Option<&MigState>) -> Option<Cow<'_, MigTarget>> {
        let mig = self.mig.as_ref()?;
        match state {
            Some(state) if self.scope == TargetScope::Mode && state.current == mig.mode() => {
                let is_stable = state.pending == state.current;
                current_target(state).filter(|_| !is_stable).map(Cow::Owned)
            }
            Some(_) | None => Some(Cow::Borrowed(mig)),
        }
    }
}

impl MigTarget {
    /// Returns the MIG mode.
    pub fn mode(&self) -> MigMode {
        match self {
            Self::Disabled => MigMode::Disabled,
            Self::Enabled(_) => MigMode::Enabled,
        }
    }
}

impl Layouts {
    /// Returns the layout with this name.
    pub fn by_name(&self, name: &str) -> Option<&Layout> {
        self.layouts.iter().find(|layout| layout.name == name)
    }
}

#[cfg(test)]
pub(crate) mod tests_support;

/// The desired state of a node's devices. Octavo never changes a device that is not listed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Targets {
    /// Unique devices, ordered by PCI address.
    pub devices: Vec<DeviceTarget>,
    /// Devices that a rule selects but whose state cannot be read, ordered by PCI address. They are not changed, and a
    /// node with one does not count as applied.
    pub unverified: Vec<UnverifiedDevice>,
}

impl Targets {
    /// Returns whether a rule selects the device at `pci` but its state cannot be read.
    pub fn is_unverified(&self, pci: PciAddress) -> bool {
        self.unverified.iter().any(|device| device.pci == pci)
    }

    /// Returns whether the device at `pci` has a target with this scope.
    pub fn has_scope(&self, pci: PciAddress, scope: TargetScope) -> bool {
        self.devices.iter().any(|target| target.pci == pci && target.scope == scope)
    }

    /// Returns whether the MIG mode or the partitions of the device at `pci` are determined.
    pub fn has_mig(&self, pci: PciAddress) -> bool {
        self.devices.iter().any(|target| target.pci == pci && target.mig.is_some())
    }
}

/// A device that a rule selects but whose state cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnverifiedDevice {
    /// PCI address.
    pub pci: PciAddress,
    /// Start of the rule in the file.
    pub rule: SourcePosition,
    /// The part of the device that the rule determines.
    pub scope: TargetScope,
    /// The cause, for messages.
    pub reason: String,
}

/// Part of a device that a target determines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TargetScope {
    /// The MIG mode and all partitions, as a layout lists them.
    #[default]
    Layout,
    /// The MIG mode only. Resource claims determine the partitions, and existing ones stay.
    Mode,
    /// The partitions that resource claims need now, whatever the targets of other devices are.
    Claims,
}

/// The desired state of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTarget {
    /// PCI address.
    pub pci: PciAddress,
    /// Start of the rule in the file.
    pub rule: SourcePosition,
    /// Desired partitioning; `None` leaves it unchanged.
    pub mig: Option<MigTarget>,
    /// Desired sharing of the device or its partitions; `None` leaves it unchanged.
    pub time_slicing: Option<TimeSlicing>,
    /// The part of the device that the target determines.
    pub scope: TargetScope,
}

/// Desired partitioning of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigTarget {
    /// MIG mode off.
    Disabled,
    /// MIG mode on with exactly these GPU instances, ordered by profile id, then by split, then by placement.
    Enabled(Vec<InstanceTarget>),
}

/// A desired GPU instance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "InstanceDocument", into = "InstanceDocument")]
pub struct InstanceTarget {
    /// The driver's profile id on this device.
    pub profile_id: u32,
    /// Compute slices of each compute instance, largest first; usually one that has all slices.
    pub compute: Vec<u32>,
    /// Desired placement in memory slices; `None` lets the planner choose. A rollback restores the original placement.
    pub placement: Option<Placement>,
}

/// JSON shape of [`InstanceTarget`]. A flattened `Option` would hide invalid values.
#[skip_serializing_none]
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InstanceDocument {
    profile: u32,
    compute: Vec<u32>,
    start: Option<u32>,
    size: Option<u32>,
}

impl From<InstanceDocument> for InstanceTarget {
    fn from(document: InstanceDocument) -> Self {
        let InstanceDocument { profile, compute, start, size } = document;
        let placement = start.zip(size).map(|(start, size)| Placement { start, size });
        Self { profile_id: profile, compute, placement }
    }
}

impl From<InstanceTarget> for InstanceDocument {
    fn from(target: InstanceTarget) -> Self {
        let InstanceTarget { profile_id, compute, placement } = target;
        let (start, size) = placement.map(|Placement { start, size }| (start, size)).unzip();
        Self { profile: profile_id, compute, start, size }
    }
}

#[cfg(test)]
mod tests;
