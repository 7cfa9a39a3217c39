//! Serialization of the `timeSlicing` key of our dialect.

use super::out::Out;
use super::write::map;
use crate::domain::layout::{Item, Rename, Share, ShareOf, TimeSlicing, Which};

/// Serializes how devices are shared.
///
/// # Errors
/// Returns what the dialect cannot express.
pub(super) fn written(sharing: &TimeSlicing) -> Result<Out, &'static str> {
    if sharing.shares.is_empty() {
        return match sharing.slice {
            None => Ok(Out::text("disabled")),
            Some(_) => Err("the length of turns where nothing is shared"),
        };
    }
    let mut entries = Vec::new();
    let mut profiles = Vec::new();
    let mut resources = Vec::new();
    for share in &sharing.shares {
        match &share.of {
            ShareOf::Everything if entries.is_empty() => entries = of_share(share),
            ShareOf::Everything => return Err("two shares of everything"),
            ShareOf::Profile(profile) => {
                profiles.push((profile.to_string(), map(of_share(share))));
            }
            ShareOf::Resource { name, which } => {
                let mut item = vec![("name", Out::text(name))];
                match which {
                    Which::All => {}
                    Which::First(count) => item.push(("devices", Out::Number(u64::from(*count)))),
                    Which::These(items) => {
                        let items = items.iter().map(one);
                        item.push(("devices", Out::List(items.collect())));
                    }
                }
                item.extend(of_share(share));
                resources.push(map(item));
            }
        }
    }
    if let Some(slice) = sharing.slice {
        entries.push(("slice", Out::text(slice.as_str())));
    }
    if !profiles.is_empty() {
        entries.push(("profiles", Out::Map(profiles)));
    }
    if !resources.is_empty() {
        entries.push(("resources", Out::List(resources)));
    }
    Ok(map(entries))
}

fn of_share(share: &Share) -> Vec<(&'static str, Out)> {
    let mut entries = vec![("replicas", Out::Number(u64::from(share.replicas)))];
    match &share.rename {
        Rename::No => {}
        Rename::Shared => entries.push(("rename", Out::Bool(true))),
        Rename::To(name) => entries.push(("rename", Out::text(name))),
    }
    if share.fail_requests_greater_than_one {
        entries.push(("failRequestsGreaterThanOne", Out::Bool(true)));
    }
    if let Some(memory) = share.memory_per_replica {
        entries.push(("memoryPerReplica", Out::Text(format!("{}Mi", memory.get()))));
    }
    entries
}

fn one(item: &Item) -> Out {
    match item {
        Item::Index(index) => Out::Number(u64::from(*index)),
        Item::Partition(..) | Item::Gpu(_) | Item::Mig(_) => Out::text(item),
    }
}
