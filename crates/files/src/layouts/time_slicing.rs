//! The `timeSlicing` key of our dialect, and the resource list that NVIDIA's device plugin has too.

use std::collections::BTreeMap;
use std::rc::Rc;

use octavo_model::resource::ResourceName;
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{
    ResourceRename, Share, ShareTarget, TimeSlice, TimeSlicing, UnitRef, UnitSelector,
};

use super::devices::transpose_optional;
use super::error::LayoutProblem;
use super::findings::{Findings, Mapping, MappingShape};
use super::node::{YamlNode, quoted};
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
    what: "the time-slicing of a profile",
    keys: &["replicas", "rename", "failRequestsGreaterThanOne", "memoryPerReplica"],
};

const RESOURCE_SHARE: MappingShape = MappingShape {
    what: "the time-slicing of a resource",
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

const REPLICAS: &str = "the number of replicas of a device, such as \"timeSlicing: {replicas: 4}\"";
const PROFILES: &str =
    "profiles with their numbers of replicas, such as \"profiles: {1g.10gb: {replicas: 2}}\"";
pub(super) const RESOURCES: &str =
    "a list of names and replicas, such as \"resources: [{name: nvidia.com/gpu, replicas: 4}]\"";

/// Parses how devices are shared. Returns `None` if it is invalid.
pub(super) fn read(node: &YamlNode, findings: &mut Findings) -> Option<TimeSlicing> {
    if scalar::text(node) == Some("disabled") {
        return Some(TimeSlicing { position: node.position, shares: Vec::new(), slice: None });
    }
    let expected = "\"disabled\", or a mapping such as {replicas: 4}";
    findings.expect(node.entries(), node, TIME_SLICING.what, expected)?;
    let mapping = findings.mapping(node, TIME_SLICING)?;
    let slice = mapping.get("slice").map(|node| slice(node, findings));
    let (profiles, resources) = (mapping.get("profiles"), mapping.get("resources"));
    let mut shares = Vec::new();
    let alone = profiles.is_none() && resources.is_none();
    if alone || mapping.get("replicas").is_some() {
        shares.push(share(mapping, ShareTarget::AllUnits, findings));
    } else if let Some(idle) = mapping.entries.iter().find(|one| SHARE_KEYS.contains(&&*one.key)) {
        let key = idle.key.to_string();
        findings.error(idle.position, LayoutProblem::RequiresReplicas { key });
    }
    if let Some(node) = profiles {
        shares.extend(profile_shares(node, findings));
    }
    if let Some(node) = resources {
        let read = |mapping: Mapping<'_>, findings: &mut Findings| {
            let of = resource(mapping, MAX_RESOURCE_NAME_CHARS, findings)?;
            share(mapping, of, findings)
        };
        shares.extend(list(node, RESOURCE_SHARE, read, findings));
    }
    Some(TimeSlicing {
        position: node.position,
        shares: shares.into_iter().collect::<Option<_>>()?,
        slice: transpose_optional(slice)?,
    })
}

fn slice(node: &YamlNode, findings: &mut Findings) -> Option<TimeSlice> {
    let text = scalar::text(node);
    let slice = TimeSlice::ALL.into_iter().find(|length| text == Some(length.as_str()));
    findings.expect(slice, node, "slice", "\"short\", \"medium\" or \"long\"")
}

fn profile_shares(node: &YamlNode, findings: &mut Findings) -> Vec<Option<Share>> {
    let expected = "a mapping of profiles to their time-slicing";
    let Some(entries) = findings.expect(node.entries(), node, "profiles", expected) else {
        return vec![None];
    };
    findings.not_empty(node, "profiles", PROFILES);
    let mut seen = BTreeMap::new();
    let shares = entries.iter().map(|entry| {
        let profile = profiles::name(entry, findings)?;
        if !findings.unique(&mut seen, profile.clone(), entry.position) {
            return None;
        }
        let mapping = findings.mapping(&entry.value, PROFILE_SHARE)?;
        let share = share(mapping, ShareTarget::Profile(profile), findings)?;
        Some(Share { position: entry.position, ..share })
    });
    shares.collect()
}

/// Parses a list of resources. Two items for the same resource are an error, because one of them would never apply.
pub(super) fn list(
    node: &YamlNode,
    item_shape: MappingShape,
    read: impl Fn(Mapping<'_>, &mut Findings) -> Option<Share>,
    findings: &mut Findings,
) -> Vec<Option<Share>> {
    let Some(items) = findings.expect(node.items(), node, "resources", "a list") else {
        return vec![None];
    };
    findings.not_empty(node, "resources", RESOURCES);
    let mut seen: Vec<(ShareTarget, SourcePosition)> = Vec::new();
    let shares = items.iter().map(|item| {
        let share = read(findings.mapping(item, item_shape)?, findings)?;
        if let Some((of, first)) = seen.iter().find(|(of, _)| *of == share.of) {
            let (value, first) = (of.to_string(), *first);
            findings.error(item.position, LayoutProblem::DuplicateValue { value, first });
            return None;
        }
        seen.push((share.of.clone(), item.position));
        Some(share)
    });
    shares.collect()
}

/// Parses how units are shared. Messages name the key `timeSlicing`, also within its lists.
fn share(mapping: Mapping<'_>, of: ShareTarget, findings: &mut Findings) -> Option<Share> {
    let mapping = Mapping { what: TIME_SLICING.what, ..mapping };
    let replicas =
        findings.required(mapping, "replicas", REPLICAS).and_then(|node| replicas(node, findings));
    let rename = match mapping.get("rename") {
        None => Some(ResourceRename::No),
        Some(node) => rename(node, findings),
    };
    let fail = flag(mapping, "failRequestsGreaterThanOne", findings);
    let memory = mapping.get("memoryPerReplica");
    let memory = memory.map(|node| findings.accept(scalar::memory(node), node.position));
    Some(Share {
        position: mapping.position,
        of,
        replicas: replicas?,
        rename: rename?,
        fail_requests_greater_than_one: fail,
        memory_per_replica: transpose_optional(memory)?,
    })
}

/// Parses the number of replicas per unit.
pub(super) fn replicas(node: &YamlNode, findings: &mut Findings) -> Option<u32> {
    let range = Share::MIN_REPLICAS..=Share::MAX_REPLICAS;
    let number = scalar::number(node).filter(|number| range.contains(number));
    findings.expect(number, node, "replicas", "an integer from 2 to 1024")
}

fn rename(node: &YamlNode, findings: &mut Findings) -> Option<ResourceRename> {
    match scalar::boolean(node) {
        Some(true) => Some(ResourceRename::Shared),
        Some(false) => Some(ResourceRename::No),
        None => {
            // `on` is a boolean for many YAML parsers and never meant as a name.
            let is_name = !node.is_null() && scalar::yaml_1_1_boolean(node).is_none();
            let text = scalar::text(node).filter(|_| is_name);
            let expected = "true, false or a name such as nvidia.com/gpu-small";
            let text = findings.expect(text, node, "rename", expected)?;
            name((node.position, text), MAX_RESOURCE_NAME_CHARS, findings).map(ResourceRename::To)
        }
    }
}

/// Parses an optional boolean that defaults to `false`.
fn flag(mapping: Mapping<'_>, key: &'static str, findings: &mut Findings) -> bool {
    let node = mapping.get(key);
    let flag = node.map(|node| findings.expect(scalar::boolean(node), node, key, "true or false"));
    flag.flatten().unwrap_or_default()
}

/// Parses the resource of a share and the selection of its units. The name with its domain has at most `longest`
/// characters.
pub(super) fn resource(
    mapping: Mapping<'_>,
    longest: usize,
    findings: &mut Findings,
) -> Option<ShareTarget> {
    let mapping = Mapping { what: RESOURCE_SHARE.what, ..mapping };
    let example = "the name of the resource in Kubernetes: \"name: nvidia.com/gpu\"";
    let node = findings.required(mapping, "name", example);
    let which = match mapping.get("devices") {
        None => Some(UnitSelector::All),
        Some(node) => unit_selection(node, findings),
    };
    let node = node?;
    let text = scalar::text(node).filter(|_| !node.is_null());
    let text = findings.expect(text, node, "name", "a string such as nvidia.com/gpu")?;
    Some(ShareTarget::Resource {
        name: name((node.position, text), longest, findings)?,
        which: which?,
    })
}

/// Maximum length of a resource name with its domain: 63 characters after the domain.
pub(super) const MAX_RESOURCE_NAME_CHARS: usize = 74;

/// Parses a resource name. A name without a domain gets `nvidia.com/`, as in NVIDIA's plugin.
pub(super) fn name(
    (position, text): (SourcePosition, &str),
    longest: usize,
    findings: &mut Findings,
) -> Option<ResourceName> {
    let prefix = "nvidia.com/";
    let whole = if text.starts_with(prefix) { text.to_owned() } else { format!("{prefix}{text}") };
    let name = whole.parse::<ResourceName>().ok().filter(|name| name.as_str().len() <= longest);
    let (found, most) = (quoted(text), longest);
    findings.accept(name.ok_or(LayoutProblem::ResourceName { found, most }), position)
}

/// Parses `all`, a count, or a list of indices, `i:j` and UUIDs.
fn unit_selection(node: &YamlNode, findings: &mut Findings) -> Option<UnitSelector> {
    let expected =
        "\"all\", a number of devices, or a list such as [0, \"0:1\", GPU-<uuid>, MIG-<uuid>]";
    if let Some(items) = node.items() {
        let example = "\"devices: all\" selects every device of the resource";
        if !findings.not_empty(node, "devices", example) {
            return None;
        }
        return read_items(items, findings).map(UnitSelector::Listed);
    }
    if scalar::text(node) == Some("all") {
        return Some(UnitSelector::All);
    }
    let count = scalar::number(node).filter(|count| *count > 0);
    findings.expect(count, node, "devices", expected).map(UnitSelector::First)
}

fn read_items(nodes: &[Rc<YamlNode>], findings: &mut Findings) -> Option<Vec<UnitRef>> {
    let expected = "an index, \"<index>:<partition>\", GPU-<uuid> or MIG-<uuid>";
    let mut seen = BTreeMap::new();
    let items: Vec<Option<UnitRef>> = nodes
        .iter()
        .map(|node| {
            let item = findings.expect(item(node), node, "a device", expected)?;
            findings.unique(&mut seen, item.clone(), node.position).then_some(item)
        })
        .collect();
    items.into_iter().collect()
}

fn item(node: &YamlNode) -> Option<UnitRef> {
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
