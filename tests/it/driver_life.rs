//! Life cycle of a driver: files that are no library, drivers that load, unload and hang, lost GPUs, and the number of
//! calls of a reading.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use nvml_sim::model::Slot;
use octavo_hardware::Settings;
use octavo_model::inventory::{
    Completeness, Condition, Device, DeviceProcesses, Inventory, Mig, NvmlState, ReadProblem,
};

use crate::driver_contract::H100S;
use crate::machine::{Machine, follow, settings, start};
use crate::time_limits::{Finish, within};

fn is_ready(state: &NvmlState) -> bool {
    matches!(state, NvmlState::Ready(_))
}

#[tokio::test]
async fn lost_gpu_is_one_failing_device() {
    let machine = Machine::new(H100S);
    let handle = machine.spawn();
    let before = handle.observe().await;
    machine.change(|world| world.lose_gpu(Slot(3)));
    let after = handle.observe().await;
    assert!(is_ready(&after.nvml));
    assert_eq!(after.devices.len(), 8);
    for (at, (before, after)) in before.devices.iter().zip(&after.devices).enumerate() {
        if at != 3 {
            assert_eq!(before, after);
            continue;
        }
        let Condition::Failing { reason } = &after.condition else {
            panic!("{:?}", after.condition);
        };
        assert!(reason.contains("GPU is lost (15)"), "{reason}");
        assert_eq!((&after.uuid, after.pci), (&before.uuid, before.pci));
        assert_eq!(after.product_name, before.product_name);
    }
}

#[tokio::test]
async fn gpu_lost_before_start_is_listed() {
    let machine = Machine::new(H100S);
    machine.change(|world| world.lose_gpu(Slot(3)));
    let inventory = machine.observe().await;
    let failing: Vec<usize> = (0..)
        .zip(&inventory.devices)
        .filter(|(_, device)| matches!(device.condition, Condition::Failing { .. }))
        .map(|(at, _)| at)
        .collect();
    assert_eq!((inventory.devices.len(), failing), (8, vec![3]));
}

#[tokio::test]
async fn functions_missing_from_older_library_are_absent_and_nothing_else() {
    let machine = Machine::new(H100S).without(&[
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetArchitecture",
        "nvmlEventSetCreate",
        "nvmlSystemGetCudaDriverVersion_v2",
    ]);
    let inventory = machine.observe().await;
    let NvmlState::Ready(driver) = &inventory.nvml else {
        panic!("{:?}", inventory.nvml);
    };
    assert_eq!(driver.cuda, None);
    for device in &inventory.devices {
        assert_eq!(device.condition, Condition::Working);
        assert_eq!(device.problems, []);
        assert_eq!(device.mig, Mig::NotCapable);
        assert_eq!(device.health.remapped_rows, None);
        assert!(device.uuid.is_some());
        assert!(!device.links.is_empty());
    }
}

#[tokio::test]
async fn device_with_unknown_processes_is_not_idle() {
    let compute = "nvmlDeviceGetComputeRunningProcesses_v3";
    let graphics = "nvmlDeviceGetGraphicsRunningProcesses_v3";
    for function in [compute, graphics] {
        let machine = Machine::new(H100S).without(&[function]);
        for device in &machine.observe().await.devices {
            let problem = ReadProblem {
                source: function.to_owned(),
                error: "not in this driver's library".to_owned(),
            };
            assert_eq!(device.problems, [problem]);
            assert_eq!(device.usage(), DeviceProcesses::Unknown);
        }
    }
    let machine = Machine::new(H100S);
    let handle = machine.spawn();
    machine.faults(&format!("- {{call: {compute}, return: NOT_SUPPORTED}}"));
    let device = &handle.observe().await.devices[0];
    assert_eq!(device.usage(), DeviceProcesses::Unknown);
    assert_eq!(device.problems[0].error, "not supported (3)");
    // A device without graphics has no graphics contexts.
    machine.faults(&format!("- {{call: {graphics}, return: NOT_SUPPORTED}}"));
    let device = &handle.observe().await.devices[0];
    assert_eq!((device.usage(), &device.problems[..]), (DeviceProcesses::Known(&[]), &[][..]));
}

#[tokio::test]
async fn missing_permission_is_named() {
    let machine = Machine::new(
        "machine: pod\ngpus: [{board: A100_80GB, mig: enabled, instances: [{profile: 3g.40gb}]}]\nfaults: [{call: nvmlDeviceGetGpuInstances, return: NO_PERMISSION}]\n",
    );
    let inventory = machine.observe().await;
    let device = &inventory.devices[0];
    let state = device.mig.state().unwrap();
    assert_eq!(state.gpu_instances, []);
    assert_eq!(state.geometry, Completeness::Partial);
    assert_eq!(
        device.problems,
        [ReadProblem {
            source: "nvmlDeviceGetGpuInstances".to_owned(),
            error:
                "no permission (4): requires root and, in a container, NVIDIA_MIG_MONITOR_DEVICES=all"
                    .to_owned(),
        }]
    );
}

#[tokio::test]
async fn file_that_is_not_nvml_is_named_with_missing_symbol() {
    let reason = |inventory: Inventory| {
        let NvmlState::Absent { reason } = inventory.nvml else {
            panic!("{:?}", inventory.nvml);
        };
        reason
    };
    let machine = Machine::new("machine: odd\n").without(&["nvmlShutdown"]);
    let path = machine.library().display().to_string();
    assert_eq!(
        reason(machine.observe().await),
        format!("{path} is not an NVML library: it lacks nvmlShutdown")
    );
    fs::write(machine.library(), "no library at all").unwrap();
    let shown = reason(machine.observe().await);
    assert!(shown.starts_with(&format!("cannot load {path}: ")), "{shown}");
    fs::remove_file(machine.library()).unwrap();
    assert_eq!(
        reason(machine.observe().await),
        format!("no NVML library libnvidia-ml.so.1 (looked in {})", machine.path().display())
    );
}

#[tokio::test]
async fn library_for_another_architecture_does_not_hide_the_right_one() {
    let machine = Machine::new(H100S);
    let wrong = machine.path().join("usr/lib/x86_64-linux-gnu");
    fs::create_dir_all(&wrong).unwrap();
    fs::write(wrong.join("libnvidia-ml.so.1"), "\x7fELF of a kind").unwrap();
    std::os::unix::fs::symlink(machine.path(), machine.path().join("usr/lib64")).unwrap();
    let settings = Settings {
        library: None,
        driver_roots: vec![machine.path().to_owned()],
        ..machine.settings()
    };
    let inventory = start(&settings).observe().await;
    assert!(is_ready(&inventory.nvml), "{:?}", inventory.nvml);
}

#[tokio::test]
async fn bus_devices_are_shown_without_a_driver() {
    let machine = Machine::new(&format!("{H100S}driver_loaded: false\n"));
    let handle = machine.spawn();
    let mut hints = handle.changes();
    let inventory = handle.observe().await;
    let NvmlState::Absent { reason } = &inventory.nvml else {
        panic!("{:?}", inventory.nvml);
    };
    assert!(reason.ends_with("nvmlInit_v2: driver not loaded (9)"), "{reason}");
    assert_eq!(inventory.devices.len(), 8);
    let only = |device: &Device| matches!(device.condition, Condition::PciOnly { .. });
    assert!(inventory.devices.iter().all(only));

    machine.change(|world| {
        world.load_driver();
        Ok(())
    });
    let late = follow(&handle, &mut hints, is_ready).await;
    assert_eq!(late.devices.len(), 8);
    assert!(!late.devices.iter().any(only));
}

#[tokio::test]
async fn replaced_driver_is_read_from_new_library() {
    let machine = Machine::new(H100S);
    let handle = machine.spawn();
    let mut hints = handle.changes();
    follow(&handle, &mut hints, is_ready).await;
    machine.change(|world| world.reload_driver(Some("590.44.01")));
    let lost = handle.observe().await;
    let NvmlState::Lost { reason } = &lost.nvml else {
        panic!("{:?}", lost.nvml);
    };
    assert!(reason.ends_with("driver and library version mismatch (18)"), "{reason}");
    assert_eq!(lost.devices.len(), 8);
    let again = follow(&handle, &mut hints, is_ready).await;
    let NvmlState::Ready(driver) = &again.nvml else {
        panic!("{:?}", again.nvml);
    };
    assert_eq!(driver.version.as_str(), "590.44.01");
}

#[tokio::test]
async fn hanging_call_is_named_and_last_reading_stays() {
    let machine = Machine::new(H100S);
    let mut settings = machine.settings();
    settings.call_deadline = Duration::from_secs(2);
    let handle = start(&settings);
    let mut hints = handle.changes();
    let before = follow(&handle, &mut hints, is_ready).await;
    machine.faults("- {call: nvmlDeviceGetEccMode, gpu: 5, hang: forever}\n");
    let during = handle.observe().await;
    assert_eq!(
        during.nvml,
        NvmlState::Stalled {
            call: "nvmlDeviceGetEccMode".to_owned(),
            driver: before.nvml.driver().cloned(),
        }
    );
    let problems: Vec<usize> = during.devices.iter().map(|d| d.problems.len()).collect();
    assert_eq!(problems, [0, 0, 0, 0, 0, 1, 0, 0]);
    machine.faults("[]");
    let after = follow(&handle, &mut hints, is_ready).await;
    assert_eq!(after, before);
}

#[tokio::test]
async fn slow_driver_is_not_stalled() {
    let machine = Machine::new(H100S);
    machine.faults("- {call: nvmlDeviceGetName, delay_ms: 500}\n");
    let mut settings = machine.settings();
    settings.call_deadline = Duration::from_secs(3);
    let handle = start(&settings);
    assert!(is_ready(&handle.observe().await.nvml));
}

#[tokio::test]
async fn device_the_driver_cannot_reach_is_failing() {
    let machine = Machine::new(H100S);
    let handle = machine.spawn();
    handle.observe().await;
    machine.faults("- {call: nvmlDeviceGetMigMode, gpu: 2, return: UNKNOWN}\n");
    let inventory = handle.observe().await;
    let conditions: Vec<&Condition> = inventory.devices.iter().map(|d| &d.condition).collect();
    let failing =
        Condition::Failing { reason: "nvmlDeviceGetMigMode: unknown error (999)".to_owned() };
    let mut expected = [&Condition::Working; 8];
    expected[2] = &failing;
    assert_eq!(conditions, expected);
    machine.faults("[]");
    let healed = handle.observe().await;
    assert_eq!(healed.devices[2].condition, Condition::Working);
}

#[tokio::test]
async fn xid_is_a_hint() {
    let machine = Machine::new(H100S);
    let handle = machine.spawn();
    follow(&handle, &mut handle.changes(), is_ready).await;
    let mut hints = handle.changes();
    machine.change(|world| world.xid(Slot(2), 79, None));
    within("a hint", hints.changed()).await;
}

/// Reads the log of the simulator, which an environment variable enables; a separate process reads the devices twice.
#[test]
fn reading_makes_no_call_twice() {
    let machine = Machine::new(H100S);
    let calls = |readings: &str| {
        let log = machine.path().join(format!("calls-{readings}"));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "driver_life::reads_on_request"])
            .env("NVML_SIM_LOG", &log)
            .env("OCTAVO_TEST_LIBRARY", machine.library())
            .env("OCTAVO_TEST_READINGS", readings)
            .finish();
        assert!(child.status.success(), "{child:?}");
        logged(&fs::read_to_string(log).unwrap())
    };
    let once = calls("1");
    let twice = calls("2");
    for (call, count) in &once {
        // The wrapper queries the version when it initializes NVML.
        let most = if call.starts_with("nvmlSystemGetDriverVersion") { 2 } else { 1 };
        assert!(*count <= most, "{call}: {count} times in one reading");
    }
    assert_eq!(once.get("nvmlInit_v2"), Some(&1));
    assert_eq!(twice.get("nvmlInit_v2"), Some(&1));
    for call in twice.keys().filter(|call| call.contains("ProfileInfo")) {
        assert_eq!(twice.get(call), Some(&1), "{call}");
    }
    let total = |calls: &BTreeMap<String, usize>| calls.values().sum::<usize>();
    let (first, second) = (total(&once), total(&twice) - total(&once));
    assert!(second * 2 < first, "{second} calls again after {first}");
    assert_eq!((first, second), (647, 209));
}

/// Number of calls by function and input, except event waits and shutdown.
fn logged(log: &str) -> BTreeMap<String, usize> {
    let mut calls = BTreeMap::new();
    for line in log.lines() {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        let function = entry["function"].as_str().unwrap();
        // The last calls depend on a race between the thread and the end of the process.
        if ["nvmlEventSetWait_v2", "nvmlEventSetFree", "nvmlShutdown"].contains(&function) {
            continue;
        }
        let arguments: Vec<&str> = entry["arguments"]
            .as_array()
            .unwrap()
            .iter()
            .map(|argument| argument.as_str().unwrap())
            .collect();
        let call = [&[function], arguments.as_slice()].concat().join(" ");
        *calls.entry(call).or_default() += 1;
    }
    calls
}

/// The process of [`reading_makes_no_call_twice`]; does nothing on its own.
#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "the test that starts this process passes its input in the environment"
)]
async fn reads_on_request() {
    let (Ok(library), Ok(readings)) =
        (std::env::var("OCTAVO_TEST_LIBRARY"), std::env::var("OCTAVO_TEST_READINGS"))
    else {
        return;
    };
    let handle = start(&settings(library.into(), "/sys".into()));
    for _ in 0..readings.parse().unwrap() {
        assert!(is_ready(&handle.observe().await.nvml));
    }
}
