//! Drivers with one wrong answer, hanging calls or a library that cannot be loaded: the cause is named and deadlines
//! hold.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use nvml_sim::model::{Process, ProcessKind};
use tokio::time::Instant;

use crate::node::{Node, names};
use crate::time_limits::Finish;

const SEVEN: &str =
    "- {board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb, count: 7}]}\n";
/// The second instance is in no layout of these tests.
const FOREIGN: &str = "- {board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb, start: 0}, {profile: 3g.20gb, start: 4}]}\n";
/// Far longer than the deadline of a hanging call.
const HANGS: Duration = Duration::from_mins(1);

fn text(output: &Output) -> String {
    let all = [output.stdout.clone(), output.stderr.clone()].concat();
    String::from_utf8(all).unwrap()
}

#[test]
fn wrong_answer_about_profile_hides_no_instance() {
    for code in ["NOT_SUPPORTED", "NO_DATA", "INVALID_ARGUMENT", "TIMEOUT"] {
        // Profiles are queried in the order of their indices; index 0 is 1g.5gb.
        for (nth, call) in [
            (1, "nvmlDeviceGetGpuInstanceProfileInfo*"),
            (1, "nvmlGpuInstanceGetComputeInstanceProfileInfo*"),
            (1, "nvmlDeviceGetGpuInstances"),
            (1, "nvmlGpuInstanceGetComputeInstances"),
        ] {
            let node = Node::new(FOREIGN);
            node.machine
                .faults(&format!("- {{call: \"{call}\", nth: {nth}, times: 1, return: {code}}}"));
            let file = node.layouts("[{devices: all, mig: {3g.20gb: 1}}]");
            let output = node.octavo(&["apply", "wanted", "-f", &file]);
            let reported = text(&output);
            let has = node.geometry(0);
            assert!(
                !output.status.success() || names(&has) == ["3g.20gb"],
                "{call} {code}: {has:?} {reported}"
            );
        }
    }
}

#[test]
fn i5_layout_recovers_from_invalid_argument_about_profiles() {
    let node = Node::new(SEVEN);
    node.machine.faults(
        "- {call: \"nvmlDeviceGetGpuInstanceProfileInfo*\", times: 2, return: INVALID_ARGUMENT}",
    );
    let mut agent = node.start(&["--layout", "all-3g.20gb", "--interval", "1s"]);
    agent.expect_log("applied in");
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
}

#[test]
fn process_without_instance_is_shown_as_in_use() {
    let node = Node::new(SEVEN);
    node.machine.change(|world| {
        let gpu_uuid = world.gpus[0].uuid.clone();
        world.add_process(Process {
            pid: 77,
            name: "train".to_owned(),
            gpu_uuid,
            gi: None,
            ci: None,
            memory_mib: 1,
            kind: ProcessKind::Compute,
        })
    });
    let proc = node.machine.path().join("proc").display().to_string();
    let plan = |format: &str| {
        let plan = ["plan", "all-7g.40gb", "--proc-root", &proc, "-o", format];
        let output = node.run_read_only(&plan);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let picture = plan("table");
    assert!(picture.contains("in use") && !picture.contains("idle"), "{picture}");
    let document: serde_json::Value = serde_json::from_str(&plan("json")).unwrap();
    let mut before = document["devices"][0]["before"].as_array().unwrap().iter();
    assert!(before.all(|one| one["inUse"] == true));
    let inspect = text(&node.run_read_only(&["inspect", "-o", "wide"]));
    assert!(!inspect.contains("idle"), "{inspect}");
}

#[test]
fn stalled_or_unusable_driver_is_named_as_cause() {
    let node = Node::new(SEVEN);
    // The bus is empty, so only the driver could report a GPU.
    fs::remove_dir_all(node.machine.path().join("sys/bus")).unwrap();
    let file = node.layouts("[{devices: all, mig: {3g.20gb: 1}}]");
    node.machine.faults("- {call: nvmlInit_v2, hang: forever}");
    let plan = |node: &Node| {
        let plan = ["plan", "wanted", "-f", &file, "--call-deadline", "1s"];
        text(&node.run_read_only(&plan))
    };
    let reported = plan(&node);
    assert!(reported.contains("NVML is stalled: nvmlInit_v2 does not return"), "{reported}");
    node.machine.faults("[]");
    let whole = fs::read(node.machine.library()).unwrap();
    fs::write(node.machine.library(), &whole[..whole.len() / 2]).unwrap();
    let reported = plan(&node);
    assert!(
        reported.contains("NVML is absent: cannot load")
            && reported.contains("still be being copied"),
        "{reported}"
    );
    let reported = text(&node.run_read_only(&["inspect"]));
    assert!(
        reported.contains("still be being copied") && !reported.contains("CPU-only"),
        "{reported}"
    );
}

/// Replaces the library of the driver by one that never finishes loading.
fn install_endless_library(library: &Path) {
    let source = library.with_extension("c");
    let text = "#include <unistd.h>\n\
        __attribute__((constructor)) static void never(void) { for (;;) pause(); }\n";
    fs::write(&source, text).unwrap();
    fs::remove_file(library).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(library).arg(&source).finish();
    assert!(built.status.success(), "{built:?}");
}

#[test]
fn i8_library_that_never_loads_delays_no_command_or_shutdown() {
    let node = Node::new(SEVEN);
    install_endless_library(&node.machine.library());
    for command in ["inspect", "doctor"] {
        let began = Instant::now();
        let output = node.run_read_only(&[command, "--call-deadline", "1s"]);
        let reported = text(&output);
        assert!(began.elapsed() < HANGS, "{command}");
        assert!(reported.contains("dlopen"), "{command}: {reported}");
    }
    let mut agent = node.start(&["--call-deadline", "1s", "--interval", "1s"]);
    let line = agent.expect_log("nvml: stalled");
    assert!(line.contains("dlopen"), "{line}");
    assert!(agent.stop().success());
}

#[test]
fn apply_timeout_holds_during_a_hanging_call() {
    let node = Node::new(SEVEN);
    for call in ["nvmlInit_v2", "nvmlGpuInstanceDestroy"] {
        node.machine.faults(&format!("- {{call: {call}, hang: forever}}"));
        let began = Instant::now();
        let output =
            node.octavo(&["apply", "all-7g.40gb", "--timeout", "3s", "--call-deadline", "10m"]);
        let reported = text(&output);
        assert!(began.elapsed() < HANGS, "{call}");
        assert!(!output.status.success() && reported.contains(call), "{reported}");
    }
}

#[test]
fn i7_driver_that_hangs_before_first_decision_is_a_failure() {
    let node = Node::new(SEVEN);
    // In the first reading, and in the reading of the first round.
    for nth in 2..=3 {
        node.machine
            .faults(&format!("- {{call: nvmlDeviceGetMigMode, nth: {nth}, hang: forever}}"));
        let timeout = ["--timeout", "3s", "--call-deadline", "10m"];
        let output = node.octavo(&[&["apply", "all-7g.40gb"], &timeout[..]].concat());
        let reported = text(&output);
        assert_eq!(output.status.code(), Some(1), "{nth}: {reported}");
        assert!(reported.contains("nvmlDeviceGetMigMode"), "{nth}: {reported}");
        assert!(!reported.contains("no device is covered"), "{nth}: {reported}");
    }
}

#[test]
fn i5_running_reset_delays_only_changes_until_timeout() {
    let node = Node::new(SEVEN);
    assert!(node.octavo(&["apply", "all-7g.40gb"]).status.success());
    let lock = fs::File::create(node.state().join("reset.lock")).unwrap();
    lock.lock().unwrap();
    let began = Instant::now();
    let output = node.octavo(&["apply", "all-7g.40gb"]);
    assert!(output.status.success(), "{}", text(&output));
    let output = node.octavo(&["apply", "all-1g.5gb", "--timeout", "2s"]);
    let reported = text(&output);
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(reported.contains("an earlier reset is still running"), "{reported}");
    assert!(began.elapsed() < HANGS, "{:?}", began.elapsed());
}

#[test]
fn oneshot_agent_fails_with_its_layout() {
    let node = Node::new(SEVEN);
    let file = node.layouts("[{devices: all, mig: {3g.20gb: 1}}]");
    let once = ["--oneshot", "--layouts", &file, "--layout", "another"];
    let output = node.agent(&once).finish();
    let reported = text(&output);
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(reported.contains("layout another failed: "), "{reported}");
    node.machine.faults("- {call: nvmlGpuInstanceDestroy, return: IN_USE}");
    // Blocked is not failed.
    node.apply_once("all-7g.40gb");
}

#[test]
fn agent_removes_its_socket_on_exit() {
    let node = Node::new(SEVEN);
    let mut agent = node.start(&["--layout", "all-1g.5gb"]);
    agent.expect_log("listening for commands");
    assert!(node.state().join("agent.sock").exists());
    assert!(agent.stop().success());
    assert!(!node.state().join("agent.sock").exists());
}

#[test]
fn commands_within_a_second_have_distinct_plan_ids() {
    let node = Node::new(SEVEN);
    for layout in ["all-7g.40gb", "all-1g.5gb", "all-3g.20gb", "all-2g.10gb"] {
        assert!(node.octavo(&["apply", layout]).status.success());
    }
    let history = fs::read_to_string(node.state().join("history.jsonl")).unwrap();
    let ids = history.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["plan"].as_str().unwrap().to_owned()
    });
    let mut ids: Vec<String> = ids.collect();
    let count = ids.len();
    // Ids of the same second have different fractions.
    assert!(ids.iter().all(|id| id.contains('.')), "{ids:?}");
    ids.dedup();
    assert_eq!((ids.len(), count), (4, 4));
}
