//! Assigns rules to devices.

use octavo_model::id::{GpuUuid, TypeName};
use octavo_model::inventory::{Device, Identity, Inventory};
use octavo_model::text::format_memory;

use super::{Capability, Diagnostics, SelectedDevice};
use crate::layout::error::{DeviceRef, RuleErrorKind, RuleWarningKind};
use crate::layout::selector::{index, is_failing};
use crate::layout::{
    Criteria, DeviceFilter, Dialect, IndexRange, Layout, MigSpec, ProfileCount, Rule, Selector,
    TimeSlicing,
};

/// Result of matching a rule against a device.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Selection {
    Yes,
    No,
    /// The rule would select the device, but it is passed through to virtual machines.
    Passthrough,
}

/// Returns the selected devices, each once, with the rule that applies.
pub(super) fn select_devices<'a>(
    layout: &'a Layout,
    dialect: Dialect,
    inventory: &'a Inventory,
    report: &mut Diagnostics<'_>,
) -> Vec<SelectedDevice<'a>> {
    let all = pairs(layout, inventory, report);
    report_empty_rules(layout, dialect, (inventory, &all), report);
    let mut result: Vec<SelectedDevice<'a>> = Vec::new();
    for selected in all {
        let same = |other: &&mut SelectedDevice<'a>| other.device.pci == selected.device.pci;
        let Some(other) = result.iter_mut().find(same) else {
            result.push(selected);
            continue;
        };
        if selected.unreadable_reason().is_some() && other.unreadable_reason().is_some() {
            // With unreadable state, it is also unknown which of the two rules selects the device.
            continue;
        }
        match dialect {
            Dialect::Octavo | Dialect::DevicePlugin => {
                let reason = RuleErrorKind::Conflict {
                    other_rule: other.number,
                    other: other.rule.position,
                };
                report.error(selected, selected.rule.position, reason);
            }
            Dialect::MigParted => {
                if !is_same_request(other.rule, selected.rule) {
                    let kind = RuleWarningKind::Overrides {
                        other_rule: other.number,
                        other: other.rule.position,
                    };
                    report.warning(selected, selected.rule.position, kind);
                }
                *other = selected;
            }
        }
    }
    result
}

/// Returns every pair of a device and a rule that selects it, ordered by rule.
fn pairs<'a>(
    layout: &'a Layout,
    inventory: &'a Inventory,
    report: &mut Diagnostics<'_>,
) -> Vec<SelectedDevice<'a>> {
    let mut all = Vec::new();
    for is_rest in [false, true] {
        let taken: Vec<_> =
            all.iter().map(|selected: &SelectedDevice<'a>| selected.device.pci).collect();
        let rules = layout.rules.iter().zip(1..);
        for (rule, number) in rules.filter(|(rule, _)| (rule.devices == Selector::Rest) == is_rest)
        {
            for device in &inventory.devices {
                let selected = SelectedDevice { device, rule, number };
                if is_rest && taken.contains(&device.pci) {
                    continue;
                }
                match match_rule(rule, device, inventory) {
                    Selection::Yes => all.push(selected),
                    Selection::No => {}
                    Selection::Passthrough => {
                        report.warning(selected, rule.position, RuleWarningKind::Passthrough);
                    }
                }
            }
        }
    }
    // The sort is stable, so the devices of a rule keep their order.
    all.sort_by_key(|selected| selected.number);
    all
}

/// Reports rules that select nothing or name a missing index.
fn report_empty_rules(
    layout: &Layout,
    dialect: Dialect,
    (inventory, all): (&Inventory, &[SelectedDevice<'_>]),
    report: &mut Diagnostics<'_>,
) {
    for (rule, number) in layout.rules.iter().zip(1..) {
        if dialect == Dialect::MigParted && is_for_other_models(rule, inventory) {
            continue;
        }
        let missing = missing_indices(&rule.devices, inventory);
        let selects = all.iter().any(|selected| selected.number == number);
        if !missing.is_empty() {
            let reason = RuleErrorKind::NoSuchIndex {
                missing: missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                has: describe_devices(inventory),
            };
            report.errors.add(rule.position, Some(number), None, reason);
        } else if !selects && rule.devices == Selector::Rest {
            report.warnings.add(rule.position, Some(number), None, RuleWarningKind::RestIsEmpty);
        } else if !selects && (dialect != Dialect::MigParted || !has_device_filter(rule)) {
            let reason = RuleErrorKind::NoMatchingDevice {
                wanted: describe_selector(rule),
                has: describe_devices(inventory),
            };
            report.errors.add(rule.position, Some(number), None, reason);
        }
    }
    if all.is_empty() && report.errors.list.is_empty() {
        let reason = RuleErrorKind::NoDeviceSelected { has: describe_devices(inventory) };
        report.errors.add(layout.position, None, None, reason);
    }
}

fn has_device_filter(rule: &Rule) -> bool {
    rule.devices.criteria().is_some_and(|criteria| criteria.device_filter.is_some())
}

/// Returns true if the rule's device filter matches no device of this node. In mig-parted's dialect one file serves
/// many models.
fn is_for_other_models(rule: &Rule, inventory: &Inventory) -> bool {
    let filters = rule.devices.criteria().and_then(|criteria| criteria.device_filter.as_ref());
    filters.is_some_and(|filters| {
        let mut devices = inventory.devices.iter();
        !devices.any(|device| filters.iter().any(|filter| passes_filter(*filter, device)))
    })
}

/// Returns the ranges with missing indices. Does not iterate over ranges, which may be wide.
fn missing_indices(selector: &Selector, inventory: &Inventory) -> Vec<IndexRange> {
    let Selector::Matching(Criteria { index: Some(ranges), .. }) = selector else {
        return Vec::new();
    };
    let devices = inventory.devices.iter();
    let mut indices: Vec<u32> = devices.filter_map(|d| index(d, inventory)).collect();
    indices.sort_unstable();
    indices.dedup();
    let is_there = |range: &&IndexRange| {
        let within = indices.iter().filter(|index| range.contains(**index));
        let wide = u64::from(range.last).saturating_sub(u64::from(range.first));
        u64::try_from(within.count()).unwrap_or(u64::MAX) > wide
    };
    let missing = ranges.iter().filter(|range| !is_there(range));
    missing.copied().collect()
}

/// Matches a rule against a device. A device with unreadable state is selected by every rule that might mean it.
fn match_rule(rule: &Rule, device: &Device, inventory: &Inventory) -> Selection {
    let passed_through = device.condition.is_passthrough();
    let criteria = rule.devices.criteria();
    if criteria.is_some_and(|criteria| !meets_criteria(criteria, device, inventory)) {
        return Selection::No;
    }
    let capability = Capability::from_device(device);
    let mig_capable = criteria.and_then(|criteria| criteria.mig_capable);
    match (mig_capable, &capability) {
        (Some(true), Capability::No) | (Some(false), Capability::Yes(_)) => return Selection::No,
        (Some(_), Capability::Unknown(_)) if passed_through => return Selection::Passthrough,
        (Some(_) | None, _) => {}
    }
    let explicit = rule.devices.is_explicit();
    if explicit && mig_capable.is_none() {
        return Selection::Yes;
    }
    match (&rule.mig, capability) {
        (Some(MigSpec::Enabled(_)), Capability::No) if !explicit => Selection::No,
        (Some(_), Capability::Unknown(_)) if passed_through => Selection::Passthrough,
        (None | Some(_), _) => Selection::Yes,
    }
}

/// Returns true if a device meets all criteria except `mig_capable`. Attributes that a failing device does not report
/// count as met.
fn meets_criteria(criteria: &Criteria, device: &Device, inventory: &Inventory) -> bool {
    fn any<T>(list: Option<&Vec<T>>, is: impl Fn(&T) -> bool) -> bool {
        list.is_none_or(|list| list.iter().any(is))
    }
    let is_failing = is_failing(device);
    let has_type = |name: &TypeName| match &device.identity {
        Identity::Known { type_name, .. } | Identity::Manual { type_name, .. } => type_name == name,
        Identity::Unknown => is_failing,
    };
    let is_elsewhere = |uuid: &GpuUuid| {
        let mut devices = inventory.devices.iter();
        devices.any(|other| other.uuid.as_ref() == Some(uuid))
    };
    any(criteria.index.as_ref(), |range| {
        index(device, inventory).is_some_and(|index| range.contains(index))
    }) && any(criteria.uuid.as_ref(), |uuid| match &device.uuid {
        Some(own) => own == uuid,
        None => is_failing && !is_elsewhere(uuid),
    }) && any(criteria.pci.as_ref(), |pci| device.pci == *pci)
        && any(criteria.type_name.as_ref(), has_type)
        && criteria
            .memory_at_least
            .is_none_or(|least| device.memory.map_or(is_failing, |memory| memory >= least))
        && any(criteria.device_filter.as_ref(), |filter| passes_filter(*filter, device))
}

fn passes_filter(filter: DeviceFilter, device: &Device) -> bool {
    let ids = device.pci_ids;
    let subsystem = (ids.subsystem_device, ids.subsystem_vendor);
    (ids.device, ids.vendor) == (filter.device, filter.vendor)
        && filter.subsystem.is_none_or(|wanted| wanted == subsystem)
}

/// Returns true if two rules request the same state, ignoring positions.
fn is_same_request(one: &Rule, other: &Rule) -> bool {
    let sharing = |rule: &Rule| {
        let all = rule.time_slicing.clone();
        all.map(TimeSlicing::without_positions)
    };
    let same_mig = match (&one.mig, &other.mig) {
        (None, None) | (Some(MigSpec::Disabled), Some(MigSpec::Disabled)) => true,
        (Some(MigSpec::Enabled(one)), Some(MigSpec::Enabled(other))) => {
            let sorted = |counts: &[ProfileCount]| {
                let mut all: Vec<_> =
                    counts.iter().map(|count| (count.profile.clone(), count.count)).collect();
                all.sort();
                all
            };
            sorted(one) == sorted(other)
        }
        (None | Some(_), None | Some(_)) => false,
    };
    same_mig && sharing(one) == sharing(other) && one.claims == other.claims
}

fn describe_selector(rule: &Rule) -> String {
    let selector = rule.devices.to_string();
    match &rule.mig {
        Some(MigSpec::Enabled(_)) if !rule.devices.is_explicit() => {
            format!("{selector} (of those that can be partitioned)")
        }
        None | Some(MigSpec::Disabled | MigSpec::Enabled(_)) => selector,
    }
}

/// Describes the devices of the node for error messages.
fn describe_devices(inventory: &Inventory) -> String {
    const SHOWN: usize = 8;
    let error = inventory.nvml.error();
    if inventory.devices.is_empty() {
        return match error {
            Some(error) => format!("no accelerator: {error}"),
            None => "no accelerator".to_owned(),
        };
    }
    // Most nodes have many devices of one kind, so each kind is listed once.
    let mut kinds: Vec<(String, Vec<String>)> = Vec::new();
    for device in &inventory.devices {
        let name = match DeviceRef::from_device(device).index {
            Some(index) => index.to_string(),
            None => device.pci.to_string(),
        };
        let kind = describe_kind(device);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, names)) => names.push(name),
            None => kinds.push((kind, vec![name])),
        }
    }
    let more = kinds.len().saturating_sub(SHOWN);
    let mut all: Vec<String> = kinds
        .into_iter()
        .take(SHOWN)
        .map(|(kind, names)| format!("GPU {}: {kind}", names.join(",")))
        .collect();
    if more > 0 {
        all.push(format!("and {more} more kinds"));
    }
    all.extend(error.filter(|_| inventory.is_nvml_relevant()));
    all.join("; ")
}

fn describe_kind(device: &Device) -> String {
    let can = match Capability::from_device(device) {
        Capability::Yes(_) => "",
        Capability::No => ", cannot be partitioned",
        Capability::Unknown(_) => ", state cannot be read",
    };
    let memory = device.memory.map(|memory| format!(", {}", format_memory(memory)));
    let memory = memory.unwrap_or_default();
    format!("{}{memory}{can}", device.identity)
}
