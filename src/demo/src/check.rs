//! Comparison of the fleet with the aggregator's reports.

use std::collections::{BTreeMap, BTreeSet};

use octavo_fleet::api::{NodeRow, TypeRow};

use crate::scenario::Scenario;

/// Expected and observed state.
#[derive(Debug)]
pub(crate) struct FleetCheck {
    undiscovered: BTreeSet<String>,
    types: BTreeMap<String, u32>,
    /// Whether no types other than the expected ones may exist.
    whole: bool,
    last: BTreeMap<String, u32>,
    counted: bool,
    cluster: ClusterCheck,
}

/// Expected and observed state of the parts that come from the simulated cluster.
#[derive(Debug, Default)]
struct ClusterCheck {
    /// Minimum numbers, which are reached once.
    expected: ClusterCounts,
    last: ClusterCounts,
    done: bool,
}

/// Numbers of hardware profiles, of pending pods by type, of offers with a price, and of containers with a utilization.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClusterCounts {
    pub(crate) profiles: usize,
    pub(crate) pending: usize,
    pub(crate) prices: usize,
    pub(crate) busy: usize,
}

impl FleetCheck {
    pub(crate) fn new(scenarios: &[Scenario], cluster: ClusterCounts) -> Self {
        let mut types = BTreeMap::new();
        for (name, count) in scenarios.iter().filter_map(Scenario::types).flatten() {
            let sum: &mut u32 = types.entry(name).or_default();
            *sum = sum.saturating_add(count);
        }
        Self {
            undiscovered: scenarios.iter().map(|one| one.name.clone()).collect(),
            types,
            whole: scenarios.iter().all(|one| one.types().is_some()),
            last: BTreeMap::new(),
            counted: false,
            cluster: ClusterCheck { expected: cluster, ..ClusterCheck::default() },
        }
    }

    pub(crate) fn nodes(&mut self, rows: &[NodeRow]) {
        // The cluster has Nodes before their agents connect.
        for row in rows.iter().filter(|row| !row.agent_version.is_empty()) {
            self.undiscovered.remove(&row.name);
        }
    }

    /// Compares the current counts. They need to match only once: devices that are lost on purpose later do not
    /// matter.
    pub(crate) fn types(&mut self, rows: &[TypeRow]) {
        self.last = rows
            .iter()
            .map(|row| {
                let name = row.of_all.type_name.as_deref().unwrap_or("unknown");
                (name.to_owned(), row.of_all.devices.total)
            })
            .collect();
        let expected = self.types.iter();
        let mut expected = expected.map(|(name, count)| self.last.get(name) == Some(count));
        let others = self.last.keys().any(|name| !self.types.contains_key(name));
        self.counted |= expected.all(|right| right) && !(self.whole && others);
    }

    /// Compares the current numbers, which need to be reached only once.
    pub(crate) fn cluster(&mut self, counts: ClusterCounts) {
        let ClusterCheck { expected, last, done } = &mut self.cluster;
        *last = counts;
        *done |= counts.profiles >= expected.profiles
            && counts.pending >= expected.pending
            && counts.prices >= expected.prices
            && counts.busy >= expected.busy;
    }

    pub(crate) fn cluster_shown(&self) -> bool {
        self.cluster.done
    }

    pub(crate) fn all_discovered(&self) -> bool {
        self.undiscovered.is_empty()
    }

    pub(crate) fn all_counted(&self) -> bool {
        self.counted
    }

    /// Returns the missing items, one text each.
    pub(crate) fn missing(&self) -> Vec<String> {
        let undiscovered = self.undiscovered.iter();
        let mut missing: Vec<String> =
            undiscovered.map(|name| format!("node {name} was not discovered")).collect();
        missing.extend(self.cluster.missing());
        if self.counted {
            return missing;
        }
        let before = missing.len();
        let names: BTreeSet<&String> = self.types.keys().chain(self.last.keys()).collect();
        for name in names {
            let (must, is) = (self.types.get(name), self.last.get(name));
            if must != is && (must.is_some() || self.whole) {
                missing.push(format!(
                    "{} devices of type {name} were counted instead of {}",
                    is.unwrap_or(&0),
                    must.unwrap_or(&0)
                ));
            }
        }
        if missing.len() == before && self.undiscovered.is_empty() {
            missing.push("no types were counted".to_owned());
        }
        missing
    }

    /// Summarizes what was verified.
    pub(crate) fn summary(&self) -> String {
        let devices = self.last.values().fold(0_u32, |sum, one| sum.saturating_add(*one));
        let ClusterCounts { profiles, pending, prices, busy } = self.cluster.last;
        format!(
            "{devices} devices of {} types were counted correctly; {profiles} hardware profiles, {pending} pending \
             pods, {prices} prices and the utilization of {busy} containers are shown",
            self.types.len()
        )
    }
}

impl ClusterCheck {
    /// Returns the missing items, one text each.
    fn missing(&self) -> Vec<String> {
        let Self { expected, last, done } = self;
        let all = [
            ("hardware profiles", last.profiles, expected.profiles),
            ("pending pods", last.pending, expected.pending),
            ("prices", last.prices, expected.prices),
            ("containers with a utilization", last.busy, expected.busy),
        ];
        let missing = all.into_iter().filter(|(_, shown, expected)| !done && shown < expected);
        missing
            .map(|(what, shown, expected)| {
                format!("{shown} {what} are shown instead of {expected}")
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use octavo_fleet::api::NodeType;
    use octavo_fleet::summary::{DeviceCounts, Sharing};
    use octavo_fleet::type_source::TypeSource;

    use super::*;
    use crate::scenario;

    /// A node with an agent and one type.
    fn row(name: &str) -> NodeRow {
        NodeRow {
            name: name.to_owned(),
            state: serde_json::from_value("ok".into()).unwrap(),
            reason: None,
            source: TypeSource::Agent.into(),
            connected: true,
            last_confirmed: "2026-11-21T10:00:00Z".to_owned(),
            age_seconds: 3,
            sharing: Sharing::Mixed.into(),
            devices: DeviceCounts::default(),
            memory_mib: 0,
            types: vec![NodeType {
                type_name: None,
                type_source: None,
                memory_mib: None,
                devices: DeviceCounts::default(),
            }],
            layout: None,
            agent_version: "0.1.0".to_owned(),
        }
    }

    fn types(counts: &BTreeMap<String, u32>) -> Vec<TypeRow> {
        let rows = counts.iter();
        rows.map(|(name, count)| {
            let mut of_all = row("n").types[0].clone();
            of_all.type_name = Some(name.clone());
            of_all.devices.total = *count;
            TypeRow { of_all, nodes: 1, nodes_without_agent: 0 }
        })
        .collect()
    }

    #[test]
    fn matching_fleet_has_nothing_missing() {
        let scenarios = scenario::all(None).unwrap();
        let counts = ClusterCounts { profiles: 7, pending: 3, prices: 5, busy: 20 };
        let mut check = FleetCheck::new(&scenarios, counts);
        let rows: Vec<NodeRow> = scenarios.iter().map(|one| row(&one.name)).collect();
        check.nodes(&rows);
        assert!(check.all_discovered() && !check.all_counted());
        assert_eq!(check.missing().len(), check.types.len() + 4);
        let right = check.types.clone();
        check.types(&types(&right));
        check.cluster(ClusterCounts { pending: 2, ..counts });
        assert_eq!(check.missing(), ["2 pending pods are shown instead of 3"]);
        check.cluster(counts);
        // A pod that starts later does not matter.
        check.cluster(ClusterCounts { pending: 0, ..counts });
        assert_eq!(check.missing(), [""; 0]);
    }

    #[test]
    fn missing_nodes_devices_and_extra_types_are_listed() {
        let scenarios = scenario::all(None).unwrap();
        let mut check = FleetCheck::new(&scenarios, ClusterCounts::default());
        let rows: Vec<NodeRow> = scenarios.iter().skip(1).map(|one| row(&one.name)).collect();
        check.nodes(&rows);
        let mut wrong = check.types.clone();
        wrong.insert("nvidia-h100-80gb".to_owned(), 7);
        wrong.insert("nvidia-x".to_owned(), 1);
        check.types(&types(&wrong));
        assert_eq!(
            check.missing(),
            [
                "node cpu-only was not discovered",
                "7 devices of type nvidia-h100-80gb were counted instead of 52",
                "1 devices of type nvidia-x were counted instead of 0"
            ]
        );
    }
}
