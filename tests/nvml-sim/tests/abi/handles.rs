//! Lifetime of handles, and lists with counts.

use nvml_sim::model::{Process, ProcessKind, Slot};
use nvml_wrapper_sys::bindings as sys;

use crate::support::{HGX_A100, Machine, Nvml, ONE_H100, call};

const NOT_FOUND: u32 = 6;
const INSUFFICIENT_SIZE: u32 = 7;
const UNINITIALIZED: u32 = 1;
const INVALID_ARGUMENT: u32 = 2;
const DRIVER_NOT_LOADED: u32 = 9;
const GPU_IS_LOST: u32 = 15;
const VERSION_MISMATCH: u32 = 18;
const UNKNOWN: u32 = 999;

#[test]
fn init_is_counted_and_last_shutdown_ends_all_handles() {
    let machine = Machine::new(HGX_A100);
    let nvml = machine.open();
    assert_eq!(nvml.init(), 0);
    let device = nvml.gpu(5);
    assert_eq!(call!(nvml, nvmlShutdown), 0);
    assert_eq!(nvml.minor(device), Ok(5));
    assert_eq!(call!(nvml, nvmlShutdown), 0);
    assert_eq!(nvml.minor(device), Err(UNINITIALIZED));
    assert_eq!(nvml.init(), 0);
    assert_eq!(nvml.minor(device), Err(INVALID_ARGUMENT));
}

#[test]
fn handle_of_a_device_is_equal_for_every_lookup() {
    let machine = Machine::new(HGX_A100);
    let nvml = machine.open();
    let device = nvml.gpu(2);
    let mut uuid = [0; 96];
    assert_eq!(call!(nvml, nvmlDeviceGetUUID, device, uuid.as_mut_ptr(), 96), 0);
    let mut found = std::ptr::null_mut();
    assert_eq!(call!(nvml, nvmlDeviceGetHandleByUUID, uuid.as_ptr(), &raw mut found), 0);
    assert_eq!(found, device);
    let mut tagged = sys::nvmlUUID_t {
        version: version_of::<sys::nvmlUUID_t>(1),
        type_: 1,
        value: sys::nvmlUUIDValue_t { str_: [0; 41] },
    };
    let mut text = [0; 41];
    text.copy_from_slice(&uuid[..41]);
    tagged.value.str_ = text;
    let mut found = std::ptr::null_mut();
    assert_eq!(call!(nvml, nvmlDeviceGetHandleByUUIDV, &raw const tagged, &raw mut found), 0);
    assert_eq!(found, device);
}

fn version_of<T>(number: u32) -> u32 {
    u32::try_from(size_of::<T>()).unwrap() | (number << 24)
}

#[test]
fn instance_handles_end_with_the_instance_even_if_id_is_reused() {
    let machine = Machine::new(ONE_H100);
    let nvml = machine.open();
    let device = nvml.gpu(0);
    nvml.mig_on(device);
    let first = nvml.create_gi(device, 9).unwrap();
    assert_eq!(call!(nvml, nvmlGpuInstanceDestroy, first), 0);
    let second = nvml.create_gi(device, 9).unwrap();
    assert_eq!(gi_id(&nvml, first), Err(INVALID_ARGUMENT));
    assert_eq!(gi_id(&nvml, second), Ok(2));
    machine.change(|world| world.reset_gpu(Slot(0)));
    assert_eq!(gi_id(&nvml, second), Err(INVALID_ARGUMENT));
    assert_eq!(nvml.minor(device), Ok(0), "the GPU itself is there again");
}

fn gi_id(nvml: &Nvml, gi: sys::nvmlGpuInstance_t) -> Result<u32, u32> {
    let mut info = sys::nvmlGpuInstanceInfo_t {
        device: std::ptr::null_mut(),
        id: 0,
        profileId: 0,
        placement: sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 },
    };
    match call!(nvml, nvmlGpuInstanceGetInfo, gi, &raw mut info) {
        0 => Ok(info.id),
        code => Err(code),
    }
}

#[test]
fn lost_gpu_affects_no_other_gpu() {
    let machine = Machine::new(HGX_A100);
    let nvml = machine.open();
    let devices = [nvml.gpu(0), nvml.gpu(1)];
    machine.change(|world| world.lose_gpu(Slot(1)));
    assert_eq!(nvml.count(), Ok(8));
    assert_eq!(devices.map(|device| nvml.minor(device)), [Ok(0), Err(GPU_IS_LOST)]);
    let mut found = std::ptr::null_mut();
    assert_eq!(call!(nvml, nvmlDeviceGetHandleByIndex_v2, 1, &raw mut found), GPU_IS_LOST);
}

#[test]
fn reload_of_same_driver_ends_session_and_init_opens_a_new_one() {
    let machine = Machine::new(HGX_A100);
    let nvml = machine.open();
    let device = nvml.gpu(0);
    machine.change(|world| world.reload_driver(None));
    assert_eq!(nvml.count(), Err(UNINITIALIZED));
    assert_eq!(nvml.init(), 0);
    assert_eq!(nvml.count(), Ok(8));
    assert_eq!(nvml.minor(device), Err(INVALID_ARGUMENT));
}

#[test]
fn unloaded_driver_can_be_loaded_again() {
    let machine = Machine::new(HGX_A100);
    let nvml = machine.open();
    machine.change(nvml_sim::model::World::unload_driver);
    assert_eq!(nvml.count(), Err(DRIVER_NOT_LOADED));
    assert_eq!(call!(nvml, nvmlShutdown), 0);
    assert_eq!(nvml.init(), DRIVER_NOT_LOADED);
    machine.change(|world| {
        world.load_driver();
        Ok(())
    });
    assert_eq!(nvml.init(), 0);
    assert_eq!(nvml.count(), Ok(8));
}

#[test]
fn session_can_be_shut_down_when_its_machine_is_gone() {
    let machine = Machine::new(HGX_A100);
    let nvml = machine.open();
    std::fs::remove_dir_all(machine.path("nvml-sim.state")).unwrap();
    assert_eq!(nvml.count(), Err(UNKNOWN));
    assert_eq!(call!(nvml, nvmlShutdown), 0);
    assert_eq!(nvml.count(), Err(UNINITIALIZED));
}

#[test]
fn largest_scenario_numbers_are_answered() {
    let most = u64::MAX;
    let machine = Machine::new(&format!(
        "machine: m\ngpus: [{{board: T4, memory_mib: {most}}}]\nprocesses:\n\
         - {{pid: 1, gpu: 0, memory_mib: {most}}}\n- {{pid: 2, gpu: 0, memory_mib: {most}}}\n"
    ));
    let nvml = machine.open();
    let mut memory = sys::nvmlMemory_t { total: 0, free: 0, used: 0 };
    let code = call!(nvml, nvmlDeviceGetMemoryInfo, nvml.gpu(0), &raw mut memory);
    assert_eq!((code, memory.free), (0, 0));
    let mut bar = sys::nvmlBAR1Memory_t { bar1Total: 0, bar1Free: 0, bar1Used: 0 };
    let code = call!(nvml, nvmlDeviceGetBAR1MemoryInfo, nvml.gpu(0), &raw mut bar);
    assert_eq!((code, bar.bar1Total), (0, most));
}

#[test]
fn replaced_driver_requires_reloading_the_library() {
    let machine = Machine::new(HGX_A100);
    let nvml = machine.open();
    assert!(is_mapped(&machine));
    machine.change(|world| world.reload_driver(Some("590.44.01")));
    assert_eq!(nvml.count(), Err(VERSION_MISMATCH));
    assert_eq!(nvml.init(), VERSION_MISMATCH, "the library is still the old one");
    assert_eq!(call!(nvml, nvmlShutdown), 0);
    drop(nvml);
    assert!(!is_mapped(&machine), "dlclose left the library mapped");
    let nvml = machine.open();
    assert_eq!(nvml.count(), Ok(8));
}

/// Unloading must also work from a thread that continues, which thread-local data would prevent.
fn is_mapped(machine: &Machine) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.contains(machine.library().to_str().unwrap())
}

#[test]
fn lists_report_required_size_and_then_fill_it() {
    let machine = Machine::new(HGX_A100);
    let nvml = machine.open();
    let device = nvml.gpu(4);
    for pid in 100..103 {
        machine.change(|world| {
            let gpu_uuid = world.gpu(Slot(4))?.uuid.clone();
            world.add_process(Process {
                pid,
                name: format!("train-{pid}"),
                gpu_uuid,
                gi: None,
                ci: None,
                memory_mib: 1024,
                kind: ProcessKind::Compute,
            })
        });
    }
    let list = |room: u32| {
        let empty = sys::nvmlProcessInfo_v2_t {
            pid: 0,
            usedGpuMemory: 0,
            gpuInstanceId: 0,
            computeInstanceId: 0,
        };
        let mut processes = [empty; 8];
        let mut count = room;
        let code = call!(
            nvml,
            nvmlDeviceGetComputeRunningProcesses_v3,
            device,
            &raw mut count,
            processes.as_mut_ptr()
        );
        let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
        (code, count, pids[..3].to_vec(), processes[0].gpuInstanceId)
    };
    assert_eq!(list(0), (INSUFFICIENT_SIZE, 3, vec![0, 0, 0], 0));
    assert_eq!(list(2), (INSUFFICIENT_SIZE, 3, vec![0, 0, 0], 0));
    assert_eq!(list(8), (0, 3, vec![100, 101, 102], u32::MAX));
    let mut name = [0; 32];
    assert_eq!(call!(nvml, nvmlSystemGetProcessName, 101, name.as_mut_ptr(), 32), 0);
    assert_eq!(call!(nvml, nvmlSystemGetProcessName, 7, name.as_mut_ptr(), 32), NOT_FOUND);
}

#[test]
fn versioned_structs_of_every_version_carry_the_same_profile() {
    let machine = Machine::new(HGX_A100);
    let nvml = machine.open();
    let device = nvml.gpu(0);
    // SAFETY: plain numbers and characters, for which zero is valid.
    let mut v2: sys::nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
    v2.version = version_of::<sys::nvmlGpuInstanceProfileInfo_v2_t>(2);
    assert_eq!(call!(nvml, nvmlDeviceGetGpuInstanceProfileInfoByIdV, device, 9, &raw mut v2), 0);
    // SAFETY: plain numbers and characters, for which zero is valid.
    let mut v3: sys::nvmlGpuInstanceProfileInfo_v3_t = unsafe { std::mem::zeroed() };
    v3.version = version_of::<sys::nvmlGpuInstanceProfileInfo_v3_t>(3);
    let place = (&raw mut v3).cast();
    assert_eq!(call!(nvml, nvmlDeviceGetGpuInstanceProfileInfoV, device, 2, place), 0);
    assert_eq!((v2.id, v2.memorySizeMB, v2.name), (v3.id, v3.memorySizeMB, v3.name));
    v3.version = 77;
    let place = (&raw mut v3).cast();
    assert_eq!(call!(nvml, nvmlDeviceGetGpuInstanceProfileInfoV, device, 2, place), 25);
    assert_eq!(call!(nvml, nvmlDeviceGetGpuInstanceProfileInfoV, device, 5, place), 3, "a hole");
    assert_eq!(
        call!(nvml, nvmlDeviceGetGpuInstanceProfileInfoV, device, 18, place),
        2,
        "past the last"
    );
}
