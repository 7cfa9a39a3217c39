//! Facts about the model, on boards of the catalog.

mod properties;

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::scenario::Scenario;

const GPU: Slot = Slot(0);

/// A machine with one GPU of a board.
fn machine(board: &str, mode: &str) -> World {
    let text = format!("machine: m\ngpus:\n- {{board: {board}, mig: {mode}}}\n");
    Scenario::parse(Path::new("m"), &text).unwrap().world().unwrap()
}

fn divided(board: &str) -> World {
    machine(board, "enabled")
}

fn gpu(world: &World) -> &Gpu {
    world.gpu(GPU).unwrap()
}

fn create(world: &mut World, ids: &[u32]) -> Vec<Result<u32, Code>> {
    ids.iter().map(|id| world.create_gi(GPU, *id, None)).collect()
}

fn process(world: &World, gi: Option<u32>, ci: Option<u32>) -> Process {
    Process {
        pid: 1,
        name: "train".to_owned(),
        gpu_uuid: gpu(world).uuid.clone(),
        gi,
        ci,
        memory_mib: 10,
        kind: ProcessKind::Compute,
    }
}

fn modes(world: &World) -> (bool, bool) {
    let mig = gpu(world).mig().unwrap();
    (mig.current, mig.pending)
}

#[test]
fn seven_small_instances_get_captured_ids() {
    let mut world = divided("H100_80GB_SXM");
    let made = create(&mut world, &[19; 8]);
    let full = Err(Code::InsufficientResources);
    assert_eq!(made, [Ok(13), Ok(11), Ok(12), Ok(7), Ok(8), Ok(9), Ok(10), full]);
}

#[test]
fn process_on_whole_gpu_instance_uses_all_its_compute_instances() {
    let mut world = divided("H100_80GB_SXM");
    let gi = world.create_gi(GPU, 9, None).unwrap();
    let ci = world.create_ci(GPU, gi, 0, None).unwrap();
    let held = process(&world, Some(gi), None);
    world.add_process(held).unwrap();
    assert_eq!(world.destroy_ci(GPU, gi, ci), Err(Code::InUse));
    world.remove_process(1).unwrap();
    assert_eq!(world.destroy_ci(GPU, gi, ci), Ok(()));
}

#[test]
fn reset_completes_pending_row_remapping_and_forgets_destroyed_devices() {
    let mut world = divided("H100_80GB_SXM");
    let gi = world.create_gi(GPU, 9, None).unwrap();
    let ci = world.create_ci(GPU, gi, 2, None).unwrap();
    world.destroy_ci(GPU, gi, ci).unwrap();
    let rows = &mut world.gpu_mut(GPU).unwrap().remapped_rows;
    rows.as_mut().unwrap().pending = true;
    assert_eq!(gpu(&world).mig().unwrap().destroyed.len(), 1);
    world.reset_gpu(GPU).unwrap();
    assert_eq!(gpu(&world).mig().unwrap().destroyed, []);
    assert!(!gpu(&world).remapped_rows.unwrap().pending);
}

#[test]
fn creation_order_decides_whether_a_large_instance_fits() {
    let mut world = divided("H100_80GB_SXM");
    let full = Err(Code::InsufficientResources);
    assert_eq!(create(&mut world, &[19, 19, 14, 9]), [Ok(13), Ok(11), Ok(3), full]);
    let mut world = divided("H100_80GB_SXM");
    assert_eq!(create(&mut world, &[9, 14, 19, 19]), [Ok(2), Ok(3), Ok(9), Ok(10)]);
}

#[test]
fn taken_placement_and_full_board_fail_alike_and_unlisted_one_does_not() {
    let mut world = divided("A100_40GB");
    let at = |start| Some(Placement { start, size: 4 });
    assert_eq!(world.create_gi(GPU, 9, at(0)), Ok(1));
    assert_eq!(world.create_gi(GPU, 5, at(0)), Err(Code::InsufficientResources));
    assert_eq!(world.create_gi(GPU, 0, None), Err(Code::InsufficientResources));
    assert_eq!(world.create_gi(GPU, 9, at(2)), Err(Code::InvalidArgument));
    assert_eq!(world.create_gi(GPU, 77, None), Err(Code::InvalidArgument));
}

#[test]
fn media_extensions_are_allocated_once() {
    let mut world = divided("A30_24GB");
    assert_eq!(create(&mut world, &[21, 6]), [Ok(5), Err(Code::InsufficientResources)]);
    assert_eq!(gpu(&world).remaining_capacity(21), Ok(0));
    assert_eq!(gpu(&world).remaining_capacity(14), Ok(3));
}

#[test]
fn instance_with_all_media_engines_coexists_only_with_those_without() {
    let full = Err(Code::InsufficientResources);
    let mut world = divided("RTX_PRO_6000_BLACKWELL_96GB");
    assert_eq!(
        create(&mut world, &[65, 14, 47, 21, 67, 66]),
        [Ok(5), full, full, full, Ok(6), Ok(1)]
    );
    let mut world = divided("RTX_PRO_6000_BLACKWELL_96GB");
    assert_eq!(create(&mut world, &[14, 65]), [Ok(5), full]);
}

#[test]
fn profiles_are_enumerated_with_gaps_even_with_mig_disabled() {
    let world = machine("A100_40GB", "disabled");
    let gpu = gpu(&world);
    assert_eq!(gpu.gi_profile(0).unwrap().id, 19);
    assert_eq!(gpu.gi_profile(5), Err(Code::NotSupported));
    assert_eq!(gpu.gi_profile(GI_PROFILE_COUNT), Err(Code::InvalidArgument));
    assert_eq!(gpu.possible_placements(9).unwrap().len(), 2);
    assert_eq!(gpu.possible_placements(1), Err(Code::InvalidArgument));
    assert_eq!(gpu.remaining_capacity(9), Err(Code::NotSupported));
}

#[test]
fn board_without_mig_supports_no_mig_call() {
    let text = "machine: m\ngpus: [{board: T4}]\n";
    let mut world = Scenario::parse(Path::new("m"), text).unwrap().world().unwrap();
    assert_eq!(gpu(&world).gi_profile(0), Err(Code::NotSupported));
    assert_eq!(world.create_gi(GPU, 19, None), Err(Code::NotSupported));
    assert_eq!(world.set_mig_mode(GPU, MigMode::Enabled), Err(Code::NotSupported));
    assert_eq!(gpu(&world).max_mig_devices(), 0);
}

#[test]
fn instances_are_destroyed_inside_out_and_used_ones_stay() {
    let mut world = divided("A100_80GB");
    let gi = world.create_gi(GPU, 9, None).unwrap();
    let ci = world.create_ci(GPU, gi, 2, None).unwrap();
    let held = process(&world, Some(gi), Some(ci));
    world.add_process(held).unwrap();
    assert_eq!(world.destroy_gi(GPU, gi), Err(Code::InUse));
    assert_eq!(world.destroy_ci(GPU, gi, ci), Err(Code::InUse));
    world.remove_process(1).unwrap();
    assert_eq!(world.destroy_ci(GPU, gi, ci), Ok(()));
    assert_eq!(world.destroy_gi(GPU, gi), Ok(()));
    assert_eq!(world.destroy_gi(GPU, gi), Err(Code::NotFound));
}

#[test]
fn compute_instances_share_slices_of_their_gpu_instance() {
    let mut world = divided("A100_80GB");
    let gi = world.create_gi(GPU, 0, None).unwrap();
    let mut make = |profile| world.create_ci(GPU, gi, profile, None);
    let full = Err(Code::InsufficientResources);
    // 3c at 0, 3c at 4, 1c in the gap at 3.
    assert_eq!([make(2), make(2), make(1), make(0), make(0)], [Ok(0), Ok(1), full, Ok(2), full]);
    let found = gpu(&world);
    let instance = found.gi(gi).unwrap();
    assert_eq!(found.ci_profile(instance, 5), Err(Code::NotSupported));
    assert_eq!(found.ci_profile(instance, CI_PROFILE_COUNT), Err(Code::InvalidArgument));
    assert_eq!(found.ci_remaining_capacity(instance, 0), Ok(0));
    let slices: Vec<u32> =
        found.mig_devices().map(|device| found.attributes(device).unwrap().ci_slices).collect();
    assert_eq!(slices, [3, 3, 1]);
}

#[test]
fn ids_are_reused_and_uuids_and_serials_are_not() {
    let mut world = divided("H100_80GB_SXM");
    let mut identities = BTreeSet::new();
    for _ in 0..3 {
        assert_eq!(world.create_gi(GPU, 9, None), Ok(2));
        assert_eq!(world.create_ci(GPU, 2, 2, None), Ok(0));
        let device = gpu(&world).mig_devices().next().unwrap();
        identities.insert((device.ci.uuid.clone(), device.ci.serial, device.gi.serial));
        world.destroy_ci(GPU, 2, 0).unwrap();
        world.destroy_gi(GPU, 2).unwrap();
    }
    assert_eq!(identities.len(), 3);
    let destroyed: BTreeSet<String> =
        gpu(&world).mig().unwrap().destroyed.iter().map(|gone| gone.uuid.clone()).collect();
    assert_eq!(destroyed, identities.into_iter().map(|(uuid, ..)| uuid).collect());
}

#[test]
fn before_r470_mig_device_is_named_by_its_place() {
    let mut world = divided("A100_40GB");
    "460.106.00".clone_into(&mut world.driver.version);
    world.create_gi(GPU, 9, None).unwrap();
    world.create_ci(GPU, 2, 2, None).unwrap();
    let expected = format!("MIG-{}/2/0", gpu(&world).uuid);
    assert_eq!(gpu(&world).mig_devices().next().unwrap().ci.uuid, expected);
    assert!(expected.starts_with("MIG-GPU-"));
}

#[test]
fn idle_gpu_changes_mode_immediately_and_used_gpu_at_next_reset() {
    for board in ["A100_40GB", "H100_80GB_SXM"] {
        let mut world = machine(board, "disabled");
        assert_eq!(world.set_mig_mode(GPU, MigMode::Enabled), Ok(Code::Success));
        assert_eq!(modes(&world), (true, true));
        let held = process(&world, None, None);
        world.add_process(held).unwrap();
        assert_eq!(world.set_mig_mode(GPU, MigMode::Disabled), Ok(Code::InUse));
        assert_eq!(modes(&world), (true, false));
        assert_eq!(world.reset_gpu(GPU), Err(Code::InUse));
        world.remove_process(1).unwrap();
        assert_eq!(world.reset_gpu(GPU), Ok(()));
        assert_eq!(modes(&world), (false, false));
    }
}

#[test]
fn return_to_current_mode_withdraws_pending_change() {
    let mut world = divided("H100_80GB_SXM");
    world.create_gi(GPU, 19, None).unwrap();
    assert_eq!(world.set_mig_mode(GPU, MigMode::Disabled), Ok(Code::InUse));
    assert_eq!(world.set_mig_mode(GPU, MigMode::Enabled), Ok(Code::Success));
    assert_eq!(modes(&world), (true, true));
}

#[test]
fn mode_survives_reload_and_reboot_on_ampere_only() {
    for (board, survives) in
        [("A100_40GB", true), ("A30_24GB", true), ("H100_80GB_SXM", false), ("B200_180GB", false)]
    {
        for reboots in [false, true] {
            let mut world = divided(board);
            let id = gpu(&world).profiles.first().unwrap().id;
            world.create_gi(GPU, id, None).unwrap();
            if reboots {
                world.reboot();
            } else {
                world.reload_driver(None).unwrap();
            }
            assert_eq!(modes(&world), (survives, survives), "{board}");
            assert!(gpu(&world).mig().unwrap().instances.is_empty());
        }
        let mut world = divided(board);
        world.reset_gpu(GPU).unwrap();
        assert_eq!(modes(&world), (true, true), "{board}");
    }
}

#[test]
fn library_detects_what_happened_to_its_driver() {
    let mut world = machine("A100_40GB", "disabled");
    let stamp = world.stamp();
    assert_eq!(world.link_status(&stamp), Ok(()));
    world.unload_driver().unwrap();
    assert_eq!(world.link_status(&stamp), Err(Code::DriverNotLoaded));
    world.load_driver();
    assert_eq!(world.link_status(&stamp), Err(Code::Uninitialized));
    world.reload_driver(Some("590.10")).unwrap();
    assert_eq!(world.link_status(&stamp), Err(Code::LibRmVersionMismatch));
    assert_eq!(world.driver.nvml_version, "13.590.10");
    let held = process(&world, None, None);
    world.add_process(held).unwrap();
    assert_eq!(world.reload_driver(None), Err(Code::InUse));
}

#[test]
fn lost_gpu_fails_all_calls_until_reset_or_machine_restart() {
    let mut world = divided("H100_80GB_SXM");
    world.lose_gpu(GPU).unwrap();
    assert_eq!(world.create_gi(GPU, 19, None), Err(Code::GpuIsLost));
    assert_eq!(world.set_mig_mode(GPU, MigMode::Disabled), Err(Code::GpuIsLost));
    assert_eq!(gpu(&world).gi_profile(0), Err(Code::GpuIsLost));
    let seen: Vec<(EventKind, u64)> =
        world.events_after(0).iter().map(|event| (event.kind, event.data)).collect();
    assert_eq!(seen, [(EventKind::Xid, 79), (EventKind::GpuUnavailable, 0)]);
    world.reload_driver(None).unwrap();
    assert!(gpu(&world).lost);
    world.reset_gpu(GPU).unwrap();
    assert!(!gpu(&world).lost);
}

#[test]
fn events_are_numbered_and_oldest_are_dropped() {
    let mut world = divided("A100_40GB");
    for number in 0..2000 {
        world.xid(GPU, number, Some((1, None))).unwrap();
    }
    assert_eq!(world.last_event, 2000);
    assert_eq!(world.events.len(), 1024);
    let newest = world.events_after(1999);
    assert_eq!((newest.len(), newest[0].data, newest[0].gi), (1, 1999, Some(1)));
}

#[test]
fn process_requires_an_existing_instance() {
    let mut world = divided("A100_40GB");
    for (gi, ci) in [(Some(1), None), (Some(1), Some(0)), (None, Some(0))] {
        let nowhere = process(&world, gi, ci);
        assert_eq!(world.add_process(nowhere), Err(Code::NotFound));
    }
    assert_eq!(world.remove_process(1), Err(Code::NotFound));
}
