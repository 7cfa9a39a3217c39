//! A small board that executes a plan's steps and rejects what no driver would do. It shares no code with the planner.

use std::collections::BTreeMap;

use octavo_model::catalog::Placement;
use octavo_model::inventory::GpuInstance;

use super::super::{DeviceChange, InstanceRef, Step};
use super::boards::{Row, instance};
use super::oracle::State;

/// A GPU instance: profile, placement, slices of each compute instance.
#[derive(Debug, Clone)]
struct ModelInstance {
    profile: u32,
    placement: Placement,
    computes: BTreeMap<u32, u32>,
}

pub(super) struct Model {
    rows: &'static [Row],
    made: BTreeMap<u32, ModelInstance>,
    next: u32,
    /// Placements that it refuses, by profile and start.
    pub(super) defects: Vec<(u32, u32)>,
}

impl Model {
    pub(super) fn new(rows: &'static [Row], there: &[GpuInstance]) -> Self {
        let made = there.iter().map(|one| {
            let computes = one.compute_instances.iter();
            let made = ModelInstance {
                profile: one.profile_id,
                placement: one.placement,
                computes: computes.map(|part| (part.id, part.profile_id)).collect(),
            };
            (one.id, made)
        });
        Self {
            rows,
            made: made.collect(),
            next: there.iter().map(|one| one.id).max().unwrap_or(100),
            defects: Vec::new(),
        }
    }

    /// Executes all steps. Returns the placement of the first one that the board refuses, which then has no effect.
    pub(super) fn run(&mut self, change: &DeviceChange) -> Result<(), (u32, Placement)> {
        let mut planned = BTreeMap::new();
        for step in &change.steps {
            match step {
                Step::DestroyComputeInstance { gpu_instance, compute_instance } => {
                    let computes = &mut self.made.get_mut(gpu_instance).unwrap().computes;
                    assert!(computes.remove(compute_instance).is_some());
                }
                Step::DestroyGpuInstance { gpu_instance, .. } => {
                    let gone = self.made.remove(gpu_instance).unwrap();
                    assert!(gone.computes.is_empty(), "a compute instance is left");
                }
                Step::CreateGpuInstance { instance, profile_id, placement } => {
                    let id = self.create(*profile_id, *placement)?;
                    assert!(planned.insert(*instance, id).is_none());
                }
                Step::CreateComputeInstance { gpu_instance, slices } => {
                    let id = match gpu_instance {
                        InstanceRef::Existing(id) => id,
                        InstanceRef::Planned(at) => &planned[at],
                    };
                    self.split(*id, *slices);
                }
                Step::SetMigMode { .. } | Step::Reset { .. } => panic!("{step:?}"),
            }
        }
        Ok(())
    }

    fn create(&mut self, profile: u32, placement: Placement) -> Result<u32, (u32, Placement)> {
        if self.defects.contains(&(profile, placement.start)) {
            return Err((profile, placement));
        }
        let end = placement.start + placement.size;
        for other in self.made.values().map(|made| made.placement) {
            let apart = end <= other.start || other.start + other.size <= placement.start;
            assert!(apart, "{placement:?} overlaps {other:?}");
        }
        self.next += 1;
        let made = ModelInstance { profile, placement, computes: BTreeMap::new() };
        self.made.insert(self.next, made);
        Ok(self.next)
    }

    fn split(&mut self, id: u32, slices: u32) {
        let made = self.made.get_mut(&id).unwrap();
        let row = self.rows.iter().find(|row| row.0 == made.profile).unwrap();
        let used: u32 = made.computes.values().sum();
        assert!(used + slices <= row.3, "no slices left for {slices}");
        let free = (0..8).find(|id| !made.computes.contains_key(id)).unwrap();
        made.computes.insert(free, slices);
    }

    /// The existing instances, as the driver would report them.
    pub(super) fn instances(&self) -> Vec<GpuInstance> {
        let all = self.made.iter().map(|(id, made)| {
            let row = self.rows.iter().find(|row| row.0 == made.profile).unwrap();
            let mut reported = instance(*id, row, made.placement.start, &[]);
            let parts: Vec<u32> = made.computes.values().copied().collect();
            let ids = made.computes.keys();
            reported.compute_instances = instance(*id, row, 0, &parts).compute_instances;
            for (part, id) in reported.compute_instances.iter_mut().zip(ids) {
                part.id = *id;
            }
            reported
        });
        all.collect()
    }

    pub(super) fn state(&self) -> State {
        let all = self.made.values();
        all.map(|made| (made.placement.start, made.placement.size, made.profile)).collect()
    }
}
