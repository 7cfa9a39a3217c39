//! MIG: mode, GPU instances and compute instances, with the rules of the driver.
//!
//! The rules were read from the MIG User Guide, `nvml.h` and the open kernel modules: see [`super::capacity`] for what
//! fits. Destroying goes from the inside out, and nothing in use is destroyed.

use serde::{Deserialize, Serialize};

use super::capacity;
use super::code::Code;
use super::event::EventKind;
use super::gpu::{Gpu, MigState};
use super::instance::{ComputeInstance, Departed, GpuInstance, MigDevice};
use super::profile::{
    CI_PROFILE_COUNT, CiProfile, Engines, GI_PROFILE_COUNT, GiProfile, Placement,
};
use super::world::{Slot, World};

/// How many destroyed MIG devices a GPU remembers.
const DEPARTED_KEPT: usize = 16;

/// The driver branch that gave MIG devices UUIDs of their own.
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
    /// `nvmlDeviceGetGpuInstanceProfileInfo`: by enum index. `NOT_SUPPORTED` for a profile the board lacks,
    /// `INVALID_ARGUMENT` past the last. Answers with MIG off, too.
    pub fn gi_profile(&self, index: u32) -> Result<&GiProfile, Code> {
        self.present()?;
        self.mig()?;
        if index >= GI_PROFILE_COUNT {
            return Err(Code::InvalidArgument);
        }
        let found = self.profiles.iter().find(|profile| profile.index == index);
        found.ok_or(Code::NotSupported)
    }

    /// The profile with that id (not index); `INVALID_ARGUMENT` when the board has none.
    pub fn gi_profile_by_id(&self, id: u32) -> Result<&GiProfile, Code> {
        self.present()?;
        self.mig()?;
        let found = self.profiles.iter().find(|profile| profile.id == id);
        found.ok_or(Code::InvalidArgument)
    }

    /// `nvmlDeviceGetGpuInstancePossiblePlacements`: static, whatever is taken and whether MIG is on.
    pub fn possible_placements(&self, profile_id: u32) -> Result<&[Placement], Code> {
        Ok(&self.gi_profile_by_id(profile_id)?.placements)
    }

    /// `nvmlDeviceGetGpuInstanceRemainingCapacity`: how many more of the profile can be made now.
    pub fn remaining_capacity(&self, profile_id: u32) -> Result<u32, Code> {
        let profile = self.gi_profile_by_id(profile_id)?;
        let mig = self.mig_enabled()?;
        Ok(capacity::remaining(&mig.instances, &self.profiles, profile))
    }

    /// `nvmlDeviceGetGpuInstances`: the instances of a profile.
    pub fn gpu_instances(&self, profile_id: u32) -> Result<Vec<&GpuInstance>, Code> {
        self.gi_profile_by_id(profile_id)?;
        let instances = &self.mig_enabled()?.instances;
        Ok(instances.iter().filter(|gi| gi.profile_id == profile_id).collect())
    }

    /// The profile a GPU instance was made from.
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

    /// The MIG state of a GPU whose MIG mode is on; `NOT_SUPPORTED` while it is off.
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
    /// `nvmlDeviceSetMigMode`. `Ok` is the activation status; the call itself has then succeeded.
    ///
    /// Idle GPUs change at once (Ampere by the reset that is part of the call). With a client on it, or with instances
    /// left when MIG goes off, the change stays pending until the GPU is reset, and the status is `IN_USE`.
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

    /// `nvmlDeviceSetMigMode` where activation does not come about: the change waits for a reset. A status of SUCCESS says
    /// that all is well, and not even that was noted.
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

    /// `nvmlDeviceCreateGpuInstance` and `...WithPlacement`: makes a GPU instance and answers its id.
    ///
    /// `INVALID_ARGUMENT` for a profile the board lacks or a placement that is not listed for it, `NOT_SUPPORTED` without
    /// MIG or with the mode off, `INSUFFICIENT_RESOURCES` when it does not fit or the placement is taken.
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

    /// `nvmlGpuInstanceCreateComputeInstance` and `...WithPlacement`: makes a compute instance, and with it a MIG device
    /// with a UUID of its own; answers its id. Without a placement the first free one is taken.
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
        let departed = Departed { gi, ci, ci_serial: gone.serial, uuid: gone.uuid.clone() };
        if self.ci_in_use(slot, gi, ci) {
            return Err(Code::InUse);
        }
        let gpu = self.gpu_mut(slot)?;
        gpu.gi_mut(gi)?.compute.retain(|other| other.id != ci);
        let remembered = &mut gpu.mig_mut()?.departed;
        remembered.push(departed);
        let surplus = remembered.len().saturating_sub(DEPARTED_KEPT);
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

/// What `nvmlDeviceSetMigMode` is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigMode {
    /// One whole GPU.
    Disabled,
    /// Divided.
    Enabled,
}

fn ci_free(gi: &GpuInstance, placement: Placement) -> bool {
    !gi.compute.iter().any(|ci| ci.placement.overlaps(placement))
}
