//! The labels of every known board in every MIG strategy, printed by the shipped agent, as golden files.

mod list;
mod reference;

use crate::golden::golden;
use crate::machine::Machine;

/// Facts of a board of `mig-profiles.json` that scenarios need.
pub(crate) struct TestDevice {
    sku: String,
    /// Profile name and maximum count, by NVML's profile index.
    profiles: Vec<(u64, String, usize)>,
}

#[test]
fn every_board_has_its_labels_in_every_strategy() {
    let boards = boards();
    assert_eq!(boards.len(), 20);
    for board in &boards {
        for (strategy, scenario) in board.machines() {
            let machine = Machine::new(&scenario);
            let output = machine.agent_once(&["--mig-strategy", strategy, "--log-level=error"]);
            let reported = String::from_utf8(output.stderr).unwrap();
            assert!(
                output.status.success() && reported.is_empty(),
                "{} {strategy}: {reported}",
                board.sku
            );
            let printed = String::from_utf8(output.stdout).unwrap();
            golden(&format!("labels/{}/{strategy}.labels", board.sku), &printed);
        }
    }
}

impl TestDevice {
    pub(crate) fn name(&self) -> &str {
        &self.sku
    }

    /// One machine per strategy on which the strategy makes a difference.
    pub(crate) fn machines(&self) -> [(&'static str, String); 3] {
        [
            ("none", self.scenario("disabled", &[])),
            ("single", self.scenario("enabled", &self.uniform())),
            ("mixed", self.scenario("enabled", &self.mixture())),
        ]
    }

    fn scenario(&self, mig: &str, instances: &[String]) -> String {
        let list: Vec<String> =
            instances.iter().map(|name| format!("{{profile: {name}}}")).collect();
        format!(
            "machine: golden\nmachine_type: Golden Server 2U\ndriver: 580.95.05\ngpus:\n  - {{board: {}, count: 2, mig: {mig}, instances: [{}]}}\n",
            self.sku,
            list.join(", ")
        )
    }

    fn profile(&self, index: u64) -> Option<&(u64, String, usize)> {
        self.profiles.iter().find(|(found, ..)| *found == index)
    }

    /// The maximum number of the smallest profile.
    fn uniform(&self) -> Vec<String> {
        let (_, name, count) = self.profile(0).unwrap();
        vec![name.clone(); *count]
    }

    /// A mixture of profiles: 3g, 2g and 1g, or 2g and 1g on a GPU with four slices.
    fn mixture(&self) -> Vec<String> {
        let indices: &[u64] = if self.profile(2).is_some() { &[2, 1, 0] } else { &[1, 0] };
        let fits =
            |index: &u64| self.profile(*index).filter(|(_, _, count)| *index == 0 || *count > 1);
        indices.iter().filter_map(fits).map(|(_, name, _)| name.clone()).collect()
    }
}

pub(crate) fn boards() -> Vec<TestDevice> {
    let text = include_str!("../nvml-sim/data/mig-profiles.json");
    let data: serde_json::Value = serde_json::from_str(text).unwrap();
    let skus = data.as_object().unwrap().iter().filter(|(sku, _)| *sku != "_meta");
    skus.map(|(sku, board)| TestDevice {
        sku: sku.clone(),
        profiles: board["gpu_instance_profiles"]
            .as_array()
            .unwrap()
            .iter()
            .map(|profile| {
                (
                    profile["nvml_profile_index"].as_u64().unwrap(),
                    profile["name"].as_str().unwrap().to_owned(),
                    usize::try_from(profile["max_count"].as_u64().unwrap()).unwrap(),
                )
            })
            .collect(),
    })
    .collect()
}
