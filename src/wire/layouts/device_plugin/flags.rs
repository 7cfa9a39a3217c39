//! The `flags` section of NVIDIA's device plugin and GPU Feature Discovery. Layouts use none of them, because the agent
//! has its own flags.

use super::there;
use crate::wire::layouts::error::WarningProblem;
use crate::wire::layouts::findings::{Findings, Shape};
use crate::wire::layouts::scalar;
use crate::wire::layouts::tree::{Entry, Node, Value};

/// Type of a flag's value.
#[derive(Clone, Copy)]
enum Kind {
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
type Flag = (&'static str, Kind, Option<&'static str>);

const FLAGS: Shape = Shape {
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

const PLUGIN: Shape = Shape {
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

const GFD: Shape = Shape {
    what: "flags.gfd",
    keys: &[
        "oneshot",
        "noTimestamp",
        "sleepInterval",
        "outputFile",
        "machineTypeFile",
    ],
};

const OF_BOTH: &[Flag] = &[
    (
        "migStrategy",
        Kind::Word(&["none", "single", "mixed"]),
        Some("--mig-strategy"),
    ),
    ("failOnInitError", Kind::Switch, None),
    ("mpsRoot", Kind::Text, None),
    ("nvidiaDriverRoot", Kind::Text, Some("--driver-root")),
    ("nvidiaDevRoot", Kind::Text, None),
    ("gdrcopyEnabled", Kind::Switch, None),
    ("gdsEnabled", Kind::Switch, None),
    ("mofedEnabled", Kind::Switch, None),
    ("useNodeFeatureAPI", Kind::Switch, Some("--label-sink")),
    (
        "deviceDiscoveryStrategy",
        Kind::Word(&["auto", "nvml", "tegra", "vfio"]),
        None,
    ),
];

const LISTS: &[&str] = &["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"];

const OF_PLUGIN: &[Flag] = &[
    (
        "passDeviceSpecs",
        Kind::Switch,
        Some("--device-list device-specs"),
    ),
    (
        "deviceListStrategy",
        Kind::Words(LISTS),
        Some("--device-list"),
    ),
    ("deviceIDStrategy", Kind::Word(&["uuid", "index"]), None),
    ("cdiAnnotationPrefix", Kind::Text, None),
    ("nvidiaCTKPath", Kind::Text, None),
    ("containerDriverRoot", Kind::Text, Some("--driver-root")),
    (
        "sharedDevicesAllocationPolicy",
        Kind::Word(&["distributed", "packed"]),
        Some("--allocation"),
    ),
];

const OF_GFD: &[Flag] = &[
    ("oneshot", Kind::Switch, Some("--oneshot")),
    ("noTimestamp", Kind::Switch, Some("--timestamp")),
    ("sleepInterval", Kind::Duration, Some("--interval")),
    ("outputFile", Kind::Text, Some("--feature-file")),
    ("machineTypeFile", Kind::Text, None),
];

/// Reports whether `key` is the key of a flag.
pub(super) fn has(key: &str) -> bool {
    let mut sections = [FLAGS, PLUGIN, GFD].into_iter();
    sections.any(|shape| shape.keys.contains(&key))
}

pub(super) fn read(node: &Node, findings: &mut Findings) {
    let Some(entries) = findings.mapping(node, FLAGS) else {
        return;
    };
    each(entries, ("flags", OF_BOTH), findings);
    for (key, shape, flags) in [("plugin", PLUGIN, OF_PLUGIN), ("gfd", GFD, OF_GFD)] {
        if let Some(entries) = there(entries, key).and_then(|node| findings.mapping(node, shape)) {
            each(entries, (shape.what, flags), findings);
        }
    }
}

fn each(entries: &[Entry], (within, flags): (&str, &[Flag]), findings: &mut Findings) {
    for entry in entries.iter().filter(|entry| !entry.value.is_null()) {
        let Some((key, kind, instead)) = flags.iter().find(|(key, ..)| *key == &*entry.key) else {
            continue;
        };
        if let Some(expected) = wrong(&entry.value, *kind) {
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
fn wrong(node: &Node, kind: Kind) -> Option<&'static str> {
    let is_one_of =
        |node: &Node, words: &[&str]| scalar::text(node).is_some_and(|text| words.contains(&text));
    let (is_right, expected) = match kind {
        Kind::Switch => (scalar::old_boolean(node).is_some(), "true or false"),
        Kind::Text => (scalar::text(node).is_some(), "a text"),
        Kind::Duration => (scalar::is_go_duration(node), "a duration such as 60s"),
        Kind::Word(words) => (is_one_of(node, words), expected(words)),
        Kind::Words(words) => {
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
