//! What becomes of the devices in Kubernetes: who gives them out, and whether all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::amd::AMD;
use super::drivers::Maker;
use super::facts::{Facts, Kubelet};
use super::neuron::NEURON;
use super::nvidia::NVIDIA;
use super::offered::{self, Comparison, Offered};
use super::{Check, Finding, Subject, counted, listed};
use crate::domain::inventory::Vendor;

/// How a vendor's devices get to pods.
#[derive(Debug, Clone, Copy)]
struct Path {
    maker: Maker,
    /// How its resources begin.
    resources: &'static str,
    /// Its driver that allocates devices to claims. Source: dra-driver-nvidia-gpu; AWS Neuron DRA driver; `ROCm`, k8s-gpu-dra-driver.
    claims: &'static str,
    /// What brings a device plugin.
    plugin: &'static str,
    /// What to do where it offers something else than there is.
    reload: &'static str,
}

const PATHS: [Path; 3] = [
    Path {
        maker: NVIDIA,
        resources: "nvidia.com/",
        claims: "gpu.nvidia.com",
        plugin: "install NVIDIA's device plugin (GPU Operator brings it), or let the agent give devices out: --sharing embedded. If its DaemonSet is \
                 there and has no pod on this node: `kubectl label node NODE nvidia.com/gpu.deploy.device-plugin=true`, and look at taints",
        reload: "look at the log of the device plugin's pod on this node and delete the pod, which then looks anew; after a change of partitions \
                 its MIG_STRATEGY has to be mixed or single",
    },
    Path {
        maker: NEURON,
        resources: "aws.amazon.com/neuron",
        claims: "neuron.aws.com",
        plugin: "install the Neuron device plugin (its Helm chart is called neuron-helm-chart). If its DaemonSet is there and has no pod on this node, its \
                 affinity is a list of instance types: see whether this node's node.kubernetes.io/instance-type is in it, and look at taints",
        reload: "look at the log of the plugin's pod on this node, and delete the pod. aws.amazon.com/neuroncore counts logical cores: where a tool \
                 expects twice as many, it counts physical ones",
    },
    Path {
        maker: AMD,
        resources: "amd.com/",
        claims: "gpu.amd.com",
        plugin: "install AMD's device plugin (AMD's GPU Operator brings it), and see that its pod is on this node: it asks for the label \
                 feature.node.kubernetes.io/amd-gpu=true, which Node Feature Discovery sets",
        reload: "delete the plugin's pod on this node: it looks at partitions only when it starts",
    },
];

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    const CHECKS: [Check; 4] = [
        Check::DevicePlugin,
        Check::Allocatable,
        Check::ResourceOwners,
        Check::TimeSlicing,
    ];
    let everywhere = |evidence: &str| CHECKS.map(|check| check.not_applicable(evidence)).to_vec();
    let working = PATHS
        .iter()
        .filter(|path| path.maker.standing(facts).works());
    let working: Vec<&Path> = working.collect();
    if working.is_empty() {
        return everywhere(
            "there is no device whose driver is known to be loaded, so there is nothing to give out",
        );
    }
    let kubelet = match &facts.kubelet {
        Ok(Some(kubelet)) => kubelet,
        Ok(None) => {
            let folder = &facts.roots.kubelet;
            return everywhere(&format!("no kubelet ever ran here: there is no {folder}"));
        }
        Err(why) => {
            return CHECKS
                .map(|check| check.unknown(Subject::Node, why.clone()))
                .to_vec();
        }
    };
    let plugins = working.iter().map(|path| plugin(path, facts, kubelet));
    let mut all: Vec<Finding> = plugins.collect();
    all.extend(working.iter().map(|path| allocatable(path, facts, kubelet)));
    all.push(owners(kubelet));
    all.push(time_slicing(kubelet));
    all
}

/// How many there are of each resource of a vendor: what kubelet would give out, or else what it has registered.
fn counts(path: &Path, kubelet: &Kubelet) -> Option<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    let is_its = |name: &&String| name.starts_with(path.resources);
    if let Ok(registered) = &kubelet.registered {
        let its = registered.iter().filter(|(name, _)| is_its(name));
        counts.extend(its.map(|(name, count)| (name.clone(), *count)));
    }
    if let Ok(Some(offered)) = &kubelet.allocatable {
        let its = offered.iter().filter(|(name, _)| is_its(name));
        counts.extend(its.map(|(name, ids)| (name.clone(), ids.len())));
    }
    let is_told = kubelet.registered.is_ok() || matches!(kubelet.allocatable, Ok(Some(_)));
    is_told.then_some(counts)
}

fn subject(path: &Path) -> Subject {
    Subject::Resource(format!("{}*", path.resources))
}

fn claimed(path: &Path, facts: &Facts<'_>, kubelet: &Kubelet) -> Option<String> {
    let driver = path.claims;
    let folder = &facts.roots.kubelet;
    let is_there = kubelet.claim_drivers.contains(driver);
    is_there
        .then(|| format!("{driver} allocates devices to claims: {folder}/plugins has its folder"))
}

/// Why kubelet does not tell.
fn untold(kubelet: &Kubelet) -> String {
    let registered = kubelet.registered.as_ref().err();
    let allocatable = kubelet.allocatable.as_ref().err();
    let said: Vec<&str> = [registered, allocatable]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    if said.is_empty() {
        return "this kubelet does not tell what it would give out".to_owned();
    }
    said.join("; ")
}

fn plugin(path: &Path, facts: &Facts<'_>, kubelet: &Kubelet) -> Finding {
    let check = Check::DevicePlugin;
    let subject = subject(path);
    let Some(counts) = counts(path, kubelet) else {
        return check.unknown(subject, untold(kubelet));
    };
    if !counts.is_empty() {
        let names: Vec<String> = counts.keys().cloned().collect();
        return check.ok(subject, format!("kubelet has {}", listed(&names)));
    }
    if let Some(claimed) = claimed(path, facts, kubelet) {
        return check.ok(subject, claimed);
    }
    let folder = &facts.roots.kubelet;
    let evidence = format!(
        "no device plugin has registered {}* with kubelet ({folder})",
        path.resources
    );
    check.failing(subject, evidence, path.plugin)
}

fn allocatable(path: &Path, facts: &Facts<'_>, kubelet: &Kubelet) -> Finding {
    let check = Check::Allocatable;
    let subject = subject(path);
    let Some(counts) = counts(path, kubelet) else {
        return check.unknown(subject, untold(kubelet));
    };
    if counts.is_empty() {
        return check.not_applicable(format!("nobody gives {}* out", path.resources));
    }
    let none: Vec<String> = counts
        .iter()
        .filter(|(_, count)| **count == 0)
        .map(|(name, _)| name.clone())
        .collect();
    if none.len() == counts.len() {
        let evidence = format!(
            "registered, and none of it is healthy to its plugin: {}",
            listed(&none)
        );
        return check.failing(subject, evidence, path.reload);
    }
    let comparison = match path.maker.vendor {
        Vendor::Nvidia => match &kubelet.allocatable {
            Ok(Some(all)) => offered::nvidia(facts.inventory, &of_nvidia(all)),
            Ok(None) | Err(_) => Comparison::Untold(untold(kubelet)),
        },
        Vendor::Aws => offered::neuron(facts, &counts),
        Vendor::Amd | Vendor::Other(_) => offered::amd(&facts.here(path.maker.vendor), &counts),
    };
    match comparison {
        Comparison::Same(said) => check.ok(subject, said),
        Comparison::Differs(said) => check.failing(subject, said, path.reload),
        Comparison::Untold(why) => check.unknown(subject, why),
    }
}

fn of_nvidia(all: &Offered) -> Offered {
    let its = all
        .iter()
        .filter(|(name, _)| name.starts_with("nvidia.com/"));
    its.map(|(name, ids)| (name.clone(), ids.clone())).collect()
}

/// A device that two resources have is given out twice, and neither plugin knows of the other.
fn owners(kubelet: &Kubelet) -> Finding {
    let check = Check::ResourceOwners;
    let all = match &kubelet.allocatable {
        Ok(Some(all)) => of_nvidia(all),
        Ok(None) | Err(_) => return check.unknown(Subject::Node, untold(kubelet)),
    };
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, ids) in &all {
        for id in ids {
            names.entry(offered::uuid(id)).or_default().insert(name);
        }
    }
    let twice = names.iter().filter(|(_, names)| names.len() > 1);
    let twice: Vec<String> = twice
        .map(|(id, names)| {
            let names: Vec<&str> = names.iter().copied().collect();
            format!("{id} is {}", names.join(" and "))
        })
        .collect();
    if twice.is_empty() {
        return check.ok(Subject::Node, "no device is offered under two names");
    }
    let remedy = "two device plugins give the same devices out, and pods will meet on them unawares: remove one, or give the old resource's pods time \
                  to end if one was just renamed";
    check.failing(Subject::Node, listed(&twice), remedy)
}

fn time_slicing(kubelet: &Kubelet) -> Finding {
    let check = Check::TimeSlicing;
    let all = match &kubelet.allocatable {
        Ok(Some(all)) => of_nvidia(all),
        Ok(None) | Err(_) => return check.unknown(Subject::Node, untold(kubelet)),
    };
    let said: Vec<String> = all
        .iter()
        .filter_map(|(name, ids)| {
            let replicas = ids.iter().filter(|id| id.contains("::"));
            let devices: BTreeSet<&str> = replicas.clone().map(|id| offered::uuid(id)).collect();
            let devices = counted(devices.len(), "device", "devices");
            let count = replicas.count();
            (count > 0).then(|| format!("{name}: {count} replicas of {devices}"))
        })
        .collect();
    if said.is_empty() {
        return check.not_applicable("nothing is given out by turns");
    }
    check.ok(Subject::Node, listed(&said))
}
