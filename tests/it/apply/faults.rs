//! Faults: each is a bug or behavior of real drivers, and each test names the invariant that it checks.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use octavo_files::journal;
use octavo_planner::layout::MigTarget;
use octavo_planner::reconcile::{ApplyRecord, ApplyRecordEntry};

use crate::node::{Node, names};
use crate::time_limits::Finish;

const SEVEN: &str =
    "- {board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb, count: 7}]}\n";
const EMPTY: &str = "- {board: A100_40GB, mig: enabled}\n";

#[test]
fn i7_ineffective_destroy_that_reports_success_is_repeated() {
    let node = Node::new(SEVEN);
    for call in ["nvmlGpuInstanceDestroy", "nvmlComputeInstanceDestroy"] {
        node.machine.faults(&format!("- {{call: {call}, times: 1, lie: true}}"));
        let reported = node.apply_once("all-3g.20gb");
        assert!(reported.contains("applied in"), "{reported}");
        assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
        node.machine.faults("[]");
        node.apply_once("all-1g.5gb");
    }
    assert!(node.is_clear());
}

#[test]
fn i3_ineffective_destroy_is_rolled_back_and_reported() {
    let node = Node::new(SEVEN);
    let before = node.geometry(0);
    node.machine.faults("- {call: nvmlGpuInstanceDestroy, lie: true}");
    let reported = node.apply_once("all-7g.40gb");
    assert!(reported.contains("rolled-back"), "{reported}");
    assert_eq!(node.geometry(0), before);
    assert!(node.is_clear());
}

#[test]
fn i5_transient_in_use_is_retried() {
    let node = Node::new(SEVEN);
    node.machine.faults("- {call: nvmlGpuInstanceDestroy, times: 1, in_use_ms: 300}");
    let reported = node.apply_once("all-7g.40gb");
    assert!(reported.contains("applied in"), "{reported}");
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
}

#[test]
fn i5_permanently_in_use_without_visible_holder_is_blocked_with_hint() {
    let node = Node::new(SEVEN);
    let before = node.geometry(0);
    node.machine.faults("- {call: nvmlGpuInstanceDestroy, return: IN_USE}");
    let reported = node.apply_once("all-7g.40gb");
    assert!(
        reported.contains("blocked: ")
            && reported.contains("in use (19)")
            && reported.contains("leaked a handle"),
        "{reported}"
    );
    assert_eq!(node.geometry(0), before);
    assert!(node.is_clear());
}

#[test]
fn i3_rejected_compute_instance_leaves_no_orphaned_gpu_instance() {
    let node = Node::new(SEVEN);
    let before = node.geometry(0);
    node.machine.faults(
        "- {call: nvmlGpuInstanceCreateComputeInstance*, nth: 1, times: 1, return: UNKNOWN}",
    );
    let reported = node.apply_once("all-3g.20gb");
    assert!(reported.contains("rolled-back"), "{reported}");
    assert_eq!(node.geometry(0), before);
    assert!(node.is_clear());
}

#[test]
fn orphaned_instance_is_replaced() {
    let node = Node::new(
        "- {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, start: 0, compute: []}]}\n",
    );
    assert_eq!(names(&node.geometry(0)), ["3g.20gb!"]);
    node.apply_once("all-7g.40gb");
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
}

#[test]
fn rejected_placement_is_replaced_by_another() {
    let node = Node::new(EMPTY);
    let file = node.layouts("[{devices: all, mig: {1g.5gb: 1}}]");
    node.machine.faults(
        "- {call: nvmlDeviceCreateGpuInstanceWithPlacement, times: 3, return: INSUFFICIENT_RESOURCES}",
    );
    let output = node.agent(&["--oneshot", "--layouts", &file, "--layout", "wanted"]).finish();
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(reported.contains("applied in"), "{reported}");
    assert_eq!(names(&node.geometry(0)), ["1g.5gb"]);
}

#[test]
fn i7_instance_at_unrequested_placement_is_removed() {
    let node = Node::new(EMPTY);
    node.machine.faults(
        "- {call: nvmlDeviceCreateGpuInstanceWithPlacement, times: 1, wrong_placement: true}",
    );
    let reported = node.apply_once("all-balanced");
    assert!(reported.contains("applied in"), "{reported}");
    let geometry = node.geometry(0);
    let mut names = names(&geometry);
    names.sort_unstable();
    assert_eq!(names, ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]);
}

#[test]
fn mig_devices_enumerated_after_destruction_are_harmless() {
    let node = Node::new(SEVEN);
    node.machine.faults("- {call: nvmlDeviceGetMigDeviceHandleByIndex, stale_mig_handles: true}");
    node.apply_once("all-3g.20gb");
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
}

#[test]
fn i5_mode_pending_reset_is_reported_and_reset_if_possible() {
    let gpu = "- {board: A100_40GB}\n";
    let rule = "- {call: nvmlDeviceSetMigMode, activation: RESET_REQUIRED}";
    let node = Node::new(gpu);
    node.machine.faults(rule);
    let reported = node.apply_once("all-3g.20gb");
    assert!(
        reported.contains("needs-reset: ") && reported.contains("nvidia-smi --gpu-reset -i 0000:"),
        "{reported}"
    );
    assert!(!node.is_partitioned(0));
    // The journal remains because the change is incomplete; only a reset by an administrator is missing.
    assert!(!node.is_clear());
    node.install_nvidia_smi();
    let reported = node.apply_once("all-3g.20gb");
    assert!(reported.contains("device reset") && reported.contains("applied in"), "{reported}");
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
    assert!(node.is_clear());
}

#[test]
fn i1_gpu_in_use_is_not_reset() {
    let node = Node::new("- {board: A100_40GB}\n- {board: T4}\n");
    node.install_nvidia_smi();
    node.machine.faults("- {call: nvmlDeviceSetMigMode, activation: RESET_REQUIRED}");
    node.machine.change(|world| {
        let gpu_uuid = world.gpus[0].uuid.clone();
        world.add_process(nvml_sim::model::Process {
            pid: 77,
            name: "train".to_owned(),
            gpu_uuid,
            gi: None,
            ci: None,
            memory_mib: 1,
            kind: nvml_sim::model::ProcessKind::Compute,
        })
    });
    let reported = node.apply_once("all-3g.20gb");
    // The holder already blocks the mode change.
    assert!(!reported.contains("device reset"), "{reported}");
    assert!(!node.is_partitioned(0));
    assert!(node.is_clear());
}

#[test]
fn i3_ineffective_mode_change_is_rolled_back() {
    let node = Node::new("- {board: H100_80GB_SXM}\n");
    node.machine.faults("- {call: nvmlDeviceSetMigMode, activation: SUCCESS}");
    let reported = node.apply_once("all-3g.40gb");
    assert!(reported.contains("rolled-back"), "{reported}");
    assert!(!node.is_partitioned(0));
    assert!(node.is_clear());
}

#[test]
fn i5_driver_that_is_a_hundred_times_slower_completes() {
    let node = Node::new(&format!(
        "{SEVEN}latency: {{create_gpu_instance_us: 2000, destroy_gpu_instance_us: 2000}}\n"
    ));
    node.machine.faults("- {call: nvmlDeviceCreateGpuInstanceWithPlacement, slow_factor: 100}");
    let reported = node.apply_once("all-3g.20gb");
    assert!(reported.contains("applied in"), "{reported}");
}

#[test]
fn gpu_lost_during_change_stops_no_other() {
    let node = Node::new(
        "- {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 1g.5gb, count: 7}]}\n",
    );
    node.machine
        .faults("- {call: nvmlGpuInstanceDestroy, gpu: 0, nth: 3, times: 1, lose_gpu: true}");
    let reported = node.apply_once_failing("all-3g.20gb");
    assert_eq!(names(&node.geometry(1)), ["3g.20gb", "3g.20gb"]);
    assert!(reported.contains("failed: ") && reported.contains("lost"), "{reported}");
    assert!(!node.is_clear(), "the journal entry of the lost GPU is missing");
    // A reset restores the GPU without instances.
    node.machine.faults("[]");
    node.machine.change(|world| world.reset_gpu(world.slot_of_index(0).unwrap()));
    node.apply_once("all-3g.20gb");
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
    assert!(node.is_clear());
}

#[test]
fn devices_are_identified_by_address_and_not_by_index() {
    let node = Node::new("- {board: A100_40GB, mig: enabled}\n- {board: A30_24GB, mig: enabled}\n");
    node.machine.faults("- {call: nvmlDeviceGetHandleByIndex*, index_order: [1, 0]}");
    node.apply_once("all-balanced");
    assert_eq!(names(&node.geometry(0)), ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]);
    assert_eq!(names(&node.geometry(1)), ["1g.6gb", "1g.6gb", "2g.12gb"]);
}

#[test]
fn i4_nothing_changes_without_a_journal() {
    let node = Node::new(SEVEN);
    let before = node.geometry(0);
    // Replaces the draft by a directory: even root cannot write there, as on a full or read-only disk.
    fs::create_dir_all(node.state().join("journal.draft")).unwrap();
    let reported = node.apply_once_failing("all-7g.40gb");
    assert!(
        reported.contains("nothing was changed: cannot write ")
            && reported.contains("journal.draft"),
        "{reported}"
    );
    assert_eq!(node.geometry(0), before);
    fs::remove_dir(node.state().join("journal.draft")).unwrap();
    node.apply_once("all-7g.40gb");
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
}

#[test]
fn unreadable_journal_is_reported_retained_and_hardware_decides() {
    for text in ["octavo-journal 9 2 0\n{}", "\0\0\0", "{}"] {
        let node = Node::new(SEVEN);
        fs::create_dir_all(node.state()).unwrap();
        fs::write(node.state().join("journal"), text).unwrap();
        let reported = node.apply_once("all-7g.40gb");
        assert!(reported.contains("the journal could not be read"), "{reported}");
        assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
        let retained = fs::read_to_string(node.state().join("journal.unreadable"));
        assert_eq!(retained.unwrap(), text);
        assert!(node.is_clear());
    }
}

#[test]
fn i2_replacement_board_does_not_continue_change_of_its_predecessor() {
    let node = Node::new(
        "- {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 1g.5gb, start: 0}]}\n",
    );
    let before = node.geometry(0);
    let pci = node.machine.world().gpus[0].pci.sysfs();
    let record = ApplyRecord {
        plan: "20261121T120000Z-1".to_owned(),
        layout: "wanted".to_owned(),
        devices: vec![ApplyRecordEntry {
            pci: pci.parse().unwrap(),
            uuid: "GPU-3f1c9a52-7d0b-4a6e-9c7f-0d3b8e5a1c24".parse().ok(),
            plan: "20261121T120000Z-1".to_owned(),
            layout: "wanted".to_owned(),
            previous: Some(MigTarget::Disabled),
            target: MigTarget::Enabled(Vec::new()),
        }],
    };
    fs::create_dir_all(node.state()).unwrap();
    fs::write(node.state().join("journal"), journal::write(&record)).unwrap();
    let file = node.layouts("[{devices: [1], mig: {7g.40gb: 1}}]");
    let output = node.agent(&["--oneshot", "--layouts", &file, "--layout", "wanted"]).finish();
    let reported = String::from_utf8(output.stderr).unwrap();
    assert!(reported.contains("the device was replaced"), "{reported}");
    assert_eq!(node.geometry(0), before);
    assert_eq!(names(&node.geometry(1)), ["7g.40gb"]);
    assert!(node.is_clear());
}

#[test]
fn i12_state_directory_writable_by_others_is_refused() {
    let node = Node::new(SEVEN);
    fs::create_dir_all(node.state()).unwrap();
    fs::set_permissions(node.state(), fs::Permissions::from_mode(0o777)).unwrap();
    let before = node.geometry(0);
    let reported = node.apply_once_failing("all-7g.40gb");
    assert!(reported.contains("writable by another user"), "{reported}");
    assert_eq!(node.geometry(0), before);
}
