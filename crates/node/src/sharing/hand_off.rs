//! Conversion of offers to a configuration of NVIDIA's device plugin, if it can express them.
//!
//! Its time-slicing supports one number of replicas for all units of a resource. Two settings apply to all resources:
//! whether a shared resource is renamed to `.shared`, and whether a container may request more than one. Anything
//! else is rejected here, so that no configuration is reported as applied that cannot be. Source: NVIDIA
//! k8s-device-plugin v0.20.0, `api/config/v1`: `rename` and `devices` of a resource are parsed and ignored.

pub mod rollout;

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::id::PciAddress;
use octavo_model::profile::ProfileName;
use octavo_model::resource::ResourceName;
use octavo_planner::layout::{Targets, TimeSlice};
use thiserror::Error;

use super::offer::{Offer, Offers, Unit};
use crate::mig_strategy::MigStrategy;

/// Sharing configuration of NVIDIA's plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginConfig {
    /// The MIG strategy.
    pub mig_strategy: MigStrategy,
    /// True if shared resources are renamed to `.shared`.
    pub rename_by_default: bool,
    /// True if a container that requests more than one is rejected.
    pub fail_requests_greater_than_one: bool,
    /// The shared resources, ordered by name, each once; empty if nothing is shared.
    pub resources: Vec<ReplicatedResource>,
}

/// A shared resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplicatedResource {
    /// Its name before renaming.
    pub name: ResourceName,
    /// Replicas of each unit; at least two.
    pub replicas: u32,
}

/// Error when NVIDIA's plugin cannot be configured as requested.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HandOffError {
    /// Units of one resource have different numbers of replicas.
    #[error(
        "NVIDIA's device plugin uses one number of replicas for all of {resource}, but {one} has {by} and {other} \
         has {by_other}"
    )]
    Replicas {
        /// The resource.
        resource: ResourceName,
        /// A device.
        one: PciAddress,
        /// Its number of replicas.
        by: u32,
        /// Another device.
        other: PciAddress,
        /// The other device's number of replicas.
        by_other: u32,
    },
    /// Some units of a resource are shared and others are not.
    #[error(
        "NVIDIA's device plugin shares either all of {resource} or none, but {shared} is shared and {whole} is not"
    )]
    SomeShared {
        /// The resource.
        resource: ResourceName,
        /// A device that is shared.
        shared: PciAddress,
        /// A device that is not shared.
        whole: PciAddress,
    },
    /// The requested name is not supported by the plugin.
    #[error(
        "NVIDIA's device plugin names shared devices {resource} or {resource}.shared, not {wanted}"
    )]
    Renamed {
        /// The plugin's name.
        resource: ResourceName,
        /// The requested name.
        wanted: ResourceName,
    },
    /// Some shared resources are renamed and others are not.
    #[error(
        "NVIDIA's device plugin renames either all shared resources or none, but {renamed} is renamed and \
         {unchanged} is not"
    )]
    SomeRenamed {
        /// A renamed resource.
        renamed: ResourceName,
        /// A resource that is not renamed.
        unchanged: ResourceName,
    },
    /// Some shared resources reject requests for more than one and others do not.
    #[error(
        "NVIDIA's device plugin has one failRequestsGreaterThanOne for all shared resources, but it is true for \
         {strict} and false for {lax}"
    )]
    SomeFail {
        /// A resource that rejects them.
        strict: ResourceName,
        /// A resource that accepts them.
        lax: ResourceName,
    },
    /// The strategy `single` requires units of the same kind.
    #[error(
        "with the MIG strategy single, NVIDIA's device plugin requires units of one kind, but this node has {one} \
         and {other}"
    )]
    Unlike {
        /// A kind.
        one: String,
        /// Another kind.
        other: String,
    },
    /// The length of a time slice cannot be configured.
    #[error(
        "NVIDIA's device plugin cannot set the time-slice duration, but the layout sets `slice` of {pci} to {}; \
         remove `slice` from the layout, or use the built-in device plugin: --sharing embedded", length.as_str()
    )]
    Length {
        /// The device.
        pci: PciAddress,
        /// The requested length.
        length: TimeSlice,
    },
}

/// Checks that no shared device has a time slice length, which is not part of the offers.
pub fn check_no_slice_length(targets: &Targets) -> Result<(), HandOffError> {
    let mut all = targets.devices.iter();
    let found = all.find_map(|target| {
        let sharing = target.time_slicing.as_ref()?;
        let length = sharing.slice.filter(|_| sharing.is_sharing())?;
        Some((target.pci, length))
    });
    match found {
        Some((pci, length)) => Err(HandOffError::Length { pci, length }),
        None => Ok(()),
    }
}

/// Returns the plugin configuration that produces `offers`.
pub fn render(offers: &Offers, strategy: MigStrategy) -> Result<PluginConfig, HandOffError> {
    if strategy == MigStrategy::Single {
        check_uniform(offers)?;
    }
    let mut by_name: BTreeMap<ResourceName, Vec<(&Offer, &Unit)>> = BTreeMap::new();
    for (offer, unit) in offers.units() {
        let name = plain_name(unit, strategy);
        by_name.entry(name).or_default().push((offer, unit));
    }
    let mut shared = SharedResources::default();
    for (name, units) in by_name {
        if let Some(replicas) = replicas(&name, &units)? {
            for (offer, _) in &units {
                shared.add(&name, offer)?;
            }
            shared.resources.push(ReplicatedResource { name, replicas });
        }
    }
    shared.finish(strategy)
}

#[derive(Default)]
struct SharedResources {
    resources: Vec<ReplicatedResource>,
    renamed: BTreeSet<ResourceName>,
    unchanged: BTreeSet<ResourceName>,
    strict: BTreeSet<ResourceName>,
    lax: BTreeSet<ResourceName>,
}

impl SharedResources {
    fn add(&mut self, name: &ResourceName, offer: &Offer) -> Result<(), HandOffError> {
        let called = if offer.name == *name {
            &mut self.unchanged
        } else if offer.name == name.shared() {
            &mut self.renamed
        } else {
            return Err(HandOffError::Renamed {
                resource: name.clone(),
                wanted: offer.name.clone(),
            });
        };
        called.insert(name.clone());
        let requested =
            if offer.fail_requests_greater_than_one { &mut self.strict } else { &mut self.lax };
        requested.insert(name.clone());
        Ok(())
    }

    fn finish(self, strategy: MigStrategy) -> Result<PluginConfig, HandOffError> {
        let (renamed, unchanged) = (self.renamed.first(), self.unchanged.first());
        if let Some((renamed, unchanged)) = renamed.zip(unchanged) {
            return Err(HandOffError::SomeRenamed {
                renamed: renamed.clone(),
                unchanged: unchanged.clone(),
            });
        }
        let (strict, lax) = (self.strict.first(), self.lax.first());
        if let Some((strict, lax)) = strict.zip(lax) {
            return Err(HandOffError::SomeFail { strict: strict.clone(), lax: lax.clone() });
        }
        Ok(PluginConfig {
            mig_strategy: strategy,
            rename_by_default: renamed.is_some(),
            fail_requests_greater_than_one: strict.is_some(),
            resources: self.resources,
        })
    }
}

/// The plugin's name for the unit, before renaming.
fn plain_name(unit: &Unit, strategy: MigStrategy) -> ResourceName {
    match (&unit.partition, strategy) {
        (Some(partition), MigStrategy::Mixed) => ResourceName::mig(&partition.profile),
        (Some(_), MigStrategy::None | MigStrategy::Single) | (None, _) => ResourceName::gpu(),
    }
}

/// Number of replicas of each of these units; `None` if they are not shared.
fn replicas(name: &ResourceName, units: &[(&Offer, &Unit)]) -> Result<Option<u32>, HandOffError> {
    let mut shared: Option<(PciAddress, u32)> = None;
    let mut whole: Option<PciAddress> = None;
    for (offer, unit) in units {
        match (unit.replicas, shared) {
            (None, _) if offer.name != *name => {
                return Err(HandOffError::Renamed {
                    resource: name.clone(),
                    wanted: offer.name.clone(),
                });
            }
            (None, _) => whole = whole.or(Some(unit.pci)),
            (Some(by), None) => shared = Some((unit.pci, by)),
            (Some(by_other), Some((one, by))) if by != by_other => {
                return Err(HandOffError::Replicas {
                    resource: name.clone(),
                    one,
                    by,
                    other: unit.pci,
                    by_other,
                });
            }
            (Some(_), Some(_)) => {}
        }
    }
    match (shared, whole) {
        (Some((shared, _)), Some(whole)) => {
            Err(HandOffError::SomeShared { resource: name.clone(), shared, whole })
        }
        (shared, _) => Ok(shared.map(|(_, by)| by)),
    }
}

/// Checks that all units are of one kind. Source: NVIDIA k8s-device-plugin, `internal/rm`: with `single` it offers
/// nothing if GPUs are partitioned differently.
fn check_uniform(offers: &Offers) -> Result<(), HandOffError> {
    let kinds: BTreeSet<Option<&ProfileName>> =
        offers.units().map(|(_, unit)| unit.partition.as_ref().map(|one| &one.profile)).collect();
    let profile_name = |kind: Option<&ProfileName>| {
        kind.map_or_else(|| "whole GPUs".to_owned(), ToString::to_string)
    };
    match (kinds.first(), kinds.last()) {
        (Some(one), Some(other)) if one != other => {
            Err(HandOffError::Unlike { one: profile_name(*one), other: profile_name(*other) })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
