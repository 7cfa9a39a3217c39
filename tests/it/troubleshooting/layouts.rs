//! Layouts that are not applied, or not as expected: the shipped agent on a simulated machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nvml_sim::model::{Process, ProcessKind};

use crate::node::{Node, names};
use crate::problem::Problem;
use crate::time_limits::Finish;

const SEVEN: &str =
    "- {board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb, count: 7}]}\n";
const RESET_REQUIRED: &str = "- {call: nvmlDeviceSetMigMode, activation: RESET_REQUIRED}";

impl Node {
    /// Standard output and errors of a read-only `octavo` command.
    pub(super) fn command_output(&self, arguments: &[&str]) -> String {
        let path = self.machine.path();
        let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(arguments)
            .arg("--nvml-library")
            .arg(self.machine.library())
            .arg("--sys-root")
            .arg(path.join("sys"))
            .finish();
        let [shown, noted] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        format!("{shown}{noted}")
    }

    /// Output of `octavo plan` for the layout `wanted`.
    pub(super) fn plan_output(&self, file: &str) -> String {
        let proc = self.machine.path().join("proc").display().to_string();
        self.command_output(&["plan", "wanted", "--layouts", file, "--proc-root", &proc])
    }

    /// Log of an agent that applies the layout once.
    pub(super) fn apply_file_once(&self, file: &str) -> String {
        let output = self.agent(&["--oneshot", "--layouts", file, "--layout", "wanted"]).finish();
        String::from_utf8(output.stderr).unwrap()
    }

    /// The MIG device of a GPU's first instance of this profile.
    fn partition(&self, gpu: usize, profile: u32) -> String {
        let world = self.machine.world();
        let mig = world.gpus[gpu].mig.as_ref().unwrap();
        let one = mig.instances.iter().find(|one| one.profile_id == profile);
        one.unwrap().compute[0].uuid.clone()
    }

    /// A process in an instance of a GPU.
    fn add_process(&self, gpu: usize, instance: u32) {
        self.machine.change(|world| {
            let gpu_uuid = world.gpus[gpu].uuid.clone();
            world.add_process(Process {
                pid: 4711,
                name: "train".to_owned(),
                gpu_uuid,
                gi: Some(instance),
                ci: Some(0),
                memory_mib: 1,
                kind: ProcessKind::Compute,
            })
        });
    }
}

#[test]
fn success_is_never_reported_for_missing_partitions() {
    let problem = Problem::documented("pain_03");
    let node = Node::new(SEVEN);
    let before = node.geometry(0);
    // The driver reports success, and the instances stay.
    node.machine.faults("- {call: nvmlGpuInstanceDestroy, lie: true}");
    let reported = node.apply_once("all-7g.40gb");
    problem.assert_quoted("log", &reported);
    assert!(!reported.contains("applied"), "{reported}");
    assert_eq!(node.geometry(0), before);
}

#[test]
fn change_of_one_gpu_leaves_others_unchanged() {
    let problem = Problem::documented("pain_04");
    let node = Node::new(
        "- {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 3g.20gb, start: 0}]}\n",
    );
    let held = node.partition(1, 9);
    node.add_process(1, 1);
    let file = node.layouts("[{devices: [0], mig: {7g.40gb: 1}}]");
    problem.assert_quoted("octavo plan", &node.plan_output(&file));
    problem.assert_quoted("log", &node.apply_file_once(&file));
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
    assert_eq!(node.partition(1, 9), held);
}

#[test]
fn partitions_are_added_and_removed_beside_a_running_one() {
    let problem = Problem::documented("pain_05");
    let node = Node::new(
        "- {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, start: 0}, {profile: 1g.5gb, start: 4}]}\n",
    );
    let held = node.partition(0, 9);
    node.add_process(0, 1);
    let file = node.layouts("[{devices: all, mig: {3g.20gb: 1, 2g.10gb: 1}}]");
    problem.assert_quoted("octavo plan", &node.plan_output(&file));
    problem.assert_quoted("log", &node.apply_file_once(&file));
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "2g.10gb"]);
    assert_eq!(node.partition(0, 9), held);
}

#[test]
fn mode_pending_reset_is_reported_with_remedy() {
    let problem = Problem::documented("pain_08");
    let node = Node::new("- {board: A100_40GB}\n");
    node.machine.faults(RESET_REQUIRED);
    let reboot = node.machine.path().join("reboot");
    fs::write(&reboot, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&reboot, fs::Permissions::from_mode(0o755)).unwrap();
    let reboot = reboot.display().to_string();
    for _ in 0..2 {
        let arguments =
            ["--oneshot", "--layout=all-3g.20gb", "--allow=reboot", "--reboot-program", &reboot];
        let output = node.agent(&arguments).finish();
        // The simulated reboot has no effect.
        problem.assert_quoted("log", &String::from_utf8(output.stderr).unwrap());
    }
    assert!(!node.is_partitioned(0));
}

#[test]
fn mig_that_cannot_be_disabled_now_is_disabled_after_reboot() {
    let problem = Problem::documented("pain_09");
    let node = Node::new(SEVEN);
    node.machine.faults(RESET_REQUIRED);
    problem.assert_quoted("log", &node.apply_once("all-disabled"));
    assert!(node.is_partitioned(0));
    node.machine.faults("[]");
    node.machine.change(|world| {
        world.reboot();
        Ok(())
    });
    problem.assert_quoted("log", &node.apply_once("all-disabled"));
    assert!(!node.is_partitioned(0));
}

#[test]
fn layout_infeasible_on_board_is_refused_with_rule_and_alternative() {
    let problem = Problem::documented("a100_80_infeasible");
    let node = Node::new("- {board: A100_80GB, mig: enabled}\n");
    let file = node.layouts("[{devices: all, mig: {3g.40gb: 2, 1g.10gb: 1}}]");
    problem.assert_quoted("octavo plan", &node.plan_output(&file));
    problem.assert_quoted("log", &node.apply_file_once(&file));
    assert!(node.geometry(0).is_empty());
}

#[test]
fn unsupported_profile_is_named_with_supported_ones() {
    let problem = Problem::documented("profile_unknown");
    let node = Node::new("- {board: A100_80GB, mig: enabled}\n");
    let file = node.layouts("[{devices: all, mig: {3g.20gb: 1}}]");
    problem.assert_quoted("octavo plan", &node.plan_output(&file));
    problem.assert_quoted("log", &node.apply_file_once(&file));
    assert!(node.geometry(0).is_empty());
}

#[test]
fn rule_that_selects_nothing_lists_available_devices() {
    let problem = Problem::documented("rule_selects_nothing");
    let node = Node::new("- {board: A100_80GB, mig: enabled}\n");
    let file = node.layouts("[{devices: {type: nvidia-h100-80gb}, mig: {3g.40gb: 1}}]");
    problem.assert_quoted("log", &node.apply_file_once(&file));
}

#[test]
fn foreign_changes_are_reverted_or_left_and_reported() {
    let problem = Problem::documented("drift");
    for policy in ["repair", "report"] {
        let node = Node::new("- {board: A100_40GB, mig: enabled}\n");
        let mut agent =
            node.start(&["--layout=all-7g.40gb", "--interval=100ms", &format!("--drift={policy}")]);
        agent.expect_log("GPU 0: applied");
        // A change while the agent still completes its own is not drift.
        agent.expect_log("labels published");
        node.is_changed_by_another_process();
        let line = agent.expect_log(if policy == "repair" {
            "another program changed"
        } else {
            "drifted"
        });
        problem.assert_quoted("log", &line);
    }
}
