//! Preparation of a claim: which of its devices exist, which are created, and which are refused.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::catalog::Placement;
use octavo_model::claim::{ClaimKey, ClaimUid};
use octavo_model::holder::{Holder, merge_holders};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, Device, GpuInstance, Inventory, MigState, NvmlState};
use octavo_planner::plan::{feasible, is_in_use, messages};
use thiserror::Error;

use super::{
    AllocatedClaim, ClaimState, PreparedClaim, PreparedClaims, PreparedDevice, identity,
    instance_target, is_readable, overlap,
};
use crate::device::{DraDevice, DraDeviceKind, by_name, devices};
use crate::occupancy::is_whole;

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
    /// An idle instance that Octavo did not create for a claim takes the slices or engines.
    #[error(
        "{device} cannot exist beside {profile} at slice {start}, which was created outside of claims; destroy that \
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
    /// An instance in use takes the slices or engines, and no claim has it.
    #[error(
        "{device} cannot exist beside {profile} at slice {start}, which is used by {holders}; end that use"
    )]
    Excluded {
        /// The device.
        device: String,
        /// Profile of the instance.
        profile: String,
        /// Its first slice.
        start: u32,
        /// The users.
        holders: String,
    },
    /// Administrative access to a partition that does not exist.
    #[error(
        "partition {device} does not exist, and administrative access creates none; select devices that exist"
    )]
    Absent {
        /// The device.
        device: String,
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

impl PreparedClaims {
    /// Decides how to prepare a claim. The record does not change.
    ///
    /// A claim that was prepared before is not refused because of its users: they are its own. Nor are the pods that the
    /// kubelet lists for a claim, if its record was lost.
    pub fn prepare(
        &self,
        claim: &AllocatedClaim,
        node: NodeState<'_>,
    ) -> Result<Preparation, PrepareError> {
        if claim.devices.is_empty() {
            return Err(PrepareError::NotAllocated);
        }
        let own = Some(claim.key.reference());
        let others = node.holders.iter().filter(|holder| holder.details.claim != own);
        let others: Vec<Holder> = others.cloned().collect();
        let node = NodeState { holders: &others, ..node };
        let uid = &claim.key.uid;
        let before = self.claims.get(uid);
        let known = by_name(devices(node.inventory, &BTreeSet::new()));
        let mut prepared: BTreeMap<DeviceUse<'_>, PreparedDevice> = BTreeMap::new();
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
            let device = known.get(&key).ok_or_else(unknown)?;
            let access = (device.clone(), allocated.share.as_deref(), allocated.is_admin);
            if let Some(known) = prepared.get_mut(&access) {
                known.requests.insert(allocated.request.clone());
                continue;
            }
            let mut one = PreparedDevice {
                requests: BTreeSet::from([allocated.request.clone()]),
                device: device.clone(),
                created: false,
                share: allocated.share.clone(),
                is_admin: allocated.is_admin,
            };
            self.check_other_claims(uid, &one, node.inventory.device(device.pci))?;
            let is_prepared = before.is_some_and(|one| one.state == ClaimState::Prepared);
            if !is_prepared && node.covered.contains(&device.pci) {
                return Err(PrepareError::Covered { device: name() });
            }
            one.created = match self.found(&one, self.recorded(uid, &one), node)? {
                Found::Instance { created } => created,
                Found::Free => {
                    create.insert(device.clone());
                    true
                }
            };
            prepared.insert(access, one);
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

    /// Returns the record of a device in the claim, or else in another claim that shares it.
    fn recorded(&self, uid: &ClaimUid, wanted: &PreparedDevice) -> Option<&PreparedDevice> {
        let access = |one: &PreparedDevice| (one.device.clone(), one.share.clone(), one.is_admin);
        let mut own = self.claims.get(uid).into_iter().flat_map(|claim| &claim.devices);
        let own = own.find(|one| access(one) == access(wanted));
        let mut all = self.claims.values().flat_map(|claim| &claim.devices);
        let is_share = wanted.is_share_of(&wanted.device);
        own.or_else(|| all.find(|one| is_share && one.is_share_of(&wanted.device)))
    }

    /// Refuses a device of `gpu` that shares hardware with the device of another claim, unless both are shares of one
    /// device.
    fn check_other_claims(
        &self,
        uid: &ClaimUid,
        wanted: &PreparedDevice,
        gpu: Option<&Device>,
    ) -> Result<(), PrepareError> {
        let device = &wanted.device;
        let is_share = wanted.is_share_of(device);
        let others = self.claims.iter().filter(|(other, _)| *other != uid && !wanted.is_admin);
        for (other, claim) in others {
            let excludes = |one: &&PreparedDevice| {
                let are_shares = is_share && one.is_share_of(device);
                !one.is_admin && !are_shares && shares_hardware(&one.device, device, gpu)
            };
            if let Some(shared) = claim.devices.iter().find(excludes) {
                return Err(PrepareError::Claimed {
                    device: device.name().to_string(),
                    other: shared.device.name().to_string(),
                    namespace: claim.namespace.clone(),
                    name: claim.name.clone(),
                    uid: other.clone(),
                });
            }
        }
        Ok(())
    }

    /// Compares a device with the hardware. `own` is its record in the claim that is prepared, or in one that shares it.
    fn found(
        &self,
        PreparedDevice { device, is_admin, .. }: &PreparedDevice,
        own: Option<&PreparedDevice>,
        node: NodeState<'_>,
    ) -> Result<Found, PrepareError> {
        let name = || device.name().to_string();
        let unreadable = || PrepareError::Unreadable { device: name() };
        let gpu = node.inventory.device(device.pci).ok_or_else(unreadable)?;
        if gpu.condition != Condition::Working || !gpu.mig.is_fully_known() {
            return Err(unreadable());
        }
        let DraDeviceKind::Partition { profile_id, placement, .. } = &device.what else {
            if own.is_none() && !is_admin {
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
            if *is_admin {
                return Ok(Found::Instance { created: false });
            }
            let in_use = is_in_use(gpu, node.holders, instance);
            let part = Some(instance.id);
            check_idle(device, node, || in_use.then(|| users(gpu, part, node.holders)))?;
            return Ok(Found::Instance { created: self.released.contains(device) });
        }
        if *is_admin {
            return Err(PrepareError::Absent { device: name() });
        }
        let others = state.gpu_instances.iter().filter(|one| {
            // An instance without a compute instance is the rest of an interrupted change. An idle released one yields.
            let yields = one.compute_instances.is_empty()
                || self.is_released(device.pci, one) && !is_in_use(gpu, node.holders, one);
            !yields && identity(one) != identical && excludes(gpu, identity(one), identical)
        });
        if let Some(other) = others.min_by_key(|one| one.placement) {
            return Err(excluded(name(), (gpu, state), other, node.holders));
        }
        if node.covered.contains(&device.pci) {
            return Err(PrepareError::Covered { device: name() });
        }
        Ok(Found::Free)
    }
}

/// A device with the share of it, and whether the access is administrative. A claim can have several of one device.
type DeviceUse<'a> = (DraDevice, Option<&'a str>, bool);

/// State of the hardware of a device.
enum Found {
    /// The device exists and can be used.
    Instance { created: bool },
    /// The instance can be created.
    Free,
}

/// Returns whether two devices cannot be used at the same time by different claims. `gpu` is the GPU of `other`.
fn shares_hardware(one: &DraDevice, other: &DraDevice, gpu: Option<&Device>) -> bool {
    let shares = || match (&one.what, &other.what) {
        (
            DraDeviceKind::Partition { profile_id, placement, .. },
            DraDeviceKind::Partition { profile_id: other_id, placement: other, .. },
        ) => {
            let (one, other) = ((*profile_id, *placement), (*other_id, *other));
            gpu.map_or_else(|| overlap(one.1, other.1), |gpu| excludes(gpu, one, other))
        }
        (DraDeviceKind::Gpu, _) | (_, DraDeviceKind::Gpu) => true,
    };
    one.pci == other.pci && shares()
}

/// Returns whether two different partitions of `gpu` need the same slices or the same engines, such as those of `+me`.
fn excludes(gpu: &Device, one: (u32, Placement), other: (u32, Placement)) -> bool {
    let cannot_coexist = || {
        let catalog = &gpu.mig.state()?.catalog;
        let mut both = vec![instance_target(catalog, one)?, instance_target(catalog, other)?];
        both.sort();
        Some(feasible(gpu, &both).is_err())
    };
    overlap(one.1, other.1) || cannot_coexist().unwrap_or(false)
}

/// Refuses a device because of the existing instance `other`, whose users are named.
fn excluded(
    device: String,
    (gpu, state): (&Device, &MigState),
    other: &GpuInstance,
    holders: &[Holder],
) -> PrepareError {
    let profile = state.catalog.by_id(other.profile_id);
    let profile = profile.map_or_else(|| "an instance".to_owned(), |one| one.name.to_string());
    let start = other.placement.start;
    if is_in_use(gpu, holders, other) {
        let holders = users(gpu, Some(other.id), holders);
        return PrepareError::Excluded { device, profile, start, holders };
    }
    PrepareError::Occupied { device, profile, start }
}

/// Refuses a device that is in use, or whose use is unknown.
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
