//! Checks of labels that other software derives from the same hardware. It reads the hardware at start and misses
//! later changes.
//!
//! Reports only values that contradict the hardware. A missing label may be intended.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::inventory::{Condition, Device, PartitioningMode, Vendor};

use super::facts::{Facts, FeatureLabels};
use super::{Check, Finding, Subject, format_list};
use crate::labels::{Options, compile};
use crate::mig_strategy::MigStrategy;

/// Prefix of labels of AMD's node labeler. Source: `ROCm`/k8s-device-plugin, `cmd/k8s-node-labeller`.
const AMD: &str = "amd.com/gpu.";
/// Prefix of labels of gpu-feature-discovery, or of Octavo in its place.
const NVIDIA: &str = "nvidia.com/";
/// Prefixes of labels of node provisioners, with counts of the machine type. Source: Karpenter for AWS; EKS Auto
/// Mode.
const CLOUD_PREFIXES: [&str; 2] = ["karpenter.k8s.aws/instance-", "eks.amazonaws.com/instance-"];

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let check = Check::VendorLabels;
    let labels = match &facts.labels {
        Ok(Some(labels)) => labels,
        Ok(None) => {
            let evidence = "no labels to check; use --labels to specify a feature file or a Node";
            return vec![check.not_applicable(evidence)];
        }
        Err(why) => return vec![check.unknown(why.clone())],
    };
    let compared = [amd(facts, labels), nvidia(facts, labels), cloud_labels(facts, labels)];
    let found: Vec<Finding> = compared.into_iter().flatten().collect();
    if found.is_empty() {
        let place = &labels.place;
        return vec![check.not_applicable(format!(
            "{place} has no label of another program about the devices here"
        ))];
    }
    found
}

/// Comparison of labels with the values that match the hardware.
struct LabelComparison {
    subject: &'static str,
    remedy: &'static str,
    keys: usize,
    wrong: Vec<String>,
}

impl LabelComparison {
    fn new(subject: &'static str, remedy: &'static str) -> Self {
        Self { subject, remedy, keys: 0, wrong: Vec::new() }
    }

    /// Compares one label; skips it if the hardware does not determine a value.
    fn compare(&mut self, key: &str, written: Option<&str>, truth: &BTreeSet<String>) {
        let Some(written) = written.filter(|_| !truth.is_empty()) else {
            return;
        };
        self.keys = self.keys.saturating_add(1);
        if !truth.iter().any(|value| value.eq_ignore_ascii_case(written)) {
            let truth: Vec<String> = truth.iter().cloned().collect();
            self.wrong
                .push(format!("{key}={written}, but the hardware has {}", format_list(&truth)));
        }
    }

    fn finding(self, place: &str) -> Option<Finding> {
        let check = Check::VendorLabels;
        let finding = if self.wrong.is_empty() {
            let keys = super::count_noun(self.keys, "label matches", "labels match");
            check.ok(format!("{place}: {keys} the hardware"))
        } else {
            check.warning(format!("{place}: {}", format_list(&self.wrong)), self.remedy)
        };
        (self.keys > 0).then(|| finding.about(Subject::Resource(self.subject.to_owned())))
    }
}

fn amd(facts: &Facts<'_>, labels: &FeatureLabels) -> Option<Finding> {
    let devices = facts.usable_devices(Vendor::Amd);
    let mut compared = LabelComparison::new(
        "amd.com/gpu.*",
        "delete the node labeller's pod on this node: it scans only at startup. \
         octavo.dev/amd-compute-partition and octavo.dev/amd-memory-partition are always up to date",
    );
    let reported = || devices.iter().filter_map(|device| device.amd.as_ref());
    let mode =
        |mode: &Option<PartitioningMode>| mode.as_ref().map(|mode| mode.current.to_lowercase());
    let partitions: BTreeSet<String> = reported()
        .filter_map(|amd| Some(format!("{}_{}", mode(&amd.compute)?, mode(&amd.memory)?)))
        .collect();
    let drivers: BTreeSet<String> =
        reported().filter_map(|amd| amd.driver_version.clone()).collect();
    let ids = devices.iter();
    let ids: BTreeSet<String> =
        ids.map(|device| format!("{:04x}", device.pci_ids.device)).collect();
    for (name, truth) in [
        ("compute-memory-partition", &partitions),
        ("driver-version", &drivers),
        ("device-id", &ids),
    ] {
        let key = format!("{AMD}{name}");
        compared.compare(&key, labels.get(&key), truth);
    }
    compared.finding(&labels.place)
}

/// Compares labels of gpu-feature-discovery. On a node with several GPU models they describe an arbitrary one, so
/// only labels independent of the model are compared.
fn nvidia(facts: &Facts<'_>, labels: &FeatureLabels) -> Option<Finding> {
    let strategy = labels.get("nvidia.com/mig.strategy").and_then(|word| word.parse().ok());
    let strategy = strategy.unwrap_or(MigStrategy::None);
    let options = Options { mig_strategy: strategy, ..Options::default() };
    let now = compile(facts.inventory, &options, None).labels;
    let now: BTreeMap<&str, &str> = now.iter().filter(|(key, _)| key.starts_with(NVIDIA)).collect();
    let working = facts.inventory.devices.iter();
    let working = working
        .filter(|device| device.vendor == Vendor::Nvidia && device.condition == Condition::Working);
    let models: BTreeSet<Option<&str>> =
        working.map(|device| device.product_name.as_deref()).collect();
    let mut compared = LabelComparison::new(
        "nvidia.com/*",
        "check that gpu-feature-discovery runs on this node, and delete its pod so that it \
         rescans; or let the agent write these labels (--nvidia-labels on)",
    );
    for (key, written) in &labels.labels {
        let Some(truth) = now.get(key.as_str()) else {
            if is_of_partitions(key) && strategy == MigStrategy::Mixed && !now.is_empty() {
                compared.wrong.push(format!("{key}={written}, but there is no such partition"));
                compared.keys = compared.keys.saturating_add(1);
            }
            continue;
        };
        if is_of_sharing(key) || (models.len() > 1 && !is_of_node(key)) {
            continue;
        }
        let written = written.trim_end_matches("-SHARED");
        compared.compare(key, Some(written), &BTreeSet::from([(*truth).to_owned()]));
    }
    compared.finding(&labels.place)
}

/// Returns `true` if a key is one of a partition profile, such as `nvidia.com/mig-1g.5gb.count`.
fn is_of_partitions(key: &str) -> bool {
    let name = key.strip_prefix("nvidia.com/mig-");
    name.is_some_and(|name| name.strip_suffix(".count").is_some())
}

/// Returns `true` if a key describes sharing or the start time of its writer, neither of which the hardware
/// determines.
fn is_of_sharing(key: &str) -> bool {
    key.ends_with(".replicas")
        || key.ends_with(".sharing-strategy")
        || key == "nvidia.com/mps.capable"
        || key == "nvidia.com/gfd.timestamp"
}

fn is_of_node(key: &str) -> bool {
    key.starts_with("nvidia.com/cuda.") || key == "nvidia.com/mig.capable"
}

/// Compares the device count of the machine type, as the node provisioner states it.
fn cloud_labels(facts: &Facts<'_>, labels: &FeatureLabels) -> Option<Finding> {
    let mut compared = LabelComparison::new(
        "instance-*",
        "if fewer devices are present than the instance type has, a device has failed or is \
         withheld by the host: replace the instance. If the label is wrong, use octavo.dev/* \
         labels instead",
    );
    let of = |is_its: fn(Vendor) -> bool| {
        let devices: Vec<&Device> = facts.inventory.devices.iter().collect();
        let count = devices.iter().filter(|device| is_its(device.vendor)).count();
        // Machine types with a fraction of a GPU have a count of 0.
        let truth = (count > 0).then(|| count.to_string());
        truth.into_iter().collect::<BTreeSet<String>>()
    };
    let gpus = of(|vendor| matches!(vendor, Vendor::Nvidia | Vendor::Amd));
    let neuron = of(|vendor| vendor == Vendor::Aws);
    for cloud in CLOUD_PREFIXES {
        for (name, truth) in [("gpu-count", &gpus), ("accelerator-count", &neuron)] {
            let key = format!("{cloud}{name}");
            let written = labels.get(&key).filter(|count| *count != "0");
            compared.compare(&key, written, truth);
        }
    }
    compared.finding(&labels.place)
}
