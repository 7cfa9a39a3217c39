//! The journal: reports of an unreadable one, and the holder of its lock.

use std::fs;
use std::process::{Command, Stdio};

use super::interrupted::{Case, DESTROY, TWO, reported};
use crate::time_limits::{Finish, eventually, exit_status};

#[test]
fn every_command_reports_unreadable_journal_until_it_is_discarded() {
    let case = Case::new(TWO);
    case.interrupt_apply("first", DESTROY, 3, "after");
    let journal = case.node.state().join("journal");
    let whole = fs::read(&journal).unwrap();
    fs::write(&journal, &whole[..100]).unwrap();
    let report = "the journal could not be read";
    let plan = reported(&case.plan("second", &[]), 3);
    let live = format!("cannot read the journal {}", journal.display());
    assert!(plan.contains(&live) && plan.contains("the next apply moves it aside"), "{plan}");
    for _ in 0..2 {
        let text = reported(&case.apply("second", &[]), 0);
        assert!(text.contains(report), "{text}");
        assert!(text.contains("octavo apply --forget"), "{text}");
    }
    assert_eq!(case.node.geometry(0).len(), 4, "it is not in the layout");
    let mig_parted = case.node.machine.path().join("mig-parted.yaml");
    let text = "version: v1\nmig-configs:\n  one:\n  - {devices: [1], mig-enabled: true, mig-devices: {7g.40gb: 1}}\n";
    fs::write(&mig_parted, text).unwrap();
    let file = mig_parted.display().to_string();
    for (config, code) in [("one", 0), ("none", 1)] {
        let verb = ["mig-parted", "apply", "-f", &file, "-c", config];
        let text = reported(&case.node.octavo(&verb), code);
        assert!(text.contains(report), "{text}");
    }
    let doctor = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["doctor", "-o", "json", "--nvml-library"])
        .arg(case.node.machine.library())
        .arg("--state-dir")
        .arg(case.node.state())
        .finish();
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(text.contains(report), "{text}");
    let observer = case.node.agent(&["--oneshot"]).finish();
    let text = String::from_utf8(observer.stderr).unwrap();
    assert!(text.contains(report), "{text}");
    let mut agent = case.node.start(&["--layouts", &case.file, "--layout", "second"]);
    agent.expect_log(report);
    agent.expect_log("listening for commands");
    let text = reported(&case.apply("second", &[]), 0);
    assert!(text.contains(report), "{text}");
    let text = reported(&case.node.octavo(&["apply", "--forget"]), 0);
    assert!(!text.contains(report), "{text}");
    agent.kill();
    assert!(!case.node.state().join("journal.unreadable").exists());
}

#[test]
fn forget_without_agent_discards_interrupted_change_and_reports_it() {
    let case = Case::new(TWO);
    let text = reported(&case.node.octavo(&["apply", "--forget"]), 1);
    assert!(text.contains("no agent runs on this node"), "{text}");
    case.interrupt_apply("first", DESTROY, 3, "after");
    let half = case.node.geometry(0);
    let text = reported(&case.node.octavo(&["apply", "--forget"]), 0);
    let line = format!("Discarded the interrupted change of the GPU at {}", case.pci(0));
    assert!(text.contains(&line), "{text}");
    assert!(case.node.is_clear());
    reported(&case.apply("second", &[]), 0);
    assert_eq!(case.node.geometry(0), half);
}

#[test]
fn agent_without_layout_reports_interrupted_change() {
    let case = Case::new(TWO);
    case.interrupt_apply("first", DESTROY, 3, "after");
    let output = case.node.agent(&["--oneshot"]).finish();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("(layout first) was interrupted on the GPU at "), "{text}");
    assert!(!case.node.is_clear(), "the agent finished the change");
}

#[test]
fn i12_journal_that_is_a_fifo_is_an_immediate_error() {
    let case = Case::new(TWO);
    let before = case.node.geometry(1);
    fs::create_dir_all(case.node.state()).unwrap();
    let journal = case.node.state().join("journal");
    nix::unistd::mkfifo(&journal, nix::sys::stat::Mode::S_IRUSR).unwrap();
    let text = reported(&case.apply("second", &[]), 1);
    assert!(text.contains("it is not a regular file"), "{text}");
    let plan = reported(&case.plan("second", &[]), 3);
    assert!(plan.contains("it is not a regular file"), "{plan}");
    assert_eq!(case.node.geometry(1), before);
    reported(&case.node.octavo(&["apply", "--forget"]), 0);
    reported(&case.apply("second", &[]), 0);
}

#[test]
fn lock_holder_that_accepts_no_commands_yet_is_named() {
    for (by, who) in
        [("octavo", "another octavo apply is running"), ("octavo-agent", "octavo-agent is running")]
    {
        let case = Case::new(TWO);
        let go = case.node.machine.path().join("go");
        case.node.machine.faults(&format!(
            "- {{call: {DESTROY}, nth: 1, times: 1, hang: {{until_file: {}}}}}",
            go.display()
        ));
        let arguments = ["--layouts", &case.file, "--layout", "first"];
        let mut first = match by {
            "octavo" => case
                .node
                .command(&["apply", "first", "-f", &case.file])
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
            _ => case.node.agent(&arguments).stdout(Stdio::null()).spawn().unwrap(),
        };
        eventually("a journal", || !case.node.is_clear());
        let text = reported(&case.apply("second", &[]), 1);
        let holder = format!("{who} (pid {})", first.id());
        assert!(text.contains(&holder), "{text}");
        assert!(!text.contains("an agent manages this node"), "{text}");
        fs::write(&go, "").unwrap();
        if by == "octavo" {
            assert!(exit_status(&mut first).success());
            reported(&case.apply("second", &[]), 0);
        } else {
            first.kill().unwrap();
            exit_status(&mut first);
        }
    }
}

#[test]
fn agent_names_gpu_still_changing_for_an_earlier_layout() {
    let case = Case::new(TWO);
    case.node.machine.faults(&format!(
        "- {{call: {DESTROY}, gpu: 0, nth: 3, return: NO_PERMISSION}}\n- {{call: nvmlDeviceCreateGpuInstance*, gpu: 0, return: NO_PERMISSION}}"
    ));
    let mut agent = case.node.start(&["--layouts", &case.file, "--layout", "first"]);
    agent.expect_log("GPU 0: failed");
    agent.expect_log("listening for commands");
    let text = reported(&case.apply("second", &[]), 1);
    assert!(text.contains("GPU 0") && text.contains("layout first: "), "{text}");
    assert_eq!(case.node.geometry(1).len(), 1, "{text}");
    assert!(!case.node.is_clear());
}
