//! The configuration of NVIDIA's device plugin, version v1, as a layout.
//!
//! The configuration applies to all resources of the node, so it becomes one layout with one rule for all devices.
//! NVIDIA's parser ignores unknown keys; here they are errors. For a known key that is not used, a warning names the
//! program that uses it. Source: NVIDIA k8s-device-plugin v0.20.0, `api/config/v1`.

mod flags;

use super::DEVICE_PLUGIN_KEYS;
use super::error::{LayoutProblem, WarningProblem};
use super::findings::{Findings, Shape, value_of};
use super::scalar;
use super::sharing::{self, RESOURCES};
use super::tree::{Entry, Node, Value};
use crate::domain::layout::{
    Dialect, Layout, Layouts, Place, Rename, Rule, Selector, Share, ShareOf, TimeSlicing, Which,
};

/// Name of the layout.
pub(super) const NAME: &str = "device-plugin";

const FILE: Shape = Shape {
    what: "a configuration of NVIDIA's device plugin",
    keys: DEVICE_PLUGIN_KEYS,
};

const ALL_RESOURCES: Shape = Shape {
    what: "resources",
    keys: &["gpus", "mig"],
};

const PATTERN: Shape = Shape {
    what: "a resource",
    keys: &["pattern", "name"],
};

const SHARING: Shape = Shape {
    what: "sharing",
    keys: &["timeSlicing", "mps"],
};

const TIME_SLICING: Shape = Shape {
    what: "timeSlicing",
    keys: &["renameByDefault", "failRequestsGreaterThanOne", "resources"],
};

const RESOURCE: Shape = Shape {
    what: "a shared resource",
    keys: &["name", "rename", "devices", "replicas"],
};

const IMEX: Shape = Shape {
    what: "imex",
    keys: &["channelIDs", "required"],
};

/// Maximum length of a resource name, including its domain. Source: as above, `MaxResourceNameLength`.
const LONGEST: usize = 63;

/// Reports whether a key belongs in one of the sections of the file.
pub(super) fn has_section_for(key: &str) -> bool {
    SHARING.keys.contains(&key) || flags::has(key)
}

pub(super) fn read(root: &Node, entries: &[Entry], findings: &mut Findings) -> Option<Layouts> {
    findings.known(entries, FILE);
    match value_of(entries, "version") {
        Some(node) if scalar::text(node) != Some("") => {
            super::expect_text(node, "version", "v1", findings);
        }
        Some(_) | None => {}
    }
    if let Some(node) = there(entries, "flags") {
        flags::read(node, findings);
    }
    if let Some(node) = there(entries, "resources") {
        resources(node, findings);
    }
    if let Some(node) = there(entries, "imex") {
        imex(node, findings);
    }
    let shared = there(entries, "sharing").map(|node| sharing(node, findings));
    let time_slicing = match shared {
        Some(read) => read?,
        None => none(root.place),
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
            name: NAME.to_owned(),
            place: root.place,
            rules: vec![rule],
        }],
    })
}

/// Returns the value of a key. A null value counts as absent.
fn there<'n>(entries: &'n [Entry], key: &str) -> Option<&'n Node> {
    value_of(entries, key).filter(|node| !node.is_null())
}

/// Parses a boolean by the rules of YAML 1.1, like NVIDIA's parser.
fn switch(entries: &[Entry], key: &'static str, findings: &mut Findings) -> bool {
    there(entries, key).is_some_and(|node| {
        scalar::old_boolean(node).unwrap_or_else(|| {
            findings.wrong_kind(node, key, "true or false");
            false
        })
    })
}

/// Time-slicing without any shared resource.
fn none(place: Place) -> TimeSlicing {
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
            Some(_) => LayoutProblem::MpsBesideTimeSlicing,
            None => LayoutProblem::Mps,
        };
        findings.error(mps.place, problem);
    }
    match slicing {
        Some(node) => time_slicing(node, findings),
        None => Some(none(node.place)),
    }
}

fn time_slicing(node: &Node, findings: &mut Findings) -> Option<TimeSlicing> {
    let entries = findings.mapping(node, TIME_SLICING)?;
    let rename = switch(entries, "renameByDefault", findings);
    let fail = switch(entries, "failRequestsGreaterThanOne", findings);
    let resources = findings.needed(
        (node.place, entries),
        TIME_SLICING.what,
        ("resources", RESOURCES),
    )?;
    let read = |here: (Place, &[Entry]), findings: &mut Findings| {
        findings.known(here.1, RESOURCE);
        let share = share(here, findings)?;
        Some(Share {
            rename: match share.rename {
                Rename::No if rename => Rename::Shared,
                own @ (Rename::No | Rename::Shared | Rename::To(_)) => own,
            },
            fail_requests_greater_than_one: fail,
            ..share
        })
    };
    let shares = sharing::list(resources, RESOURCE.what, read, findings);
    Some(TimeSlicing {
        place: node.place,
        shares: shares.into_iter().collect::<Option<_>>()?,
        slice: None,
    })
}

fn share((place, entries): (Place, &[Entry]), findings: &mut Findings) -> Option<Share> {
    let of = sharing::resource((place, entries), LONGEST, findings);
    let example = "how many share each of it, as \"replicas: 4\"";
    let replicas = findings
        .needed((place, entries), RESOURCE.what, ("replicas", example))
        .and_then(|node| sharing::replicas(node, findings));
    // NVIDIA's parser treats an empty name as absent.
    let rename = entries
        .iter()
        .find(|entry| &*entry.key == "rename" && !entry.value.is_null());
    let rename = match rename {
        None => Some(Rename::No),
        Some(entry) => renamed(entry, findings),
    };
    let of = of?;
    if let ShareOf::Resource { which, .. } = &of
        && *which != Which::All
        && let Some(entry) = entries.iter().find(|entry| &*entry.key == "devices")
    {
        let key = "devices";
        findings.warning(entry.place, WarningProblem::OnlyHere { key });
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

fn renamed(entry: &Entry, findings: &mut Findings) -> Option<Rename> {
    let Some(text) = scalar::text(&entry.value) else {
        findings.wrong_kind(&entry.value, "rename", "a text as nvidia.com/gpu-small");
        return None;
    };
    let name = sharing::name((entry.value.place, text), LONGEST, findings)?;
    let key = "rename";
    findings.warning(entry.place, WarningProblem::OnlyHere { key });
    Some(Rename::To(name))
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
            findings.needed(here, PATTERN.what, ("pattern", example));
            let name = findings.needed(here, PATTERN.what, ("name", example));
            if let Some((node, text)) = name.and_then(|node| Some((node, scalar::text(node)?))) {
                sharing::name((node.place, text), LONGEST, findings);
            }
        }
    }
    findings.warning(node.place, WarningProblem::Resources);
}

fn imex(node: &Node, findings: &mut Findings) {
    let Some(entries) = findings.mapping(node, IMEX) else {
        return;
    };
    switch(entries, "required", findings);
    if let Some(node) = there(entries, "channelIDs") {
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
