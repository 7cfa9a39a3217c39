//! The `timeSlicing` key of our dialect, and the resource list that NVIDIA's device plugin has too.

use std::collections::BTreeMap;

use octavo_model::profile::ProfileName;
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::ResourceName;
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{
    ResourceRename, Share, ShareTarget, TimeSlice, TimeSlicing, UnitRef, UnitSelector,
};

use super::error::LayoutProblem;
use super::findings::{Findings, MappingShape, value_of};
use super::node::{Entry, Node, Value, quoted};
use super::{profiles, scalar};

const TIME_SLICING: MappingShape = MappingShape {
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

const PROFILE_SHARE: MappingShape = MappingShape {
    what: "how a profile is shared",
    keys: &[
        "replicas",
        "rename",
        "failRequestsGreaterThanOne",
        "memoryPerReplica",
    ],
};

const RESOURCE_SHARE: MappingShape = MappingShape {
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
const SHARE_KEYS: [&str; 3] = ["rename", "failRequestsGreaterThanOne", "memoryPerReplica"];

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
        shares.push(share(
            (node.place, entries),
            ShareTarget::AllUnits,
            findings,
        ));
    } else if let Some(idle) = entries.iter().find(|one| SHARE_KEYS.contains(&&*one.key)) {
        let key = idle.key.to_string();
        findings.error(idle.place, LayoutProblem::RequiresReplicas { key });
    }
    if let Some(node) = profiles {
        shares.extend(profile_shares(node, findings));
    }
    if let Some(node) = resources {
        let read = |(place, entries): (SourcePosition, &[Entry]), findings: &mut Findings| {
            findings.check_keys(entries, RESOURCE_SHARE);
            let of = resource((place, entries), MAX_RESOURCE_NAME_CHARS, findings)?;
            share((place, entries), of, findings)
        };
        shares.extend(list(node, RESOURCE_SHARE.what, read, findings));
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

fn slice(node: &Node, findings: &mut Findings) -> Option<TimeSlice> {
    let text = scalar::text(node);
    let found = TimeSlice::ALL
        .into_iter()
        .find(|length| text == Some(length.as_str()));
    if found.is_none() {
        findings.wrong_kind(node, "slice", "\"short\", \"medium\" or \"long\"");
    }
    found
}

fn profile_shares(node: &Node, findings: &mut Findings) -> Vec<Option<Share>> {
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
    let mut seen: BTreeMap<ProfileName, SourcePosition> = BTreeMap::new();
    let shares = entries.iter().map(|entry| {
        let profile = profiles::name(entry, findings)?;
        if let Some(first) = seen.get(&profile) {
            let (value, first) = (profile.to_string(), *first);
            findings.error(entry.place, LayoutProblem::DuplicateValue { value, first });
            return None;
        }
        seen.insert(profile.clone(), entry.place);
        let said = findings.mapping(&entry.value, PROFILE_SHARE)?;
        let of = ShareTarget::Profile(profile);
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
    read: impl Fn((SourcePosition, &[Entry]), &mut Findings) -> Option<Share>,
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
    let mut seen: Vec<(ShareTarget, SourcePosition)> = Vec::new();
    let shares = items.iter().map(|item| {
        let Value::Map(entries) = &item.value else {
            findings.wrong_kind(item, what, "a mapping");
            return None;
        };
        let share = read((item.place, entries), findings)?;
        if let Some((of, first)) = seen.iter().find(|(of, _)| *of == share.of) {
            let (value, first) = (of.to_string(), *first);
            findings.error(item.place, LayoutProblem::DuplicateValue { value, first });
            return None;
        }
        seen.push((share.of.clone(), item.place));
        Some(share)
    });
    shares.collect()
}

fn share(
    (place, entries): (SourcePosition, &[Entry]),
    of: ShareTarget,
    findings: &mut Findings,
) -> Option<Share> {
    let needed = findings.required((place, entries), TIME_SLICING.what, ("replicas", REPLICAS));
    let replicas = needed.and_then(|node| replicas(node, findings));
    let rename = match value_of(entries, "rename") {
        None => Some(ResourceRename::No),
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
    let range = Share::MIN_REPLICAS..=Share::MAX_REPLICAS;
    let number = scalar::number(node).filter(|number| range.contains(number));
    if number.is_none() {
        findings.wrong_kind(node, "replicas", "a whole number from 2 to 1024");
    }
    number
}

fn rename(node: &Node, findings: &mut Findings) -> Option<ResourceRename> {
    match scalar::boolean(node) {
        Some(true) => Some(ResourceRename::Shared),
        Some(false) => Some(ResourceRename::No),
        None => {
            // `on` is a boolean for many YAML parsers and never meant as a name.
            let is_name = !node.is_null() && scalar::yaml_1_1_boolean(node).is_none();
            let Some(text) = scalar::text(node).filter(|_| is_name) else {
                let expected = "true, false or a name as nvidia.com/gpu-small";
                findings.wrong_kind(node, "rename", expected);
                return None;
            };
            name((node.place, text), MAX_RESOURCE_NAME_CHARS, findings).map(ResourceRename::To)
        }
    }
}

fn memory(node: &Node, findings: &mut Findings) -> Option<Mebibytes> {
    let memory = scalar::memory(node);
    if memory.is_none() {
        let found = node.describe();
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
    here: (SourcePosition, &[Entry]),
    longest: usize,
    findings: &mut Findings,
) -> Option<ShareTarget> {
    let example = "the resource as kubelet knows it: \"name: nvidia.com/gpu\"";
    let node = findings.required(here, RESOURCE_SHARE.what, ("name", example));
    let which = match value_of(here.1, "devices") {
        None => Some(UnitSelector::All),
        Some(node) => unit_selection(node, findings),
    };
    let node = node?;
    let Some(text) = scalar::text(node).filter(|_| !node.is_null()) else {
        findings.wrong_kind(node, "name", "a text as nvidia.com/gpu");
        return None;
    };
    Some(ShareTarget::Resource {
        name: name((node.place, text), longest, findings)?,
        which: which?,
    })
}

/// Maximum length of a resource name with its domain: 63 characters after the domain.
pub(super) const MAX_RESOURCE_NAME_CHARS: usize = 74;

/// Parses a resource name. A name without a domain gets `nvidia.com/`, as in NVIDIA's plugin.
pub(super) fn name(
    (place, text): (SourcePosition, &str),
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
fn unit_selection(node: &Node, findings: &mut Findings) -> Option<UnitSelector> {
    let expected = "\"all\", how many, or a list as [0, \"0:1\", GPU-<uuid>, MIG-<uuid>]";
    if let Value::List(items) = &node.value {
        if items.is_empty() {
            let (what, example) = ("devices", "\"devices: all\" is every one of the resource");
            findings.error(node.place, LayoutProblem::Empty { what, example });
            return None;
        }
        return read_items(items, findings).map(UnitSelector::Listed);
    }
    if scalar::text(node) == Some("all") {
        return Some(UnitSelector::All);
    }
    let count = scalar::number(node).filter(|count| *count > 0);
    if count.is_none() {
        findings.wrong_kind(node, "devices", expected);
    }
    count.map(UnitSelector::First)
}

fn read_items(nodes: &[std::rc::Rc<Node>], findings: &mut Findings) -> Option<Vec<UnitRef>> {
    let mut seen: BTreeMap<UnitRef, SourcePosition> = BTreeMap::new();
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
            findings.error(node.place, LayoutProblem::DuplicateValue { value, first });
            wrong = true;
            continue;
        }
        seen.insert(item.clone(), node.place);
        items.push(item);
    }
    (!wrong).then_some(items)
}

fn item(node: &Node) -> Option<UnitRef> {
    let text = scalar::text(node).filter(|text| text.len() <= 253)?;
    let number = |text: &str| -> Option<u32> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    if let Some(index) = number(text) {
        return Some(UnitRef::Index(index));
    }
    if let Some((device, partition)) = text.split_once(':') {
        return Some(UnitRef::Partition(number(device)?, number(partition)?));
    }
    let gpu = text.parse().ok().map(UnitRef::Gpu);
    gpu.or_else(|| text.parse().ok().map(UnitRef::Mig))
}
