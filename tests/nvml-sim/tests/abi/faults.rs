//! Faults at the C interface, latency, and calls from many threads.

use std::time::{Duration, Instant};

use nvml_sim::model::Slot;
use nvml_wrapper_sys::bindings as sys;

use crate::support::{HGX_A100, Machine, Nvml, ONE_H100, Shared, call, eventually};

#[test]
fn hanging_call_blocks_alone_until_its_fault_is_cleared() {
    let machine = Machine::new(HGX_A100);
    let nvml = Shared(machine.open());
    machine.faults("[{id: stuck, call: nvmlDeviceGetMinorNumber, gpu: 1, hang: forever}]");
    std::thread::scope(|scope| {
        let shared = &nvml;
        let stuck = scope.spawn(move || shared.0.minor(shared.0.gpu(1)));
        assert_eq!(nvml.0.minor(nvml.0.gpu(0)), Ok(0));
        assert_eq!(nvml.0.count(), Ok(8));
        assert!(!stuck.is_finished());
        machine.faults("[]");
        assert!(eventually(|| stuck.is_finished()));
        assert_eq!(stuck.join().unwrap(), Ok(1));
    });
}

#[test]
#[expect(clippy::disallowed_methods, reason = "this test is about real time")]
fn faults_return_errors_false_success_and_delays() {
    let machine = Machine::new(ONE_H100);
    let nvml = machine.open();
    let device = nvml.gpu(0);
    nvml.mig_on(device);
    let gi = nvml.create_gi(device, 0).unwrap();
    machine.faults(
        "[{call: nvmlGpuInstanceDestroy, nth: 1, times: 1, return: IN_USE},
          {call: nvmlGpuInstanceDestroy, nth: 2, times: 1, lie: true},
          {call: nvmlDeviceGetCount*, delay_ms: 60}]",
    );
    let destroy = || call!(nvml, nvmlGpuInstanceDestroy, gi);
    assert_eq!((destroy(), machine.geometry().len()), (19, 1));
    assert_eq!((destroy(), machine.geometry().len()), (0, 1), "SUCCESS, and it stays");
    assert_eq!((destroy(), machine.geometry().len()), (0, 0));
    let start = Instant::now();
    assert_eq!(nvml.count(), Ok(1));
    assert!(start.elapsed() >= Duration::from_millis(60));
}

#[test]
fn mode_can_wait_for_reset_or_never_change_after_success() {
    let machine = Machine::new(ONE_H100);
    let nvml = machine.open();
    let device = nvml.gpu(0);
    let set = |mode| {
        let mut status = 99;
        let code = call!(nvml, nvmlDeviceSetMigMode, device, mode, &raw mut status);
        let (mut current, mut pending) = (9, 9);
        let read = call!(nvml, nvmlDeviceGetMigMode, device, &raw mut current, &raw mut pending);
        assert_eq!((code, read), (0, 0));
        (status, current, pending)
    };
    machine.faults("[{call: nvmlDeviceSetMigMode, activation: SUCCESS}]");
    assert_eq!(set(1), (0, 0, 0), "returned SUCCESS without an effect");
    machine.faults("[{call: nvmlDeviceSetMigMode, activation: RESET_REQUIRED}]");
    assert_eq!(set(1), (16, 0, 1));
    machine.change(|world| world.reset_gpu(Slot(0)));
    machine.faults("[]");
    assert_eq!(set(1), (0, 1, 1));
}

#[test]
fn destroyed_mig_devices_are_still_listed_if_fault_requires_it() {
    let machine = Machine::new(ONE_H100);
    let nvml = machine.open();
    let device = nvml.gpu(0);
    nvml.mig_on(device);
    let gi = nvml.create_gi(device, 0).unwrap();
    let mut ci = std::ptr::null_mut();
    assert_eq!(call!(nvml, nvmlGpuInstanceCreateComputeInstance, gi, 4, &raw mut ci), 0);
    assert_eq!(call!(nvml, nvmlComputeInstanceDestroy, ci), 0);
    let by_index = || {
        let mut mig = std::ptr::null_mut();
        let code = call!(nvml, nvmlDeviceGetMigDeviceHandleByIndex, device, 0, &raw mut mig);
        (code, mig)
    };
    assert_eq!(by_index().0, 6);
    machine.faults("[{call: nvmlDeviceGetMigDeviceHandleByIndex, stale_mig_handles: true}]");
    let (code, mig) = by_index();
    let mut uuid = [0; 96];
    let mut memory = nvml_wrapper_sys::bindings::nvmlMemory_t { total: 0, free: 0, used: 0 };
    assert_eq!(code, 0);
    assert_eq!(call!(nvml, nvmlDeviceGetUUID, mig, uuid.as_mut_ptr(), 96), 0);
    assert_eq!(call!(nvml, nvmlDeviceGetMemoryInfo, mig, &raw mut memory), 2);
}

#[test]
fn init_can_fail_and_then_work() {
    let machine = Machine::new(ONE_H100);
    drop(machine.open());
    machine.faults("[{call: nvmlInit*, times: 2, return: DRIVER_NOT_LOADED}]");
    let nvml = Nvml(machine.load());
    assert_eq!([nvml.init(), nvml.init(), nvml.init()], [9, 9, 0]);
}

#[test]
fn gpu_can_be_lost_by_a_successful_call() {
    let machine = Machine::new(HGX_A100);
    let nvml = machine.open();
    let device = nvml.gpu(2);
    machine.faults("[{call: nvmlDeviceGetMinorNumber, gpu: 2, lose_gpu: true}]");
    assert_eq!([nvml.minor(device), nvml.minor(device)], [Ok(2), Err(15)]);
}

#[test]
fn index_order_can_change_while_gpus_stay_the_same() {
    let machine = Machine::new(HGX_A100);
    let nvml = machine.open();
    machine.faults(
        "[{call: nvmlDeviceGetHandleByIndex*, index_order: [7, 6, 5, 4, 3, 2, 1, 0]},
          {call: nvmlDeviceGetIndex, index_order: [7, 6, 5, 4, 3, 2, 1, 0]}]",
    );
    let device = nvml.gpu(1);
    let mut index = 99;
    assert_eq!(call!(nvml, nvmlDeviceGetIndex, device, &raw mut index), 0);
    assert_eq!((index, nvml.minor(device)), (1, Ok(6)));
}

#[test]
fn instance_can_be_created_at_another_placement_than_requested() {
    let machine = Machine::new(ONE_H100);
    let nvml = machine.open();
    let device = nvml.gpu(0);
    nvml.mig_on(device);
    machine.faults("[{call: nvmlDeviceCreateGpuInstanceWithPlacement, wrong_placement: true}]");
    let place = sys::nvmlGpuInstancePlacement_t { start: 4, size: 4 };
    let mut gi = std::ptr::null_mut();
    let code = call!(
        nvml,
        nvmlDeviceCreateGpuInstanceWithPlacement,
        device,
        9,
        &raw const place,
        &raw mut gi
    );
    assert_eq!(code, 0);
    assert_eq!(machine.geometry(), [(0, 1)]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "this test is about real time")]
fn calls_take_as_long_as_scenario_specifies() {
    let machine = Machine::new(&format!("{ONE_H100}latency: {{init_us: 30000, query_us: 5000}}\n"));
    let start = Instant::now();
    let nvml = machine.open();
    assert!(start.elapsed() >= Duration::from_millis(30));
    let start = Instant::now();
    assert_eq!((0..10).map(|_| nvml.count()).filter(|count| *count == Ok(1)).count(), 10);
    assert!(start.elapsed() >= Duration::from_millis(50));
}

#[test]
fn threads_walk_while_other_threads_partition() {
    let machine = Machine::new(HGX_A100);
    let nvml = Shared(machine.open());
    std::thread::scope(|scope| {
        for index in 0..4 {
            let shared = &nvml;
            scope.spawn(move || {
                let device = shared.0.gpu(index);
                shared.0.mig_on(device);
                for _ in 0..10 {
                    let gi = shared.0.create_gi(device, 9).unwrap();
                    let left = call!(shared.0, nvmlGpuInstanceDestroy, gi);
                    assert_eq!(left, 0);
                }
            });
        }
        for index in 4..8 {
            let shared = &nvml;
            scope.spawn(move || {
                for _ in 0..200 {
                    assert_eq!(shared.0.minor(shared.0.gpu(index)), Ok(index));
                }
            });
        }
    });
    assert_eq!(machine.geometry(), []);
}
