//! Interrupted changes, and the next command for the same or another layout.

use std::fs;
use std::process::{Command, Output};

use nvml_sim::model::{Slot, World};
use octavo_files::history;
use octavo_planner::reconcile::NodeLayoutStatus;
use serde_json::Value;

use crate::node::{Node, names};
use crate::time_limits::{Finish, eventually};

/// Two GPUs with the same seven instances.
pub(super) const TWO: &str =
    "- {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 1g.5gb, count: 7}]}\n";
/// One of seven instances is in use.
const USED: &str = "- {board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb, count: 7}]}\nprocesses:\n- {pid: 4711, gpu: 0, gi: 7, ci: 0, memory_mib: 100}\n";
/// Layouts for all GPUs or for one of them.
const LAYOUTS: &str = "apiVersion: octavo.dev/v1
kind: Layouts
layouts:
  around: [{devices: all, mig: {3g.20gb: 1, 1g.5gb: 1}}]
  first: [{devices: 0, mig: {7g.40gb: 1}}]
  second: [{devices: 1, mig: {7g.40gb: 1}}]
  whole: [{devices: all, mig: {7g.40gb: 1}}]
";
/// The call that destroys a GPU instance.
pub(super) const DESTROY: &str = "nvmlGpuInstanceDestroy";

/// A node with a layout file.
pub(super) struct Case {
    pub(super) node: Node,
    pub(super) file: String,
}

impl Case {
    pub(super) fn new(gpus: &str) -> Self {
        let node = Node::new(gpus);
        let path = node.machine.path().join("layouts.yaml");
        fs::write(&path, LAYOUTS).unwrap();
        let file = path.display().to_string();
        Self { node, file }
    }

    pub(super) fn apply(&self, layout: &str, more: &[&str]) -> Output {
        let arguments = [&["apply", layout, "-f", &self.file], more].concat();
        self.node.octavo(&arguments)
    }

    /// Applies a layout with a process that is killed at a call.
    #[track_caller]
    pub(super) fn interrupt_apply(&self, layout: &str, call: &str, nth: usize, when: &str) {
        self.node
            .machine
            .faults(&format!("- {{call: {call}, nth: {nth}, times: 1, abort: {when}}}"));
        let output = self.apply(layout, &[]);
        self.node.machine.faults("[]");
        assert_eq!(output.status.code(), None, "{}", all(&output));
        assert!(!self.node.is_clear(), "there is a journal");
    }

    pub(super) fn plan(&self, layout: &str, more: &[&str]) -> Output {
        let path = self.node.machine.path();
        Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(["plan", layout, "-f", &self.file, "--nvml-library"])
            .arg(self.node.machine.library())
            .arg("--sys-root")
            .arg(path.join("sys"))
            .arg("--proc-root")
            .arg(path.join("proc"))
            .arg("--state-dir")
            .arg(self.node.state())
            .args(more)
            .finish()
    }

    /// Layout, PCI address and result of each device in the history.
    pub(super) fn history(&self) -> Vec<(String, String, String)> {
        let text = fs::read_to_string(self.node.state().join("history.jsonl"));
        let attempts = history::parse(&text.unwrap_or_default());
        let devices = attempts.iter().flat_map(|attempt| {
            let devices = attempt.devices.iter();
            devices.map(|device| {
                (attempt.layout.clone(), device.pci.clone(), device.result.to_string())
            })
        });
        devices.collect()
    }

    pub(super) fn pci(&self, gpu: usize) -> String {
        self.node.machine.world().gpus[gpu].pci.sysfs()
    }
}

fn all(output: &Output) -> String {
    let text = [output.stdout.clone(), output.stderr.clone()].concat();
    let text = String::from_utf8(text).unwrap();
    // Text output is wrapped.
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

#[track_caller]
pub(super) fn reported(output: &Output, code: i32) -> String {
    let text = all(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

#[test]
fn i2_change_that_never_reached_hardware_is_dropped_for_new_layout() {
    let case = Case::new(USED);
    let before = case.node.geometry(0);
    case.interrupt_apply("around", "nvmlComputeInstanceDestroy", 1, "before");
    assert_eq!(case.node.geometry(0), before);
    let text = reported(&case.apply("whole", &[]), 4);
    assert!(text.contains("blocked"), "{text}");
    assert_eq!(case.node.geometry(0), before, "{text}");
    assert!(case.node.is_clear());
    assert_eq!(case.history(), [], "nothing was changed");
}

#[test]
fn i2_unselected_device_is_untouched_by_change_that_never_began() {
    let case = Case::new(TWO);
    let before = case.node.geometry(0);
    case.interrupt_apply("first", "nvmlComputeInstanceDestroy", 1, "before");
    let plan = reported(&case.plan("second", &[]), 3);
    assert!(plan.contains("GPU 0: not in the layout, never changed"), "{plan}");
    reported(&case.apply("second", &[]), 0);
    assert_eq!(case.node.geometry(0), before);
    assert_eq!(names(&case.node.geometry(1)), ["7g.40gb"]);
}

#[test]
fn i3_interrupted_change_is_reported_under_its_own_layout() {
    for json in [false, true] {
        let case = Case::new(TWO);
        case.interrupt_apply("first", DESTROY, 3, "after");
        let plan = reported(&case.plan("second", &[]), 3);
        assert!(
            plan.contains("interrupted: the change of this GPU to layout first was not completed")
                && !plan.contains("never changed"),
            "{plan}"
        );
        let document: Value =
            serde_json::from_slice(&case.plan("second", &["-o", "json"]).stdout).unwrap();
        assert_eq!(document["devices"][0]["interruptedLayout"], "first");
        assert_eq!(document["devices"][0]["verdict"], "change");
        assert_eq!(document["devices"][1]["interruptedLayout"], Value::Null);
        let format: &[&str] = if json { &["-o", "json"] } else { &[] };
        let output = case.apply("second", format);
        let text = reported(&output, 0);
        if json {
            let status: NodeLayoutStatus = serde_json::from_slice(&output.stdout).unwrap();
            let [change] = &status.interrupted[..] else {
                panic!("{text}");
            };
            assert_eq!(
                (change.layout.as_str(), change.pci.to_string(), change.state.as_str()),
                ("first", case.pci(0), "applied")
            );
            assert_eq!(status.devices.len(), 1, "{text}");
        } else {
            let line =
                format!("Interrupted change to layout first: GPU 0 ({}) applied", case.pci(0));
            assert!(text.contains(&line), "{text}");
            assert!(text.contains("Layout second: applied on 1 GPU"), "{text}");
        }
        assert_eq!(names(&case.node.geometry(0)), ["7g.40gb"]);
        assert_eq!(names(&case.node.geometry(1)), ["7g.40gb"]);
        let applied = "applied".to_owned();
        assert_eq!(
            case.history(),
            [
                ("first".to_owned(), case.pci(0), applied.clone()),
                ("second".to_owned(), case.pci(1), applied),
            ]
        );
        assert!(case.node.is_clear());
    }
}

#[test]
fn i3_change_completed_before_process_exit_is_in_history() {
    let case = Case::new(TWO);
    case.interrupt_apply("first", "nvmlGpuInstanceCreateComputeInstance*", 1, "after");
    assert_eq!(names(&case.node.geometry(0)), ["7g.40gb"]);
    let text = reported(&case.apply("second", &[]), 0);
    assert!(text.contains("Interrupted change to layout first: GPU 0"), "{text}");
    let layouts: Vec<String> = case.history().into_iter().map(|one| one.0).collect();
    assert_eq!(layouts, ["first", "second"]);
}

#[test]
fn i2_finished_change_is_in_history_under_its_own_layout_only() {
    let case = Case::new(TWO);
    case.interrupt_apply("first", "nvmlGpuInstanceCreateComputeInstance*", 1, "after");
    reported(&case.apply("whole", &[]), 0);
    let applied = "applied".to_owned();
    assert_eq!(
        case.history(),
        [
            ("first".to_owned(), case.pci(0), applied.clone()),
            ("whole".to_owned(), case.pci(1), applied),
        ]
    );
}

#[test]
fn i2_lost_gpu_keeps_its_uuid_in_journal_and_is_reported_once() {
    let case = Case::new(TWO);
    case.interrupt_apply("first", DESTROY, 3, "after");
    let uuid = case.node.machine.world().gpus[0].uuid.clone();
    case.node.machine.change(|world| world.lose_gpu(Slot(0)));
    let text = reported(&case.apply("whole", &[]), 1);
    assert!(text.contains("Layout whole: 1 failed, 1 applied"), "{text}");
    assert!(!text.contains("Interrupted change to layout"), "{text}");
    let journal = fs::read_to_string(case.node.state().join("journal")).unwrap();
    assert!(journal.contains(&uuid), "{journal}");
    assert!(journal.contains("first"), "{journal}");
}

#[test]
fn i2_plan_of_infeasible_layout_lists_interrupted_changes() {
    let case = Case::new(TWO);
    case.interrupt_apply("first", DESTROY, 3, "after");
    case.node.layouts("[{devices: 1, mig: {3g.40gb: 1}}]");
    let output = case.plan("wanted", &["-o", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["outcome"], "infeasible", "{document}");
    assert_eq!(document["devices"][0]["interruptedLayout"], "first");
    assert_eq!(document["devices"][0]["verdict"], "change");
    assert_eq!(document["devices"][1]["verdict"], "infeasible");
}

#[test]
fn i3_interrupted_change_is_finished_if_new_layout_is_blocked() {
    let case = Case::new(USED);
    case.interrupt_apply("around", DESTROY, 3, "after");
    let plan = reported(&case.plan("whole", &[]), 4);
    assert!(
        plan.contains(
            "to layout around was not completed; `octavo apply` completes it or rolls it back"
        ),
        "{plan}"
    );
    let text = reported(&case.apply("whole", &[]), 4);
    assert!(
        text.contains("Interrupted change to layout around: GPU 0")
            && text.contains("Layout whole: 1 blocked"),
        "{text}"
    );
    let mut geometry = case.node.geometry(0);
    geometry.retain(|one| one.0 == "3g.20gb");
    assert_eq!(geometry.len(), 1, "{text}");
    assert_eq!(case.history()[0].0, "around");
    assert!(case.node.is_clear());
}

#[test]
fn driver_lost_during_change_is_failed_with_cause_and_completed_steps() {
    let case = Case::new(TWO);
    let path = case.node.machine.path();
    // Only the driver shows the GPUs.
    fs::remove_dir_all(path.join("sys")).unwrap();
    fs::create_dir(path.join("sys")).unwrap();
    let go = path.join("go");
    case.node.machine.faults(&format!(
        "- {{call: {DESTROY}, nth: 3, times: 1, hang: {{until_file: {}}}}}",
        go.display()
    ));
    let output = std::thread::scope(|scope| {
        let command = scope.spawn(|| case.apply("first", &[]));
        eventually("two of seven instances destroyed", || case.node.geometry(0).len() == 5);
        case.node.machine.change(World::unload_driver);
        fs::write(&go, "").unwrap();
        command.join().unwrap()
    });
    let text = reported(&output, 1);
    assert!(
        text.contains("failed")
            && text.contains("GPU instances destroyed: 2, created: 0")
            && !text.contains("blocked"),
        "{text}"
    );
    assert!(text.contains("Layout first: 1 failed"), "{text}");
    assert!(!case.node.is_clear());
    // The change is completed when the driver is back.
    case.node.machine.faults("[]");
    case.node.machine.change(|world| {
        world.load_driver();
        Ok(())
    });
    let text = reported(&case.apply("second", &[]), 0);
    assert!(text.contains("Interrupted change to layout first: GPU 0"), "{text}");
}

#[test]
fn i3_unresolvable_layout_does_not_prevent_journal_recovery() {
    let case = Case::new(TWO);
    let (none, torn) =
        (case.node.machine.path().join("none.yaml"), case.node.machine.path().join("torn.yaml"));
    fs::write(&torn, "kind: [").unwrap();
    let [none, torn] = [none, torn].map(|path| path.display().to_string());
    for (layout, file) in
        [("nonsense", case.file.as_str()), ("whole", none.as_str()), ("whole", torn.as_str())]
    {
        case.interrupt_apply("second", DESTROY, 3, "after");
        let text = reported(&case.node.octavo(&["apply", layout, "-f", file]), 1);
        assert!(
            text.contains("Interrupted change to layout second: GPU 1") && text.contains("error: "),
            "{text}"
        );
        assert_eq!(names(&case.node.geometry(1)), ["7g.40gb"]);
        assert!(case.node.is_clear());
        let file = case.node.layouts("[{devices: 1, mig: {1g.5gb: 7}}]");
        reported(&case.node.octavo(&["apply", "wanted", "-f", &file]), 0);
        fs::write(&case.file, LAYOUTS).unwrap();
    }
    // An index of no GPU.
    case.interrupt_apply("second", DESTROY, 3, "after");
    case.node.machine.change(|world| world.lose_gpu(Slot(0)));
    let file = case.node.layouts("[{devices: 0, mig: disabled}, {devices: 5, mig: disabled}]");
    let text = reported(&case.node.octavo(&["apply", "wanted", "-f", &file]), 1);
    assert!(
        text.contains("no GPU has the index 5")
            && text.contains("Interrupted change to layout second: GPU "),
        "{text}"
    );
}
