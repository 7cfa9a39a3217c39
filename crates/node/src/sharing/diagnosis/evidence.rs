//! Evidence collected when a Node does not offer the expected resources.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

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
    pub trouble: Option<String>,
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
