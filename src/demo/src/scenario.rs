//! The machines of the demo: the hardware of each, and its expected counts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use octavo_toolkit::files;

use crate::error::DemoError;

/// A machine to simulate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Its name, which is also its node's.
    pub name: String,
    /// The scenario file's text.
    pub(super) text: String,
    /// Its expected labels, if they are known.
    labels: Option<String>,
}

/// Maximum size of a scenario and of its labels.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Scenario whose driver is installed after its agent has started.
const LATE_DRIVER_SCENARIO: &str = "driver-comes-late";

/// Name of the machine in the scenario of a pool.
const MACHINE_NAME: &str = "pool-machine";

macro_rules! built_in {
    ($($name:literal)*) => {
        [$((
            $name,
            include_str!(concat!("../../../demo/machines/", $name, ".yaml")),
            include_str!(concat!("../../../demo/expected/", $name, ".labels")),
        )),*]
    };
}

/// Machines of a pool: the scenario that they have in common, its labels, and their names.
struct Pool {
    text: &'static str,
    labels: &'static str,
    machines: &'static [&'static str],
}

macro_rules! pool {
    ($name:literal: $machines:expr) => {
        Pool {
            text: include_str!(concat!("../../../demo/pools/", $name, ".yaml")),
            labels: include_str!(concat!("../../../demo/expected/", $name, ".labels")),
            machines: $machines,
        }
    };
}

const POOLS: [Pool; 5] = [
    pool!("train-h100": &["train-h100-01", "train-h100-02", "train-h100-03", "train-h100-04"]),
    pool!("train-h100-mig": &["train-h100-05"]),
    pool!("infer-l40s": &["infer-l40s-01", "infer-l40s-02", "infer-l40s-03", "infer-l40s-04"]),
    pool!("shared-a100": &["shared-a100-01", "shared-a100-02", "shared-a100-03"]),
    pool!("shared-a100-slow": &["shared-a100-04"]),
];

const BUILT_IN: [(&str, &str, &str); 15] = built_in! {
    "cpu-only" "dgx-h100" "driver-comes-late" "h200" "hgx-a100" "inf2" "mi210-pair" "mi300x" "mixed-l40s-a100" "mixed-vendors"
    "passed-through" "rtx-pro-6000" "t4" "trn2" "unknown-cards"
};

/// Returns the scenarios in `directory`, or the built-in ones, ordered by name.
pub fn all(directory: Option<&Path>) -> Result<Vec<Scenario>, DemoError> {
    let Some(directory) = directory else {
        return Ok(built_in());
    };
    let failed = |source| DemoError::Machines { directory: directory.to_owned(), source };
    let mut scenarios = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let (Some(name), true) = (name, path.extension().is_some_and(|end| end == "yaml")) else {
            continue;
        };
        scenarios.push(Scenario {
            name: name.to_owned(),
            text: files::text(&path, MAX_FILE_BYTES).map_err(|error| failed(error.into()))?,
            labels: files::text(&path.with_extension("labels"), MAX_FILE_BYTES).ok(),
        });
    }
    scenarios.sort_by(|one, other| one.name.cmp(&other.name));
    if scenarios.is_empty() {
        return Err(DemoError::NoMachines(directory.to_owned()));
    }
    Ok(scenarios)
}

fn built_in() -> Vec<Scenario> {
    let single = BUILT_IN.into_iter().map(|(name, text, labels)| Scenario {
        name: name.to_owned(),
        text: text.to_owned(),
        labels: Some(labels.to_owned()),
    });
    let pools = POOLS.iter().flat_map(|pool| {
        pool.machines.iter().map(|name| Scenario {
            name: (*name).to_owned(),
            // UUIDs and serial numbers are derived from the machine's name.
            text: pool.text.replace(MACHINE_NAME, name),
            labels: Some(pool.labels.to_owned()),
        })
    });
    let mut all: Vec<Scenario> = single.chain(pools).collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Returns whether the machine of a scenario has NVIDIA's driver.
pub(super) fn has_driver(scenario: &str) -> bool {
    !scenario.lines().any(|line| line.trim() == "driver_loaded: false")
}

impl Scenario {
    /// Returns the pool of its node.
    pub(super) fn pool(&self) -> &'static str {
        let pools = [("train-", "train"), ("infer-", "infer"), ("shared-", "shared")];
        let found = pools.iter().find(|(prefix, _)| self.name.starts_with(prefix));
        found.map_or("other", |(_, pool)| pool)
    }

    /// Returns the title in the first line.
    pub fn title(&self) -> &str {
        let first = self.text.lines().next().and_then(|line| line.strip_prefix("# "));
        first.unwrap_or_default()
    }

    /// Returns whether the machine ever has NVIDIA's driver.
    pub(super) fn has_driver(&self) -> bool {
        has_driver(&self.text)
    }

    /// Returns whether its driver is installed when its agent starts.
    pub(super) fn starts_with_driver(&self) -> bool {
        self.has_driver() && self.name != LATE_DRIVER_SCENARIO
    }

    /// Returns the expected number of devices by type; `None` if it is not known.
    pub fn types(&self) -> Option<BTreeMap<String, u32>> {
        let labels = self.labels.as_ref()?.lines();
        let types =
            labels.filter_map(|line| line.strip_prefix("type.octavo.dev/")?.split_once('='));
        Some(
            types
                .filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?)))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_scenarios_match_the_directory() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo");
        let names = |scenarios: Vec<Scenario>| -> Vec<(String, String)> {
            let each = scenarios.into_iter();
            each.map(|scenario| (scenario.name, scenario.text)).collect()
        };
        let mut expected = names(all(Some(&root.join("machines"))).unwrap());
        for pool in all(Some(&root.join("pools"))).unwrap() {
            let in_common = POOLS.iter().find(|one| one.text == pool.text).unwrap();
            assert!(pool.text.contains("machine: pool-machine\n"), "{}", pool.name);
            for name in in_common.machines {
                expected.push(((*name).to_owned(), pool.text.replace("pool-machine", name)));
            }
        }
        expected.sort();
        assert_eq!(names(all(None).unwrap()), expected);
    }

    #[test]
    fn expected_counts_come_from_labels() {
        let built_in = all(None).unwrap();
        let of = |name: &str| {
            let found = built_in.iter().find(|scenario| scenario.name == name);
            found.unwrap().types().unwrap()
        };
        assert_eq!(of("cpu-only"), BTreeMap::new());
        assert_eq!(
            of("mixed-l40s-a100"),
            BTreeMap::from([
                ("nvidia-a100-40gb".to_owned(), 2),
                ("nvidia-l40s-48gb".to_owned(), 4)
            ])
        );
        assert_eq!(of("unknown-cards"), BTreeMap::from([("unknown".to_owned(), 2)]));
    }
}
