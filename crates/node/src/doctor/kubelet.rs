//! Checks of device plugins and of the kubelet's allocatable resources.

use std::collections::BTreeMap;

use octavo_model::inventory::Vendor;

use super::allocatable::{self, OfferComparison, nvidia_resources};
use super::amd::AMD;
use super::drivers::VendorDriver;
use super::facts::{Facts, Kubelet};
use super::neuron::NEURON;
use super::nvidia::NVIDIA;
use super::{Check, Finding, Subject, format_list, owners};

/// Path of a vendor's devices to pods.
#[derive(Debug, Clone, Copy)]
struct VendorPath {
    maker: VendorDriver,
    /// Prefix of its resources.
    resources: &'static str,
    /// Substrings that identify its device plugins' sockets, by any author.
    sockets: &'static [&'static str],
    /// Its DRA driver. Source: dra-driver-nvidia-gpu; AWS Neuron DRA driver; `ROCm`, k8s-gpu-dra-driver.
    claims: &'static str,
    /// How to install a device plugin.
    plugin: &'static str,
    /// Remedy if the plugin's offer does not match the devices.
    reload: &'static str,
}

const VENDOR_PATHS: [VendorPath; 3] = [
    VendorPath {
        maker: NVIDIA,
        resources: "nvidia.com/",
        sockets: &["nvidia", "octavo-"],
        claims: "gpu.nvidia.com",
        plugin: "install NVIDIA's device plugin (GPU Operator brings it), or let the agent give devices out: --sharing embedded. If its DaemonSet is \
                 there and has no pod on this node: `kubectl label node NODE nvidia.com/gpu.deploy.device-plugin=true`, and look at taints",
        reload: "look at the log of the device plugin's pod on this node and delete the pod, which then looks anew; after a change of partitions \
                 its MIG_STRATEGY has to be mixed or single",
    },
    VendorPath {
        maker: NEURON,
        resources: "aws.amazon.com/neuron",
        sockets: &["neuron"],
        claims: "neuron.aws.com",
        plugin: "install the Neuron device plugin (its Helm chart is called neuron-helm-chart). If its DaemonSet is there and has no pod on this node, its \
                 affinity is a list of instance types: see whether this node's node.kubernetes.io/instance-type is in it, and look at taints",
        reload: "look at the log of the plugin's pod on this node, and delete the pod. aws.amazon.com/neuroncore counts logical cores: where a tool \
                 expects twice as many, it counts physical ones",
    },
    VendorPath {
        maker: AMD,
        resources: "amd.com/",
        sockets: &["amd"],
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
    // Without data from the kubelet, Node labels report time-slicing.
    let turns = |mut all: Vec<Finding>| {
        if let Some(said) = owners::time_slicing_from_labels(facts) {
            all.retain(|finding| finding.check != Check::TimeSlicing);
            all.push(said);
        }
        all
    };
    let working = VENDOR_PATHS
        .iter()
        .filter(|path| path.maker.status(facts).is_working());
    let working: Vec<&VendorPath> = working.collect();
    if working.is_empty() {
        return everywhere(
            "there is no device whose driver is known to be loaded, so there is nothing to give out",
        );
    }
    let kubelet = match &facts.kubelet {
        Ok(Some(kubelet)) => kubelet,
        Ok(None) => {
            let folder = &facts.roots.kubelet;
            let evidence = format!("no kubelet ever ran here: there is no {folder}");
            return turns(everywhere(&evidence));
        }
        Err(why) => {
            let unknown = CHECKS.map(|check| check.unknown(Subject::Node, why.clone()));
            return turns(unknown.to_vec());
        }
    };
    let plugins = working.iter().map(|path| plugin(path, facts, kubelet));
    let mut all: Vec<Finding> = plugins.collect();
    all.extend(working.iter().map(|path| allocatable(path, facts, kubelet)));
    let claimed = working
        .iter()
        .filter_map(|path| plugin_and_claims_finding(path, facts, kubelet));
    all.extend(owners::owners(facts, kubelet, claimed.collect()));
    all.push(owners::time_slicing(facts, kubelet));
    all
}

/// Number of units of each resource of a vendor: from the kubelet's allocatable resources, otherwise from its
/// registrations.
fn counts(path: &VendorPath, kubelet: &Kubelet) -> Option<BTreeMap<String, usize>> {
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

fn subject(path: &VendorPath) -> Subject {
    Subject::Resource(format!("{}*", path.resources))
}

/// Finding for a device plugin and a DRA driver on one node, which do not know of each other's allocations.
fn plugin_and_claims_finding(
    path: &VendorPath,
    facts: &Facts<'_>,
    kubelet: &Kubelet,
) -> Option<Finding> {
    let counts = counts(path, kubelet)?;
    counts.values().find(|count| **count > 0)?;
    let names: Vec<String> = counts.keys().cloned().collect();
    let claimed = claim_driver_evidence(path, facts, kubelet)?;
    let evidence = format!(
        "{claimed}, and a device plugin gives {} out",
        format_list(&names)
    );
    let remedy = "use one of them on a node, unless each has devices of its own: pods and claims are given the same ones unawares. Take the plugin or the driver off this node \
                  by its DaemonSet's nodeSelector; if the driver is gone, remove its folder";
    Some(Check::ResourceOwners.warning(subject(path), evidence, remedy))
}

fn claim_driver_evidence(
    path: &VendorPath,
    facts: &Facts<'_>,
    kubelet: &Kubelet,
) -> Option<String> {
    let driver = path.claims;
    let folder = &facts.roots.kubelet;
    let is_there = kubelet
        .claim_drivers
        .as_ref()
        .is_ok_and(|drivers| drivers.contains(driver));
    is_there
        .then(|| format!("{driver} allocates devices to claims: {folder}/plugins has its folder"))
}

fn plugin(path: &VendorPath, facts: &Facts<'_>, kubelet: &Kubelet) -> Finding {
    let check = Check::DevicePlugin;
    let subject = subject(path);
    let Some(counts) = counts(path, kubelet) else {
        return check.unknown(subject, kubelet.unknown_reason());
    };
    if !counts.is_empty() {
        let names: Vec<String> = counts.keys().cloned().collect();
        return check.ok(subject, format!("kubelet has {}", format_list(&names)));
    }
    if let Some(claimed) = claim_driver_evidence(path, facts, kubelet) {
        return check.ok(subject, claimed);
    }
    let folder = &facts.roots.kubelet;
    let evidence = format!(
        "no device plugin has registered {}* with kubelet ({folder})",
        path.resources
    );
    let is_its = |name: &&String| path.sockets.iter().any(|part| name.contains(part));
    let sockets: Vec<String> = kubelet.sockets().filter(is_its).cloned().collect();
    if !sockets.is_empty() {
        let evidence = format!(
            "{evidence}, and a plugin has or had a socket there: {}",
            format_list(&sockets)
        );
        let remedy = "the plugin has not registered since kubelet was started, or is gone: delete its pod on this node, and look at its log";
        return check.failing(subject, evidence, remedy);
    }
    match &kubelet.claim_drivers {
        Ok(_) => check.failing(subject, evidence, path.plugin),
        // Devices could be allocated to claims instead.
        Err(why) => check.warning(
            subject,
            format!("{evidence}; drivers for claims: {why}"),
            path.plugin,
        ),
    }
}

fn allocatable(path: &VendorPath, facts: &Facts<'_>, kubelet: &Kubelet) -> Finding {
    let check = Check::Allocatable;
    let subject = subject(path);
    let Some(counts) = counts(path, kubelet) else {
        return check.unknown(subject, kubelet.unknown_reason());
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
            format_list(&none)
        );
        return check.failing(subject, evidence, path.reload);
    }
    let comparison = match path.maker.vendor {
        Vendor::Nvidia => match &kubelet.allocatable {
            Ok(Some(all)) => allocatable::nvidia(facts.inventory, &nvidia_resources(all)),
            Ok(None) | Err(_) => OfferComparison::Unknown(kubelet.unknown_reason()),
        },
        Vendor::Aws => allocatable::neuron(facts, &counts),
        Vendor::Amd | Vendor::Other(_) => {
            allocatable::amd(&facts.usable_devices(path.maker.vendor), &counts)
        }
    };
    match comparison {
        OfferComparison::Same(said) => check.ok(subject, said),
        OfferComparison::Differs(said) => check.failing(subject, said, path.reload),
        OfferComparison::Unknown(why) => check.unknown(subject, why),
    }
}
