//! Diagnosis of a Node that does not offer the resources configured for NVIDIA's device plugin.
//!
//! The path from a layout to replicas depends on other programs and on administrators. Each finding names the failed
//! step, the evidence for it and the remedy. Evidence that could not be collected is reported, but proves nothing.

mod evidence;

use std::collections::BTreeSet;
use std::fmt;

pub use self::evidence::{
    ConfigMap, Evidence, Found, Mismatch, Plugin, PluginPod, is_of_plugin, mismatches,
};
use crate::domain::labels::MigStrategy;
use crate::domain::node::keep::PLUGIN_CONFIG;

/// The facts to compare.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// Namespace and name of the `ConfigMap`: `gpu-operator/plugin-config`.
    pub config_map: &'a str,
    /// The expected key and its expected content.
    pub key: (&'a str, &'a str),
    /// The MIG strategy of the agent.
    pub strategy: MigStrategy,
    /// True if the Node's label has named that key for long enough.
    pub is_labelled: bool,
    /// Resources that differ on the Node.
    pub mismatches: &'a [Mismatch],
    /// The collected evidence.
    pub evidence: &'a Evidence,
}

/// Cause of missing replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The `ConfigMap` does not exist.
    ConfigMapMissing,
    /// The `ConfigMap` lacks the key.
    KeyMissing,
    /// The key has different content.
    KeyDiffers,
    /// No `DaemonSet` of the plugin mounts the `ConfigMap`.
    NotReferenced,
    /// The plugin's pods have no config-manager to watch the label.
    NotFollowed,
    /// No pod of the plugin runs on this node.
    PluginNotRunning,
    /// The plugin still runs with its previous configuration.
    NotReloaded,
    /// Another writer owns the Node's label.
    LabelOfAnother,
    /// More than one plugin registers the resource.
    ResourceOfAnother,
    /// Partitions are offered under different resource names, or not at all.
    MigInTheWay,
    /// No device is healthy.
    NoneHealthy,
    /// Some devices are unhealthy.
    SomeUnhealthy,
    /// No device plugin is installed.
    NobodyGivesOut,
    /// Evidence could not be collected.
    Unseen,
}

/// A cause and its evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
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
pub fn diagnose(case: &Case<'_>) -> Vec<Finding> {
    let evidence = case.evidence;
    let mut found = Vec::new();
    case.config_map(&evidence.config_map, &mut found);
    let plugins = case.plugins(&evidence.plugins, &mut found);
    pods(&evidence.pods, plugins, &mut found);
    case.resources(plugins, &mut found);
    // Missing evidence explains nothing.
    if found.iter().all(|one| one.cause == Cause::Unseen) {
        found.push(case.not_reloaded(&evidence.pods));
    }
    found
}

impl Case<'_> {
    fn config_map(&self, found: &Found<ConfigMap>, findings: &mut Vec<Finding>) {
        let (name, (key, text)) = (self.config_map, self.key);
        let writes = "The aggregator writes it, with --plugin-config-map: look at its log.";
        findings.extend(match found {
            Found::Missing => Some(finding(
                Cause::ConfigMapMissing,
                format!("There is no ConfigMap {name}"),
                writes,
            )),
            Found::Unknown(why) => Some(unseen(&format!("ConfigMap {name}"), why)),
            Found::There(map) if !map.keys.contains(key) => Some(finding(
                Cause::KeyMissing,
                format!("ConfigMap {name} has no key {key}"),
                writes,
            )),
            Found::There(map) if map.content.as_deref() != Some(text) => Some(finding(
                Cause::KeyDiffers,
                format!("ConfigMap {name} says something else under {key} than was asked for"),
                "Delete that key: the aggregator writes it anew.",
            )),
            Found::There(_) => None,
        });
    }

    fn plugins<'e>(
        &self,
        found: &'e Found<Vec<Plugin>>,
        findings: &mut Vec<Finding>,
    ) -> &'e [Plugin] {
        let (namespace, name) = self.config_map.split_once('/').unwrap_or_default();
        let plugins = match found {
            Found::There(plugins) => plugins.as_slice(),
            Found::Missing => &[],
            Found::Unknown(why) => {
                findings.push(unseen(&format!("the DaemonSets of {namespace}"), why));
                return &[];
            }
        };
        if plugins.is_empty() {
            findings.push(finding(
                Cause::NobodyGivesOut,
                format!("No DaemonSet of {namespace} runs NVIDIA's device plugin"),
                "Install it there, name its namespace in --plugin-config-map, or use --sharing embedded.",
            ));
            return plugins;
        }
        let told: Vec<&str> = plugins.iter().map(|one| one.name.as_str()).collect();
        let told = told.join(", ");
        let mut referring = plugins.iter().filter(|one| one.config_maps.contains(name));
        if let Some(plugin) = referring.clone().find(|one| !one.follows) {
            findings.push(finding(
                Cause::NotFollowed,
                format!("DaemonSet {} has no config-manager, which follows the Node's label", plugin.name),
                "Let its own installer set it up: GPU Operator's devicePlugin.config.name, Helm's config.name.",
            ));
        }
        if referring.next().is_none() {
            findings.push(finding(
                Cause::NotReferenced,
                format!("No volume of DaemonSet {told} is ConfigMap {name}"),
                format!(
                    "Set GPU Operator's devicePlugin.config.name, or Helm's config.name, to {name}."
                ),
            ));
        }
        plugins
    }

    fn resources(&self, plugins: &[Plugin], findings: &mut Vec<Finding>) {
        let ours = strategy(self.strategy);
        let others = plugins.iter().find_map(|one| {
            let said = one.mig_strategy.as_deref()?;
            (said != ours).then_some((one.name.as_str(), said))
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
        if let Some((name, said)) = others {
            findings.push(finding(
                Cause::MigInTheWay,
                format!(
                    "MIG_STRATEGY of DaemonSet {name} is {said}, and --mig-strategy here is {ours}"
                ),
                "Make them the same.",
            ));
        } else if let Some(wrong) = wrong {
            findings.push(finding(
                Cause::MigInTheWay,
                format!(
                    "The Node offers {} of {}, which nobody asked for, and lacks what was ({})",
                    wrong.offered,
                    wrong.resource,
                    listed(self.mismatches)
                ),
                format!(
                    "The plugin's MIG strategy is not {ours}, or it has not seen the partitions: restart its pod, and see that \
                     --compat mig-manager is set."
                ),
            ));
        }
        let is_down = findings
            .iter()
            .any(|one| one.cause == Cause::PluginNotRunning);
        if !is_down {
            findings.extend(self.mismatches.iter().find_map(unfit));
        }
    }

    /// The finding if everything checked is correct but the Node still differs.
    fn not_reloaded(&self, pods: &Found<Vec<PluginPod>>) -> Finding {
        let differs = listed(self.mismatches);
        // Contains no times, so that an unchanged finding has an unchanged text.
        let proof = match pods {
            Found::There(pods) if self.is_labelled => {
                let said = pods.iter().filter(|pod| pod.runs.is_some());
                let said: Vec<String> = said.map(|pod| format!("pod {} runs", pod.name)).collect();
                format!(
                    "The label {PLUGIN_CONFIG} is {}, {}, and the Node differs ({differs})",
                    self.key.0,
                    said.join(", ")
                )
            }
            Found::There(_) | Found::Missing | Found::Unknown(_) => {
                format!("The Node differs ({differs})")
            }
        };
        finding(
            Cause::NotReloaded,
            proof,
            "Its plugin was not told, or cannot do it: delete the pod, and look at its log.",
        )
    }
}

/// A resource that the Node has but offers less of: the difference is unhealthy.
fn unfit(mismatch: &Mismatch) -> Option<Finding> {
    let Mismatch {
        resource,
        wanted,
        offered,
        there,
    } = mismatch;
    let (cause, proof) = if *wanted == 0 || offered >= wanted || *there == 0 {
        return None;
    } else if *offered == 0 {
        let proof = format!(
            "The Node has {there} of {resource}, and none of them is healthy to the plugin"
        );
        (Cause::NoneHealthy, proof)
    } else if there >= wanted {
        let ill = there.saturating_sub(*offered);
        let proof = format!("{ill} of {there} of {resource} are not healthy to the plugin");
        (Cause::SomeUnhealthy, proof)
    } else {
        return None;
    };
    Some(finding(
        cause,
        proof,
        "Its log says which Xid it was; the plugin never takes one back before its pod is started again.",
    ))
}

fn pods(found: &Found<Vec<PluginPod>>, plugins: &[Plugin], findings: &mut Vec<Finding>) {
    let pods = match found {
        Found::There(pods) => pods.as_slice(),
        Found::Missing => &[],
        Found::Unknown(why) => {
            findings.push(unseen("the plugin's pods on this node", why));
            return;
        }
    };
    let remedy = "Look at its events and its log; where no pod is, at the DaemonSet's nodeSelector and the label \
                  nvidia.com/gpu.deploy.device-plugin.";
    if pods.is_empty() && !plugins.is_empty() {
        let named: Vec<&str> = plugins.iter().map(|one| one.name.as_str()).collect();
        let proof = format!("No pod of DaemonSet {} is on this node", named.join(", "));
        findings.push(finding(Cause::PluginNotRunning, proof, remedy));
    }
    for pod in pods {
        let name = &pod.name;
        let proof = match (&pod.trouble, pod.runs) {
            (Some(trouble), _) => format!("Pod {name}: {trouble}"),
            (None, None) => format!("Pod {name} does not run yet"),
            (None, Some(_)) => continue,
        };
        findings.push(finding(Cause::PluginNotRunning, proof, remedy));
    }
    let givers: BTreeSet<&str> = pods
        .iter()
        .filter(|pod| pod.runs.is_some())
        .map(|pod| pod.plugin.as_str())
        .collect();
    if givers.len() > 1 {
        let givers: Vec<&str> = givers.into_iter().collect();
        findings.push(finding(
            Cause::ResourceOfAnother,
            format!("Pods of {} both run on this node", givers.join(" and ")),
            "Stop one of them: the last to register with kubelet wins.",
        ));
    }
}

/// The finding for a label owned by another writer.
pub fn label_of_another(value: &str, owner: &str) -> Finding {
    finding(
        Cause::LabelOfAnother,
        format!("The label {PLUGIN_CONFIG} says {value}, and {owner} writes it"),
        format!(
            "It is left alone; take it away (kubectl label node NODE {PLUGIN_CONFIG}-) to have it as the layout says."
        ),
    )
}

/// The finding for a Node without NVIDIA's device plugin.
pub fn nobody_gives_out() -> Finding {
    finding(
        Cause::NobodyGivesOut,
        format!(
            "The Node has neither {}=true nor {PLUGIN_CONFIG}, and offers no nvidia.com/gpu",
            crate::domain::node::operands::PLUGIN
        ),
        "Install NVIDIA's device plugin, or use --sharing embedded.",
    )
}

/// All findings as one text.
pub fn said(findings: &[Finding]) -> String {
    let all: Vec<String> = findings.iter().map(ToString::to_string).collect();
    all.join(" ")
}

fn listed(mismatches: &[Mismatch]) -> String {
    let all: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
    all.join("; ")
}

fn unseen(what: &str, why: &str) -> Finding {
    finding(
        Cause::Unseen,
        format!("Not looked at: {what}: {why}"),
        "docs/permissions.md says which rights that takes.",
    )
}

fn finding(cause: Cause, proof: String, remedy: impl Into<String>) -> Finding {
    Finding {
        cause,
        proof,
        remedy: remedy.into(),
    }
}

/// The value of NVIDIA's `MIG_STRATEGY`.
pub const fn strategy(strategy: MigStrategy) -> &'static str {
    match strategy {
        MigStrategy::None => "none",
        MigStrategy::Single => "single",
        MigStrategy::Mixed => "mixed",
    }
}

#[cfg(test)]
mod tests;
