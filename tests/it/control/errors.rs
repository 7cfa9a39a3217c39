//! Hanging drivers and lost GPUs during changes, release of the library, and the number of calls.

use std::fs;
use std::process::Command;
use std::time::Duration;

use nvml_sim::model::Slot;
use octavo_hardware::{DriverUnavailable, Settings};
use octavo_model::call::{CallResult, FailureKind};
use octavo_model::inventory::NvmlState;

use super::{
    A100S, CREATE, ONE, THREE, TWO, compute, created, failure, gpu_instance, make, real, with,
};
use crate::machine::{Machine, settings, start};
use crate::time_limits::{Finish, until_async, within};

#[tokio::test]
async fn hanging_change_is_named_and_every_request_is_answered() {
    let machine = Machine::new(A100S);
    let settings = Settings { call_deadline: Duration::from_secs(2), ..machine.settings() };
    let handle = start(&settings);
    let before = handle.observe().await;
    let go_on = machine.path().join("go-on");
    machine.faults(&format!(
        "- {{call: {CREATE}, gpu: 1, hang: {{until_file: {}}}}}",
        go_on.display()
    ));
    let work = tokio::spawn({
        let handle = handle.clone();
        async move { make(&handle, 1, vec![gpu_instance(THREE, 0, 4)]).await }
    });
    let observe = async || handle.observe().await;
    let during =
        until_async("a stall", observe, |now| !matches!(now.nvml, NvmlState::Ready(_))).await;
    let stalled =
        NvmlState::Stalled { call: CREATE.to_owned(), driver: before.nvml.driver().cloned() };
    assert_eq!(during.nvml, stalled);
    let problems: Vec<usize> = during.devices.iter().map(|d| d.problems.len()).collect();
    assert_eq!(problems, [0, 1]);
    fs::write(go_on, "").unwrap();
    let outcomes = work.await.unwrap();
    created(&outcomes[0], 0, 4);
    assert!(matches!(handle.latest().nvml, NvmlState::Ready(_)));
}

#[tokio::test]
async fn gpu_lost_between_calls_fails_and_the_other_succeeds() {
    let machine = Machine::new(A100S);
    let handle = machine.spawn();
    machine.faults(&format!("- {{call: {CREATE}, gpu: 0, lose_gpu: true}}"));
    let calls = vec![gpu_instance(ONE, 0, 1), gpu_instance(ONE, 1, 1)];
    let outcomes = make(&handle, 0, calls.clone()).await;
    let last = outcomes.last().cloned().unwrap();
    assert_eq!(failure(last).0, FailureKind::DeviceLost);
    let read = with(&handle, 0, |control, calls| control.processes(calls)).await;
    assert_eq!(read.unwrap_err().kind, FailureKind::DeviceLost);
    for outcome in make(&handle, 1, calls).await {
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

#[tokio::test]
async fn unreported_processes_are_an_error_and_never_an_empty_list() {
    let processes = async |machine: &Machine| {
        let handle = machine.spawn();
        with(&handle, 0, |control, calls| control.processes(calls)).await
    };
    let compute = "nvmlDeviceGetComputeRunningProcesses_v3";
    let graphics = "nvmlDeviceGetGraphicsRunningProcesses_v3";
    for function in [compute, graphics] {
        let machine = Machine::new(A100S).without(&[function]);
        let shown = processes(&machine).await.unwrap_err();
        assert_eq!(shown.what, format!("{function}: not in this driver's library"));
    }
    let machine =
        Machine::new(&format!("{A100S}processes: [{{pid: 4711, gpu: 0, memory_mib: 64}}]\n"));
    machine.faults(&format!("- {{call: {compute}, return: NOT_SUPPORTED}}"));
    let shown = processes(&machine).await.unwrap_err();
    assert_eq!(shown.kind, FailureKind::Rejected);
    // A device without graphics has no graphics contexts.
    machine.faults(&format!("- {{call: {graphics}, return: NOT_SUPPORTED}}"));
    let shown = processes(&machine).await.unwrap();
    assert_eq!(shown.iter().map(|one| one.pid).collect::<Vec<_>>(), [4711]);
}

#[tokio::test]
async fn released_library_is_unmapped_and_observation_stays() {
    let machine = Machine::new(A100S);
    let library = machine.library().display().to_string();
    let mapped = || {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains(&library)
    };
    let handle = machine.spawn();
    let before = handle.observe().await;
    assert!(mapped());
    let released = handle.release().await.unwrap();
    assert!(!mapped());
    // A concurrent change by another program.
    machine.change(|world| world.create_gi(Slot(0), THREE, None).map(|_: u32| ()));
    assert_eq!(handle.observe().await, before);
    assert_eq!(handle.work(|_, _| ()).await, Err(DriverUnavailable::Released));
    assert!(!mapped());

    let mut hints = handle.changes();
    drop(released);
    within("a hint", hints.changed()).await;
    assert!(mapped());
    let after = handle.latest();
    let state = after.devices[0].mig.state().unwrap();
    assert_eq!(state.gpu_instances.len(), 1);
    assert_eq!(after.nvml, before.nvml);
}

/// Reads the log of the simulator, which an environment variable enables, so the calls run in a separate process.
#[test]
fn instance_costs_three_calls_once_its_profile_is_known() {
    let machine = Machine::new(A100S);
    let log = machine.path().join("calls");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "control::errors::creates_on_request"])
        .env("NVML_SIM_LOG", &log)
        .env("OCTAVO_TEST_CREATES_WITH", machine.library())
        .finish();
    assert!(child.status.success(), "{child:?}");
    assert_eq!(real(&machine).len(), 2);
    let functions: Vec<String> = fs::read_to_string(log)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|entry| entry["function"].as_str().unwrap().to_owned())
        .filter(|function| !function.starts_with("nvmlEventSet"))
        .collect();
    let begins: Vec<usize> = (0..)
        .zip(&functions)
        .filter(|(_, function)| *function == CREATE)
        .map(|(at, _)| at)
        .collect();
    let [first, second] = begins[..] else {
        panic!("{functions:?}");
    };
    let made = [CREATE, "nvmlGpuInstanceGetInfo", "nvmlGpuInstanceCreateComputeInstance"];
    assert_eq!(functions[second..second + 3], made);
    let learnt = &functions[first + 2..second - 1];
    assert_eq!((functions[first + 1].as_str(), functions[second - 1].as_str()), (made[1], made[2]));
    // An absent profile is confirmed by the versioned form of the call.
    let queries = [
        "nvmlGpuInstanceGetComputeInstanceProfileInfo",
        "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
    ];
    assert!(learnt.iter().all(|f| queries.contains(&f.as_str())), "{learnt:?}");
}

/// The process of [`instance_costs_three_calls_once_its_profile_is_known`]; does nothing on its own.
#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "the test that starts this process passes its input in the environment"
)]
async fn creates_on_request() {
    let Ok(library) = std::env::var("OCTAVO_TEST_CREATES_WITH") else {
        return;
    };
    let handle = start(&settings(library.into(), "/sys".into()));
    with(&handle, 0, |control, calls| {
        for start in [0, 2] {
            let made = control.call(gpu_instance(TWO, start, 2), calls);
            let id = created(&made, start, 2);
            assert_eq!(control.call(compute(id, 2), calls), Ok(CallResult::Completed));
        }
    })
    .await;
}
