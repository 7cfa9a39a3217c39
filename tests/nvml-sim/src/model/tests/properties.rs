//! Invariants after any sequence of operations, on every board of the catalog.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;

use super::super::*;
use super::{GPU, divided, gpu, modes, process};
use crate::board;
use crate::scenario::Scenario;

/// An action of a client or administrator. Numbers are taken modulo the number of objects.
#[derive(Debug, Clone)]
enum Step {
    CreateGi(usize, Option<usize>),
    CreateCi(usize, usize),
    DestroyCi(usize),
    DestroyGi(usize),
    Mode(MigMode),
    Hold(usize),
    Release,
    Reset,
    Reload,
    Reboot,
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0..40_usize;
    prop_oneof![
        8 => (any.clone(), proptest::option::of(any.clone())).prop_map(|(p, at)| Step::CreateGi(p, at)),
        8 => (any.clone(), any.clone()).prop_map(|(gi, p)| Step::CreateCi(gi, p)),
        3 => any.clone().prop_map(Step::DestroyCi),
        3 => any.clone().prop_map(Step::DestroyGi),
        1 => Just(Step::Mode(MigMode::Enabled)),
        1 => Just(Step::Mode(MigMode::Disabled)),
        1 => any.prop_map(Step::Hold),
        1 => Just(Step::Release),
        1 => Just(Step::Reset),
        1 => Just(Step::Reload),
        1 => Just(Step::Reboot),
    ]
}

fn pick<T: Clone>(items: &[T], nth: usize) -> Option<T> {
    items.get(nth.checked_rem(items.len())?).cloned()
}

fn devices(world: &World) -> Vec<(u32, u32)> {
    gpu(world).mig_devices().map(|device| (device.gi.id, device.ci.id)).collect()
}

fn instance_ids(world: &World) -> Vec<u32> {
    gpu(world).mig().unwrap().instances.iter().map(|gi| gi.id).collect()
}

/// Executes a step; a rejected one changes nothing. Returns the code of a rejection.
fn play(world: &mut World, step: &Step) -> Option<Code> {
    let before = world.clone();
    let answer = match step {
        Step::CreateGi(profile, at) => {
            let profile = pick(&gpu(world).profiles, *profile).unwrap();
            let at = at.and_then(|at| pick(&profile.placements, at));
            let left = gpu(world).remaining_capacity(profile.id);
            let answer = world.create_gi(GPU, profile.id, at);
            if at.is_none() {
                assert_eq!(
                    answer.is_ok(),
                    left.is_ok_and(|left| left > 0),
                    "capacity is what fits"
                );
            }
            answer.map(|_| ())
        }
        Step::CreateCi(gi, profile) => match pick(&instance_ids(world), *gi) {
            None => Ok(()),
            Some(gi) => {
                let found = gpu(world);
                let instance = found.gi(gi).unwrap();
                let profile = pick(&found.profile_of(instance).unwrap().compute, *profile).unwrap();
                let left = found.ci_remaining_capacity(instance, profile.id).unwrap();
                let answer = world.create_ci(GPU, gi, profile.id, None);
                assert_eq!(answer.is_ok(), left > 0);
                answer.map(|_| ())
            }
        },
        Step::DestroyCi(nth) => {
            pick(&devices(world), *nth).map_or(Ok(()), |(gi, ci)| world.destroy_ci(GPU, gi, ci))
        }
        Step::DestroyGi(nth) => {
            pick(&instance_ids(world), *nth).map_or(Ok(()), |gi| world.destroy_gi(GPU, gi))
        }
        Step::Mode(mode) => world.set_mig_mode(GPU, *mode).map(|_| ()),
        Step::Hold(nth) => {
            let device = pick(&devices(world), *nth);
            let held = process(world, device.map(|(gi, _)| gi), device.map(|(_, ci)| ci));
            world.add_process(held)
        }
        Step::Release => world.remove_process(1),
        Step::Reset => world.reset_gpu(GPU),
        Step::Reload => world.reload_driver(None),
        Step::Reboot => {
            world.reboot();
            Ok(())
        }
    };
    if answer.is_err() {
        assert_eq!(*world, before, "a refusal changes nothing");
    }
    answer.err()
}

/// Invariants after every step.
fn check(world: &World) {
    let gpu = gpu(world);
    let instances = &gpu.mig().unwrap().instances;
    let mut slices = 0;
    for (nth, gi) in instances.iter().enumerate() {
        let profile = gpu.profile_of(gi).unwrap();
        slices += profile.slices;
        assert!(profile.placements.contains(&gi.placement));
        for other in &instances[nth + 1..] {
            assert!(!gi.placement.overlaps(other.placement));
            assert_ne!(gi.id, other.id);
        }
        let same = instances.iter().filter(|other| other.profile_id == gi.profile_id).count();
        assert!(same <= usize::try_from(profile.max_count).unwrap());
        let mut taken = 0;
        for (nth, ci) in gi.compute.iter().enumerate() {
            taken += ci.placement.size;
            for other in &gi.compute[nth + 1..] {
                assert!(!ci.placement.overlaps(other.placement));
                assert_ne!(ci.id, other.id);
            }
        }
        assert!(taken <= profile.slices);
    }
    assert!(slices <= gpu.total_slices());
    let uuids: BTreeSet<&str> = gpu.mig_devices().map(|device| device.ci.uuid.as_str()).collect();
    assert_eq!(uuids.len(), gpu.mig_devices().count());
    assert!(devices(world).is_sorted());
    assert!(devices(world).len() <= usize::try_from(gpu.max_mig_devices()).unwrap());
    for process in &world.processes {
        assert!(
            process.gi.is_none_or(|gi| gpu.gi(gi).is_some()),
            "a process is on a missing instance"
        );
    }
}

proptest! {
    #[test]
    fn instances_never_overlap_and_world_stays_consistent(
        board in 0..20_usize,
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut world = divided(&board::skus()[board]);
        for step in &steps {
            play(&mut world, step);
            check(&world);
        }
    }

    #[test]
    fn destroying_everything_restores_initial_capacity(
        board in 0..20_usize,
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let start = divided(&board::skus()[board]);
        let mut world = start.clone();
        for step in &steps {
            play(&mut world, step);
        }
        world.processes.clear();
        world.set_mig_mode(GPU, MigMode::Enabled).unwrap();
        for (gi, ci) in devices(&world) {
            world.destroy_ci(GPU, gi, ci).unwrap();
        }
        for gi in instance_ids(&world) {
            world.destroy_gi(GPU, gi).unwrap();
        }
        prop_assert_eq!(modes(&world), (true, true));
        for profile in gpu(&start).profiles.iter() {
            prop_assert_eq!(gpu(&world).remaining_capacity(profile.id), Ok(profile.max_count));
        }
    }

    #[test]
    fn world_round_trips_through_json(
        board in 0..20_usize,
        steps in proptest::collection::vec(step(), 1..30),
    ) {
        let mut world = divided(&board::skus()[board]);
        for step in &steps {
            play(&mut world, step);
        }
        let text = serde_json::to_string(&world).unwrap();
        let mut read: World = serde_json::from_str(&text).unwrap();
        read.attach_tables();
        prop_assert_eq!(read, world);
    }

    #[test]
    fn scenario_with_overlapping_instances_is_rejected_with_location(
        board in 0..20_usize,
        one in 0..40_usize,
        other in 0..40_usize,
        slice in 0..40_usize,
    ) {
        let sku = &board::skus()[board];
        let world = divided(sku);
        let places = |nth| {
            let profile = pick(&gpu(&world).profiles, nth).unwrap();
            let place = pick(&profile.placements, slice).unwrap();
            (profile.name, place)
        };
        let ((one, first), (other, second)) = (places(one), places(other));
        prop_assume!(first.overlaps(second));
        let text = format!(
            "machine: m\ngpus:\n- board: {sku}\n  mig: enabled\n  instances:\n  - {{profile: {one}, start: {}}}\n  - {{profile: {other}, start: {}}}\n",
            first.start, second.start
        );
        let error = Scenario::parse(Path::new("m.yaml"), &text).unwrap().world().unwrap_err();
        let expected = format!("m.yaml:7:5: {other} on GPU 0 overlaps {one} at {}", first.start);
        prop_assert_eq!(error.to_string(), expected);
    }
}
