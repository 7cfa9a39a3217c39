//! Problems of mig-parted users and the defects behind them, each with our program on the simulated driver.

use std::os::unix::process::CommandExt;

use super::node::Node;
use crate::time_limits::Finish;

const TWO: &str =
    "  - {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 3g.20gb}]}\n";

fn apply(node: &Node, rules: &str) -> super::node::CommandResult {
    let config = node.config(rules);
    node.ours(&["apply", "-f", &config])
}

#[test]
fn pain_3_and_defect_a_unknown_profile_fails_and_changes_nothing() {
    let node = Node::new(TWO);
    let before = [node.serials(0), node.serials(1)];
    let hooks = node.file(
        "hooks.yaml",
        "version: v1\nhooks: {apply-start: [{command: /bin/touch, args: [ran]}]}\n",
    );
    let rules = "  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1, 1g.20gb: 1}}\n";
    let config = node.config(rules);
    for flags in [&[][..], &["--mode-only"], &["--strict-compat"]] {
        let arguments = [&["apply", "-f", &config, "-k", &hooks], flags].concat();
        node.ours(&arguments)
            .expect_code(1)
            .expect_output("config.yaml:4:")
            .expect_output("does not offer 1g.20gb");
    }
    assert_eq!([node.serials(0), node.serials(1)], before);
    // No client was stopped.
    assert!(!node.path("ran").exists());
}

#[test]
fn pain_39_and_defect_c_orphaned_gpu_instance_is_reported_and_removed() {
    let node = Node::new(
        "  - {board: A100_40GB, mig: enabled, instances: [{profile: 4g.20gb, compute: []}]}\n",
    );
    node.ours(&["export"]).expect_code(1).expect_output("has no compute instance");
    let rules = "  - {devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2}}\n";
    apply(&node, rules).expect_code(0);
    node.ours(&["export"]).expect_code(0).expect_output("3g.20gb: 2");
}

#[test]
fn pain_4_and_defect_e_correct_gpu_is_not_reset_with_another() {
    let node = Node::new(
        "  - {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]}\n  - {board: A100_40GB}\n",
    );
    // As on hardware where a process had the GPU open just before.
    node.machine.faults("[{call: nvmlDeviceSetMigMode, activation: IN_USE, times: 1}]");
    let before = node.serials(0);
    let rules = "  - {devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2}}\n";
    apply(&node, rules).expect_code(0);
    assert_eq!(node.serials(0), before);
    let geometry = node.geometry();
    assert_eq!(geometry[0], geometry[1]);
    let resets = node.resets();
    let second = node.machine.world().gpus[1].pci.sysfs();
    assert_eq!(resets, [format!("--gpu-reset -i {second}")]);
}

#[test]
fn pain_5_slices_are_added_and_removed_beside_running_ones() {
    let node = Node::new(
        "  - {board: A100_40GB, mig: enabled, instances: [{profile: 4g.20gb}, {profile: 2g.10gb}]}\nprocesses:\n- {pid: 4711, gpu: 0, gi: 1, ci: 0}\n",
    );
    let running = node.serials(0)[0];
    let rules = "  - {devices: all, mig-enabled: true, mig-devices: {4g.20gb: 1, 1g.5gb: 3}}\n";
    apply(&node, rules).expect_code(0).expect_output("MIG configuration applied successfully");
    assert!(node.serials(0).contains(&running));
}

#[test]
fn pain_10_blockers_are_reported_with_process_and_command() {
    let node = Node::new(TWO);
    let gi = node.machine.world().gpus[0].mig.as_ref().unwrap().instances[0].id;
    node.opened(4711, "jupyter", (0, gi));
    let before = node.serials(0);
    let rules = "  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}\n";
    apply(&node, rules).expect_code(1).expect_output("pid 4711, jupyter").expect_output("blocked");
    assert_eq!(node.serials(0), before);
    // The other GPU is unused and has the requested layout.
    assert_eq!(node.serials(1).len(), 7);
    let off = "  - {devices: [0], mig-enabled: false}\n";
    apply(&node, off).expect_code(1).expect_output("pid 4711, jupyter");
    assert_eq!(node.serials(0), before);
}

#[test]
fn pain_17_profile_name_with_other_rounding_is_recognized() {
    let node = Node::new("  - {board: A100_80GB}\n");
    let rules = "  - {devices: all, mig-enabled: true, mig-devices: {3g.39gb: 2}}\n";
    let config = node.config(rules);
    node.ours(&["apply", "-f", &config])
        .expect_code(0)
        .expect_output("warning: ")
        .expect_output("3g.39gb is read as 3g.40gb");
    node.ours(&["assert", "-f", &config]).expect_code(0);
}

#[test]
fn pain_18_one_name_for_two_profiles_is_resolved_per_gpu() {
    let node =
        Node::new("  - {board: A100_40GB, mig: enabled}\n  - {board: A100_80GB, mig: enabled}\n");
    let rules = "  - {devices: [1], mig-enabled: true, mig-devices: {1g.10gb: 3}}\n";
    apply(&node, rules).expect_code(0);
    let rules = "  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 3}}\n";
    apply(&node, rules).expect_code(0);
    let ids = |gpu: usize| {
        let world = node.machine.world();
        let instances = &world.gpus[gpu].mig.as_ref().unwrap().instances;
        let ids: Vec<u32> = instances.iter().map(|is| is.profile_id).collect();
        ids
    };
    assert_eq!([ids(0).len(), ids(1).len()], [3, 3]);
    assert_ne!(ids(0)[0], ids(1)[0]);
}

#[test]
fn pain_19_assert_checks_selected_gpus_and_reports_missing_gpu() {
    let node = Node::new(TWO);
    let config = node.config("  - {devices: [1], mig-enabled: true, mig-devices: {3g.20gb: 1}}\n");
    node.ours(&["assert", "-f", &config])
        .expect_code(0)
        .expect_output("Selected MIG configuration currently applied");
    node.theirs(&["assert", "-f", &config]).expect_code(1);
    node.ours(&["--strict-compat", "assert", "-f", &config]).expect_code(1).expect_output("GPU 0");
    let config = node.config("  - {devices: [7], mig-enabled: true, mig-devices: {3g.20gb: 1}}\n");
    for verb in ["assert", "apply"] {
        let ran = node.ours(&[verb, "-f", &config]);
        ran.expect_code(1).expect_output("no GPU has the index 7");
    }
    let some =
        node.config("  - {devices: [0, 1, 7], mig-enabled: true, mig-devices: {3g.20gb: 1}}\n");
    node.ours(&["assert", "-f", &some, "--strict-compat"]).expect_code(0);
    node.theirs(&["assert", "-f", &some]).expect_code(0);
    let config = node.config("  - {devices: [7], mig-enabled: true, mig-devices: {3g.20gb: 1}}\n");
    // NVIDIA's does nothing and reports success; Octavo does not copy that.
    node.ours(&["apply", "-f", &config, "--strict-compat"]).expect_code(1);
    node.theirs(&["apply", "-f", &config]).expect_code(0);
}

#[test]
fn pain_20_node_with_gpu_that_cannot_be_partitioned_is_configured() {
    let node = Node::new("  - {board: T4}\n  - {board: A100_40GB}\n");
    let config = node.config("  - {devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2}}\n");
    node.ours(&["apply", "-f", &config]).expect_code(0);
    node.ours(&["assert", "-f", &config]).expect_code(0);
    node.theirs(&["assert", "-f", &config]).expect_code(1);
    node.ours(&["assert", "-f", &config, "--strict-compat"]).expect_code(1);
    // Both programs agree on a configuration that selects every GPU.
    let config = node.config("  - {devices: [0], mig-enabled: false}\n  - {devices: [1], mig-enabled: true, mig-devices: {3g.20gb: 2}}\n");
    node.ours(&["assert", "-f", &config, "--strict-compat"]).expect_code(0);
    node.theirs(&["assert", "-f", &config]).expect_code(0);
}

#[test]
fn pain_44_plan_shows_changes_before_anything_is_touched() {
    let node = Node::new(TWO);
    let before = node.serials(0);
    let config = node
        .config("  - {devices: all, mig-enabled: true, mig-devices: {3g.20gb: 1, 2g.10gb: 1}}\n");
    let output = node.command(&["plan", "wanted", "-f", &config]).arg0("octavo").finish();
    assert_eq!(output.status.code(), Some(3));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("+2g.10gb"), "{shown}");
    assert_eq!(node.serials(0), before);
}

#[test]
fn mode_only_changes_modes_and_keeps_partitions_where_possible() {
    let node = Node::new(
        "  - {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb}]}\n  - {board: A100_40GB}\n  - {board: A100_40GB, mig: enabled, instances: [{profile: 2g.10gb}]}\n",
    );
    let before = node.serials(0);
    let config = node.config(
        "  - {devices: [0, 1], mig-enabled: true, mig-devices: {1g.5gb: 7}}\n  - {devices: [2], mig-enabled: false}\n",
    );
    node.ours(&["assert", "-f", &config, "-m"]).expect_code(1);
    node.ours(&["apply", "-f", &config, "-m"])
        .expect_code(0)
        .expect_output("MIG configuration applied successfully");
    assert_eq!(node.serials(0), before);
    let modes: Vec<bool> = node.geometry().iter().map(|gpu| gpu.mode).collect();
    assert_eq!(modes, [true, true, false]);
    node.ours(&["assert", "-f", &config, "-m"])
        .expect_code(0)
        .expect_output("Selected MIG mode settings from configuration currently applied");
    node.ours(&["assert", "-f", &config]).expect_code(1);
    // The mode change was requested and the reset is pending.
    node.machine.change(|world| {
        world.gpus[0].mig.as_mut().unwrap().pending = false;
        Ok(())
    });
    node.ours(&["apply", "-f", &config, "-m"]).expect_code(0);
    assert!(node.machine.world().gpus[0].mig.as_ref().unwrap().pending);
    assert_eq!(node.serials(0), before);
}

#[test]
fn pain_9_mig_mode_of_gpu_in_use_is_disabled_only_when_unused() {
    let node = Node::new(TWO);
    let before = node.serials(1);
    let gi = node.machine.world().gpus[1].mig.as_ref().unwrap().instances[0].id;
    node.opened(4711, "trainer", (1, gi));
    let off = "  - {devices: [1], mig-enabled: false}\n";
    apply(&node, off).expect_code(1).expect_output("pid 4711, trainer");
    assert_eq!(node.serials(1), before);
    std::fs::remove_dir_all(node.path("proc/4711")).unwrap();
    apply(&node, off).expect_code(0);
    assert!(!node.geometry()[1].mode);
}

#[test]
fn driver_that_lists_profiles_only_with_mig_enabled_is_queried_again() {
    let node = Node::with_driver("535.183.01", "  - {board: A100_40GB, count: 2}\n");
    let rules = "  - {devices: [1], mig-enabled: true, mig-devices: {1g.5gb: 7}}\n";
    apply(&node, rules).expect_code(0);
    assert_eq!(node.serials(1).len(), 7);
    // A profile that was unknown before may turn out to be unsupported.
    let rules = "  - {devices: [0], mig-enabled: true, mig-devices: {1g.20gb: 1}}\n";
    apply(&node, rules).expect_code(1).expect_output("does not offer 1g.20gb");
}

#[test]
fn skipped_reset_leaves_mode_pending_with_exit_codes_of_mig_parted() {
    for who in [Node::theirs, Node::ours] {
        let node = Node::new(
            "  - {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb}]}\n  - {board: A100_40GB}\n",
        );
        node.machine.faults("[{call: nvmlDeviceSetMigMode, gpu: 1, activation: IN_USE}]");
        let config =
            node.config("  - {devices: all, mig-enabled: true, mig-devices: {3g.20gb: 1}}\n");
        who(&node, &["apply", "-f", &config, "--skip-reset", "--mode-only"]).expect_code(0);
        let pending = |gpu: usize| node.machine.world().gpus[gpu].mig.as_ref().unwrap().pending;
        assert!(pending(1));
        assert!(!node.geometry()[1].mode);
        who(&node, &["apply", "-f", &config, "--skip-reset"]).expect_code(1);
        assert_eq!(node.resets(), [""; 0]);
    }
}

#[test]
fn command_changes_nothing_while_an_agent_manages_the_node() {
    let node = Node::new(TWO);
    let directory = node.path("state");
    std::fs::create_dir_all(&directory).unwrap();
    let lock = directory.join("lock");
    // Process 1 of another container has another identity here and is not named.
    std::fs::write(&lock, "1 agent\n").unwrap();
    let lock = std::fs::File::open(lock).unwrap();
    lock.lock().unwrap();
    let before = node.serials(0);
    let rules = "  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}\n";
    apply(&node, rules).expect_code(1).expect_output("octavo-agent is running and holds ");
    assert_eq!(node.serials(0), before);
}
