//! The `flags` section of NVIDIA's device plugin and GPU Feature Discovery. Layouts use none of them, because the agent
//! has its own flags.

use super::non_null_value;
use crate::layouts::error::WarningProblem;
use crate::layouts::findings::{Findings, MappingShape};
use crate::layouts::node::{Entry, Node, Value};
use crate::layouts::scalar;

/// Type of a flag's value.
#[derive(Clone, Copy)]
enum FlagType {
    Switch,
    Text,
    /// Go's `time.Duration`: a text such as `60s`, or a number of nanoseconds.
    Duration,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words, or a list of them.
    Words(&'static [&'static str]),
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
    keys: &[
        "oneshot",
        "noTimestamp",
        "sleepInterval",
        "outputFile",
        "machineTypeFile",
    ],
};

const COMMON_FLAGS: &[Flag] = &[
    (
        "migStrategy",
        FlagType::Word(&["none", "single", "mixed"]),
        Some("--mig-strategy"),
    ),
    ("failOnInitError", FlagType::Switch, None),
    ("mpsRoot", FlagType::Text, None),
    ("nvidiaDriverRoot", FlagType::Text, Some("--driver-root")),
    ("nvidiaDevRoot", FlagType::Text, None),
    ("gdrcopyEnabled", FlagType::Switch, None),
    ("gdsEnabled", FlagType::Switch, None),
    ("mofedEnabled", FlagType::Switch, None),
    ("useNodeFeatureAPI", FlagType::Switch, Some("--label-sink")),
    (
        "deviceDiscoveryStrategy",
        FlagType::Word(&["auto", "nvml", "tegra", "vfio"]),
        None,
    ),
];

const DEVICE_LIST_STRATEGIES: &[&str] = &["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"];

const PLUGIN_FLAGS: &[Flag] = &[
    (
        "passDeviceSpecs",
        FlagType::Switch,
        Some("--device-list device-specs"),
    ),
    (
        "deviceListStrategy",
        FlagType::Words(DEVICE_LIST_STRATEGIES),
        Some("--device-list"),
    ),
    ("deviceIDStrategy", FlagType::Word(&["uuid", "index"]), None),
    ("cdiAnnotationPrefix", FlagType::Text, None),
    ("nvidiaCTKPath", FlagType::Text, None),
    ("containerDriverRoot", FlagType::Text, Some("--driver-root")),
    (
        "sharedDevicesAllocationPolicy",
        FlagType::Word(&["distributed", "packed"]),
        Some("--allocation"),
    ),
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

pub(super) fn read(node: &Node, findings: &mut Findings) {
    let Some(entries) = findings.mapping(node, FLAGS) else {
        return;
    };
    check_flags(entries, ("flags", COMMON_FLAGS), findings);
    for (key, shape, flags) in [("plugin", PLUGIN, PLUGIN_FLAGS), ("gfd", GFD, GFD_FLAGS)] {
        if let Some(entries) =
            non_null_value(entries, key).and_then(|node| findings.mapping(node, shape))
        {
            check_flags(entries, (shape.what, flags), findings);
        }
    }
}

fn check_flags(entries: &[Entry], (within, flags): (&str, &[Flag]), findings: &mut Findings) {
    for entry in entries.iter().filter(|entry| !entry.value.is_null()) {
        let Some((key, kind, instead)) = flags.iter().find(|(key, ..)| *key == &*entry.key) else {
            continue;
        };
        if let Some(expected) = expectation_if_invalid(&entry.value, *kind) {
            findings.wrong_kind(&entry.value, key, expected);
            continue;
        }
        let problem = WarningProblem::Flag {
            key: format!("{within}.{key}"),
            instead: *instead,
        };
        findings.warning(entry.place, problem);
    }
}

/// Returns the description of the expected value if `node` does not match it.
fn expectation_if_invalid(node: &Node, kind: FlagType) -> Option<&'static str> {
    let is_one_of =
        |node: &Node, words: &[&str]| scalar::text(node).is_some_and(|text| words.contains(&text));
    let (is_right, expected) = match kind {
        FlagType::Switch => (scalar::yaml_1_1_boolean(node).is_some(), "true or false"),
        FlagType::Text => (scalar::text(node).is_some(), "a text"),
        FlagType::Duration => (scalar::is_go_duration(node), "a duration such as 60s"),
        FlagType::Word(words) => (is_one_of(node, words), expected(words)),
        FlagType::Words(words) => {
            let is_right = match &node.value {
                Value::List(items) => items.iter().all(|item| is_one_of(item, words)),
                Value::Scalar(_) | Value::Map(_) => is_one_of(node, words),
            };
            (is_right, expected(words))
        }
    };
    (!is_right).then_some(expected)
}

fn expected(words: &[&str]) -> &'static str {
    match words {
        ["none", ..] => "\"none\", \"single\" or \"mixed\"",
        ["auto", ..] => "\"auto\", \"nvml\", \"tegra\" or \"vfio\"",
        ["uuid", ..] => "\"uuid\" or \"index\"",
        ["distributed", ..] => "\"distributed\" or \"packed\"",
        _ => {
            "\"envvar\", \"volume-mounts\", \"cdi-annotations\" or \"cdi-cri\", or a list of these"
        }
    }
}
