//! Serialization of the `timeSlicing` key of our dialect.

use octavo_planner::layout::{
    ResourceRename, Share, ShareTarget, TimeSlicing, UnitRef, UnitSelector,
};

use super::output::{OutputValue, map};

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
