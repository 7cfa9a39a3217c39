//! The configuration of NVIDIA's device plugin, version v1, as a layout.
//!
//! The configuration applies to all resources of the node, so it becomes one layout with one rule for all devices.
//! NVIDIA's parser ignores unknown keys; here they are errors. For a known key that is not used, a warning names the
//! program that uses it. Source: NVIDIA k8s-device-plugin v0.20.0, `api/config/v1`.

mod flags;

use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{
    Dialect, Layout, Layouts, ResourceRename, Rule, Selector, Share, ShareTarget, TimeSlicing,
    UnitSelector,
};

use super::error::{LayoutProblem, WarningProblem};
use super::findings::{Findings, MappingShape, value_of};
use super::node::{Entry, Node, Value};
use super::time_slicing::{self, RESOURCES};
use super::{DEVICE_PLUGIN_KEYS, scalar};

/// Name of the layout.
pub(super) const LAYOUT_NAME: &str = "device-plugin";

const FILE: MappingShape = MappingShape {
    what: "a configuration of NVIDIA's device plugin",
    keys: DEVICE_PLUGIN_KEYS,
};

const ALL_RESOURCES: MappingShape = MappingShape {
    what: "resources",
    keys: &["gpus", "mig"],
};

const PATTERN: MappingShape = MappingShape {
    what: "a resource",
    keys: &["pattern", "name"],
};

const SHARING: MappingShape = MappingShape {
    what: "sharing",
    keys: &["timeSlicing", "mps"],
};

const TIME_SLICING: MappingShape = MappingShape {
    what: "timeSlicing",
    keys: &["renameByDefault", "failRequestsGreaterThanOne", "resources"],
};

const RESOURCE: MappingShape = MappingShape {
    what: "a shared resource",
    keys: &["name", "rename", "devices", "replicas"],
};

const IMEX: MappingShape = MappingShape {
    what: "imex",
    keys: &["channelIDs", "required"],
};

/// Maximum length of a resource name, including its domain. Source: as above, `MaxResourceNameLength`.
const MAX_RESOURCE_NAME_CHARS: usize = 63;

/// Reports whether a key belongs in one of the sections of the file.
pub(super) fn is_section_key(key: &str) -> bool {
    SHARING.keys.contains(&key) || flags::is_flag(key)
}

pub(super) fn read(root: &Node, entries: &[Entry], findings: &mut Findings) -> Option<Layouts> {
    findings.check_keys(entries, FILE);
    match value_of(entries, "version") {
        Some(node) if scalar::text(node) != Some("") => {
            super::expect_text(node, "version", "v1", findings);
        }
        Some(_) | None => {}
    }
    if let Some(node) = non_null_value(entries, "flags") {
        flags::read(node, findings);
    }
    if let Some(node) = non_null_value(entries, "resources") {
        resources(node, findings);
    }
    if let Some(node) = non_null_value(entries, "imex") {
        imex(node, findings);
    }
    let shared = non_null_value(entries, "sharing").map(|node| sharing(node, findings));
    let time_slicing = match shared {
        Some(read) => read?,
        None => no_sharing(root.place),
    };
    let rule = Rule {
        place: time_slicing.place,
        devices: Selector::All,
        mig: None,
        time_slicing: Some(time_slicing),
    };
    Some(Layouts {
        dialect: Dialect::DevicePlugin,
        layouts: vec![Layout {
            name: LAYOUT_NAME.to_owned(),
            place: root.place,
            rules: vec![rule],
        }],
    })
}

/// Returns the value of a key. A null value counts as absent.
fn non_null_value<'n>(entries: &'n [Entry], key: &str) -> Option<&'n Node> {
    value_of(entries, key).filter(|node| !node.is_null())
}

/// Parses a boolean by the rules of YAML 1.1, like NVIDIA's parser.
fn read_bool(entries: &[Entry], key: &'static str, findings: &mut Findings) -> bool {
    non_null_value(entries, key).is_some_and(|node| {
        scalar::yaml_1_1_boolean(node).unwrap_or_else(|| {
            findings.wrong_kind(node, key, "true or false");
            false
        })
    })
}

/// Time-slicing without any shared resource.
fn no_sharing(place: SourcePosition) -> TimeSlicing {
    TimeSlicing {
        place,
        shares: Vec::new(),
        slice: None,
    }
}

fn sharing(node: &Node, findings: &mut Findings) -> Option<TimeSlicing> {
    let entries = findings.mapping(node, SHARING)?;
    let mps = entries
        .iter()
        .find(|entry| &*entry.key == "mps" && !entry.value.is_null());
    let slicing = value_of(entries, "timeSlicing");
    if let Some(mps) = mps {
        let problem = match slicing {
            Some(_) => LayoutProblem::MpsWithTimeSlicing,
            None => LayoutProblem::MpsUnsupported,
        };
        findings.error(mps.place, problem);
    }
    match slicing {
        Some(node) => time_slicing(node, findings),
        None => Some(no_sharing(node.place)),
    }
}

fn time_slicing(node: &Node, findings: &mut Findings) -> Option<TimeSlicing> {
    let entries = findings.mapping(node, TIME_SLICING)?;
    let rename = read_bool(entries, "renameByDefault", findings);
    let fail = read_bool(entries, "failRequestsGreaterThanOne", findings);
    let resources = findings.required(
        (node.place, entries),
        TIME_SLICING.what,
        ("resources", RESOURCES),
    )?;
    let read = |here: (SourcePosition, &[Entry]), findings: &mut Findings| {
        findings.check_keys(here.1, RESOURCE);
        let share = share(here, findings)?;
        Some(Share {
            rename: match share.rename {
                ResourceRename::No if rename => ResourceRename::Shared,
                own @ (ResourceRename::No | ResourceRename::Shared | ResourceRename::To(_)) => own,
            },
            fail_requests_greater_than_one: fail,
            ..share
        })
    };
    let shares = time_slicing::list(resources, RESOURCE.what, read, findings);
    Some(TimeSlicing {
        place: node.place,
        shares: shares.into_iter().collect::<Option<_>>()?,
        slice: None,
    })
}

fn share((place, entries): (SourcePosition, &[Entry]), findings: &mut Findings) -> Option<Share> {
    let of = time_slicing::resource((place, entries), MAX_RESOURCE_NAME_CHARS, findings);
    let example = "how many share each of it, as \"replicas: 4\"";
    let replicas = findings
        .required((place, entries), RESOURCE.what, ("replicas", example))
        .and_then(|node| time_slicing::replicas(node, findings));
    // NVIDIA's parser treats an empty name as absent.
    let rename = entries
        .iter()
        .find(|entry| &*entry.key == "rename" && !entry.value.is_null());
    let rename = match rename {
        None => Some(ResourceRename::No),
        Some(entry) => read_rename(entry, findings),
    };
    let of = of?;
    if let ShareTarget::Resource { which, .. } = &of
        && *which != UnitSelector::All
        && let Some(entry) = entries.iter().find(|entry| &*entry.key == "devices")
    {
        let key = "devices";
        findings.warning(entry.place, WarningProblem::IgnoredByDevicePlugin { key });
    }
    Some(Share {
        place,
        rename: rename?,
        ..Share {
            of,
            ..Share::everything(replicas?)
        }
    })
}

fn read_rename(entry: &Entry, findings: &mut Findings) -> Option<ResourceRename> {
    let Some(text) = scalar::text(&entry.value) else {
        findings.wrong_kind(&entry.value, "rename", "a text as nvidia.com/gpu-small");
        return None;
    };
    let name = time_slicing::name((entry.value.place, text), MAX_RESOURCE_NAME_CHARS, findings)?;
    let key = "rename";
    findings.warning(entry.place, WarningProblem::IgnoredByDevicePlugin { key });
    Some(ResourceRename::To(name))
}

/// Validates resource name patterns. NVIDIA's plugin parses them and then ignores them.
fn resources(node: &Node, findings: &mut Findings) {
    let Some(entries) = findings.mapping(node, ALL_RESOURCES) else {
        return;
    };
    for entry in entries.iter().filter(|entry| !entry.value.is_null()) {
        let Value::List(items) = &entry.value.value else {
            findings.wrong_kind(&entry.value, "a list of resources", "a list");
            continue;
        };
        for item in items {
            let Some(entries) = findings.mapping(item, PATTERN) else {
                continue;
            };
            let here = (item.place, entries);
            let example = "\"{pattern: '*', name: gpu}\"";
            findings.required(here, PATTERN.what, ("pattern", example));
            let name = findings.required(here, PATTERN.what, ("name", example));
            if let Some((node, text)) = name.and_then(|node| Some((node, scalar::text(node)?))) {
                time_slicing::name((node.place, text), MAX_RESOURCE_NAME_CHARS, findings);
            }
        }
    }
    findings.warning(node.place, WarningProblem::Resources);
}

fn imex(node: &Node, findings: &mut Findings) {
    let Some(entries) = findings.mapping(node, IMEX) else {
        return;
    };
    read_bool(entries, "required", findings);
    if let Some(node) = non_null_value(entries, "channelIDs") {
        let is_known = match &node.value {
            Value::List(items) => match items.as_slice() {
                [] => true,
                [one] => scalar::number(one) == Some(0),
                [_, _, ..] => false,
            },
            Value::Scalar(_) | Value::Map(_) => false,
        };
        if !is_known {
            findings.wrong_kind(node, "channelIDs", "[] or [0]");
        }
    }
    findings.warning(node.place, WarningProblem::Imex);
}
