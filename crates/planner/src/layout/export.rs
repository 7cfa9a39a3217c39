//! Exports the current state of a node as a layout.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::inventory::{Condition, Device, Inventory, Mig, MigMode, MigState, Vendor};
use octavo_model::profile::ProfileName;
use thiserror::Error;

use super::compare::instance_target;
use super::error::{DeviceRef, RuleError};
use super::{
    Criteria, DeviceFilter, Dialect, Difference, IndexRange, Layout, MigSpec, ProfileCount, Rule,
    Selector, compare, resolve,
};

/// Reason why the current state of a node cannot be exported.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExportError {
    /// No device can be partitioned.
    #[error("no device of this node can be partitioned, so there is nothing to export")]
    NoPartitionableDevice,
    /// The MIG state of a device is not reported.
    #[error("{0}: its partitions are not reported; see its problems in `octavo inspect`")]
    Unreported(DeviceRef),
    /// A GPU instance has no compute instance, which no layout can request.
    #[error(
        "{device}: a GPU instance {profile} has no compute instance, which no layout can express; create a compute \
         instance in it, or destroy it"
    )]
    NoComputeInstance {
        /// The device.
        device: DeviceRef,
        /// Profile name of the instance.
        profile: String,
    },
    /// A GPU instance has a profile whose name the device does not report.
    #[error(
        "{device}: a GPU instance has the profile {profile_id}, whose name the device does not report"
    )]
    UnnamedProfile {
        /// The device.
        device: DeviceRef,
        /// The driver's profile id.
        profile_id: u32,
    },
    /// The device has no index to select it by.
    #[error(
        "{0}: it has no index, which the format of mig-parted requires; export it in Octavo's format"
    )]
    NoIndex(DeviceRef),
    /// The layout would not reproduce the current state: it would pack compute instances into other GPU instances.
    #[error("no layout describes exactly this state: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NotExact(Vec<Difference>),
    /// The layout does not resolve on the node.
    #[error("no layout describes exactly this state: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NotResolved(Vec<RuleError>),
}

/// MIG mode and number of partitions by profile.
type MigConfiguration = (MigMode, BTreeMap<ProfileName, u32>);

/// Devices with the same state.
type DeviceGroup<'a> = (MigConfiguration, Vec<&'a Device>);

/// Exports the current state of the partitionable devices as a layout that resolves to exactly this state on this node.
///
/// In mig-parted's dialect, GPUs that cannot be partitioned are listed with MIG off, and rules are ordered by their
/// first GPU. A rule for every GPU of a model selects the model by PCI ids, so that it also works on a node with its
/// GPUs in another order. Source: NVIDIA mig-parted v0.15.0, `cmd/nvidia-mig-parted/export/config.go`.
///
/// # Errors
/// Fails if part of the state is unknown or cannot be expressed in a layout.
pub fn export(inventory: &Inventory, name: &str, dialect: Dialect) -> Result<Layout, ExportError> {
    let mut devices: Vec<&Device> = inventory.devices.iter().collect();
    devices.sort_by_key(|device| device.index.unwrap_or(u32::MAX));
    let mut groups: Vec<DeviceGroup<'_>> = Vec::new();
    let mut is_any_capable = false;
    for device in devices {
        let has = match partitionable_state(device)? {
            Some(state) => {
                is_any_capable = true;
                mig_configuration(device, state)?
            }
            None if dialect == Dialect::MigParted && device.vendor == Vendor::Nvidia => {
                (MigMode::Disabled, BTreeMap::new())
            }
            None => continue,
        };
        match groups.iter_mut().find(|(known, _)| *known == has) {
            Some((_, alike)) => alike.push(device),
            None => groups.push((has, vec![device])),
        }
    }
    if !is_any_capable {
        return Err(ExportError::NoPartitionableDevice);
    }
    let rules = groups.iter().map(|(has, devices)| {
        let selector = match (groups.as_slice(), dialect) {
            ([_], _) => Selector::All,
            (groups, Dialect::MigParted) => selector_of_models(devices, groups)?,
            (_, Dialect::Octavo | Dialect::DevicePlugin) => selector(devices, dialect)?,
        };
        Ok(rule(selector, has.clone()))
    });
    let layout = Layout::generated(name, rules.collect::<Result<_, ExportError>>()?);
    // A layout contains only profiles and counts. Resolving it shows whether these reproduce the state.
    let resolved = resolve(&layout, dialect, inventory).map_err(ExportError::NotResolved)?;
    match compare(&resolved.targets, inventory) {
        same if same.is_empty() => Ok(layout),
        differences => Err(ExportError::NotExact(differences)),
    }
}

/// Selects by model if there are several, and also by index unless the rule covers every device of its models.
fn selector_of_models(
    devices: &[&Device],
    groups: &[DeviceGroup<'_>],
) -> Result<Selector, ExportError> {
    let models = |devices: &[&Device]| -> BTreeSet<DeviceFilter> {
        devices.iter().copied().map(model).collect()
    };
    let own = models(devices);
    let is_own_model = |device: &&&Device| own.contains(&model(device));
    let all = groups.iter().flat_map(|(_, devices)| devices);
    let is_whole = all.clone().filter(is_own_model).count() == devices.len();
    let has_several = all.map(|device| model(device)).collect::<BTreeSet<_>>().len() > 1;
    let criteria = if is_whole {
        Criteria::default()
    } else {
        match selector(devices, Dialect::MigParted)? {
            Selector::Matching(criteria) => criteria,
            Selector::All | Selector::Rest => Criteria::default(),
        }
    };
    Ok(Selector::Matching(Criteria {
        device_filter: has_several.then(|| own.into_iter().collect()),
        ..criteria
    }))
}

/// Returns the PCI ids of a model.
fn model(device: &Device) -> DeviceFilter {
    DeviceFilter { device: device.pci_ids.device, vendor: device.pci_ids.vendor, subsystem: None }
}

/// Returns the MIG state of a partitionable device; `None` for a device that cannot be partitioned.
fn partitionable_state(device: &Device) -> Result<Option<&MigState>, ExportError> {
    if device.vendor != Vendor::Nvidia || device.mig == Mig::NotCapable {
        return Ok(None);
    }
    let is_reported = device.condition == Condition::Working && device.mig.is_fully_known();
    match device.mig.state() {
        Some(state) if is_reported => Ok(Some(state)),
        Some(_) | None => Err(ExportError::Unreported(DeviceRef::from_device(device))),
    }
}

fn mig_configuration(device: &Device, state: &MigState) -> Result<MigConfiguration, ExportError> {
    let mut counts = BTreeMap::new();
    for instance in &state.gpu_instances {
        let split = instance_target(state, instance)
            .ok_or_else(|| ExportError::Unreported(DeviceRef::from_device(device)))?;
        if split.compute.is_empty() {
            return Err(ExportError::NoComputeInstance {
                device: DeviceRef::from_device(device),
                profile: state.profile_name(instance),
            });
        }
        let no_name = || ExportError::UnnamedProfile {
            device: DeviceRef::from_device(device),
            profile_id: instance.profile_id,
        };
        let profile = state.catalog.by_id(instance.profile_id);
        let profile = profile.ok_or_else(no_name)?;
        for slices in split.compute {
            let name = profile.name.with_compute_slices(slices);
            let count: &mut u32 = counts.entry(name.ok_or_else(no_name)?).or_default();
            *count = count.saturating_add(1);
        }
    }
    Ok((state.current, counts))
}

/// Selects by index, merging adjacent indices into ranges. In Octavo's dialect, selects by PCI address if a device has
/// no index.
fn selector(devices: &[&Device], dialect: Dialect) -> Result<Selector, ExportError> {
    let indices = devices.iter().map(|device| device.index.ok_or(*device));
    let criteria = match indices.collect::<Result<Vec<u32>, &Device>>() {
        Ok(indices) => Criteria { index: Some(ranges(indices)), ..Criteria::default() },
        Err(device) if dialect == Dialect::MigParted => {
            return Err(ExportError::NoIndex(DeviceRef::from_device(device)));
        }
        Err(_) => Criteria {
            pci: Some(devices.iter().map(|device| device.pci).collect()),
            ..Criteria::default()
        },
    };
    Ok(Selector::Matching(criteria))
}

fn ranges(mut indices: Vec<u32>) -> Vec<IndexRange> {
    indices.sort_unstable();
    let mut ranges: Vec<IndexRange> = Vec::new();
    for index in indices {
        match ranges.last_mut() {
            Some(range) if range.last.checked_add(1) == Some(index) => range.last = index,
            Some(_) | None => ranges.push(IndexRange { first: index, last: index }),
        }
    }
    ranges
}

fn rule(devices: Selector, (mode, counts): MigConfiguration) -> Rule {
    let counts = counts.into_iter();
    let counts = counts.map(|(profile, count)| ProfileCount::generated(profile, count));
    let mig = match mode {
        MigMode::Disabled => MigSpec::Disabled,
        MigMode::Enabled => MigSpec::Enabled(counts.collect()),
    };
    Rule::generated(devices, mig)
}
