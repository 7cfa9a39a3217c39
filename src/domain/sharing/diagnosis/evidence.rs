//! What is looked at where a Node does not offer what it shall.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// What looking for something came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<T> {
    /// It is there.
    There(T),
    /// It is not.
    Missing,
    /// Nobody knows: why, in words for a person.
    Unknown(String),
}

/// The `ConfigMap` of the plugin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigMap {
    /// All its keys.
    pub keys: BTreeSet<String>,
    /// What it says under the key that was asked for.
    pub content: Option<String>,
    /// How long ago the aggregator wrote it last, where that is known.
    pub written: Option<Duration>,
}

/// A `DaemonSet` that runs NVIDIA's plugin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plugin {
    /// Its name.
    pub name: String,
    /// The `ConfigMaps` that its pods have.
    pub config_maps: BTreeSet<String>,
    /// Whether they have a config-manager, which follows the Node's label.
    pub follows: bool,
    /// The MIG strategy that its environment says, which goes before any configuration.
    pub mig_strategy: Option<String>,
}

/// A pod of such a `DaemonSet` on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginPod {
    /// Its name.
    pub name: String,
    /// Of which `DaemonSet`.
    pub plugin: String,
    /// Since when its plugin runs; `None` where it does not.
    pub runs: Option<Duration>,
    /// What is wrong with one of its containers, in words for a person.
    pub trouble: Option<String>,
}

/// What was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The `ConfigMap`.
    pub config_map: Found<ConfigMap>,
    /// Those that run the plugin, in the namespace of the `ConfigMap`.
    pub plugins: Found<Vec<Plugin>>,
    /// Their pods on this node.
    pub pods: Found<Vec<PluginPod>>,
}

/// A resource of which the Node offers something else than is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The resource.
    pub resource: String,
    /// How many there shall be.
    pub wanted: u64,
    /// How many the Node offers.
    pub offered: u64,
    /// How many it has, fit or not.
    pub there: u64,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            wanted,
            offered,
            ..
        } = self;
        write!(f, "{resource}: {wanted} asked, {offered} offered")
    }
}

/// In what a Node differs from what is wanted of it. A resource of NVIDIA's that nobody wants shall not be offered.
pub fn mismatches(
    wanted: &BTreeMap<String, u64>,
    (offered, there): (&BTreeMap<String, u64>, &BTreeMap<String, u64>),
) -> Vec<Mismatch> {
    let of = |all: &BTreeMap<String, u64>, name: &String| all.get(name).copied().unwrap_or(0);
    let surplus = offered
        .iter()
        .filter(|(name, count)| **count > 0 && is_of_plugin(name) && !wanted.contains_key(*name));
    let names = wanted.keys().chain(surplus.map(|(name, _)| name));
    let mut all: Vec<Mismatch> = names
        .map(|name| Mismatch {
            resource: name.clone(),
            wanted: of(wanted, name),
            offered: of(offered, name),
            there: of(there, name).max(of(offered, name)),
        })
        .filter(|one| one.wanted != one.offered)
        .collect();
    all.sort_by(|one, other| one.resource.cmp(&other.resource));
    all
}

/// Whether this is a resource that NVIDIA's plugin gives out. Source: NVIDIA k8s-device-plugin.
pub fn is_of_plugin(resource: &str) -> bool {
    let name = resource.strip_prefix("nvidia.com/");
    name.is_some_and(|name| name == "gpu" || name == "gpu.shared" || name.starts_with("mig-"))
}
