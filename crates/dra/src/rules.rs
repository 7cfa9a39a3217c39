//! The part of a node's layout that concerns resource claims.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, Inventory};
use octavo_model::profile::ProfileName;
use octavo_planner::layout::{DeviceTarget, ShareTarget, TargetScope, Targets, TimeSlicing};

use crate::allocations::existing;
use crate::device::{DraDeviceKind, devices_of};

/// The GPUs that claims cannot use, and the replicas of those that claims share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimRules {
    /// GPUs of which the layout determines the partitions, or whose MIG mode it changes first.
    pub covered: BTreeSet<PciAddress>,
    shared: BTreeMap<PciAddress, TimeSlicing>,
}

impl ClaimRules {
    /// Takes the rules from the targets of the layout. A GPU whose state cannot be read keeps its devices, because claims
    /// may hold them.
    pub fn new(inventory: &Inventory, layout: &Targets) -> Self {
        let is_covered = |target: &&DeviceTarget| {
            let state = inventory.device(target.pci).and_then(|device| device.mig.state());
            target.scope == TargetScope::Layout
                || state.is_some() && target.partitioning(state).is_some()
        };
        let covered = layout.devices.iter().filter(is_covered).map(|target| target.pci);
        let unverified = layout.unverified.iter();
        let unverified = unverified.filter(|device| device.scope == TargetScope::Layout);
        let of_claims = layout.devices.iter().filter(|target| target.scope == TargetScope::Mode);
        Self {
            covered: covered.chain(unverified.map(|device| device.pci)).collect(),
            shared: of_claims
                .filter_map(|target| Some((target.pci, target.time_slicing.clone()?)))
                .collect(),
        }
    }

    /// The rules of a node whose layout is unknown: claims can use none of its devices.
    pub fn closed(devices: &[Device]) -> Self {
        Self { covered: devices.iter().map(|gpu| gpu.pci).collect(), shared: BTreeMap::new() }
    }

    /// Returns the existing devices and partitions that claims share, by UUID, with their replicas.
    pub fn shares(&self, devices: &[Device]) -> Vec<(String, u32)> {
        let open = devices.iter().filter(|gpu| !self.covered.contains(&gpu.pci));
        let shares = open.flat_map(|gpu| {
            let published = devices_of(gpu);
            let own = existing(gpu).into_iter().filter(move |(one, _)| published.contains(one));
            own.filter_map(|(device, uuid)| {
                let profile = match &device.what {
                    DraDeviceKind::Gpu => None,
                    DraDeviceKind::Partition { profile, .. } => Some(profile),
                };
                Some((uuid, self.replicas(gpu.pci, profile)?))
            })
        });
        shares.collect()
    }

    /// Returns the number of replicas of a GPU, or of its partitions of a profile; `None` if they are not shared.
    pub(crate) fn replicas(&self, pci: PciAddress, profile: Option<&ProfileName>) -> Option<u32> {
        let shares = &self.shared.get(&pci)?.shares;
        let of_profile = shares.iter().find(|share| match &share.of {
            ShareTarget::Profile(of) => profile == Some(of),
            ShareTarget::AllUnits | ShareTarget::Resource { .. } => false,
        });
        let of_all = || shares.iter().find(|share| share.of == ShareTarget::AllUnits);
        of_profile.or_else(of_all).map(|share| share.replicas)
    }
}
