//! MIG: mode, GPU instances and compute instances, with the rules of the driver.
//!
//! Sources of the rules: the MIG User Guide, `nvml.h` and the open kernel modules; [`super::capacity`] has the rules of
//! capacity. Instances are destroyed from the inside out, and never while in use.

use serde::{Deserialize, Serialize};

use super::capacity;
use super::code::Code;
use super::event::EventKind;
use super::gpu::{Gpu, MigState};
use super::instance::{ComputeInstance, DestroyedMigDevice, GpuInstance, MigDevice};
use super::profile::{
    CI_PROFILE_COUNT, CiProfile, Engines, GI_PROFILE_COUNT, GiProfile, Placement,
};
use super::world::{Slot, World};

/// Number of destroyed MIG devices stored per GPU.
const MAX_DESTROYED: usize = 16;

/// The first driver branch whose MIG devices have their own UUIDs.
const FIRST_BRANCH_WITH_MIG_UUIDS: u32 = 470;

/// `nvmlDeviceAttributes_t` of a MIG device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Multiprocessors of the compute instance.
    pub multiprocessors: u32,
    /// Engines, shared with the other compute instances of the GPU instance.
    pub engines: Engines,
    /// GPU slices of the GPU instance.
    pub gi_slices: u32,
    /// Compute slices of the compute instance.
    pub ci_slices: u32,
    /// Memory of the GPU instance, MiB.
    pub memory_mib: u64,
}

impl Gpu {
    /// `nvmlDeviceGetGpuInstanceProfileInfo`: by enum index. `NOT_SUPPORTED` for a profile that the board lacks,
    /// `INVALID_ARGUMENT` beyond the last. Works with MIG disabled, too.
    pub fn gi_profile(&self, index: u32) -> Result<&GiProfile, Code> {
        self.present()?;
        self.mig()?;
        if index >= GI_PROFILE_COUNT {
            return Err(Code::InvalidArgument);
        }
        let found = self.profiles.iter().find(|profile| profile.index == index);
        found.ok_or(Code::NotSupported)
    }

    /// The profile with that id (not index); `INVALID_ARGUMENT` if the board has none.
    pub fn gi_profile_by_id(&self, id: u32) -> Result<&GiProfile, Code> {
        self.present()?;
        self.mig()?;
        let found = self.profiles.iter().find(|profile| profile.id == id);
        found.ok_or(Code::InvalidArgument)
    }

    /// `nvmlDeviceGetGpuInstancePossiblePlacements`: static, independent of instances and mode.
    pub fn possible_placements(&self, profile_id: u32) -> Result<&[Placement], Code> {
        Ok(&self.gi_profile_by_id(profile_id)?.placements)
    }

    /// `nvmlDeviceGetGpuInstanceRemainingCapacity`: number of further instances of the profile.
    pub fn remaining_capacity(&self, profile_id: u32) -> Result<u32, Code> {
        let profile = self.gi_profile_by_id(profile_id)?;
        let mig = self.mig_enabled()?;
        Ok(capacity::remaining(&mig.instances, &self.profiles, profile))
    }

    /// `nvmlDeviceGetGpuInstances`: the instances of a profile.
    pub fn gpu_instances(&self, profile_id: u32) -> Result<Vec<&GpuInstance>, Code> {
        self.gi_profile_by_id(profile_id)?;
        let instances = &self.mig()?.instances;
        Ok(instances.iter().filter(|gi| gi.profile_id == profile_id).collect())
    }

    /// The profile of a GPU instance.
    pub fn profile_of(&self, gi: &GpuInstance) -> Result<&GiProfile, Code> {
        self.gi_profile_by_id(gi.profile_id).map_err(|_| Code::Unknown)
    }

    /// `nvmlGpuInstanceGetComputeInstanceProfileInfo`: by enum index, with the same two errors as for GPU instances.
    pub fn ci_profile(&self, gi: &GpuInstance, index: u32) -> Result<&CiProfile, Code> {
        if index >= CI_PROFILE_COUNT {
            return Err(Code::InvalidArgument);
        }
        let profile = self.profile_of(gi)?;
        profile.compute_profile(index).ok_or(Code::NotSupported)
    }

    /// `nvmlGpuInstanceGetComputeInstancePossiblePlacements`: static.
    pub fn ci_placements(&self, gi: &GpuInstance, profile_id: u32) -> Result<Vec<Placement>, Code> {
        let (parent, profile) = self.ci_profile_by_id(gi, profile_id)?;
        Ok(profile.placements(parent.slices))
    }

    /// `nvmlGpuInstanceGetComputeInstanceRemainingCapacity`.
    pub fn ci_remaining_capacity(&self, gi: &GpuInstance, profile_id: u32) -> Result<u32, Code> {
        let placements = self.ci_placements(gi, profile_id)?;
        let free = placements.iter().filter(|place| ci_free(gi, **place));
        u32::try_from(free.count()).map_err(|_| Code::Unknown)
    }

    /// `nvmlDeviceGetAttributes_v2` of a MIG device.
    pub fn attributes(&self, device: MigDevice<'_>) -> Result<Attributes, Code> {
        let gi = self.profile_of(device.gi)?;
        let ci = gi.compute_profile(device.ci.profile_id).ok_or(Code::Unknown)?;
        Ok(Attributes {
            multiprocessors: ci.multiprocessors,
            engines: gi.engines,
            gi_slices: gi.slices,
            ci_slices: ci.slices,
            memory_mib: gi.memory_mib,
        })
    }

    /// The MIG state of a GPU in MIG mode; `NOT_SUPPORTED` while it is disabled.
    pub fn mig_enabled(&self) -> Result<&MigState, Code> {
        self.present()?;
        let mig = self.mig()?;
        mig.current.then_some(mig).ok_or(Code::NotSupported)
    }

    fn ci_profile_by_id(
        &self,
        gi: &GpuInstance,
        id: u32,
    ) -> Result<(&GiProfile, &CiProfile), Code> {
        let parent = self.profile_of(gi)?;
        let profile = parent.compute_profile(id).ok_or(Code::InvalidArgument)?;
        Ok((parent, profile))
    }

    fn mig_mut(&mut self) -> Result<&mut MigState, Code> {
        self.mig.as_mut().ok_or(Code::NotSupported)
    }

    fn gi_mut(&mut self, id: u32) -> Result<&mut GpuInstance, Code> {
        self.mig_mut()?.instances.iter_mut().find(|gi| gi.id == id).ok_or(Code::NotFound)
    }
}

impl World {
    /// `nvmlDeviceSetMigMode`. `Ok` is the activation status; the call itself succeeded.
    ///
    /// Idle GPUs change immediately (Ampere by the reset that is part of the call). With a client, or with remaining
    /// instances when MIG is disabled, the change stays pending until the GPU is reset, and the status is `IN_USE`.
    pub fn set_mig_mode(&mut self, slot: Slot, mode: MigMode) -> Result<Code, Code> {
        let gpu = self.gpu(slot)?;
        gpu.present()?;
        let mig = gpu.mig()?;
        let wanted = mode == MigMode::Enabled;
        let busy = self.gpu_in_use(slot) || !mig.instances.is_empty();
        let change = mig.current != wanted;
        let mig = self.gpu_mut(slot)?.mig_mut()?;
        mig.pending = wanted;
        if !change {
            return Ok(Code::Success);
        }
        if busy {
            return Ok(Code::InUse);
        }
        mig.current = wanted;
        self.record(slot, EventKind::MigConfigChange, 0, None);
        Ok(Code::Success)
    }

    /// `nvmlDeviceSetMigMode` without activation: the change waits for a reset. With status SUCCESS the change is not
    /// even pending.
    pub fn defer_mig_mode(
        &mut self,
        slot: Slot,
        mode: MigMode,
        status: Code,
    ) -> Result<Code, Code> {
        let gpu = self.gpu_mut(slot)?;
        gpu.present()?;
        let mig = gpu.mig_mut()?;
        if status != Code::Success {
            mig.pending = mode == MigMode::Enabled;
        }
        Ok(status)
    }

    /// `nvmlDeviceCreateGpuInstance` and `...WithPlacement`: creates a GPU instance and returns its id.
    ///
    /// `INVALID_ARGUMENT` for a profile that the board lacks or a placement that is not listed for it, `NOT_SUPPORTED`
    /// without MIG or with MIG disabled, `INSUFFICIENT_RESOURCES` if it does not fit or the placement is taken.
    pub fn create_gi(
        &mut self,
        slot: Slot,
        profile_id: u32,
        placement: Option<Placement>,
    ) -> Result<u32, Code> {
        let gpu = self.gpu(slot)?;
        let mig = gpu.mig_enabled()?;
        let profile = gpu.gi_profile_by_id(profile_id)?;
        let units = gpu.memory_slices();
        let candidates = match placement {
            Some(wanted) if profile.placements.contains(&wanted) => vec![wanted],
            Some(_) => return Err(Code::InvalidArgument),
            None => capacity::filling_order(&profile.placements, units),
        };
        let placement = candidates
            .into_iter()
            .find(|place| capacity::fits(&mig.instances, &gpu.profiles, profile, *place))
            .ok_or(Code::InsufficientResources)?;
        let id = capacity::instance_id(placement, units);
        let mig = self.gpu_mut(slot)?.mig_mut()?;
        mig.made = mig.made.saturating_add(1);
        mig.instances.push(GpuInstance {
            id,
            serial: mig.made,
            profile_id,
            placement,
            compute: Vec::new(),
        });
        mig.instances.sort_by_key(|gi| gi.id);
        self.record(slot, EventKind::MigConfigChange, 0, Some((id, None)));
        Ok(id)
    }

    /// `nvmlGpuInstanceDestroy`. `IN_USE` while it has compute instances or holders.
    pub fn destroy_gi(&mut self, slot: Slot, gi: u32) -> Result<(), Code> {
        let gpu = self.gpu(slot)?;
        gpu.present()?;
        let instance = gpu.gi(gi).ok_or(Code::NotFound)?;
        let used = !instance.compute.is_empty() || self.gi_in_use(slot, gi);
        if used {
            return Err(Code::InUse);
        }
        let mig = self.gpu_mut(slot)?.mig_mut()?;
        mig.instances.retain(|other| other.id != gi);
        self.record(slot, EventKind::MigConfigChange, 0, Some((gi, None)));
        Ok(())
    }

    /// `nvmlGpuInstanceCreateComputeInstance` and `...WithPlacement`: creates a compute instance, and with it a MIG
    /// device with its own UUID; returns its id. The default is the first free placement.
    pub fn create_ci(
        &mut self,
        slot: Slot,
        gi: u32,
        profile_id: u32,
        placement: Option<Placement>,
    ) -> Result<u32, Code> {
        let gpu = self.gpu(slot)?;
        gpu.mig_enabled()?;
        let instance = gpu.gi(gi).ok_or(Code::NotFound)?;
        let listed = gpu.ci_placements(instance, profile_id)?;
        let candidates = match placement {
            Some(wanted) if listed.contains(&wanted) => vec![wanted],
            Some(_) => return Err(Code::InvalidArgument),
            None => listed,
        };
        let placement = candidates
            .into_iter()
            .find(|place| ci_free(instance, *place))
            .ok_or(Code::InsufficientResources)?;
        let id = (0..=u32::MAX)
            .find(|id| instance.compute.iter().all(|ci| ci.id != *id))
            .ok_or(Code::Unknown)?;
        let uuid = self.mig_uuid(slot, gi, id)?;
        let gpu = self.gpu_mut(slot)?;
        let mig = gpu.mig_mut()?;
        mig.made = mig.made.saturating_add(1);
        let serial = mig.made;
        let instance = gpu.gi_mut(gi)?;
        instance.compute.push(ComputeInstance { id, serial, profile_id, placement, uuid });
        instance.compute.sort_by_key(|ci| ci.id);
        self.record(slot, EventKind::MigConfigChange, 0, Some((gi, Some(id))));
        Ok(id)
    }

    /// `nvmlComputeInstanceDestroy`. `IN_USE` while a process holds it.
    pub fn destroy_ci(&mut self, slot: Slot, gi: u32, ci: u32) -> Result<(), Code> {
        let gpu = self.gpu(slot)?;
        gpu.present()?;
        let found =
            gpu.gi(gi).and_then(|instance| instance.compute.iter().find(|other| other.id == ci));
        let gone = found.ok_or(Code::NotFound)?;
        let destroyed =
            DestroyedMigDevice { gi, ci, ci_serial: gone.serial, uuid: gone.uuid.clone() };
        if self.ci_in_use(slot, gi, ci) {
            return Err(Code::InUse);
        }
        let gpu = self.gpu_mut(slot)?;
        gpu.gi_mut(gi)?.compute.retain(|other| other.id != ci);
        let remembered = &mut gpu.mig_mut()?.destroyed;
        remembered.push(destroyed);
        let surplus = remembered.len().saturating_sub(MAX_DESTROYED);
        remembered.drain(..surplus);
        self.record(slot, EventKind::MigConfigChange, 0, Some((gi, Some(ci))));
        Ok(())
    }

    fn mig_uuid(&mut self, slot: Slot, gi: u32, ci: u32) -> Result<String, Code> {
        if self.driver.branch() < FIRST_BRANCH_WITH_MIG_UUIDS {
            return Ok(format!("MIG-{}/{gi}/{ci}", self.gpu(slot)?.uuid));
        }
        Ok(format!("MIG-{}", self.fresh_uuid()))
    }
}

/// Requested mode of `nvmlDeviceSetMigMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigMode {
    /// Whole GPU.
    Disabled,
    /// Partitioned.
    Enabled,
}

fn ci_free(gi: &GpuInstance, placement: Placement) -> bool {
    !gi.compute.iter().any(|ci| ci.placement.overlaps(placement))
}
