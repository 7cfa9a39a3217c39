//! Events: a wait blocks, and ends with an event of another process.

use std::time::{Duration, Instant};

use nvml_sim::model::Slot;
use nvml_wrapper_sys::bindings as sys;

use crate::support::{HGX_A100, Machine, Nvml, ONE_H100, Shared, call, pause, start, succeeded};

const UNINITIALIZED: u32 = 1;
const TIMEOUT: u32 = 10;
const XID: u64 = 0x8;

fn event_set(nvml: &Nvml) -> sys::nvmlEventSet_t {
    let mut set = std::ptr::null_mut();
    assert_eq!(call!(nvml, nvmlEventSetCreate, &raw mut set), 0);
    set
}

/// Kind, data, GPU instance and compute instance of the next event.
fn wait(nvml: &Nvml, set: sys::nvmlEventSet_t, ms: u32) -> Result<(u64, u64, u32, u32), u32> {
    let mut data = sys::nvmlEventData_t {
        device: std::ptr::null_mut(),
        eventType: 0,
        eventData: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    match call!(nvml, nvmlEventSetWait_v2, set, &raw mut data, ms) {
        0 => Ok((data.eventType, data.eventData, data.gpuInstanceId, data.computeInstanceId)),
        code => Err(code),
    }
}

#[test]
fn wait_in_another_process_ends_with_the_xid() {
    let machine = Machine::new(HGX_A100);
    let (mut child, mut lines) = start(machine.client(&["wait", "20000"]));
    machine.change(|world| world.xid(Slot(6), 48, None));
    let line = lines.next().unwrap().unwrap();
    assert_eq!(line, "gpu 6 type 8 data 48 gi 4294967295 ci 4294967295");
    assert!(child.wait().unwrap().success());
}

#[test]
fn partitioning_by_another_process_is_an_event() {
    let machine = Machine::new(ONE_H100);
    let nvml = machine.open();
    let set = event_set(&nvml);
    let device = nvml.gpu(0);
    assert_eq!(call!(nvml, nvmlDeviceRegisterEvents, device, 0x100, set), 0);
    succeeded(&machine.client(&["apply"]).output().unwrap());
    assert_eq!(wait(&nvml, set, 1000), Ok((0x100, 0, u32::MAX, u32::MAX)), "the mode");
    assert_eq!(wait(&nvml, set, 1000), Ok((0x100, 0, 13, u32::MAX)), "the first instance");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "this test is about real time")]
fn wait_blocks_until_its_timeout() {
    let machine = Machine::new(ONE_H100);
    let nvml = machine.open();
    let set = event_set(&nvml);
    assert_eq!(call!(nvml, nvmlDeviceRegisterEvents, nvml.gpu(0), XID, set), 0);
    let start = Instant::now();
    assert_eq!(wait(&nvml, set, 150), Err(TIMEOUT));
    assert!(start.elapsed() >= Duration::from_millis(150));
    assert_eq!(wait(&nvml, set, 0), Err(TIMEOUT));
}

#[test]
fn event_set_receives_each_later_event_once() {
    let machine = Machine::new(HGX_A100);
    let nvml = machine.open();
    let set = event_set(&nvml);
    machine.change(|world| world.xid(Slot(0), 13, None));
    assert_eq!(call!(nvml, nvmlDeviceRegisterEvents, nvml.gpu(0), XID, set), 0);
    assert_eq!(wait(&nvml, set, 0), Err(TIMEOUT), "before");
    machine.change(|world| world.xid(Slot(1), 31, None));
    assert_eq!(wait(&nvml, set, 0), Err(TIMEOUT), "another GPU");
    machine.change(|world| world.xid(Slot(0), 79, None));
    machine.change(|world| world.xid(Slot(0), 43, None));
    assert_eq!(wait(&nvml, set, 0), Ok((XID, 79, u32::MAX, u32::MAX)));
    assert_eq!(wait(&nvml, set, 0), Ok((XID, 43, u32::MAX, u32::MAX)));
    assert_eq!(wait(&nvml, set, 0), Err(TIMEOUT));
    assert_eq!(call!(nvml, nvmlEventSetFree, set), 0);
    assert_eq!(wait(&nvml, set, 0), Err(2), "a set that is freed");
}

#[test]
fn wait_ends_when_driver_is_unloaded() {
    let machine = Machine::new(HGX_A100);
    let (mut child, mut lines) = start(machine.client(&["wait", "20000"]));
    machine.change(nvml_sim::model::World::unload_driver);
    assert_eq!(lines.next().unwrap().unwrap(), "Driver Not Loaded");
    drop(lines);
    child.wait().unwrap();
}

#[test]
fn wait_ends_with_its_session_and_consumes_no_later_event() {
    let machine = Machine::new(ONE_H100);
    let nvml = Shared(machine.open());
    let listen = |nvml: &Nvml| {
        let set = event_set(nvml);
        assert_eq!(call!(nvml, nvmlDeviceRegisterEvents, nvml.gpu(0), XID, set), 0);
        set
    };
    let first = listen(&nvml.0).expose_provenance();
    std::thread::scope(|scope| {
        let shared = &nvml;
        let old = scope.spawn(move || {
            let set = std::ptr::with_exposed_provenance_mut(first);
            wait(&shared.0, set, 2000)
        });
        pause(Duration::from_millis(50));
        assert_eq!(call!(nvml.0, nvmlShutdown), 0);
        assert_eq!(nvml.0.init(), 0);
        let second = listen(&nvml.0);
        machine.change(|world| world.xid(Slot(0), 63, None));
        assert_eq!(old.join().unwrap(), Err(UNINITIALIZED));
        assert_eq!(wait(&nvml.0, second, 1000), Ok((XID, 63, u32::MAX, u32::MAX)));
    });
}

#[test]
fn event_types_unsupported_by_gpu_are_rejected() {
    let machine = Machine::new(HGX_A100);
    let nvml = machine.open();
    let mut types = 0;
    assert_eq!(call!(nvml, nvmlDeviceGetSupportedEventTypes, nvml.gpu(0), &raw mut types), 0);
    assert_eq!(types, 0xff9f);
    let refused = call!(nvml, nvmlDeviceRegisterEvents, nvml.gpu(0), 0x40, event_set(&nvml));
    assert_eq!(refused, 3);
}
