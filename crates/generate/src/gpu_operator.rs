//! Configuration of NVIDIA's GPU Operator from layouts, so that a cluster can return from Octavo to mig-manager and NVIDIA's
//! device plugin.
//!
//! The configuration of the device plugin is derived from the layout alone, without devices. Sources: NVIDIA
//! k8s-device-plugin v0.20.0, `api/config/v1`; gpu-operator, `assets/state-mig-manager`.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::resource::ResourceName;
use octavo_node::mig_strategy::MigStrategy;
use octavo_node::sharing::hand_off::{PluginConfig, ReplicatedResource};
use octavo_planner::layout::{
    Layout, MigSpec, ResourceRename, Rule, Share, ShareTarget, UnitSelector,
};
use thiserror::Error;

use crate::manifest::{Generated, Manifest, ManifestFile, config_map};
use crate::note::Note;

/// Names of the generated objects. Those of NVIDIA's own objects would be overwritten by the operator.
pub const MIG_CONFIG: &str = "octavo-mig-parted-config";
/// Name of the configurations of the device plugin.
pub const PLUGIN_CONFIG: &str = "octavo-device-plugin-config";
/// Key that mig-manager reads.
const MIG_KEY: &str = "config.yaml";

/// Part of a layout that NVIDIA's device plugin cannot express.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PluginGap {
    /// Units of one resource differ.
    #[error("NVIDIA's device plugin shares all {0} in the same way, or none")]
    Differs(ResourceName),
    /// A share applies to some units.
    #[error("NVIDIA's device plugin cannot select single units of {0}")]
    Selected(ResourceName),
    /// A share has another name.
    #[error("NVIDIA's device plugin renames either all shared resources to NAME.shared, or none")]
    Renamed,
    /// Resources differ in the largest request.
    #[error("NVIDIA's device plugin has one failRequestsGreaterThanOne for all resources")]
    Strict,
    /// The length of a time slice cannot be configured.
    #[error("NVIDIA's device plugin cannot set the time-slice duration")]
    Length,
    /// Claims need a driver.
    #[error("NVIDIA's device plugin does not serve resource claims")]
    Claims,
}

/// Returns the layout without time-slicing, as mig-parted understands it.
#[must_use]
pub fn partitioning(layout: &Layout) -> Layout {
    let mut layout = layout.clone();
    for rule in &mut layout.rules {
        rule.time_slicing = None;
    }
    layout
}

/// Returns the configuration of the device plugin that offers the resources of the layout; without sharing, one without resources.
///
/// # Errors
///
/// Returns the first part that the plugin cannot express.
pub fn plugin_config(layout: &Layout) -> Result<PluginConfig, PluginGap> {
    let mut units: BTreeMap<ResourceName, Vec<Option<&Share>>> = BTreeMap::new();
    for rule in &layout.rules {
        if rule.claims {
            return Err(PluginGap::Claims);
        }
        if rule.time_slicing.as_ref().is_some_and(|sharing| sharing.slice.is_some()) {
            return Err(PluginGap::Length);
        }
        for name in resources(rule) {
            let share = share(rule, &name)?;
            units.entry(name).or_default().push(share);
        }
    }
    let mut resources = Vec::new();
    let mut renamed = BTreeSet::new();
    let mut strict = BTreeSet::new();
    for (name, shares) in units {
        let kinds: BTreeSet<Option<u32>> =
            shares.iter().map(|share| share.map(|share| share.replicas)).collect();
        let mut kinds = kinds.into_iter();
        match (kinds.next().flatten(), kinds.next()) {
            (_, Some(_)) => return Err(PluginGap::Differs(name)),
            (None, None) => {}
            (Some(replicas), None) => {
                for share in shares.into_iter().flatten() {
                    renamed.insert(is_renamed(share, &name)?);
                    strict.insert(share.fail_requests_greater_than_one);
                }
                resources.push(ReplicatedResource { name, replicas });
            }
        }
    }
    match (renamed.len(), strict.len()) {
        (2.., _) => Err(PluginGap::Renamed),
        (_, 2..) => Err(PluginGap::Strict),
        _ => Ok(PluginConfig {
            mig_strategy: MigStrategy::Mixed,
            rename_by_default: renamed.contains(&true),
            fail_requests_greater_than_one: strict.contains(&true),
            resources,
        }),
    }
}

/// Resources that the devices of a rule offer before renaming. Unchanged partitioning means whole GPUs, and the profiles and
/// resources that shares name.
fn resources(rule: &Rule) -> BTreeSet<ResourceName> {
    match &rule.mig {
        Some(MigSpec::Enabled(counts)) => {
            counts.iter().map(|count| ResourceName::mig(&count.profile)).collect()
        }
        Some(MigSpec::Disabled) => [ResourceName::gpu()].into(),
        None => {
            let shares = rule.time_slicing.iter().flat_map(|sharing| &sharing.shares);
            let named = shares.filter_map(|share| match &share.of {
                ShareTarget::AllUnits => None,
                ShareTarget::Profile(profile) => Some(ResourceName::mig(profile)),
                ShareTarget::Resource { name, .. } => Some(name.clone()),
            });
            named.chain([ResourceName::gpu()]).collect()
        }
    }
}

/// Share of the units of a resource: the most specific one, then the first.
fn share<'a>(rule: &'a Rule, name: &ResourceName) -> Result<Option<&'a Share>, PluginGap> {
    let shares = rule.time_slicing.iter().flat_map(|sharing| &sharing.shares);
    let mut of_all = None;
    for share in shares {
        match &share.of {
            ShareTarget::AllUnits => of_all = of_all.or(Some(share)),
            ShareTarget::Profile(profile) if ResourceName::mig(profile) == *name => {
                return Ok(Some(share));
            }
            ShareTarget::Resource { name: own, which } if own == name => {
                return match which {
                    UnitSelector::All => Ok(Some(share)),
                    UnitSelector::First(_) | UnitSelector::Listed(_) => {
                        Err(PluginGap::Selected(name.clone()))
                    }
                };
            }
            ShareTarget::Profile(_) | ShareTarget::Resource { .. } => {}
        }
    }
    Ok(of_all)
}

fn is_renamed(share: &Share, name: &ResourceName) -> Result<bool, PluginGap> {
    match &share.rename {
        ResourceRename::No => Ok(false),
        ResourceRename::Shared => Ok(true),
        ResourceRename::To(other) if *other == name.shared() => Ok(true),
        ResourceRename::To(_) => Err(PluginGap::Renamed),
    }
}

/// Generates the objects of these files: the configuration of mig-parted, if any, and those of the device plugin by layout.
pub fn gpu_operator(
    namespace: &str,
    mig: Option<String>,
    plugin: BTreeMap<String, String>,
    mut notes: Vec<Note>,
) -> Generated {
    let mig =
        mig.map(|text| config_map(namespace, MIG_CONFIG, [(MIG_KEY.to_owned(), text)].into()));
    let plugin = (!plugin.is_empty()).then(|| config_map(namespace, PLUGIN_CONFIG, plugin));
    let file = |name, manifest: Option<Manifest>| ManifestFile {
        name,
        manifests: manifest.into_iter().collect(),
    };
    notes.sort_unstable();
    let files =
        vec![file("mig-parted-config.yaml", mig), file("device-plugin-config.yaml", plugin)];
    Generated { files, notes }
}

#[cfg(test)]
mod tests;
