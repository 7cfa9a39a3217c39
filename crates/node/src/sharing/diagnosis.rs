//! Diagnosis of a Node that does not offer the resources configured for NVIDIA's device plugin.
//!
//! The path from a layout to replicas depends on other programs and on administrators. Each finding names the failed
//! step, the evidence for it and the remedy. Evidence that could not be collected is reported, but proves nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use octavo_model::text::join;

use crate::mig_strategy::MigStrategy;
use crate::node_object::operands::PLUGIN_CONFIG_LABEL;

/// The facts to compare.
#[derive(Debug, Clone, Copy)]
pub struct DiagnosisInput<'a> {
    /// Namespace and name of the `ConfigMap`: `gpu-operator/plugin-config`.
    pub config_map: &'a str,
    /// The expected key and its expected content.
    pub key: (&'a str, &'a str),
    /// The MIG strategy of the agent.
    pub strategy: MigStrategy,
    /// True if the Node's label has named that key for long enough.
    pub is_labeled: bool,
    /// Resources that differ on the Node.
    pub mismatches: &'a [Mismatch],
    /// The collected evidence.
    pub evidence: &'a Evidence,
}

/// Cause of missing replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingCause {
    /// The `ConfigMap` does not exist.
    ConfigMapMissing,
    /// The `ConfigMap` lacks the key.
    KeyMissing,
    /// The key has different content.
    KeyDiffers,
    /// No `DaemonSet` of the plugin mounts the `ConfigMap`.
    NotReferenced,
    /// The plugin's pods have no config-manager to watch the label.
    ConfigManagerMissing,
    /// No pod of the plugin runs on this node.
    PluginNotRunning,
    /// The plugin still runs with its previous configuration.
    NotReloaded,
    /// Another writer owns the Node's label.
    ForeignLabel,
    /// More than one plugin registers the resource.
    DuplicateResource,
    /// Partitions are offered under different resource names, or not at all.
    MigStrategyMismatch,
    /// No device is healthy.
    NoneHealthy,
    /// Some devices are unhealthy.
    SomeUnhealthy,
    /// No device plugin is installed.
    NoDevicePlugin,
    /// Evidence could not be collected.
    EvidenceUnavailable,
}

/// A cause and its evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The cause.
    pub cause: FindingCause,
    /// The evidence.
    pub proof: String,
    /// The remedy.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.proof, self.remedy)
    }
}

/// Returns the causes of missing replicas, the earliest step first; never empty.
pub fn diagnose(case: &DiagnosisInput<'_>) -> Vec<Finding> {
    let evidence = case.evidence;
    let mut found = Vec::new();
    case.config_map(&evidence.config_map, &mut found);
    let plugins = case.plugins(&evidence.plugins, &mut found);
    pods(&evidence.pods, plugins, &mut found);
    case.resources(plugins, &mut found);
    // Missing evidence explains nothing.
    if found.iter().all(|one| one.cause == FindingCause::EvidenceUnavailable) {
        found.push(case.not_reloaded(&evidence.pods));
    }
    found
}

impl DiagnosisInput<'_> {
    fn config_map(&self, found: &LookupResult<ConfigMap>, findings: &mut Vec<Finding>) {
        let (name, (key, text)) = (self.config_map, self.key);
        let writes =
            "The aggregator writes it if --plugin-config-map is set: check the aggregator's log.";
        findings.extend(match found {
            LookupResult::Missing => Some(finding(
                FindingCause::ConfigMapMissing,
                format!("ConfigMap {name} does not exist"),
                writes,
            )),
            LookupResult::Unknown(why) => {
                Some(evidence_unavailable(&format!("ConfigMap {name}"), why))
            }
            LookupResult::Present(map) if !map.keys.contains(key) => Some(finding(
                FindingCause::KeyMissing,
                format!("ConfigMap {name} has no key {key}"),
                writes,
            )),
            LookupResult::Present(map) if map.content.as_deref() != Some(text) => Some(finding(
                FindingCause::KeyDiffers,
                format!("The content of key {key} in ConfigMap {name} differs from the requested configuration"),
                "Delete that key: the aggregator recreates it.",
            )),
            LookupResult::Present(_) => None,
        });
    }

    fn plugins<'e>(
        &self,
        found: &'e LookupResult<Vec<PluginDaemonSet>>,
        findings: &mut Vec<Finding>,
    ) -> &'e [PluginDaemonSet] {
        let (namespace, name) = self.config_map.split_once('/').unwrap_or_default();
        let plugins = match found {
            LookupResult::Present(plugins) => plugins.as_slice(),
            LookupResult::Missing => &[],
            LookupResult::Unknown(why) => {
                findings.push(evidence_unavailable(&format!("the DaemonSets of {namespace}"), why));
                return &[];
            }
        };
        if plugins.is_empty() {
            findings.push(finding(
                FindingCause::NoDevicePlugin,
                format!("No DaemonSet in {namespace} runs NVIDIA's device plugin"),
                "Install it there, set its namespace in --plugin-config-map, or use --sharing embedded.",
            ));
            return plugins;
        }
        let names: Vec<&str> = plugins.iter().map(|one| one.name.as_str()).collect();
        let names = names.join(", ");
        let mut referring = plugins.iter().filter(|one| one.config_maps.contains(name));
        if let Some(plugin) = referring.clone().find(|one| !one.has_config_manager) {
            findings.push(finding(
                FindingCause::ConfigManagerMissing,
                format!("DaemonSet {} has no config-manager, which watches the Node's label", plugin.name),
                "Enable it in its installer: devicePlugin.config.name of the GPU Operator, or config.name of the \
                 Helm chart.",
            ));
        }
        if referring.next().is_none() {
            findings.push(finding(
                FindingCause::NotReferenced,
                format!("No volume of DaemonSet {names} refers to ConfigMap {name}"),
                format!(
                    "Set devicePlugin.config.name of the GPU Operator, or config.name of the Helm chart, to {name}."
                ),
            ));
        }
        plugins
    }

    fn resources(&self, plugins: &[PluginDaemonSet], findings: &mut Vec<Finding>) {
        let ours: &str = self.strategy.as_ref();
        let others = plugins.iter().find_map(|one| {
            let strategy = one.mig_strategy.as_deref()?;
            (strategy != ours).then_some((one.name.as_str(), strategy))
        });
        let is_mig = |name: &str| name.starts_with("nvidia.com/mig-");
        let lacks = |mig: bool| {
            let mut all = self.mismatches.iter();
            all.any(|one| one.wanted > 0 && is_mig(&one.resource) == mig)
        };
        let wrong = self
            .mismatches
            .iter()
            .find(|one| one.wanted == 0 && one.offered > 0 && lacks(!is_mig(&one.resource)));
        if let Some((name, strategy)) = others {
            findings.push(finding(
                FindingCause::MigStrategyMismatch,
                format!(
                    "MIG_STRATEGY of DaemonSet {name} is {strategy}, but Octavo's --mig-strategy is {ours}"
                ),
                "Set both to the same value.",
            ));
        } else if let Some(wrong) = wrong {
            findings.push(finding(
                FindingCause::MigStrategyMismatch,
                format!(
                    "The Node advertises {} of {}, which was not requested, and lacks requested resources ({})",
                    wrong.offered,
                    wrong.resource,
                    join_mismatches(self.mismatches)
                ),
                format!(
                    "The plugin's MIG strategy is not {ours}, or the plugin has not detected the partitions: \
                     restart its pod, and check that --compat mig-manager is set."
                ),
            ));
        }
        let is_down = findings.iter().any(|one| one.cause == FindingCause::PluginNotRunning);
        if !is_down {
            findings.extend(self.mismatches.iter().find_map(unhealthy_finding));
        }
    }

    /// The finding if everything checked is correct but the Node still differs.
    fn not_reloaded(&self, pods: &LookupResult<Vec<PluginPod>>) -> Finding {
        let differs = join_mismatches(self.mismatches);
        // Contains no times, so that an unchanged finding has an unchanged text.
        let proof = match pods {
            LookupResult::Present(pods) if self.is_labeled => {
                let running = pods.iter().filter(|pod| pod.running_for.is_some());
                format!(
                    "The label {PLUGIN_CONFIG_LABEL} is {}, {}, but the Node differs ({differs})",
                    self.key.0,
                    join(running.map(|pod| format!("pod {} is running", pod.name)), ", ")
                )
            }
            LookupResult::Present(_) | LookupResult::Missing | LookupResult::Unknown(_) => {
                format!("The Node differs ({differs})")
            }
        };
        finding(
            FindingCause::NotReloaded,
            proof,
            "The plugin did not receive the configuration, or cannot apply it: delete its pod, and check its log.",
        )
    }
}

/// A resource that the Node has but offers less of: the difference is unhealthy.
fn unhealthy_finding(mismatch: &Mismatch) -> Option<Finding> {
    let Mismatch { resource, wanted, offered, capacity: there } = mismatch;
    let (cause, proof) = if *wanted == 0 || offered >= wanted || *there == 0 {
        return None;
    } else if *offered == 0 {
        let proof = format!(
            "The Node has {there} of {resource}, but the plugin reports none of them as healthy"
        );
        (FindingCause::NoneHealthy, proof)
    } else if there >= wanted {
        let ill = there.saturating_sub(*offered);
        let proof = format!("The plugin reports {ill} of {there} of {resource} as unhealthy");
        (FindingCause::SomeUnhealthy, proof)
    } else {
        return None;
    };
    Some(finding(
        cause,
        proof,
        "Its log contains the Xid. The plugin treats a device as unhealthy until its pod is restarted.",
    ))
}

fn pods(
    found: &LookupResult<Vec<PluginPod>>,
    plugins: &[PluginDaemonSet],
    findings: &mut Vec<Finding>,
) {
    let pods = match found {
        LookupResult::Present(pods) => pods.as_slice(),
        LookupResult::Missing => &[],
        LookupResult::Unknown(why) => {
            findings.push(evidence_unavailable("the plugin's pods on this node", why));
            return;
        }
    };
    let remedy = "Check the events and the log of the pod. If there is no pod, check the DaemonSet's nodeSelector \
     and the label nvidia.com/gpu.deploy.device-plugin.";
    if pods.is_empty() && !plugins.is_empty() {
        let proof = format!(
            "DaemonSet {} has no pod on this node",
            join(plugins.iter().map(|one| one.name.as_str()), ", ")
        );
        findings.push(finding(FindingCause::PluginNotRunning, proof, remedy));
    }
    for pod in pods {
        let name = &pod.name;
        let proof = match (&pod.error, pod.running_for) {
            (Some(error), _) => format!("Pod {name}: {error}"),
            (None, None) => format!("Pod {name} is not running yet"),
            (None, Some(_)) => continue,
        };
        findings.push(finding(FindingCause::PluginNotRunning, proof, remedy));
    }
    let plugins: BTreeSet<&str> = pods
        .iter()
        .filter(|pod| pod.running_for.is_some())
        .map(|pod| pod.daemon_set.as_str())
        .collect();
    if plugins.len() > 1 {
        findings.push(finding(
            FindingCause::DuplicateResource,
            format!("Pods of {} both run on this node", join(plugins, " and ")),
            "Stop one of them: the kubelet uses the last plugin that registers.",
        ));
    }
}

/// The finding for a label owned by another writer.
pub fn foreign_label(value: &str, owner: &str) -> Finding {
    finding(
        FindingCause::ForeignLabel,
        format!("The label {PLUGIN_CONFIG_LABEL} is {value} and is managed by {owner}"),
        format!(
            "Octavo does not change it. Remove it (kubectl label node NODE {PLUGIN_CONFIG_LABEL}-) so that Octavo \
             can set it for the layout."
        ),
    )
}

/// The finding for a Node without NVIDIA's device plugin.
pub fn no_device_plugin() -> Finding {
    finding(
        FindingCause::NoDevicePlugin,
        format!(
            "The Node has neither {}=true nor {PLUGIN_CONFIG_LABEL}, and advertises no nvidia.com/gpu",
            crate::node_object::operands::PLUGIN_LABEL
        ),
        "Install NVIDIA's device plugin, or use --sharing embedded.",
    )
}

/// All findings as one text.
pub fn summarize(findings: &[Finding]) -> String {
    join(findings.iter(), " ")
}

fn join_mismatches(mismatches: &[Mismatch]) -> String {
    join(mismatches.iter(), "; ")
}

fn evidence_unavailable(what: &str, why: &str) -> Finding {
    finding(
        FindingCause::EvidenceUnavailable,
        format!("Not checked: {what}: {why}"),
        "docs/operations/permissions.md lists the required permissions.",
    )
}

fn finding(cause: FindingCause, proof: String, remedy: impl Into<String>) -> Finding {
    Finding { cause, proof, remedy: remedy.into() }
}

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupResult<T> {
    /// The object exists.
    Present(T),
    /// The object does not exist.
    Missing,
    /// The lookup failed; contains a human-readable reason.
    Unknown(String),
}

/// The `ConfigMap` of the plugin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigMap {
    /// All its keys.
    pub keys: BTreeSet<String>,
    /// The content of the expected key.
    pub content: Option<String>,
    /// Time since the aggregator last wrote it, if known.
    pub written: Option<Duration>,
}

/// A `DaemonSet` that runs NVIDIA's plugin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginDaemonSet {
    /// Its name.
    pub name: String,
    /// The `ConfigMaps` that its pods mount.
    pub config_maps: BTreeSet<String>,
    /// True if its pods have a config-manager, which watches the Node's label.
    pub has_config_manager: bool,
    /// The MIG strategy in its environment, which takes precedence over the configuration.
    pub mig_strategy: Option<String>,
}

/// A pod of such a `DaemonSet` on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginPod {
    /// Its name.
    pub name: String,
    /// The name of its `DaemonSet`.
    pub daemon_set: String,
    /// Time since its plugin container started; `None` if it is not running.
    pub running_for: Option<Duration>,
    /// Human-readable problem of one of its containers.
    pub error: Option<String>,
}

/// All evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The `ConfigMap`.
    pub config_map: LookupResult<ConfigMap>,
    /// The `DaemonSets` of the plugin in the namespace of the `ConfigMap`.
    pub plugins: LookupResult<Vec<PluginDaemonSet>>,
    /// The plugin's pods on this node.
    pub pods: LookupResult<Vec<PluginPod>>,
}

/// A resource whose offered count differs from the desired one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The resource.
    pub resource: String,
    /// Desired count.
    pub wanted: u64,
    /// Count that the Node offers (allocatable).
    pub offered: u64,
    /// Count that the Node has, healthy or not (capacity).
    pub capacity: u64,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, wanted, offered, .. } = self;
        write!(f, "{resource}: {wanted} requested, {offered} advertised")
    }
}

/// Resources whose offered count differs from the desired one. An NVIDIA resource that is not desired must not be
/// offered.
pub fn mismatches(
    wanted: &BTreeMap<String, u64>,
    (offered, there): (&BTreeMap<String, u64>, &BTreeMap<String, u64>),
) -> Vec<Mismatch> {
    let count = |all: &BTreeMap<String, u64>, name: &String| all.get(name).copied().unwrap_or(0);
    let surplus = offered.iter().filter(|(name, count)| {
        **count > 0 && is_plugin_resource(name) && !wanted.contains_key(*name)
    });
    let names = wanted.keys().chain(surplus.map(|(name, _)| name));
    let mut all: Vec<Mismatch> = names
        .map(|name| Mismatch {
            resource: name.clone(),
            wanted: count(wanted, name),
            offered: count(offered, name),
            capacity: count(there, name).max(count(offered, name)),
        })
        .filter(|one| one.wanted != one.offered)
        .collect();
    all.sort_by(|one, other| one.resource.cmp(&other.resource));
    all
}

/// Returns whether NVIDIA's plugin registers this resource. Source: NVIDIA k8s-device-plugin.
pub fn is_plugin_resource(resource: &str) -> bool {
    let name = resource.strip_prefix("nvidia.com/");
    name.is_some_and(|name| name == "gpu" || name == "gpu.shared" || name.starts_with("mig-"))
}

#[cfg(test)]
mod tests;
