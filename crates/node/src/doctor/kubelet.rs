//! Checks of device plugins and of the kubelet's allocatable resources.

use std::collections::BTreeMap;

use octavo_model::inventory::Vendor;

use super::allocatable::{self, OfferComparison, nvidia_resources};
use super::drivers::{AMD, NEURON, NVIDIA, VendorDriver};
use super::facts::{Facts, Kubelet};
use super::{Check, Finding, Subject, format_list, owners};

/// Path of a vendor's devices to pods.
#[derive(Debug, Clone, Copy)]
struct VendorPath {
    driver: VendorDriver,
    /// Prefix of its resources.
    resources: &'static str,
    /// Substrings that identify its device plugins' sockets, by any author.
    sockets: &'static [&'static str],
    /// DRA drivers of its devices. Source: dra-driver-nvidia-gpu; AWS Neuron DRA driver; `ROCm`, k8s-gpu-dra-driver.
    claims: &'static [&'static str],
    /// How to install a device plugin.
    plugin: &'static str,
    /// Remedy if the plugin's offer does not match the devices.
    reload: &'static str,
}

const VENDOR_PATHS: [VendorPath; 3] = [
    VendorPath {
        driver: NVIDIA,
        resources: "nvidia.com/",
        sockets: &["nvidia", "octavo-"],
        claims: &["gpu.nvidia.com", octavo_model::claim::DRIVER],
        plugin: "install NVIDIA's device plugin (part of GPU Operator), or use the agent's \
                 built-in one (--sharing embedded). If its DaemonSet exists but has no pod on \
                 this node, run `kubectl label node NODE \
                 nvidia.com/gpu.deploy.device-plugin=true` and check taints",
        reload: "check the log of the device plugin's pod on this node, and delete the pod so \
                 that it rescans the devices. With partitions, its MIG_STRATEGY must be mixed or \
                 single",
    },
    VendorPath {
        driver: NEURON,
        resources: "aws.amazon.com/neuron",
        sockets: &["neuron"],
        claims: &["neuron.aws.com"],
        plugin: "install the Neuron device plugin (Helm chart neuron-helm-chart). If its \
                 DaemonSet exists but has no pod on this node, check that its affinity, a list of \
                 instance types, contains this node's node.kubernetes.io/instance-type, and check \
                 taints",
        reload: "check the log of the plugin's pod on this node, and delete the pod. \
                 aws.amazon.com/neuroncore counts logical cores; a tool that expects twice as \
                 many counts physical cores",
    },
    VendorPath {
        driver: AMD,
        resources: "amd.com/",
        sockets: &["amd"],
        claims: &["gpu.amd.com"],
        plugin: "install AMD's device plugin (part of AMD's GPU Operator), and check that its pod \
                 runs on this node: it requires the label \
                 feature.node.kubernetes.io/amd-gpu=true, which Node Feature Discovery sets",
        reload: "delete the plugin's pod on this node: it scans partitions only at startup",
    },
];

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    const CHECKS: [Check; 4] =
        [Check::DevicePlugin, Check::Allocatable, Check::ResourceOwners, Check::TimeSlicing];
    let everywhere = |evidence: &str| CHECKS.map(|check| check.not_applicable(evidence)).to_vec();
    // Without data from the kubelet, Node labels report time-slicing.
    let turns = |mut all: Vec<Finding>| {
        if let Some(shared) = owners::time_slicing_from_labels(facts) {
            all.retain(|finding| finding.check != Check::TimeSlicing);
            all.push(shared);
        }
        all
    };
    let working = VENDOR_PATHS.iter().filter(|path| path.driver.status(facts).is_working());
    let working: Vec<&VendorPath> = working.collect();
    if working.is_empty() {
        return everywhere("no device with a loaded driver, so there is nothing to allocate");
    }
    let kubelet = match &facts.kubelet {
        Ok(Some(kubelet)) => kubelet,
        Ok(None) => {
            let directory = &facts.roots.kubelet;
            let evidence = format!("no kubelet has run here: {directory} does not exist");
            return turns(everywhere(&evidence));
        }
        Err(why) => {
            let unknown = CHECKS.map(|check| check.unknown(why.clone()));
            return turns(unknown.to_vec());
        }
    };
    let plugins = working.iter().map(|path| plugin(path, facts, kubelet).about(subject(path)));
    let mut all: Vec<Finding> = plugins.collect();
    all.extend(working.iter().map(|path| allocatable(path, facts, kubelet)));
    let claimed = working.iter().filter_map(|path| plugin_and_claims_finding(path, facts, kubelet));
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
    let is_reported = kubelet.registered.is_ok() || matches!(kubelet.allocatable, Ok(Some(_)));
    is_reported.then_some(counts)
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
    let evidence = format!("{claimed}, and a device plugin allocates {}", format_list(&names));
    let remedy = "use only one of them per node, unless they manage different devices: otherwise \
                  pods and claims can get the same device. Exclude this node with the \
                  nodeSelector of the plugin's or the driver's DaemonSet. If the driver is \
                  uninstalled, remove its directory";
    Some(Check::ResourceOwners.warning(evidence, remedy).about(subject(path)))
}

fn claim_driver_evidence(
    path: &VendorPath,
    facts: &Facts<'_>,
    kubelet: &Kubelet,
) -> Option<String> {
    let directory = &facts.roots.kubelet;
    let drivers = kubelet.claim_drivers.as_ref().ok()?;
    let driver = path.claims.iter().find(|driver| drivers.contains(**driver))?;
    Some(format!("{driver} allocates devices to claims: it has a directory in {directory}/plugins"))
}

fn plugin(path: &VendorPath, facts: &Facts<'_>, kubelet: &Kubelet) -> Finding {
    let check = Check::DevicePlugin;
    let Some(counts) = counts(path, kubelet) else {
        return check.unknown(kubelet.unknown_reason());
    };
    if !counts.is_empty() {
        let names: Vec<String> = counts.keys().cloned().collect();
        return check.ok(format!("registered with the kubelet: {}", format_list(&names)));
    }
    if let Some(claimed) = claim_driver_evidence(path, facts, kubelet) {
        return check.ok(claimed);
    }
    let directory = &facts.roots.kubelet;
    let evidence = format!(
        "no device plugin has registered {}* with the kubelet ({directory})",
        path.resources
    );
    let is_its = |name: &&String| path.sockets.iter().any(|part| name.contains(part));
    let sockets: Vec<String> = kubelet.sockets().filter(is_its).cloned().collect();
    if !sockets.is_empty() {
        let evidence =
            format!("{evidence}, but sockets of a plugin exist there: {}", format_list(&sockets));
        let remedy = "the plugin has not registered since the kubelet started, or no longer runs: \
                      delete its pod on this node, and check its log";
        return check.failing(evidence, remedy);
    }
    match &kubelet.claim_drivers {
        Ok(_) => check.failing(evidence, path.plugin),
        // Devices could be allocated to claims instead.
        Err(why) => check.warning(format!("{evidence}; DRA drivers: {why}"), path.plugin),
    }
}

fn allocatable(path: &VendorPath, facts: &Facts<'_>, kubelet: &Kubelet) -> Finding {
    let check = Check::Allocatable;
    let counts = counts(path, kubelet);
    if counts.as_ref().is_some_and(BTreeMap::is_empty) {
        return check.not_applicable(format!("no device plugin allocates {}*", path.resources));
    }
    match compare(path, facts, kubelet, counts) {
        OfferComparison::Same(evidence) => check.ok(evidence),
        OfferComparison::Differs(evidence) => check.failing(evidence, path.reload),
        OfferComparison::Unknown(why) => check.unknown(why),
    }
    .about(subject(path))
}

/// Compares the kubelet's allocatable units with the devices that are present.
fn compare(
    path: &VendorPath,
    facts: &Facts<'_>,
    kubelet: &Kubelet,
    counts: Option<BTreeMap<String, usize>>,
) -> OfferComparison {
    let Some(counts) = counts else {
        return OfferComparison::Unknown(kubelet.unknown_reason());
    };
    let none: Vec<String> =
        counts.iter().filter(|(_, count)| **count == 0).map(|(name, _)| name.clone()).collect();
    if none.len() == counts.len() {
        let none = format_list(&none);
        return OfferComparison::Differs(format!(
            "registered, but the plugin reports no healthy device: {none}"
        ));
    }
    match path.driver.vendor {
        Vendor::Nvidia => match &kubelet.allocatable {
            Ok(Some(all)) => allocatable::nvidia(facts.inventory, &nvidia_resources(all)),
            Ok(None) | Err(_) => OfferComparison::Unknown(kubelet.unknown_reason()),
        },
        Vendor::Aws => allocatable::neuron(facts, &counts),
        Vendor::Amd | Vendor::Other(_) => {
            allocatable::amd(&facts.usable_devices(path.driver.vendor), &counts)
        }
    }
}
