//! Claims of this node: the durable record, and the decisions about preparing and releasing them.
//!
//! ```text
//!   Prepare ---> prepare: ready | create | refused --> record --> targets: what exists plus the new instance
//!   Unprepare -> release: nothing | destroy -------> record --> targets: what exists less the released instances
//! ```
//!
//! A claim is recorded before the hardware changes, so a crash leaves no instance without an owner. The record is a
//! claim of what Octavo created, never of what exists: every decision compares it with the inventory.

pub mod config;
mod preparation;
mod status;

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::catalog::{Placement, ProfileCatalog};
use octavo_model::claim::{ClaimKey, ClaimRef, ClaimUid};
use octavo_model::holder::{DeviceAllocation, Holder, HolderDetails};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    Condition, Device, GpuInstance, Inventory, MigMode, MigState, NvmlState,
};
use octavo_planner::layout::{
    DeviceTarget, InstanceTarget, MigTarget, TargetScope, Targets, current_target,
};
use octavo_planner::plan::{feasible, is_in_use};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

pub use self::preparation::{NodeState, Preparation, PrepareError};
pub use self::status::{ClaimStatuses, DeviceData, DeviceProblem, DeviceStatus, problem};
use crate::DRIVER;
use crate::device::{DeviceName, DraDevice, DraDeviceKind};

/// A claim as the API server stores it, with the devices of this driver only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocatedClaim {
    /// The claim.
    pub key: ClaimKey,
    /// The allocated devices; empty if the claim is not allocated, or only devices of other drivers are.
    pub devices: Vec<AllocatedDevice>,
}

/// A device that the scheduler allocated to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocatedDevice {
    /// The request of the claim, without the name of a subrequest.
    pub request: String,
    /// Pool of the device.
    pub pool: String,
    /// Name of the device in the pool.
    pub device: String,
    /// ID of the share, of a device that several claims can share.
    pub share: Option<String>,
    /// True for administrative access: the claim uses the device without holding it.
    pub is_admin: bool,
}

/// Treatment of an instance that Octavo created for a claim, after the claim has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReleasePolicy {
    /// It is destroyed as soon as it is idle.
    #[default]
    Destroy,
    /// It stays for the next claim of the same device, and is destroyed when another claim needs its slices or engines.
    Keep,
}

/// Claims of this node, and instances of ended claims. Survives restarts of the agent. Unknown fields are ignored, so
/// that an older version can read the record of a newer one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreparedClaims {
    /// Claims, by UID.
    pub claims: BTreeMap<ClaimUid, PreparedClaim>,
    /// Instances that Octavo created for claims that ended.
    #[serde(default)]
    pub released: BTreeSet<DraDevice>,
}

/// A claim that is prepared, or being prepared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreparedClaim {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its progress.
    pub state: ClaimState,
    /// Its devices.
    pub devices: Vec<PreparedDevice>,
}

/// Progress of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClaimState {
    /// Its instances may not exist yet.
    Preparing,
    /// Its pod can run. The devices count as in use until the claim is released.
    Prepared,
}

/// A device of a claim.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreparedDevice {
    /// Requests that the device satisfies.
    pub requests: BTreeSet<String>,
    /// The device.
    pub device: DraDevice,
    /// True if Octavo created the instance, and destroys it after the claim.
    pub created: bool,
    /// ID of the share, of a device that several claims can share.
    pub share: Option<String>,
    /// True if the claim uses the device without holding it.
    #[serde(default)]
    pub is_admin: bool,
}

impl PreparedClaim {
    /// Identity of the claim with this UID.
    pub fn key(&self, uid: &ClaimUid) -> ClaimKey {
        let ClaimRef { namespace, name } = self.reference();
        ClaimKey { uid: uid.clone(), namespace, name }
    }

    /// The namespace and name.
    pub fn reference(&self) -> ClaimRef {
        ClaimRef { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

impl PreparedDevice {
    /// Returns whether the device cannot be taken from the claim. An instance that is still being created can.
    fn is_held(&self, state: ClaimState) -> bool {
        !self.is_admin && (state == ClaimState::Prepared || !self.created)
    }

    /// Returns whether this is a share of a device that other claims can have too.
    fn is_share_of(&self, device: &DraDevice) -> bool {
        self.device == *device && self.share.is_some() && !self.is_admin
    }
}

impl PreparedClaims {
    /// Marks a claim as prepared. Returns whether the record changed.
    pub fn mark_prepared(&mut self, uid: &ClaimUid) -> bool {
        let claim = self.claims.get_mut(uid);
        let changed = claim.filter(|claim| claim.state != ClaimState::Prepared);
        changed.map(|claim| claim.state = ClaimState::Prepared).is_some()
    }

    /// Records a claim. Its devices are no longer released. If the claim was recorded with other devices before, the
    /// instances that Octavo created for these are released.
    pub fn record(&mut self, uid: &ClaimUid, claim: PreparedClaim) {
        self.release(uid);
        self.released.retain(|released| claim.devices.iter().all(|one| one.device != *released));
        self.claims.insert(uid.clone(), claim);
    }

    /// Removes a claim, and releases the instances that Octavo created for it. An instance that other claims share becomes
    /// theirs. `None` for an unknown claim.
    pub fn release(&mut self, uid: &ClaimUid) -> Option<PreparedClaim> {
        let claim = self.claims.remove(uid)?;
        for PreparedDevice { device, .. } in claim.devices.iter().filter(|one| one.created) {
            let others = self.claims.values_mut().flat_map(|other| &mut other.devices);
            let mut is_shared = false;
            for other in others.filter(|other| other.is_share_of(device)) {
                (other.created, is_shared) = (true, true);
            }
            if !is_shared {
                self.released.insert(device.clone());
            }
        }
        Some(claim)
    }

    /// Forgets released instances that no longer exist. Returns whether there were any. Nothing is forgotten of a GPU
    /// whose state cannot be read, or that is in `unsettled`.
    pub fn forget_absent(
        &mut self,
        inventory: &Inventory,
        unsettled: &BTreeSet<PciAddress>,
    ) -> bool {
        let before = self.released.len();
        self.released.retain(|released| {
            if unsettled.contains(&released.pci) {
                return true;
            }
            let device = inventory.device(released.pci).filter(|_| is_ready(inventory));
            match device.filter(|device| is_readable(device)).and_then(|one| one.mig.state()) {
                None => true,
                Some(state) => {
                    state.gpu_instances.iter().any(|one| is_instance(released, released.pci, one))
                }
            }
        });
        self.released.len() != before
    }

    /// Returns the targets of the GPUs that claims change now: what exists, plus the instances in `create`, less
    /// released ones. GPUs in `covered` are never changed.
    ///
    /// Nothing is destroyed together with a creation unless the creation needs its slices: a released instance that is
    /// still in use must not delay another claim.
    pub fn targets(
        &self,
        inventory: &Inventory,
        create: &BTreeSet<DraDevice>,
        covered: &BTreeSet<PciAddress>,
        policy: ReleasePolicy,
    ) -> Targets {
        let own = inventory.devices.iter().filter(|device| !covered.contains(&device.pci));
        let own = own.filter(|device| is_ready(inventory) && is_readable(device));
        let targets = own.filter_map(|device| {
            let state = device.mig.state()?;
            let mig = self.target(device, state, create, policy)?;
            Some(DeviceTarget::generated(device.pci, mig, TargetScope::Claims))
        });
        Targets { devices: targets.collect(), ..Targets::default() }
    }

    /// Returns the target of one GPU; `None` if nothing changes.
    fn target(
        &self,
        device: &Device,
        state: &MigState,
        create: &BTreeSet<DraDevice>,
        policy: ReleasePolicy,
    ) -> Option<MigTarget> {
        let MigTarget::Enabled(instances) = current_target(state)? else {
            return None;
        };
        let mut wanted = Vec::new();
        for one in create.iter().filter(|one| one.pci == device.pci) {
            let DraDeviceKind::Partition { profile_id, placement, .. } = &one.what else {
                continue;
            };
            wanted.push(instance_target(&state.catalog, (*profile_id, *placement))?);
        }
        wanted.retain(|one| !instances.contains(one));
        let is_needed = |one: &GpuInstance| {
            let mut placements = wanted.iter().filter_map(|wanted| wanted.placement);
            placements.any(|wanted| overlap(wanted, one.placement))
        };
        let is_idle = |one: &GpuInstance| !is_in_use(device, &[], one);
        let mut dropped = self.released_where(device.pci, state, |one| match policy {
            _ if !wanted.is_empty() => is_needed(one),
            ReleasePolicy::Destroy => is_idle(one),
            ReleasePolicy::Keep => false,
        });
        if wanted.is_empty() && dropped.is_empty() {
            return None;
        }
        let target = |dropped: &BTreeSet<Placement>| -> Vec<InstanceTarget> {
            let is_dropped = |place: Placement| dropped.contains(&place);
            let stay = instances.iter().filter(|one| !one.placement.is_some_and(is_dropped));
            let mut all: Vec<InstanceTarget> = stay.chain(&wanted).cloned().collect();
            all.sort();
            all
        };
        // A released instance can have engines that a creation beside it needs.
        if !wanted.is_empty() && feasible(device, &target(&dropped)).is_err() {
            dropped.extend(self.released_where(device.pci, state, is_idle));
        }
        Some(MigTarget::Enabled(target(&dropped)))
    }

    /// Placements of the instances of ended claims that satisfy `which`.
    fn released_where(
        &self,
        pci: PciAddress,
        state: &MigState,
        which: impl Fn(&GpuInstance) -> bool,
    ) -> BTreeSet<Placement> {
        let released = state.gpu_instances.iter().filter(|one| self.is_released(pci, one));
        released.filter(|one| which(one)).map(|one| one.placement).collect()
    }

    /// Returns the claims as holders of the existing instances and GPUs: a claim counts as in use although its pod may
    /// not have opened the device yet.
    pub fn holders(&self, devices: &[Device]) -> Vec<Holder> {
        let mut holders = Vec::new();
        for claim in self.claims.values() {
            let held = claim.devices.iter().filter(|one| one.is_held(claim.state));
            for PreparedDevice { device, .. } in held {
                let gpu = devices.iter().find(|gpu| gpu.pci == device.pci);
                holders.extend(gpu.into_iter().flat_map(|gpu| holders_of(claim, device, gpu)));
            }
        }
        holders
    }

    /// Returns whether a claim has access to devices only for monitoring, and so does not hold them. `is_device` selects
    /// the devices.
    pub fn only_monitors(&self, claim: &ClaimRef, is_device: impl Fn(&DraDevice) -> bool) -> bool {
        let claims = self.claims.values().filter(|one| one.reference() == *claim);
        let devices = claims.flat_map(|one| &one.devices).filter(|one| is_device(&one.device));
        let mut devices = devices.map(|one| one.is_admin).peekable();
        devices.peek().is_some() && devices.all(|is_admin| is_admin)
    }

    /// Returns the devices of claims of `pool` as allocations without a pod: those of each claim that `listed`, the
    /// allocations that the kubelet lists, does not have.
    pub fn unlisted_allocations(
        &self,
        listed: &[DeviceAllocation],
        pool: &str,
    ) -> Vec<DeviceAllocation> {
        let is_listed =
            |claim: &ClaimRef| listed.iter().any(|one| one.claim.as_ref() == Some(claim));
        let claims = self.claims.values().map(|claim| (claim, claim.reference()));
        let unlisted = claims.filter(|(_, reference)| !is_listed(reference));
        let allocations = unlisted.flat_map(|(claim, reference)| {
            let held = claim.devices.iter().filter(|one| one.is_held(claim.state));
            held.map(move |one| DeviceAllocation {
                namespace: reference.namespace.clone(),
                pod: String::new(),
                container: String::new(),
                resource: DRIVER.to_owned(),
                device_id: format!("{pool}/{}", one.device.name()),
                claim: Some(reference.clone()),
            })
        });
        allocations.collect()
    }

    /// Returns the devices of claims, and those whose idle instances Octavo created for claims that ended. Instances of
    /// other devices are used outside of claims, or were created there. `devices` are the GPUs.
    pub fn device_names(&self, devices: &[Device]) -> BTreeSet<DeviceName> {
        let is_used = |released: &&DraDevice| {
            let gpu = devices.iter().find(|gpu| gpu.pci == released.pci);
            let is_used = |gpu: &Device| {
                let mut instances = gpu.mig.state().into_iter().flat_map(|one| &one.gpu_instances);
                let own = instances.find(|one| is_instance(released, gpu.pci, one));
                own.is_some_and(|own| is_in_use(gpu, &[], own))
            };
            gpu.is_some_and(is_used)
        };
        let claims = self.claims.values().flat_map(|claim| &claim.devices);
        claims
            .filter(|one| !one.is_admin)
            .map(|one| one.device.name())
            .chain(self.released.iter().filter(|one| !is_used(one)).map(DraDevice::name))
            .collect()
    }

    fn is_released(&self, pci: PciAddress, instance: &GpuInstance) -> bool {
        self.released.iter().any(|released| is_instance(released, pci, instance))
    }
}

fn overlap(one: Placement, other: Placement) -> bool {
    one.start < other.end() && other.start < one.end()
}

/// Returns the target for an instance with one compute instance that takes all of it.
fn instance_target(
    catalog: &ProfileCatalog,
    (profile_id, placement): (u32, Placement),
) -> Option<InstanceTarget> {
    let compute = vec![catalog.by_id(profile_id)?.resources.gpu_slices];
    Some(InstanceTarget { profile_id, compute, placement: Some(placement) })
}

fn identity(instance: &GpuInstance) -> (u32, Placement) {
    (instance.profile_id, instance.placement)
}

/// Returns whether `instance` of the GPU at `pci` is this device.
pub fn is_instance(device: &DraDevice, pci: PciAddress, instance: &GpuInstance) -> bool {
    let is_same = matches!(
        &device.what,
        DraDeviceKind::Partition { profile_id, placement, .. }
            if (*profile_id, *placement) == identity(instance)
    );
    device.pci == pci && is_same
}

fn is_ready(inventory: &Inventory) -> bool {
    matches!(inventory.nvml, NvmlState::Ready(_))
}

/// Returns whether the instances of a GPU are known and can change.
fn is_readable(device: &Device) -> bool {
    let is_stable =
        |state: &MigState| state.current == MigMode::Enabled && state.pending == MigMode::Enabled;
    device.condition == Condition::Working
        && device.mig.is_fully_known()
        && device.mig.state().is_some_and(is_stable)
}

/// Returns the holders of the parts of `gpu` that `device` of `claim` consists of.
fn holders_of(claim: &PreparedClaim, device: &DraDevice, gpu: &Device) -> Vec<Holder> {
    let holder = |gpu_instance: Option<u32>| Holder {
        device: gpu.pci,
        gpu_instance,
        compute_instance: None,
        details: HolderDetails {
            // Without its pods, which only the kubelet knows.
            claim: Some(claim.reference()),
            ..HolderDetails::default()
        },
    };
    let instances = gpu.mig.state().into_iter().flat_map(|state| &state.gpu_instances);
    match device.what {
        DraDeviceKind::Gpu => vec![holder(None)],
        DraDeviceKind::Partition { .. } => {
            let own = instances.filter(|one| is_instance(device, gpu.pci, one));
            own.map(|one| holder(Some(one.id))).collect()
        }
    }
}

#[cfg(test)]
mod tests;
