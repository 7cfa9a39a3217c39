//! Claims of this node: the durable record, and the decisions about preparing and releasing them.
//!
//! ```text
//!   Prepare ---> prepare: ready | create | refused --> record --> targets: what exists plus the new instance
//!   Unprepare -> release: nothing | destroy -------> record --> targets: what exists less the released instances
//! ```
//!
//! A claim is recorded before the hardware changes, so a crash leaves no instance without an owner. The record is a
//! claim of what Octavo created, never of what exists: every decision compares it with the inventory.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::catalog::Placement;
use octavo_model::claim::{ClaimKey, ClaimUid};
use octavo_model::holder::{Holder, HolderDetails, merge_holders};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    Condition, Device, GpuInstance, Inventory, MigMode, MigState, NvmlState,
};
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{DeviceTarget, InstanceTarget, MigTarget, Targets, current_target};
use octavo_planner::plan::{is_in_use, messages};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};
use thiserror::Error;

use crate::device::{DeviceName, DraDevice, DraDeviceKind, by_name, devices};

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
}

/// What happens to an instance that Octavo created for a claim, when the claim ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Display, EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum ReleasePolicy {
    /// It is destroyed as soon as it is idle.
    #[default]
    Destroy,
    /// It stays for the next claim of the same device, and is destroyed when another claim needs its slices.
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
    /// Whether the devices were verified once.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreparedDevice {
    /// Requests that the device satisfies.
    pub requests: BTreeSet<String>,
    /// The device.
    pub device: DraDevice,
    /// Whether Octavo created the instance, and destroys it after the claim.
    pub created: bool,
}

/// The node at the time of a decision.
#[derive(Debug, Clone, Copy)]
pub struct NodeState<'a> {
    /// The hardware.
    pub inventory: &'a Inventory,
    /// Users of the devices, in addition to the processes in the inventory.
    pub holders: &'a [Holder],
    /// Reason why not all holders are known.
    pub holders_unknown: Option<&'a str>,
    /// GPUs that the layout of the node covers.
    pub covered: &'a BTreeSet<PciAddress>,
    /// Pool of this node.
    pub pool: &'a str,
}

/// A claim that can be prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preparation {
    /// The claim to record, in state [`ClaimState::Preparing`] unless it was prepared before.
    pub claim: PreparedClaim,
    /// Instances to create.
    pub create: BTreeSet<DraDevice>,
}

/// Reason why a claim cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PrepareError {
    /// The claim has no device of this driver.
    #[error("the claim is not allocated a device of this driver")]
    NotAllocated,
    /// The device is in the pool of another node.
    #[error("device {device} is in pool {pool}; this node's pool is {own}")]
    OtherPool {
        /// The device.
        device: String,
        /// Its pool.
        pool: String,
        /// The pool of this node.
        own: String,
    },
    /// The driver does not respond.
    #[error("NVML is not ready on this node, so the state of {device} is unknown")]
    DriverNotReady {
        /// The device.
        device: String,
    },
    /// The node has no such device.
    #[error(
        "this node has no device {device}: the GPU is missing, its MIG mode was changed, or it has other profiles"
    )]
    UnknownDevice {
        /// The device.
        device: String,
    },
    /// The layout of the node covers the GPU.
    #[error("the layout of this node covers the GPU of {device}, so claims cannot use it")]
    Covered {
        /// The device.
        device: String,
    },
    /// The state of the GPU cannot be read.
    #[error("the state of the GPU of {device} cannot be read")]
    Unreadable {
        /// The device.
        device: String,
    },
    /// Another claim has the device, or one that shares hardware with it.
    #[error(
        "{device} shares hardware with {other}, which is prepared for claim {namespace}/{name}"
    )]
    Claimed {
        /// The device.
        device: String,
        /// The device of the other claim.
        other: String,
        /// Namespace of the other claim.
        namespace: String,
        /// Name of the other claim.
        name: String,
        /// UID of the other claim.
        uid: ClaimUid,
    },
    /// An instance that Octavo did not create for a claim takes the slices.
    #[error(
        "{device} needs slices of {profile} at slice {start}, which was created outside of claims; destroy that \
         instance, or select a layout for the GPU"
    )]
    Occupied {
        /// The device.
        device: String,
        /// Profile of the instance.
        profile: String,
        /// Its first slice.
        start: u32,
    },
    /// The instance is split into several compute instances, or has an unknown split.
    #[error("the instance of {device} is split into several compute instances")]
    Split {
        /// The device.
        device: String,
    },
    /// A process or pod outside of claims uses the device.
    #[error("{device} is used outside of claims by {holders}")]
    InUse {
        /// The device.
        device: String,
        /// The users.
        holders: String,
    },
    /// The users of the device are unknown.
    #[error("it is unknown whether {device} is in use: {reason}")]
    UsageUnknown {
        /// The device.
        device: String,
        /// The cause.
        reason: String,
    },
}

impl PreparedDevice {
    /// Returns whether the device cannot be taken from the claim. An instance that is still being created can.
    fn is_held(&self, state: ClaimState) -> bool {
        state == ClaimState::Prepared || !self.created
    }
}

impl PreparedClaims {
    /// Decides how to prepare a claim. The record does not change.
    ///
    /// A claim that was prepared before is not refused because of its users: they are its own.
    pub fn prepare(
        &self,
        claim: &AllocatedClaim,
        node: NodeState<'_>,
    ) -> Result<Preparation, PrepareError> {
        if claim.devices.is_empty() {
            return Err(PrepareError::NotAllocated);
        }
        let before = self.claims.get(&claim.key.uid);
        let known = by_name(devices(node.inventory, &BTreeSet::new()));
        let recorded = before.into_iter().flat_map(|before| &before.devices);
        let recorded: BTreeMap<_, _> = recorded.map(|one| (one.device.name(), one)).collect();
        let mut prepared: BTreeMap<DraDevice, PreparedDevice> = BTreeMap::new();
        let mut create = BTreeSet::new();
        for allocated in &claim.devices {
            let name = || allocated.device.clone();
            if allocated.pool != node.pool {
                let (pool, own) = (allocated.pool.clone(), node.pool.to_owned());
                return Err(PrepareError::OtherPool { device: name(), pool, own });
            }
            if !matches!(node.inventory.nvml, NvmlState::Ready(_)) {
                return Err(PrepareError::DriverNotReady { device: name() });
            }
            let unknown = || PrepareError::UnknownDevice { device: name() };
            let key = allocated.device.parse().map_err(|_not_a_name| unknown())?;
            let own = recorded.get(&key).copied();
            let device = known.get(&key).ok_or_else(unknown)?;
            if let Some(known) = prepared.get_mut(device) {
                known.requests.insert(allocated.request.clone());
                continue;
            }
            self.check_other_claims(&claim.key.uid, device)?;
            let created = match self.found(device, own, node)? {
                Found::Instance { created } => created,
                Found::Free => {
                    create.insert(device.clone());
                    true
                }
            };
            let requests = BTreeSet::from([allocated.request.clone()]);
            let one = PreparedDevice { requests, device: device.clone(), created };
            prepared.insert(device.clone(), one);
        }
        let ClaimKey { namespace, name, .. } = &claim.key;
        let is_complete = create.is_empty() && before.is_some();
        let state = before.map_or(ClaimState::Preparing, |before| before.state);
        let claim = PreparedClaim {
            namespace: namespace.clone(),
            name: name.clone(),
            // After a reboot the instances of a prepared claim are created again, and may be rolled back.
            state: if is_complete { state } else { ClaimState::Preparing },
            devices: prepared.into_values().collect(),
        };
        Ok(Preparation { claim, create })
    }

    /// Refuses a device that shares hardware with the device of another claim.
    fn check_other_claims(&self, uid: &ClaimUid, device: &DraDevice) -> Result<(), PrepareError> {
        let others = self.claims.iter().filter(|(other, _)| *other != uid);
        for (other, claim) in others {
            let mut devices = claim.devices.iter().map(|one| &one.device);
            if let Some(shared) = devices.find(|one| shares_hardware(one, device)) {
                return Err(PrepareError::Claimed {
                    device: device.name().to_string(),
                    other: shared.name().to_string(),
                    namespace: claim.namespace.clone(),
                    name: claim.name.clone(),
                    uid: other.clone(),
                });
            }
        }
        Ok(())
    }

    /// Compares a device with the hardware. `own` is its record in the claim that is prepared.
    fn found(
        &self,
        device: &DraDevice,
        own: Option<&PreparedDevice>,
        node: NodeState<'_>,
    ) -> Result<Found, PrepareError> {
        let name = || device.name().to_string();
        if own.is_none() && node.covered.contains(&device.pci) {
            return Err(PrepareError::Covered { device: name() });
        }
        let unreadable = || PrepareError::Unreadable { device: name() };
        let gpu = node.inventory.device(device.pci).ok_or_else(unreadable)?;
        if gpu.condition != Condition::Working || !gpu.mig.is_fully_known() {
            return Err(unreadable());
        }
        let DraDeviceKind::Partition { profile_id, placement, .. } = &device.what else {
            if own.is_none() {
                check_idle(device, node, || gpu_users(gpu, node.holders))?;
            }
            return Ok(Found::Instance { created: false });
        };
        let state = gpu.mig.state().filter(|_| is_readable(gpu)).ok_or_else(unreadable)?;
        let identical = (*profile_id, *placement);
        if let Some(instance) = state.gpu_instances.iter().find(|one| identity(one) == identical)
            && !instance.compute_instances.is_empty()
        {
            if !is_whole(state, instance) {
                return Err(PrepareError::Split { device: name() });
            }
            if let Some(own) = own {
                return Ok(Found::Instance { created: own.created });
            }
            let in_use = is_in_use(gpu, node.holders, instance);
            let part = Some(instance.id);
            check_idle(device, node, || in_use.then(|| users(gpu, part, node.holders)))?;
            return Ok(Found::Instance { created: self.released.contains(device) });
        }
        let others = state.gpu_instances.iter().filter(|one| {
            let overlaps = overlap(one.placement, *placement) && identity(one) != identical;
            // An instance without a compute instance is the rest of an interrupted change.
            overlaps && !one.compute_instances.is_empty() && !self.is_released(device.pci, one)
        });
        if let Some(other) = others.min_by_key(|one| one.placement) {
            let profile = state.catalog.by_id(other.profile_id);
            return Err(PrepareError::Occupied {
                device: name(),
                profile: profile
                    .map_or_else(|| "an instance".to_owned(), |one| one.name.to_string()),
                start: other.placement.start,
            });
        }
        if node.covered.contains(&device.pci) {
            return Err(PrepareError::Covered { device: name() });
        }
        Ok(Found::Free)
    }

    /// Marks a claim as prepared. Returns whether the record changed.
    pub fn mark_prepared(&mut self, uid: &ClaimUid) -> bool {
        let claim = self.claims.get_mut(uid);
        let changed = claim.filter(|claim| claim.state != ClaimState::Prepared);
        changed.map(|claim| claim.state = ClaimState::Prepared).is_some()
    }

    /// Records a claim. Its devices are no longer released.
    pub fn record(&mut self, uid: &ClaimUid, claim: PreparedClaim) {
        self.released.retain(|released| claim.devices.iter().all(|one| one.device != *released));
        self.claims.insert(uid.clone(), claim);
    }

    /// Removes a claim, and releases the instances that Octavo created for it. `None` for an unknown claim.
    pub fn release(&mut self, uid: &ClaimUid) -> Option<PreparedClaim> {
        let claim = self.claims.remove(uid)?;
        let created = claim.devices.iter().filter(|one| one.created);
        self.released.extend(created.map(|one| one.device.clone()));
        Some(claim)
    }

    /// Forgets released instances that no longer exist. Returns whether there were any. Nothing is forgotten of a GPU
    /// whose state cannot be read.
    pub fn forget_absent(&mut self, inventory: &Inventory) -> bool {
        let before = self.released.len();
        self.released.retain(|released| {
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
            let rule = SourcePosition::default();
            Some(DeviceTarget { pci: device.pci, rule, mig: Some(mig), time_slicing: None })
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
        let MigTarget::Enabled(mut instances) = current_target(state)? else {
            return None;
        };
        let mut wanted = Vec::new();
        for one in create.iter().filter(|one| one.pci == device.pci) {
            let DraDeviceKind::Partition { profile_id, placement, .. } = &one.what else {
                continue;
            };
            let profile = state.catalog.by_id(*profile_id)?;
            wanted.push(InstanceTarget {
                profile_id: *profile_id,
                compute: vec![profile.resources.gpu_slices],
                placement: Some(*placement),
            });
        }
        wanted.retain(|one| !instances.contains(one));
        let is_needed = |one: &GpuInstance| {
            let mut placements = wanted.iter().filter_map(|wanted| wanted.placement);
            placements.any(|wanted| overlap(wanted, one.placement))
        };
        let is_idle = |one: &GpuInstance| !is_in_use(device, &[], one);
        let dropped = state.gpu_instances.iter().filter(|one| {
            let now = match policy {
                _ if !wanted.is_empty() => is_needed(one),
                ReleasePolicy::Destroy => is_idle(one),
                ReleasePolicy::Keep => false,
            };
            now && self.is_released(device.pci, one)
        });
        let dropped: BTreeSet<Placement> = dropped.map(|one| one.placement).collect();
        if wanted.is_empty() && dropped.is_empty() {
            return None;
        }
        instances.retain(|one| one.placement.is_none_or(|place| !dropped.contains(&place)));
        instances.extend(wanted);
        instances.sort();
        Some(MigTarget::Enabled(instances))
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

    /// Returns the devices of claims, and those whose instances Octavo created for claims that ended. Instances of other
    /// devices were created outside of claims.
    pub fn device_names(&self) -> BTreeSet<DeviceName> {
        let claims = self.claims.values().flat_map(|claim| &claim.devices);
        claims
            .map(|one| one.device.name())
            .chain(self.released.iter().map(DraDevice::name))
            .collect()
    }

    fn is_released(&self, pci: PciAddress, instance: &GpuInstance) -> bool {
        self.released.iter().any(|released| is_instance(released, pci, instance))
    }
}

/// State of the hardware of a device.
enum Found {
    /// The device exists and can be used.
    Instance { created: bool },
    /// The instance can be created.
    Free,
}

/// Returns whether two devices cannot be used at the same time by different claims.
fn shares_hardware(one: &DraDevice, other: &DraDevice) -> bool {
    let overlaps = match (&one.what, &other.what) {
        (
            DraDeviceKind::Partition { placement, .. },
            DraDeviceKind::Partition { placement: other, .. },
        ) => overlap(*placement, *other),
        (DraDeviceKind::Gpu, _) | (_, DraDeviceKind::Gpu) => true,
    };
    one.pci == other.pci && overlaps
}

fn overlap(one: Placement, other: Placement) -> bool {
    one.start < other.end() && other.start < one.end()
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

/// Returns whether the instance has one compute instance with all slices.
fn is_whole(state: &MigState, instance: &GpuInstance) -> bool {
    let profile = state.catalog.by_id(instance.profile_id);
    let Some(MigTarget::Enabled(all)) = current_target(state) else {
        return false;
    };
    let target = all.into_iter().find(|one| one.placement == Some(instance.placement));
    target
        .zip(profile)
        .is_some_and(|(target, profile)| target.compute == [profile.resources.gpu_slices])
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

/// Refuses a device that is not idle, or may not be.
fn check_idle(
    device: &DraDevice,
    node: NodeState<'_>,
    users: impl FnOnce() -> Option<String>,
) -> Result<(), PrepareError> {
    let name = || device.name().to_string();
    if let Some(holders) = users() {
        return Err(PrepareError::InUse { device: name(), holders });
    }
    node.holders_unknown.map_or(Ok(()), |reason| {
        Err(PrepareError::UsageUnknown { device: name(), reason: reason.to_owned() })
    })
}

/// Returns the users of a whole GPU. A monitor that only has the device file open is none.
fn gpu_users(gpu: &Device, holders: &[Holder]) -> Option<String> {
    let of_gpu = holders.iter().filter(|holder| holder.device == gpu.pci);
    let mut uses =
        of_gpu.filter(|holder| holder.details.kind.is_some() || holder.is_kubelet_allocation());
    let is_used = uses.next().is_some() || !gpu.processes.is_empty();
    is_used.then(|| users(gpu, None, holders))
}

/// Lists the users of a GPU, or of one of its instances: `pod team/train; pid 4711, compute`.
fn users(gpu: &Device, instance: Option<u32>, holders: &[Holder]) -> String {
    let processes = gpu.processes.iter().map(|process| Holder::from_process(gpu, process));
    let holders = holders.iter().filter(|holder| holder.device == gpu.pci).cloned();
    let mut all = merge_holders(processes.collect(), holders.collect());
    let concerns = |one: Option<u32>| instance.is_none() || one.is_none() || one == instance;
    all.retain(|holder| concerns(holder.gpu_instance));
    all.dedup();
    if all.is_empty() { "an unknown process".to_owned() } else { messages::holders(&all) }
}

/// Returns the holders of the parts of `gpu` that `device` of `claim` consists of.
fn holders_of(claim: &PreparedClaim, device: &DraDevice, gpu: &Device) -> Vec<Holder> {
    let holder = |gpu_instance: Option<u32>| Holder {
        device: gpu.pci,
        gpu_instance,
        compute_instance: None,
        details: HolderDetails {
            // Not a pod: a drain cannot evict the claim.
            command: Some(format!("resource claim {}/{}", claim.namespace, claim.name)),
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
