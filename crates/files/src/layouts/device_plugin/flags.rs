//! The `flags` section of NVIDIA's device plugin and GPU Feature Discovery. Layouts use none of them, because the agent
//! has its own flags.

use crate::layouts::error::WarningProblem;
use crate::layouts::findings::{Findings, Mapping, MappingShape};
use crate::layouts::node::YamlNode;
use crate::layouts::scalar;

/// Type of a flag's value.
#[derive(Clone, Copy)]
enum FlagType {
    Switch,
    Text,
    /// Go's `time.Duration`: a text such as `60s`, or a number of nanoseconds.
    Duration,
    /// One of these words, and their description for messages.
    Word(&'static [&'static str], &'static str),
    /// One of these words or a list of them, and their description for messages.
    Words(&'static [&'static str], &'static str),
}

/// Key of a flag, type of its value, and the corresponding flag of the agent.
type Flag = (&'static str, FlagType, Option<&'static str>);

const FLAGS: MappingShape = MappingShape {
    what: "flags",
    keys: &[
        "migStrategy",
        "failOnInitError",
        "mpsRoot",
        "nvidiaDriverRoot",
        "nvidiaDevRoot",
        "gdrcopyEnabled",
        "gdsEnabled",
        "mofedEnabled",
        "useNodeFeatureAPI",
        "deviceDiscoveryStrategy",
        "plugin",
        "gfd",
    ],
};

const PLUGIN: MappingShape = MappingShape {
    what: "flags.plugin",
    keys: &[
        "passDeviceSpecs",
        "deviceListStrategy",
        "deviceIDStrategy",
        "cdiAnnotationPrefix",
        "nvidiaCTKPath",
        "containerDriverRoot",
        "sharedDevicesAllocationPolicy",
    ],
};

const GFD: MappingShape = MappingShape {
    what: "flags.gfd",
    keys: &["oneshot", "noTimestamp", "sleepInterval", "outputFile", "machineTypeFile"],
};

const MIG_STRATEGY: FlagType =
    FlagType::Word(&["none", "single", "mixed"], "\"none\", \"single\" or \"mixed\"");

const DISCOVERY_STRATEGY: FlagType =
    FlagType::Word(&["auto", "nvml", "tegra", "vfio"], "\"auto\", \"nvml\", \"tegra\" or \"vfio\"");

const DEVICE_ID_STRATEGY: FlagType = FlagType::Word(&["uuid", "index"], "\"uuid\" or \"index\"");

const ALLOCATION_POLICY: FlagType =
    FlagType::Word(&["distributed", "packed"], "\"distributed\" or \"packed\"");

const DEVICE_LIST_STRATEGY: FlagType = FlagType::Words(
    &["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"],
    "\"envvar\", \"volume-mounts\", \"cdi-annotations\" or \"cdi-cri\", or a list of these",
);

const COMMON_FLAGS: &[Flag] = &[
    ("migStrategy", MIG_STRATEGY, Some("--mig-strategy")),
    ("failOnInitError", FlagType::Switch, None),
    ("mpsRoot", FlagType::Text, None),
    ("nvidiaDriverRoot", FlagType::Text, Some("--driver-root")),
    ("nvidiaDevRoot", FlagType::Text, None),
    ("gdrcopyEnabled", FlagType::Switch, None),
    ("gdsEnabled", FlagType::Switch, None),
    ("mofedEnabled", FlagType::Switch, None),
    ("useNodeFeatureAPI", FlagType::Switch, Some("--label-sink")),
    ("deviceDiscoveryStrategy", DISCOVERY_STRATEGY, None),
];

const PLUGIN_FLAGS: &[Flag] = &[
    ("passDeviceSpecs", FlagType::Switch, Some("--device-list device-specs")),
    ("deviceListStrategy", DEVICE_LIST_STRATEGY, Some("--device-list")),
    ("deviceIDStrategy", DEVICE_ID_STRATEGY, None),
    ("cdiAnnotationPrefix", FlagType::Text, None),
    ("nvidiaCTKPath", FlagType::Text, None),
    ("containerDriverRoot", FlagType::Text, Some("--driver-root")),
    ("sharedDevicesAllocationPolicy", ALLOCATION_POLICY, Some("--allocation")),
];

const GFD_FLAGS: &[Flag] = &[
    ("oneshot", FlagType::Switch, Some("--oneshot")),
    ("noTimestamp", FlagType::Switch, Some("--timestamp")),
    ("sleepInterval", FlagType::Duration, Some("--interval")),
    ("outputFile", FlagType::Text, Some("--feature-file")),
    ("machineTypeFile", FlagType::Text, None),
];

/// Reports whether `key` is the key of a flag.
pub(super) fn is_flag(key: &str) -> bool {
    let mut sections = [FLAGS, PLUGIN, GFD].into_iter();
    sections.any(|shape| shape.keys.contains(&key))
}

pub(super) fn read(node: &YamlNode, findings: &mut Findings) {
    let Some(all) = findings.mapping(node, FLAGS) else {
        return;
    };
    check_flags(all, COMMON_FLAGS, findings);
    for (key, shape, flags) in [("plugin", PLUGIN, PLUGIN_FLAGS), ("gfd", GFD, GFD_FLAGS)] {
        let section = all.non_null(key).and_then(|node| findings.mapping(node, shape));
        if let Some(section) = section {
            check_flags(section, flags, findings);
        }
    }
}

fn check_flags(section: Mapping<'_>, flags: &[Flag], findings: &mut Findings) {
    for entry in section.entries.iter().filter(|entry| !entry.value.is_null()) {
        let Some((key, kind, instead)) = flags.iter().find(|(key, ..)| *key == &*entry.key) else {
            continue;
        };
        if let Some(expected) = expectation_if_invalid(&entry.value, *kind) {
            findings.wrong_kind(&entry.value, key, expected);
            continue;
        }
        let key = format!("{}.{key}", section.what);
        findings.warning(entry.position, WarningProblem::Flag { key, instead: *instead });
    }
}

/// Returns the description of the expected value if `node` does not match it.
fn expectation_if_invalid(node: &YamlNode, kind: FlagType) -> Option<&'static str> {
    let is_one_of = |node: &YamlNode, words: &[&str]| {
        scalar::text(node).is_some_and(|text| words.contains(&text))
    };
    let (is_right, expected) = match kind {
        FlagType::Switch => (scalar::yaml_1_1_boolean(node).is_some(), "true or false"),
        FlagType::Text => (scalar::text(node).is_some(), "a string"),
        FlagType::Duration => (scalar::is_go_duration(node), "a duration such as 60s"),
        FlagType::Word(words, expected) => (is_one_of(node, words), expected),
        FlagType::Words(words, expected) => {
            let is_right = match node.items() {
                Some(items) => items.iter().all(|item| is_one_of(item, words)),
                None => is_one_of(node, words),
            };
            (is_right, expected)
        }
    };
    (!is_right).then_some(expected)
}
