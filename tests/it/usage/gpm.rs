//! Utilization of partitions: GPM of the simulated driver, through its C interface.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use nvml_sim::model::{MigMode, Process, ProcessKind, ProcessLoad, Slot, World};
use octavo_hardware::DriverHandle;
use octavo_model::inventory::NvmlState;
use octavo_model::reading::{Percent, Reading};
use tokio::time::timeout;

use super::rig::Rig;
use crate::fleet_api::Api;
use crate::machine::{Machine, start};
use crate::process::Program;
use crate::time_limits::TIME_LIMIT;

/// An H100 and an A100 with partitions.
const GPUS: &str = "\
- {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 3g.40gb, start: 0}, {profile: 1g.10gb, start: 6}]}
- {board: A100_80GB, mig: enabled, instances: [{profile: 3g.40gb}]}
";

const FUNCTIONS: [&str; 5] = [
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmMigSampleGet",
    "nvmlGpmMetricsGet",
];

/// A machine with a busy process in the first partition of each GPU.
fn machine() -> Machine {
    let machine = Machine::new(&format!("machine: partitioned\ngpus:\n{GPUS}"));
    machine.change(|world| {
        for (pid, gpu) in [(1, 0), (2, 1)] {
            add_process(world, pid, gpu);
        }
        Ok(())
    });
    set_load(&machine, 80);
    machine
}

fn add_process(world: &mut World, pid: u32, gpu: usize) {
    let gpu = &world.gpus[gpu];
    let first = gpu.mig_devices().next().map(|device| (device.gi.id, device.ci.id));
    let process = Process {
        pid,
        name: "vllm".to_owned(),
        gpu_uuid: gpu.uuid.clone(),
        gi: first.map(|(gi, _)| gi),
        ci: first.map(|(_, ci)| ci),
        memory_mib: 1024,
        kind: ProcessKind::Compute,
    };
    world.add_process(process).unwrap();
}

fn set_load(machine: &Machine, percent: u32) {
    let loads = [1, 2].map(|pid| ProcessLoad { pid, percent, memory_mib: 1024 });
    machine.change(|world| world.set_loads(&loads));
}

/// Utilization of the partitions of a device.
fn utilization(readings: &[Reading], device: usize) -> Vec<Option<u8>> {
    let partitions = readings[device].partitions.iter();
    partitions.map(|partition| partition.compute.map(|Percent(percent)| percent)).collect()
}

/// The first readings in which the partitions of the H100 have this utilization.
async fn until(handle: &DriverHandle, wanted: [Option<u8>; 2]) -> Vec<Reading> {
    let mut last = Vec::new();
    let found = timeout(TIME_LIMIT, async {
        loop {
            // A driver that has just recovered may not be available yet.
            last = handle.readings().await.unwrap_or_default();
            if !last.is_empty() && utilization(&last, 0) == wanted {
                break;
            }
        }
    });
    assert!(found.await.is_ok(), "{last:#?}");
    last
}

/// A driver whose devices were observed.
async fn observed(machine: &Machine) -> DriverHandle {
    let handle = machine.spawn();
    handle.observe().await;
    handle
}

#[tokio::test]
async fn partitions_of_a_hopper_gpu_report_their_utilization_from_the_second_sample_on() {
    let machine = machine();
    let handle = observed(&machine).await;
    let first = handle.readings().await.unwrap();
    assert_eq!(utilization(&first, 0), [None, None]);
    let readings = until(&handle, [Some(80), Some(0)]).await;
    assert_eq!(utilization(&readings, 1), [None], "an A100 has no GPM");
    // The driver reports no utilization of the whole GPU.
    assert_eq!(readings[0].metrics.compute, None);
    let memory = readings.iter().flat_map(|reading| &reading.partitions);
    assert!(memory.clone().all(|partition| partition.memory.is_some()), "{readings:#?}");
    set_load(&machine, 20);
    until(&handle, [Some(20), Some(0)]).await;
    // Readings in quick succession repeat the value, because the driver has not refreshed its counters.
    let again = handle.readings().await.unwrap();
    assert_eq!(utilization(&again, 0), [Some(20), Some(0)]);
}

#[tokio::test]
async fn replaced_partition_has_no_utilization_until_its_second_sample() {
    let machine = machine();
    let handle = observed(&machine).await;
    until(&handle, [Some(80), Some(0)]).await;
    let replace = |create: bool| {
        machine.change(|world| {
            let id = world.gpus[0].mig_devices().last().map(|device| device.gi.id);
            if let Some(id) = id.filter(|_| !create) {
                world.destroy_ci(Slot(0), id, 0)?;
                return world.destroy_gi(Slot(0), id);
            }
            let id = world.create_gi(Slot(0), 19, None)?;
            world.create_ci(Slot(0), id, 0, None).map(drop)
        });
    };
    // The driver reuses the ID of an instance that was destroyed.
    let ids = |machine: &Machine| {
        let world = machine.world();
        world.gpus[0].mig_devices().map(|device| device.gi.id).collect::<Vec<_>>()
    };
    let before = ids(&machine);
    replace(false);
    // It is still in the last observation.
    let gone = until(&handle, [Some(80), None]).await;
    assert_eq!(gone[0].partitions[1].memory, None);
    replace(true);
    assert_eq!(ids(&machine), before);
    handle.observe().await;
    let first = handle.readings().await.unwrap();
    assert_eq!(utilization(&first, 0), [Some(80), None]);
    until(&handle, [Some(80), Some(0)]).await;
    // Replaced between two readings.
    replace(false);
    replace(true);
    assert_eq!(ids(&machine), before);
    handle.observe().await;
    let first = handle.readings().await.unwrap();
    assert_eq!(utilization(&first, 0), [Some(80), None]);
}

#[tokio::test]
async fn library_without_a_function_of_gpm_reports_everything_else() {
    let complete = machine();
    let complete = observed(&complete).await;
    let incomplete = FUNCTIONS.map(|function| machine().without(&[function]));
    let mut handles = Vec::new();
    for machine in &incomplete {
        let handle = observed(machine).await;
        handle.readings().await.unwrap();
        handles.push(handle);
    }
    until(&complete, [Some(80), Some(0)]).await;
    for (handle, function) in handles.iter().zip(FUNCTIONS) {
        let readings = handle.readings().await.unwrap();
        assert_eq!(utilization(&readings, 0), [None, None], "{function}");
        let used = readings[0].partitions[0].memory.unwrap().used.get();
        assert_eq!(used, 1024, "{function}");
    }
}

#[tokio::test]
async fn failure_of_gpm_is_limited_to_the_utilization_and_ends_with_its_cause() {
    let machine = machine();
    let handle = observed(&machine).await;
    for (function, code) in [
        ("nvmlGpmQueryDeviceSupport", "TIMEOUT"),
        ("nvmlGpmMigSampleGet", "NO_PERMISSION"),
        ("nvmlGpmMetricsGet", "UNKNOWN"),
    ] {
        machine.faults(&format!("- {{call: {function}, return: {code}}}\n"));
        let readings = until(&handle, [None, None]).await;
        assert!(readings[0].partitions[0].memory.is_some(), "{function}");
        machine.faults("[]\n");
        until(&handle, [Some(80), Some(0)]).await;
    }
}

#[tokio::test]
async fn i8_hanging_call_of_gpm_is_reported() {
    let machine = machine();
    let mut settings = machine.settings();
    settings.call_deadline = Duration::from_secs(1);
    let handle = start(&settings);
    handle.observe().await;
    machine.faults("- {call: nvmlGpmMigSampleGet, hang: forever}\n");
    assert!(handle.readings().await.is_err());
    let inventory = handle.observe().await;
    let NvmlState::Stalled { call, .. } = &inventory.nvml else { panic!("{:?}", inventory.nvml) };
    assert_eq!(call, "nvmlGpmMigSampleGet");
    machine.faults("[]\n");
    until(&handle, [Some(80), Some(0)]).await;
}

/// Number of calls of GPM by function and result.
fn calls(log: &str) -> BTreeMap<(String, String), usize> {
    let mut calls = BTreeMap::new();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let part = |key: &str| line[key].as_str().unwrap().to_owned();
        if part("function").starts_with("nvmlGpm") {
            *calls.entry((part("function"), part("result"))).or_default() += 1;
        }
    }
    calls
}

#[tokio::test]
async fn agent_frees_every_sample_once_and_its_metrics_name_the_partition() {
    let rig = Rig::new(GPUS);
    rig.machine.change(|world| {
        add_process(world, 1, 0);
        world.set_loads(&[ProcessLoad { pid: 1, percent: 64, memory_mib: 9 }])
    });
    let log = rig.machine.path().join("calls");
    let mut command = rig.machine.command(env!("CARGO_BIN_EXE_octavo-agent"));
    command
        .args(["--interval=1s", "--usage-interval=1s", "--metrics-listen=127.0.0.1:0"])
        .arg("--state-dir")
        .arg(rig.state())
        .arg("--proc-root")
        .arg(rig.proc())
        .arg("--pod-resources")
        .arg(rig.machine.path().join("kubelet/kubelet.sock"))
        .arg("--device-plugins")
        .arg(rig.machine.path().join("kubelet"))
        .env("NVML_SIM_LOG", &log);
    let started = tokio::task::spawn_blocking(move || {
        let mut agent = Program::start(&mut command);
        let address = agent.metrics();
        (agent, address)
    });
    let (agent, address) = started.await.unwrap();
    let world = rig.machine.world();
    let ids: Vec<u32> = world.gpus[0].mig_devices().map(|device| device.gi.id).collect();
    let series = |id: u32, profile: &str, value: &str| {
        format!(
            "octavo_partition_utilization_ratio{{device=\"0\",gi=\"{id}\",profile=\"{profile}\"}} {value}"
        )
    };
    let wanted = [series(ids[0], "3g.40gb", "0.64"), series(ids[1], "1g.10gb", "0.0")];
    let text = Api::at(address).metrics_with(&[&wanted[0], &wanted[1]]).await;
    assert!(!text.contains("octavo_partition_utilization_ratio{device=\"1\""), "{text}");
    rig.machine.change(|world| {
        world.remove_process(1)?;
        for id in [ids[0], ids[1]] {
            world.destroy_ci(Slot(0), id, 0)?;
            world.destroy_gi(Slot(0), id)?;
        }
        world.set_mig_mode(Slot(0), MigMode::Disabled).map(drop)
    });
    Api::at(address).metrics_with(&["octavo_device_utilization_ratio{device=\"0\"} 0.0"]).await;
    drop(agent);
    let calls = calls(&fs::read_to_string(log).unwrap());
    let count = |function: &str| {
        let of = calls.iter().filter(|((name, _), _)| name == function);
        let all = of.clone().map(|(_, count)| count).sum::<usize>();
        (all, of.filter(|((_, result), _)| result == "SUCCESS").map(|(_, count)| count).sum())
    };
    // Two samples and a buffer for the next, which are freed when the GPU is no longer partitioned.
    let (allocated, freed) = (count("nvmlGpmSampleAlloc"), count("nvmlGpmSampleFree"));
    assert!(allocated.0 >= 3, "{calls:?}");
    assert_eq!(freed, (allocated.0, allocated.0), "{calls:?}");
    assert_eq!(count("nvmlGpmQueryDeviceSupport"), (2, 2), "once for each GPU: {calls:?}");
}
