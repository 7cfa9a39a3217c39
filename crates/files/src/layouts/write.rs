//! Writing of layouts in either dialect.

use std::fmt;

use octavo_planner::layout::{
    Criteria, Dialect, IndexRange, Layout, Layouts, MigSpec, ProfileCount, ResourceRename, Rule,
    Selector, Share, ShareTarget, TimeSlicing, UnitRef, UnitSelector,
};
use thiserror::Error;

use super::error::LayoutError;
use super::output::{OutputValue, map};
use super::{API_VERSION, KIND, parse};

/// Maximum number of indices a range expands to in a dialect without ranges.
const MAX_INDICES: usize = 1024;

/// Levels written in block style: the file, its layouts, their rules, and the keys of a rule.
const BLOCK_LEVELS: usize = 4;

/// Error while writing layouts in a dialect.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutWriteError {
    /// The dialect cannot express the layout.
    #[error("layout {layout:?}: {} cannot express {what}", name(*.dialect))]
    Inexpressible {
        /// Name of the layout.
        layout: String,
        /// The dialect.
        dialect: Dialect,
        /// The part that cannot be expressed.
        what: &'static str,
    },
    /// The layouts are not valid in the dialect.
    #[error("the output could not be read back: {0}")]
    Invalid(LayoutError),
}

fn name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Octavo => "the dialect octavo.dev/v1",
        Dialect::MigParted => "mig-parted's dialect",
        Dialect::DevicePlugin => "the configuration of NVIDIA's device plugin",
    }
}

/// Writes layouts as YAML that parses to equal layouts, except for source positions.
///
/// # Errors
/// Fails if the dialect cannot express a layout, or if a file with these layouts would be rejected.
pub fn write(layouts: &Layouts, dialect: Dialect) -> Result<String, LayoutWriteError> {
    verify(file(layouts, dialect)?.yaml(BLOCK_LEVELS))
}

/// Writes layouts as JSON that parses to equal layouts, except for source positions.
///
/// # Errors
/// As for [`write()`].
pub fn write_json(layouts: &Layouts, dialect: Dialect) -> Result<String, LayoutWriteError> {
    verify(file(layouts, dialect)?.json())
}

fn verify(text: String) -> Result<String, LayoutWriteError> {
    match parse(&text) {
        Ok(_) => Ok(text),
        Err(errors) => match errors.into_iter().next() {
            Some(error) => Err(LayoutWriteError::Invalid(error)),
            None => Ok(text),
        },
    }
}

fn file(layouts: &Layouts, dialect: Dialect) -> Result<OutputValue, LayoutWriteError> {
    let named: Vec<(String, OutputValue)> = layouts
        .layouts
        .iter()
        .map(|layout| Ok((layout.name.clone(), rules(layout, dialect)?)))
        .collect::<Result<_, LayoutWriteError>>()?;
    Ok(match dialect {
        Dialect::Octavo => map([
            ("apiVersion", OutputValue::text(API_VERSION)),
            ("kind", OutputValue::text(KIND)),
            ("layouts", OutputValue::Map(named)),
        ]),
        Dialect::MigParted | Dialect::DevicePlugin => {
            map([("version", OutputValue::text("v1")), ("mig-configs", OutputValue::Map(named))])
        }
    })
}

fn rules(layout: &Layout, dialect: Dialect) -> Result<OutputValue, LayoutWriteError> {
    let rule = |rule: &Rule| match dialect {
        Dialect::Octavo => octavo(rule),
        Dialect::MigParted => mig_parted(rule),
        // This dialect is only parsed. The hand-off to the device plugin writes its configuration.
        Dialect::DevicePlugin => Err("layouts"),
    };
    let rules = layout.rules.iter().map(|one| {
        rule(one).map_err(|what| LayoutWriteError::Inexpressible {
            layout: layout.name.clone(),
            dialect,
            what,
        })
    });
    Ok(OutputValue::List(rules.collect::<Result<_, _>>()?))
}

fn octavo(rule: &Rule) -> Result<OutputValue, &'static str> {
    let devices = match &rule.devices {
        Selector::All => OutputValue::text("all"),
        Selector::Rest => OutputValue::text("rest"),
        Selector::Matching(criteria) => criteria_out(criteria)?,
    };
    let mut entries = vec![("devices", devices)];
    match &rule.mig {
        None => {}
        Some(MigSpec::Disabled) => entries.push(("mig", OutputValue::text("disabled"))),
        Some(MigSpec::Enabled(counts)) => entries.push(("mig", counts_out(counts))),
    }
    if let Some(sharing) = &rule.time_slicing {
        entries.push(("timeSlicing", write_time_slicing(sharing)?));
    }
    if rule.claims {
        entries.push(("claims", OutputValue::text("dra")));
    }
    Ok(map(entries))
}

fn criteria_out(criteria: &Criteria) -> Result<OutputValue, &'static str> {
    if criteria.device_filter.is_some() {
        return Err("device filters by PCI ids");
    }
    let mut entries = Vec::new();
    let lists = [
        ("index", criteria.index.as_deref().map(ranges)),
        ("uuid", criteria.uuid.as_deref().map(texts)),
        ("pci", criteria.pci.as_deref().map(texts)),
        ("type", criteria.type_name.as_deref().map(texts)),
    ];
    for (key, list) in lists {
        entries.extend(list.map(|list| (key, list)));
    }
    if let Some(memory) = criteria.memory_at_least {
        entries.push(("memoryAtLeast", OutputValue::Text(format!("{}Mi", memory.get()))));
    }
    if let Some(capable) = criteria.mig_capable {
        entries.push(("migCapable", OutputValue::Bool(capable)));
    }
    Ok(map(entries))
}

fn ranges(ranges: &[IndexRange]) -> OutputValue {
    let one = |range: &IndexRange| {
        if range.first == range.last {
            OutputValue::Number(u64::from(range.first))
        } else {
            OutputValue::text(range)
        }
    };
    single_or_list(ranges, one)
}

fn texts<T: fmt::Display>(texts: &[T]) -> OutputValue {
    single_or_list(texts, |text| OutputValue::text(text))
}

fn single_or_list<T>(items: &[T], one: impl Fn(&T) -> OutputValue) -> OutputValue {
    match items {
        [item] => one(item),
        [] | [_, _, ..] => OutputValue::List(items.iter().map(one).collect()),
    }
}

fn counts_out(counts: &[ProfileCount]) -> OutputValue {
    let entries = counts
        .iter()
        .map(|count| (count.profile.to_string(), OutputValue::Number(u64::from(count.count))));
    OutputValue::Map(entries.collect())
}

fn mig_parted(rule: &Rule) -> Result<OutputValue, &'static str> {
    if rule.time_slicing.is_some() {
        return Err("time-slicing");
    }
    if rule.claims {
        return Err("resource claims");
    }
    let mut entries = Vec::new();
    match &rule.devices {
        Selector::All => entries.push(("devices", OutputValue::text("all"))),
        Selector::Rest => return Err("the rest of the devices"),
        Selector::Matching(criteria) => mig_parted_criteria(criteria, &mut entries)?,
    }
    match &rule.mig {
        None => return Err("unchanged partitioning"),
        // mig-parted writes the empty mapping too, and scripts index it.
        Some(MigSpec::Disabled) => {
            entries.push(("mig-enabled", OutputValue::Bool(false)));
            entries.push(("mig-devices", counts_out(&[])));
        }
        Some(MigSpec::Enabled(counts)) => {
            entries.push(("mig-enabled", OutputValue::Bool(true)));
            entries.push(("mig-devices", counts_out(counts)));
        }
    }
    Ok(map(entries))
}

fn mig_parted_criteria(
    criteria: &Criteria,
    entries: &mut Vec<(&'static str, OutputValue)>,
) -> Result<(), &'static str> {
    let missing = [
        (criteria.uuid.is_some(), "devices by UUID"),
        (criteria.pci.is_some(), "devices by PCI address"),
        (criteria.type_name.is_some(), "devices by type"),
        (criteria.memory_at_least.is_some(), "devices by memory"),
        (criteria.mig_capable.is_some(), "devices by MIG capability"),
    ];
    if let Some((_, what)) = missing.iter().find(|(there, _)| *there) {
        return Err(what);
    }
    if let Some(filters) = &criteria.device_filter {
        entries.push(("device-filter", texts(filters)));
    }
    let devices = match &criteria.index {
        None => OutputValue::text("all"),
        Some(ranges) => {
            let all = ranges.iter().flat_map(|range| range.first..=range.last);
            let some: Vec<u32> = all.take(MAX_INDICES + 1).collect();
            if some.len() > MAX_INDICES {
                return Err("a range of more than 1024 devices");
            }
            let numbers = some.into_iter().map(|index| OutputValue::Number(u64::from(index)));
            OutputValue::List(numbers.collect())
        }
    };
    entries.push(("devices", devices));
    Ok(())
}

/// Serializes how devices are shared.
///
/// # Errors
/// Returns what the dialect cannot express.
pub(super) fn write_time_slicing(sharing: &TimeSlicing) -> Result<OutputValue, &'static str> {
    if sharing.shares.is_empty() {
        return match sharing.slice {
            None => Ok(OutputValue::text("disabled")),
            Some(_) => Err("a time-slice duration without time-slicing"),
        };
    }
    let mut entries = Vec::new();
    let mut profiles = Vec::new();
    let mut resources = Vec::new();
    for share in &sharing.shares {
        match &share.of {
            ShareTarget::AllUnits if entries.is_empty() => entries = share_entries(share),
            ShareTarget::AllUnits => return Err("two time-slicing settings for all devices"),
            ShareTarget::Profile(profile) => {
                profiles.push((profile.to_string(), map(share_entries(share))));
            }
            ShareTarget::Resource { name, which } => {
                let mut item = vec![("name", OutputValue::text(name))];
                match which {
                    UnitSelector::All => {}
                    UnitSelector::First(count) => {
                        item.push(("devices", OutputValue::Number(u64::from(*count))));
                    }
                    UnitSelector::Listed(items) => {
                        let items = items.iter().map(write_item);
                        item.push(("devices", OutputValue::List(items.collect())));
                    }
                }
                item.extend(share_entries(share));
                resources.push(map(item));
            }
        }
    }
    if let Some(slice) = sharing.slice {
        entries.push(("slice", OutputValue::text(slice.as_str())));
    }
    if !profiles.is_empty() {
        entries.push(("profiles", OutputValue::Map(profiles)));
    }
    if !resources.is_empty() {
        entries.push(("resources", OutputValue::List(resources)));
    }
    Ok(map(entries))
}

fn share_entries(share: &Share) -> Vec<(&'static str, OutputValue)> {
    let mut entries = vec![("replicas", OutputValue::Number(u64::from(share.replicas)))];
    match &share.rename {
        ResourceRename::No => {}
        ResourceRename::Shared => entries.push(("rename", OutputValue::Bool(true))),
        ResourceRename::To(name) => entries.push(("rename", OutputValue::text(name))),
    }
    if share.fail_requests_greater_than_one {
        entries.push(("failRequestsGreaterThanOne", OutputValue::Bool(true)));
    }
    if let Some(memory) = share.memory_per_replica {
        entries.push(("memoryPerReplica", OutputValue::Text(format!("{}Mi", memory.get()))));
    }
    entries
}

fn write_item(item: &UnitRef) -> OutputValue {
    match item {
        UnitRef::Index(index) => OutputValue::Number(u64::from(*index)),
        UnitRef::Partition(..) | UnitRef::Gpu(_) | UnitRef::Mig(_) => OutputValue::text(item),
    }
}
