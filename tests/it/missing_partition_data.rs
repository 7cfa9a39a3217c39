//! Labels of machines whose driver does not answer a query about partitions: some are missing, none is wrong.

use std::collections::BTreeMap;

use octavo_model::inventory::Inventory;
use octavo_node::labels::{Options, compile};
use octavo_node::mig_strategy::MigStrategy;

use crate::machine::Machine;

/// Machines whose partitions make a difference in every strategy.
const MACHINES: [&str; 4] = [
    "{board: A100_80GB, count: 2, mig: enabled, instances: [{profile: 1g.10gb, count: 2}]}",
    "{board: A100_80GB, mig: enabled, instances: [{profile: 3g.40gb, compute: [2c.3g.40gb, 1c.3g.40gb]}, {profile: 1g.10gb}]}",
    "{board: H100_80GB_SXM, mig: enabled, instances: [{profile: 7g.80gb}]}, {board: A100_80GB}, {board: T4}",
    "{board: A100_80GB, count: 2}",
];

const QUESTIONS: [&str; 9] = [
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetGpuInstanceProfileInfo",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlDeviceGetGpuInstances",
    "nvmlGpuInstanceGetInfo",
    "nvmlGpuInstanceGetComputeInstanceProfileInfo",
    "nvmlGpuInstanceGetComputeInstances",
    "nvmlComputeInstanceGetInfo_v2",
    "nvmlDeviceGetAttributes_v2",
];

const REFUSALS: [&str; 4] = ["TIMEOUT", "NOT_READY", "IN_USE", "NO_PERMISSION"];

type Labels = BTreeMap<String, String>;

/// The labels in the strategies none, single and mixed.
fn labels(inventory: &Inventory) -> [Labels; 3] {
    [MigStrategy::None, MigStrategy::Single, MigStrategy::Mixed].map(|mig_strategy| {
        let options = Options { mig_strategy, ..Options::default() };
        let set = compile(inventory, &options, None).labels;
        set.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    })
}

#[tokio::test]
async fn unanswered_query_makes_no_label_wrong() {
    for gpus in MACHINES {
        let machine = Machine::new(&format!("machine: silent\ngpus: [{gpus}]\n"));
        let handle = machine.spawn();
        let truth = labels(&*handle.observe().await);
        let mut missing = 0;
        for call in QUESTIONS {
            for refusal in REFUSALS {
                // Every time, and only the first time, so that other queries of the kind are answered.
                for times in ["", ", times: 1"] {
                    machine.faults(&format!("- {{call: {call}, return: {refusal}{times}}}\n"));
                    // An earlier reading may fill the gap; a new process has none.
                    for inventory in
                        [machine.observe().await, handle.observe().await.as_ref().clone()]
                    {
                        for (reported, truth) in labels(&inventory).iter().zip(&truth) {
                            missing += truth.len().saturating_sub(reported.len());
                            for (key, value) in reported {
                                assert_eq!(
                                    Some(value),
                                    truth.get(key),
                                    "{key} of {gpus} when {call} returns {refusal}{times}"
                                );
                            }
                        }
                    }
                }
            }
        }
        assert!(missing > 0, "no fault had an effect: {gpus}");
        machine.faults("[]\n");
        assert_eq!(labels(&*handle.observe().await), truth, "{gpus}");
    }
}
