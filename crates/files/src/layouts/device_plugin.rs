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
use super::findings::{Findings, Mapping, MappingShape};
use super::node::{Entry, YamlNode};
use super::time_slicing::{self, RESOURCES};
use super::{DEVICE_PLUGIN_KEYS, scalar};

/// Name of the layout.
pub(super) const LAYOUT_NAME: &str = "device-plugin";

const FILE: MappingShape =
    MappingShape { what: "a configuration of NVIDIA's device plugin", keys: DEVICE_PLUGIN_KEYS };

const ALL_RESOURCES: MappingShape = MappingShape { what: "resources", keys: &["gpus", "mig"] };

const PATTERN: MappingShape = MappingShape { what: "a resource", keys: &["pattern", "name"] };

const SHARING: MappingShape = MappingShape { what: "sharing", keys: &["timeSlicing", "mps"] };

const TIME_SLICING: MappingShape = MappingShape {
    what: "timeSlicing",
    keys: &["renameByDefault", "failRequestsGreaterThanOne", "resources"],
};

const RESOURCE: MappingShape =
    MappingShape { what: "a shared resource", keys: &["name", "rename", "devices", "replicas"] };

const IMEX: MappingShape = MappingShape { what: "imex", keys: &["channelIDs", "required"] };

/// Maximum length of a resource name, including its domain. Source: as above, `MaxResourceNameLength`.
const MAX_RESOURCE_NAME_CHARS: usize = 63;

/// Reports whether a key belongs in one of the sections of the file.
pub(super) fn is_section_key(key: &str) -> bool {
    SHARING.keys.contains(&key) || flags::is_flag(key)
}

pub(super) fn read(root: &YamlNode, findings: &mut Findings) -> Option<Layouts> {
    let file = findings.mapping(root, FILE)?;
    if let Some(node) = file.get("version").filter(|node| scalar::text(node) != Some("")) {
        super::expect_text(node, "version", "v1", findings);
    }
    if let Some(node) = file.non_null("flags") {
        flags::read(node, findings);
    }
    if let Some(node) = file.non_null("resources") {
        resources(node, findings);
    }
    if let Some(node) = file.non_null("imex") {
        imex(node, findings);
    }
    let time_slicing = match file.non_null("sharing") {
        Some(node) => sharing(node, findings)?,
        None => no_sharing(root.position),
    };
    let rule = Rule {
        position: time_slicing.position,
        devices: Selector::All,
        mig: None,
        time_slicing: Some(time_slicing),
        claims: false,
    };
    Some(Layouts {
        dialect: Dialect::DevicePlugin,
        layouts: vec![Layout {
            name: LAYOUT_NAME.to_owned(),
            position: root.position,
            rules: vec![rule],
        }],
    })
}

/// Parses a boolean by the rules of YAML 1.1, like NVIDIA's parser.
fn read_bool(mapping: Mapping<'_>, key: &'static str, findings: &mut Findings) -> bool {
    let flag = mapping.non_null(key).and_then(|node| {
        findings.expect(scalar::yaml_1_1_boolean(node), node, key, "true or false")
    });
    flag.unwrap_or_default()
}

/// Time-slicing without any shared resource.
fn no_sharing(position: SourcePosition) -> TimeSlicing {
    TimeSlicing { position, shares: Vec::new(), slice: None }
}

fn sharing(node: &YamlNode, findings: &mut Findings) -> Option<TimeSlicing> {
    let sharing = findings.mapping(node, SHARING)?;
    let slicing = sharing.get("timeSlicing");
    if let Some(mps) = sharing.entry("mps").filter(|entry| !entry.value.is_null()) {
        let problem = match slicing {
            Some(_) => LayoutProblem::MpsWithTimeSlicing,
            None => LayoutProblem::MpsUnsupported,
        };
        findings.error(mps.position, problem);
    }
    match slicing {
        Some(node) => time_slicing(node, findings),
        None => Some(no_sharing(node.position)),
    }
}

fn time_slicing(node: &YamlNode, findings: &mut Findings) -> Option<TimeSlicing> {
    let slicing = findings.mapping(node, TIME_SLICING)?;
    let rename = read_bool(slicing, "renameByDefault", findings);
    let fail = read_bool(slicing, "failRequestsGreaterThanOne", findings);
    let resources = findings.required(slicing, "resources", RESOURCES)?;
    let read = |resource: Mapping<'_>, findings: &mut Findings| {
        let share = share(resource, findings)?;
        Some(Share {
            rename: match share.rename {
                ResourceRename::No if rename => ResourceRename::Shared,
                own @ (ResourceRename::No | ResourceRename::Shared | ResourceRename::To(_)) => own,
            },
            fail_requests_greater_than_one: fail,
            ..share
        })
    };
    let shares = time_slicing::list(resources, RESOURCE, read, findings);
    Some(TimeSlicing {
        position: node.position,
        shares: shares.into_iter().collect::<Option<_>>()?,
        slice: None,
    })
}

fn share(resource: Mapping<'_>, findings: &mut Findings) -> Option<Share> {
    let of = time_slicing::resource(resource, MAX_RESOURCE_NAME_CHARS, findings);
    let replicas = findings
        .required(resource, "replicas", "the number of replicas, such as \"replicas: 4\"")
        .and_then(|node| time_slicing::replicas(node, findings));
    // NVIDIA's parser treats a null name as absent.
    let rename = resource.entry("rename").filter(|entry| !entry.value.is_null());
    let rename = match rename {
        None => Some(ResourceRename::No),
        Some(entry) => read_rename(entry, findings),
    };
    let of = of?;
    if let ShareTarget::Resource { which, .. } = &of
        && *which != UnitSelector::All
        && let Some(entry) = resource.entry("devices")
    {
        let key = "devices";
        findings.warning(entry.position, WarningProblem::IgnoredByDevicePlugin { key });
    }
    let position = resource.position;
    Some(Share { position, rename: rename?, ..Share { of, ..Share::everything(replicas?) } })
}

fn read_rename(entry: &Entry, findings: &mut Findings) -> Option<ResourceRename> {
    let node = &entry.value;
    let text = scalar::text(node);
    let text = findings.expect(text, node, "rename", "a string such as nvidia.com/gpu-small")?;
    let name = time_slicing::name((node.position, text), MAX_RESOURCE_NAME_CHARS, findings)?;
    let key = "rename";
    findings.warning(entry.position, WarningProblem::IgnoredByDevicePlugin { key });
    Some(ResourceRename::To(name))
}

/// Validates resource name patterns. NVIDIA's plugin parses them and then ignores them.
fn resources(node: &YamlNode, findings: &mut Findings) {
    let Some(resources) = findings.mapping(node, ALL_RESOURCES) else {
        return;
    };
    for entry in resources.entries.iter().filter(|entry| !entry.value.is_null()) {
        let node = &entry.value;
        let items = findings.expect(node.items(), node, "a list of resources", "a list");
        for item in items.unwrap_or_default() {
            let Some(resource) = findings.mapping(item, PATTERN) else {
                continue;
            };
            let example = "\"{pattern: '*', name: gpu}\"";
            findings.required(resource, "pattern", example);
            let name = findings.required(resource, "name", example);
            if let Some((node, text)) = name.and_then(|node| Some((node, scalar::text(node)?))) {
                time_slicing::name((node.position, text), MAX_RESOURCE_NAME_CHARS, findings);
            }
        }
    }
    findings.warning(node.position, WarningProblem::Resources);
}

fn imex(node: &YamlNode, findings: &mut Findings) {
    let Some(imex) = findings.mapping(node, IMEX) else {
        return;
    };
    read_bool(imex, "required", findings);
    if let Some(node) = imex.non_null("channelIDs") {
        let is_known = match node.items() {
            Some([]) => true,
            Some([one]) => scalar::number(one) == Some(0),
            Some([_, _, ..]) | None => false,
        };
        if !is_known {
            findings.wrong_kind(node, "channelIDs", "[] or [0]");
        }
    }
    findings.warning(node.position, WarningProblem::Imex);
}
