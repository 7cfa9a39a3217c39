//! The `timeSlicing` key of our dialect, and the resource list that NVIDIA's device plugin has too.

use std::collections::BTreeMap;

use super::error::LayoutProblem;
use super::findings::{Findings, Shape, value_of};
use super::profiles;
use super::scalar;
use super::tree::{Entry, Node, Value, quoted};
use crate::domain::layout::{Item, Place, Rename, Share, ShareOf, SliceLength, TimeSlicing, Which};
use crate::domain::profile::ProfileName;
use crate::domain::quantity::Mebibytes;
use crate::domain::sharing::ResourceName;

const TIME_SLICING: Shape = Shape {
    what: "timeSlicing",
    keys: &[
        "replicas",
        "rename",
        "failRequestsGreaterThanOne",
        "memoryPerReplica",
        "slice",
        "profiles",
        "resources",
    ],
};

const OF_PROFILE: Shape = Shape {
    what: "how a profile is shared",
    keys: &[
        "replicas",
        "rename",
        "failRequestsGreaterThanOne",
        "memoryPerReplica",
    ],
};

const OF_RESOURCE: Shape = Shape {
    what: "how a resource is shared",
    keys: &[
        "name",
        "devices",
        "replicas",
        "rename",
        "failRequestsGreaterThanOne",
        "memoryPerReplica",
    ],
};

/// Keys of a share that require `replicas`.
const OF_SHARE: [&str; 3] = ["rename", "failRequestsGreaterThanOne", "memoryPerReplica"];

const REPLICAS: &str = "how many share a device, as \"timeSlicing: {replicas: 4}\"";
const PROFILES: &str =
    "profiles and how many share a partition of each, as \"profiles: {1g.10gb: {replicas: 2}}\"";
pub(super) const RESOURCES: &str =
    "a list of names and replicas, as \"resources: [{name: nvidia.com/gpu, replicas: 4}]\"";

/// Parses how devices are shared. Returns `None` if it is invalid.
pub(super) fn read(node: &Node, findings: &mut Findings) -> Option<TimeSlicing> {
    if scalar::text(node) == Some("disabled") {
        return Some(TimeSlicing {
            place: node.place,
            shares: Vec::new(),
            slice: None,
        });
    }
    if matches!(node.value, Value::Scalar(_) | Value::List(_)) {
        let expected = "\"disabled\", or a mapping as {replicas: 4}";
        findings.wrong_kind(node, TIME_SLICING.what, expected);
        return None;
    }
    let entries = findings.mapping(node, TIME_SLICING)?;
    let of = |key| value_of(entries, key);
    let slice = of("slice").map(|node| slice(node, findings));
    let (profiles, resources) = (of("profiles"), of("resources"));
    let mut shares = Vec::new();
    let alone = profiles.is_none() && resources.is_none();
    if alone || of("replicas").is_some() {
        shares.push(share((node.place, entries), ShareOf::Everything, findings));
    } else if let Some(idle) = entries.iter().find(|one| OF_SHARE.contains(&&*one.key)) {
        let key = idle.key.to_string();
        findings.error(idle.place, LayoutProblem::WithoutReplicas { key });
    }
    if let Some(node) = profiles {
        shares.extend(of_profiles(node, findings));
    }
    if let Some(node) = resources {
        let read = |(place, entries): (Place, &[Entry]), findings: &mut Findings| {
            findings.known(entries, OF_RESOURCE);
            let of = resource((place, entries), LONGEST, findings)?;
            share((place, entries), of, findings)
        };
        shares.extend(list(node, OF_RESOURCE.what, read, findings));
    }
    Some(TimeSlicing {
        place: node.place,
        shares: shares.into_iter().collect::<Option<_>>()?,
        slice: match slice {
            Some(read) => Some(read?),
            None => None,
        },
    })
}

fn slice(node: &Node, findings: &mut Findings) -> Option<SliceLength> {
    let text = scalar::text(node);
    let found = SliceLength::ALL
        .into_iter()
        .find(|length| text == Some(length.as_str()));
    if found.is_none() {
        findings.wrong_kind(node, "slice", "\"short\", \"medium\" or \"long\"");
    }
    found
}

fn of_profiles(node: &Node, findings: &mut Findings) -> Vec<Option<Share>> {
    let Value::Map(entries) = &node.value else {
        findings.wrong_kind(
            node,
            "profiles",
            "a mapping of profiles to how each is shared",
        );
        return vec![None];
    };
    if entries.is_empty() {
        let (what, example) = ("profiles", PROFILES);
        findings.error(node.place, LayoutProblem::Empty { what, example });
    }
    let mut seen: BTreeMap<ProfileName, Place> = BTreeMap::new();
    let shares = entries.iter().map(|entry| {
        let profile = profiles::name(entry, findings)?;
        if let Some(first) = seen.get(&profile) {
            let (value, first) = (profile.to_string(), *first);
            findings.error(entry.place, LayoutProblem::Repeated { value, first });
            return None;
        }
        seen.insert(profile.clone(), entry.place);
        let said = findings.mapping(&entry.value, OF_PROFILE)?;
        let of = ShareOf::Profile(profile);
        let share = share((entry.value.place, said), of, findings)?;
        Some(Share {
            place: entry.place,
            ..share
        })
    });
    shares.collect()
}

/// Parses a list of resources. Two items for the same resource are an error, because one of them would never apply.
pub(super) fn list(
    node: &Node,
    what: &'static str,
    read: impl Fn((Place, &[Entry]), &mut Findings) -> Option<Share>,
    findings: &mut Findings,
) -> Vec<Option<Share>> {
    let Value::List(items) = &node.value else {
        findings.wrong_kind(node, "resources", "a list");
        return vec![None];
    };
    if items.is_empty() {
        let (what, example) = ("resources", RESOURCES);
        findings.error(node.place, LayoutProblem::Empty { what, example });
    }
    let mut seen: Vec<(ShareOf, Place)> = Vec::new();
    let shares = items.iter().map(|item| {
        let Value::Map(entries) = &item.value else {
            findings.wrong_kind(item, what, "a mapping");
            return None;
        };
        let share = read((item.place, entries), findings)?;
        if let Some((of, first)) = seen.iter().find(|(of, _)| *of == share.of) {
            let (value, first) = (of.to_string(), *first);
            findings.error(item.place, LayoutProblem::Repeated { value, first });
            return None;
        }
        seen.push((share.of.clone(), item.place));
        Some(share)
    });
    shares.collect()
}

fn share(
    (place, entries): (Place, &[Entry]),
    of: ShareOf,
    findings: &mut Findings,
) -> Option<Share> {
    let needed = findings.needed((place, entries), TIME_SLICING.what, ("replicas", REPLICAS));
    let replicas = needed.and_then(|node| replicas(node, findings));
    let rename = match value_of(entries, "rename") {
        None => Some(Rename::No),
        Some(node) => rename(node, findings),
    };
    let fail = flag(entries, "failRequestsGreaterThanOne", findings);
    let memory = value_of(entries, "memoryPerReplica").map(|node| memory(node, findings));
    Some(Share {
        place,
        of,
        replicas: replicas?,
        rename: rename?,
        fail_requests_greater_than_one: fail,
        memory_per_replica: match memory {
            Some(read) => Some(read?),
            None => None,
        },
    })
}

/// Parses the number of replicas per unit.
pub(super) fn replicas(node: &Node, findings: &mut Findings) -> Option<u32> {
    let range = Share::LEAST..=Share::MOST;
    let number = scalar::number(node).filter(|number| range.contains(number));
    if number.is_none() {
        findings.wrong_kind(node, "replicas", "a whole number from 2 to 1024");
    }
    number
}

fn rename(node: &Node, findings: &mut Findings) -> Option<Rename> {
    match scalar::boolean(node) {
        Some(true) => Some(Rename::Shared),
        Some(false) => Some(Rename::No),
        None => {
            // `on` is a boolean for many YAML parsers and never meant as a name.
            let is_name = !node.is_null() && scalar::old_boolean(node).is_none();
            let Some(text) = scalar::text(node).filter(|_| is_name) else {
                let expected = "true, false or a name as nvidia.com/gpu-small";
                findings.wrong_kind(node, "rename", expected);
                return None;
            };
            name((node.place, text), LONGEST, findings).map(Rename::To)
        }
    }
}

fn memory(node: &Node, findings: &mut Findings) -> Option<Mebibytes> {
    let memory = scalar::memory(node);
    if memory.is_none() {
        let found = node.in_words();
        findings.error(node.place, LayoutProblem::Memory { found });
    }
    memory
}

/// Parses an optional boolean that defaults to `false`.
fn flag(entries: &[Entry], key: &'static str, findings: &mut Findings) -> bool {
    match value_of(entries, key) {
        None => false,
        Some(node) => scalar::boolean(node).unwrap_or_else(|| {
            findings.wrong_kind(node, key, "true or false");
            false
        }),
    }
}

/// Parses the resource of a share and the selection of its units. The name with its domain has at most `longest`
/// characters.
pub(super) fn resource(
    here: (Place, &[Entry]),
    longest: usize,
    findings: &mut Findings,
) -> Option<ShareOf> {
    let example = "the resource as kubelet knows it: \"name: nvidia.com/gpu\"";
    let node = findings.needed(here, OF_RESOURCE.what, ("name", example));
    let which = match value_of(here.1, "devices") {
        None => Some(Which::All),
        Some(node) => which(node, findings),
    };
    let node = node?;
    let Some(text) = scalar::text(node).filter(|_| !node.is_null()) else {
        findings.wrong_kind(node, "name", "a text as nvidia.com/gpu");
        return None;
    };
    Some(ShareOf::Resource {
        name: name((node.place, text), longest, findings)?,
        which: which?,
    })
}

/// Maximum length of a resource name with its domain: 63 characters after the domain.
pub(super) const LONGEST: usize = 74;

/// Parses a resource name. A name without a domain gets `nvidia.com/`, as in NVIDIA's plugin.
pub(super) fn name(
    (place, text): (Place, &str),
    longest: usize,
    findings: &mut Findings,
) -> Option<ResourceName> {
    let prefix = "nvidia.com/";
    let whole = if text.starts_with(prefix) {
        text.to_owned()
    } else {
        format!("{prefix}{text}")
    };
    let read = whole.parse::<ResourceName>().ok();
    let read = read.filter(|name| name.as_str().len() <= longest);
    if read.is_none() {
        let (found, most) = (quoted(text), longest);
        findings.error(place, LayoutProblem::ResourceName { found, most });
    }
    read
}

/// Parses `all`, a count, or a list of indices, `i:j` and UUIDs.
fn which(node: &Node, findings: &mut Findings) -> Option<Which> {
    let expected = "\"all\", how many, or a list as [0, \"0:1\", GPU-<uuid>, MIG-<uuid>]";
    if let Value::List(items) = &node.value {
        if items.is_empty() {
            let (what, example) = ("devices", "\"devices: all\" is every one of the resource");
            findings.error(node.place, LayoutProblem::Empty { what, example });
            return None;
        }
        return items_of(items, findings).map(Which::These);
    }
    if scalar::text(node) == Some("all") {
        return Some(Which::All);
    }
    let count = scalar::number(node).filter(|count| *count > 0);
    if count.is_none() {
        findings.wrong_kind(node, "devices", expected);
    }
    count.map(Which::First)
}

fn items_of(nodes: &[std::rc::Rc<Node>], findings: &mut Findings) -> Option<Vec<Item>> {
    let mut seen: BTreeMap<Item, Place> = BTreeMap::new();
    let mut items = Vec::new();
    let mut wrong = false;
    for node in nodes {
        let Some(item) = item(node) else {
            let expected = "an index, \"<index>:<partition>\", GPU-<uuid> or MIG-<uuid>";
            findings.wrong_kind(node, "a device", expected);
            wrong = true;
            continue;
        };
        if let Some(first) = seen.get(&item) {
            let (value, first) = (item.to_string(), *first);
            findings.error(node.place, LayoutProblem::Repeated { value, first });
            wrong = true;
            continue;
        }
        seen.insert(item.clone(), node.place);
        items.push(item);
    }
    (!wrong).then_some(items)
}

fn item(node: &Node) -> Option<Item> {
    let text = scalar::text(node).filter(|text| text.len() <= 253)?;
    let number = |text: &str| -> Option<u32> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    if let Some(index) = number(text) {
        return Some(Item::Index(index));
    }
    if let Some((device, partition)) = text.split_once(':') {
        return Some(Item::Partition(number(device)?, number(partition)?));
    }
    let gpu = text.parse().ok().map(Item::Gpu);
    gpu.or_else(|| text.parse().ok().map(Item::Mig))
}
