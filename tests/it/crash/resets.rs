//! I3: a reset never affects a GPU that was partitioned after the process that requested the reset died.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::cases::CASES;
use super::rig::Rig;
use crate::machine::simulator;
use crate::process::Program;
use crate::time_limits::{eventually, until};

fn rig() -> Rig {
    let case = CASES.iter().find(|case| case.nvidia_smi);
    let rig = Rig::new(case.unwrap());
    rig.reset();
    rig
}

/// A program in place of `nvidia-smi`; `RESET` in it resets the first GPU.
fn install(rig: &Rig, script: &str) {
    let directory = rig.directory();
    let program = directory.join("nvidia-smi");
    let reset = format!(
        "'{}' --state '{}' reset 0",
        simulator().display(),
        directory.join("nvml-sim.state").display()
    );
    let directory = directory.display().to_string();
    let text = script.replace("RESET", &reset).replace("FOLDER", &directory);
    fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Waits until the file exists and is not empty.
fn wait_for(file: &Path) -> String {
    let read = || fs::read_to_string(file).unwrap_or_default();
    until(&file.display().to_string(), read, |text| text.ends_with('\n'))
}

#[test]
fn i3_reset_ends_with_the_agent_that_is_killed_while_it_runs() {
    let rig = rig();
    install(
        &rig,
        "echo $$ > 'FOLDER/pid'; while [ ! -e 'FOLDER/go' ]; do sleep 0.02; done; RESET; echo > 'FOLDER/done'",
    );
    let directory = rig.directory();
    let mut killed = Program::start(&mut rig.program());
    let pid = wait_for(&directory.join("pid"));
    killed.kill();
    let process = PathBuf::from(format!("/proc/{}", pid.trim()));
    eventually("the end of the reset", || !is_running(&process));
    // No process is left that could see the file.
    fs::write(directory.join("go"), "").unwrap();
    install(&rig, "exec RESET");
    let ran = rig.run();
    assert_eq!(rig.sides(), Ok(vec![true]), "{}", ran.reported());
    assert!(!directory.join("done").exists());
}

/// A zombie process is not running.
fn is_running(process: &Path) -> bool {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| !state.trim().starts_with(['Z', 'X']))
}

#[test]
fn i3_reset_that_outlives_agent_completes_before_instances_are_created() {
    let rig = rig();
    // A child of a wrapper survives the wrapper. A shell gives background processes no standard input unless
    // redirected.
    install(
        &rig,
        "exec 3<&0; (while [ ! -e 'FOLDER/go' ]; do sleep 0.02; done; RESET; echo > 'FOLDER/done') <&3 >/dev/null 2>&1 &\n\
         echo $$ > 'FOLDER/pid'; wait",
    );
    let directory = rig.directory();
    let mut killed = Program::start(&mut rig.program());
    wait_for(&directory.join("pid"));
    killed.kill();
    install(&rig, "exec RESET");
    let mut second = Program::start(&mut rig.program());
    second.expect_log("an earlier reset is still running");
    fs::write(directory.join("go"), "").unwrap();
    wait_for(&directory.join("done"));
    second.expect_log("applied in");
    assert!(second.wait_for_exit().success());
    assert_eq!(rig.sides(), Ok(vec![true]));
}
