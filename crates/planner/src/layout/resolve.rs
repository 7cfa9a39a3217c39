//! Resolves a layout into the desired state of each device of a node.

mod names;
mod select;
mod sharing;
mod split;

use octavo_model::catalog::GpuInstanceProfile;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, Device, Inventory, Mig, MigMode, MigState, Vendor};
use octavo_model::profile::ProfileName;
use octavo_model::source_position::SourcePosition;

use super::error::{
    DeviceRef, RuleError, RuleErrorKind, RuleMessage, RuleWarning, RuleWarningKind,
};
use super::{
    DeviceTarget, Dialect, Layout, MigSpec, MigTarget, ProfileCount, Rule, Targets,
    UnverifiedDevice,
};

/// A layout resolved on one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResolvedLayout {
    /// The desired state of the devices.
    pub targets: Targets,
    /// The devices that rules select, including those with nothing to do, in no particular order.
    pub covered: Vec<PciAddress>,
    /// Possibly unintended effects of the rules.
    pub warnings: Vec<RuleWarning>,
}

/// Resolves `layout` for the devices of `inventory`.
///
/// Profile names are looked up in the catalog of each device. Counts are checked against what fits on an empty device,
/// profile by profile. The planner decides whether everything fits together and next to instances in use.
///
/// # Errors
/// Returns all errors, not only the first.
pub fn resolve(
    layout: &Layout,
    dialect: Dialect,
    inventory: &Inventory,
) -> Result<ResolvedLayout, Vec<RuleError>> {
    let mut report = Diagnostics::new(layout);
    let selected = select::select_devices(layout, dialect, inventory, &mut report);
    let mut targets = Targets::default();
    for selected in &selected {
        let case = ResolveContext { selected: *selected, inventory };
        match selected.unreadable_reason() {
            Some(reason) => targets.unverified.push(case.unverified(reason, &mut report)),
            None => targets.devices.extend(case.target(&mut report)),
        }
    }
    targets.devices.sort_by_key(|target| target.pci);
    targets.unverified.sort_by_key(|device| device.pci);
    if report.errors.list.is_empty() {
        Ok(ResolvedLayout {
            targets,
            covered: selected.iter().map(|selected| selected.device.pci).collect(),
            warnings: report.warnings.list,
        })
    } else {
        Err(report.errors.list)
    }
}

/// A device and the rule that selects it.
#[derive(Debug, Clone, Copy)]
struct SelectedDevice<'a> {
    device: &'a Device,
    rule: &'a Rule,
    /// One-based number of the rule.
    number: usize,
}

impl SelectedDevice<'_> {
    /// Returns the reason why the device cannot be compared with the rule; `None` if it can. MIG capability does not
    /// matter to a rule that neither partitions nor selects by it.
    fn unreadable_reason(&self) -> Option<String> {
        let Self { device, rule, .. } = self;
        let criteria = rule.devices.criteria();
        let by_capability = criteria.is_some_and(|criteria| criteria.mig_capable.is_some());
        match (&device.condition, Capability::from_device(device)) {
            (_, Capability::No) if rule.mig.is_some() => None,
            (Condition::Failing { reason }, _) => Some(format!("failing: {reason}")),
            (_, Capability::Unknown(why)) if rule.mig.is_some() || by_capability => Some(why),
            (Condition::Working | Condition::PciOnly { .. }, _) => None,
        }
    }
}

/// A device, its rule, and the inventory of the node.
#[derive(Clone, Copy)]
struct ResolveContext<'a> {
    selected: SelectedDevice<'a>,
    inventory: &'a Inventory,
}

/// Marker error: the cause is already in the report.
struct AlreadyReported;

/// A profile of a rule after lookup.
struct ResolvedProfile<'a> {
    count: &'a ProfileCount,
    profile: &'a GpuInstanceProfile,
}

impl<'a> ResolveContext<'a> {
    fn unverified(self, reason: String, report: &mut Diagnostics<'_>) -> UnverifiedDevice {
        let SelectedDevice { device, rule, .. } = self.selected;
        let kind = RuleWarningKind::StateUnreadable { why: reason.clone() };
        report.warning(self.selected, rule.position, kind);
        UnverifiedDevice { pci: device.pci, rule: rule.position, scope: rule.scope(), reason }
    }

    fn target(self, report: &mut Diagnostics<'_>) -> Option<DeviceTarget> {
        let SelectedDevice { device, rule, .. } = self.selected;
        let mig = match &rule.mig {
            None => None,
            Some(spec) => self.mig(spec, report).ok()?,
        };
        let time_slicing = match &rule.time_slicing {
            None => None,
            // Claims may create partitions of every profile.
            Some(spec) if rule.claims => Some(self.time_slicing(spec, None, report)?),
            Some(spec) => Some(self.time_slicing(spec, mig.as_ref(), report)?),
        };
        let has_effect = mig.is_some() || time_slicing.is_some() || rule.claims;
        has_effect.then_some(DeviceTarget {
            pci: device.pci,
            rule: rule.position,
            mig,
            time_slicing,
            scope: rule.scope(),
        })
    }

    /// Returns the MIG target; `None` if nothing has to be done because the device has no MIG mode to disable.
    fn mig(
        self,
        spec: &'a MigSpec,
        report: &mut Diagnostics<'_>,
    ) -> Result<Option<MigTarget>, AlreadyReported> {
        let state = match (Capability::from_device(self.selected.device), spec) {
            (Capability::No, MigSpec::Disabled) => return Ok(None),
            (Capability::No, MigSpec::Enabled(_)) => {
                report.error(
                    self.selected,
                    self.selected.rule.position,
                    RuleErrorKind::NotMigCapable,
                );
                return Err(AlreadyReported);
            }
            // Unreachable in practice: such a device is unverified and has no target.
            (Capability::Unknown(_), _) => return Err(AlreadyReported),
            (Capability::Yes(state), _) => state,
        };
        match spec {
            MigSpec::Disabled => Ok(Some(MigTarget::Disabled)),
            MigSpec::Enabled(counts) => {
                let partitions = self.partitions(state, counts, report);
                partitions.map(Some).ok_or(AlreadyReported)
            }
        }
    }

    fn partitions(
        self,
        state: &'a MigState,
        counts: &'a [ProfileCount],
        report: &mut Diagnostics<'_>,
    ) -> Option<MigTarget> {
        if let (true, Some(first)) = (state.catalog.profiles().is_empty(), counts.first()) {
            let reason =
                RuleErrorKind::NoProfiles { mig_is_off: state.current == MigMode::Disabled };
            report.error(self.selected, first.position, reason);
            return None;
        }
        let found = counts.iter().filter_map(|count| {
            let profile = self.look_up((state, count.position), &count.profile, report)?;
            Some(ResolvedProfile { count, profile })
        });
        let entries: Vec<ResolvedProfile<'a>> = found.collect();
        let complete = entries.len() == counts.len();
        let (mut instances, wrong) = split::instances(&state.catalog, &entries);
        let fits = wrong.is_empty();
        for (position, reason) in wrong {
            report.error(self.selected, position, reason);
        }
        instances.sort_unstable();
        (complete && fits).then_some(MigTarget::Enabled(instances))
    }

    /// Returns the GPU instance profile that a name denotes on the device.
    fn look_up(
        self,
        (state, position): (&'a MigState, SourcePosition),
        requested: &ProfileName,
        report: &mut Diagnostics<'_>,
    ) -> Option<&'a GpuInstanceProfile> {
        let reason = match names::look_up(state, requested) {
            Ok(found) => {
                if !found.exact {
                    let kind = RuleWarningKind::OtherSpelling {
                        requested: requested.to_string(),
                        own: names::device_spelling(found.profile, requested),
                    };
                    report.warning(self.selected, position, kind);
                }
                return Some(found.profile);
            }
            Err(names::LookupError::SameName(ids)) => RuleErrorKind::DuplicateProfileName {
                name: requested.gpu_instance().to_string(),
                ids,
            },
            Err(names::LookupError::Ambiguous(candidates)) => {
                RuleErrorKind::AmbiguousProfile { requested: requested.to_string(), candidates }
            }
            Err(names::LookupError::Unknown(offers)) => RuleErrorKind::UnknownProfile {
                requested: requested.to_string(),
                offers,
                elsewhere: names::devices_offering(self.inventory, requested),
            },
        };
        report.error(self.selected, position, reason);
        None
    }
}

/// Partitioning capability of a device.
enum Capability<'a> {
    Yes(&'a MigState),
    No,
    /// Unknown, for this reason.
    Unknown(String),
}

impl<'a> Capability<'a> {
    /// MIG exists on NVIDIA GPUs only: another vendor's device never has it, whatever its driver reports.
    fn from_device(device: &'a Device) -> Self {
        if device.vendor != Vendor::Nvidia {
            return Self::No;
        }
        match (&device.condition, &device.mig) {
            (_, Mig::NotCapable) => Self::No,
            (Condition::Working, Mig::Capable(state)) => Self::Yes(state),
            (Condition::Failing { reason }, _) => Self::Unknown(format!("failing: {reason}")),
            (Condition::PciOnly { .. }, _) => {
                Self::Unknown("no driver library reports it".to_owned())
            }
            (Condition::Working, Mig::Unknown) => {
                let why = device.problems.first().map_or_else(
                    || "not reported by the driver".to_owned(),
                    |problem| format!("{}: {}", problem.source, problem.error),
                );
                Self::Unknown(why)
            }
        }
    }
}

/// Errors and warnings of resolving a layout.
struct Diagnostics<'a> {
    errors: Messages<'a, RuleErrorKind>,
    warnings: Messages<'a, RuleWarningKind>,
}

/// Collects messages, merging devices with the same problem into one message.
struct Messages<'a, K> {
    layout: &'a Layout,
    list: Vec<RuleMessage<K>>,
}

impl<'a> Diagnostics<'a> {
    fn new(layout: &'a Layout) -> Self {
        Self {
            errors: Messages { layout, list: Vec::new() },
            warnings: Messages { layout, list: Vec::new() },
        }
    }

    fn error(
        &mut self,
        selected: SelectedDevice<'_>,
        position: SourcePosition,
        kind: RuleErrorKind,
    ) {
        self.errors.add(position, Some(selected.number), Some(selected.device), kind);
    }

    fn warning(
        &mut self,
        selected: SelectedDevice<'_>,
        position: SourcePosition,
        kind: RuleWarningKind,
    ) {
        self.warnings.add(position, Some(selected.number), Some(selected.device), kind);
    }
}

impl<K: PartialEq> Messages<'_, K> {
    /// Adds a message, which may concern a rule and a device.
    fn add(
        &mut self,
        position: SourcePosition,
        rule: Option<usize>,
        device: Option<&Device>,
        kind: K,
    ) {
        let devices = device.map(DeviceRef::from_device).into_iter();
        let same = |known: &&mut RuleMessage<K>| {
            known.rule == rule && known.position == position && known.kind == kind
        };
        match self.list.iter_mut().find(same) {
            Some(known) => known.devices.extend(devices),
            None => self.list.push(RuleMessage {
                position,
                layout: self.layout.name.clone(),
                rule,
                devices: devices.collect(),
                kind,
            }),
        }
    }
}
