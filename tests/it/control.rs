//! Device changes through the real C ABI, each compared with the state of the simulated machine.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use nvml_sim::model::Slot;
use octavo_hardware::{CallRecord, DriverHandle, GpuControl, GpuDriver};
use octavo_model::call::{CallFailure, CallResult, DriverCall, FailureKind};
use octavo_model::catalog::Placement;
use octavo_model::inventory::MigMode;

use crate::machine::Machine;

mod errors;

const A100S: &str = "machine: change\ngpus: [{board: A100_80GB, count: 2, mig: enabled}]\n";

/// Profiles of an A100 with 80 GB, by the driver's ids.
const ONE: u32 = 19;
const TWO: u32 = 14;
const THREE: u32 = 9;

const CREATE: &str = "nvmlDeviceCreateGpuInstanceWithPlacement";

type Outcome = Result<CallResult, CallFailure>;

fn gpu_instance(profile_id: u32, start: u32, size: u32) -> DriverCall {
    DriverCall::CreateGpuInstance { profile_id, placement: Placement { start, size } }
}

fn compute(gpu_instance: u32, slices: u32) -> DriverCall {
    DriverCall::CreateComputeInstance { gpu_instance, slices }
}

fn mode(to: MigMode) -> DriverCall {
    DriverCall::SetMigMode { to }
}

/// Runs work on the GPU with this index.
async fn with<T: Send + 'static>(
    handle: &DriverHandle,
    gpu: usize,
    what: impl FnOnce(&mut dyn GpuControl, &CallRecord) -> T + Send + 'static,
) -> T {
    let pci = handle.observe().await.devices[gpu].pci;
    let work = move |driver: &mut dyn GpuDriver, calls: &CallRecord| {
        let mut controls = driver.controls(&[pci]);
        assert_eq!(controls.len(), 1);
        what(controls[0].as_mut(), calls)
    };
    handle.work(work).await.unwrap()
}

async fn make(handle: &DriverHandle, gpu: usize, calls: Vec<DriverCall>) -> Vec<Outcome> {
    with(handle, gpu, |control, watch| {
        let made = calls.into_iter().map(|call| control.call(call, watch));
        made.collect()
    })
    .await
}

async fn make_one(handle: &DriverHandle, call: DriverCall) -> Outcome {
    make(handle, 0, vec![call]).await.remove(0)
}

/// The id of the created instance, which must be at the requested placement.
fn created(outcome: &Outcome, start: u32, size: u32) -> u32 {
    let Ok(CallResult::Created { id, placement }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(*placement, Placement { start, size });
    *id
}

/// Profile, start, and the slices of the compute instances of each GPU instance of the first GPU.
fn real(machine: &Machine) -> Vec<(u32, u32, Vec<u32>)> {
    let world = machine.world();
    let mig = world.gpus[0].mig.as_ref().unwrap();
    let mut found: Vec<(u32, u32, Vec<u32>)> = mig
        .instances
        .iter()
        .map(|gi| {
            let parts = gi.compute.iter().map(|ci| ci.placement.size).collect();
            (gi.profile_id, gi.placement.start, parts)
        })
        .collect();
    found.sort();
    found
}

fn failure(outcome: Outcome) -> (FailureKind, String) {
    let failure = outcome.unwrap_err();
    (failure.kind, failure.what)
}

#[tokio::test]
async fn instances_are_created_at_requested_placement_and_destroyed() {
    let machine = Machine::new(A100S);
    let handle = machine.spawn();
    let made = with(&handle, 0, |control, calls| {
        let mut call = |call| control.call(call, calls);
        let three = call(gpu_instance(THREE, 4, 4));
        let id = created(&three, 4, 4);
        for slices in [2, 1] {
            assert_eq!(call(compute(id, slices)), Ok(CallResult::Completed));
        }
        let two = call(gpu_instance(TWO, 2, 2));
        let other = created(&two, 2, 2);
        assert_eq!(call(compute(other, 2)), Ok(CallResult::Completed));
        // Another instance than the last one.
        let full = call(compute(id, 1));
        assert_eq!(failure(full).0, FailureKind::InsufficientResources);
        let device = control.read(calls).unwrap();
        let shown = device.mig.state().unwrap().gpu_instances.len();
        assert_eq!(shown, 2);
        (id, other)
    })
    .await;
    assert_eq!(real(&machine), [(THREE, 4, vec![2, 1]), (TWO, 2, vec![2])]);
    // The changed state is read when the work ends.
    let latest = handle.latest();
    let state = latest.devices[0].mig.state().unwrap();
    assert_eq!(state.gpu_instances.len(), 2);
    assert_eq!(latest.devices[0].problems, []);

    let in_use = DriverCall::DestroyGpuInstance { gpu_instance: made.0 };
    assert_eq!(
        failure(make_one(&handle, in_use).await),
        (FailureKind::InUse, "nvmlGpuInstanceDestroy: in use (19)".to_owned())
    );
    let destroy = |compute_instance| DriverCall::DestroyComputeInstance {
        gpu_instance: made.0,
        compute_instance,
    };
    let outcomes = make(&handle, 0, vec![destroy(0), destroy(1), in_use, in_use]).await;
    assert_eq!(
        outcomes[..3],
        [Ok(CallResult::Completed), Ok(CallResult::Completed), Ok(CallResult::Completed)]
    );
    let again = failure(outcomes[3].clone());
    assert_eq!(
        again,
        (FailureKind::NotFound, "nvmlDeviceGetGpuInstanceById: not found (6)".to_owned())
    );
    assert_eq!(real(&machine), [(TWO, 2, vec![2])]);
}

#[tokio::test]
async fn gpus_are_changed_concurrently() {
    let machine = Machine::new(&format!("{A100S}latency: {{create_gpu_instance_us: 20000}}\n"));
    let handle = machine.spawn();
    let pcis: Vec<_> = handle.observe().await.devices.iter().map(|d| d.pci).collect();
    let go_on = machine.path().join("go-on");
    // The first GPU continues only when the second is done.
    machine.faults(&format!(
        "- {{call: {CREATE}, gpu: 0, hang: {{until_file: {}}}}}",
        go_on.display()
    ));
    let work = handle.work(move |driver, calls| {
        let mut controls = driver.controls(&pcis);
        let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
            let threads: Vec<_> = controls
                .iter_mut()
                .enumerate()
                .map(|(gpu, control)| {
                    let go_on = &go_on;
                    scope.spawn(move || {
                        let done = control.call(gpu_instance(THREE, 0, 4), calls);
                        if gpu == 1 {
                            fs::write(go_on, "").unwrap();
                        }
                        done
                    })
                })
                .collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        outcomes
    });
    let outcomes = tokio::time::timeout(Duration::from_mins(1), work).await;
    let outcomes = outcomes.unwrap().unwrap();
    assert_eq!(outcomes.len(), 2);
    for outcome in &outcomes {
        created(outcome, 0, 4);
    }
}

#[tokio::test]
async fn rejected_call_is_classified() {
    let machine = Machine::new(A100S);
    let handle = machine.spawn();
    let cases = [
        ("IN_USE", FailureKind::InUse, "in use (19)"),
        (
            "INSUFFICIENT_RESOURCES",
            FailureKind::InsufficientResources,
            "insufficient resources (23)",
        ),
        ("TIMEOUT", FailureKind::Temporary, "timeout (10)"),
        ("NO_PERMISSION", FailureKind::Rejected, "no permission (4)"),
        ("INVALID_ARGUMENT", FailureKind::Rejected, "invalid argument (2)"),
        ("GPU_IS_LOST", FailureKind::DeviceLost, "GPU is lost (15)"),
        ("UNINITIALIZED", FailureKind::DriverLost, "uninitialized (1)"),
    ];
    for (code, kind, words) in cases {
        machine.faults(&format!("- {{call: {CREATE}, return: {code}}}"));
        let shown = failure(make_one(&handle, gpu_instance(ONE, 0, 1)).await);
        assert_eq!(shown, (kind, format!("{CREATE}: {words}")));
    }
    machine.faults("[]");
    assert_eq!(real(&machine), []);
}

#[tokio::test]
async fn placement_chosen_by_the_driver_is_reported() {
    let machine = Machine::new(A100S);
    let handle = machine.spawn();
    machine.faults(&format!("- {{call: {CREATE}, wrong_placement: true}}"));
    let Ok(CallResult::Created { placement, .. }) =
        make_one(&handle, gpu_instance(THREE, 0, 4)).await
    else {
        panic!("the instance is not created");
    };
    assert_eq!(placement, Placement { start: 4, size: 4 });
    assert_eq!(real(&machine), [(THREE, 4, vec![])]);
}

#[tokio::test]
async fn instance_is_never_created_at_unplanned_placement() {
    let machine = Machine::new(A100S).without(&[CREATE]);
    let handle = machine.spawn();
    let shown = failure(make_one(&handle, gpu_instance(THREE, 0, 4)).await);
    let words = format!(
        "cannot create a GPU instance at a given placement: {CREATE}: not in this driver's library"
    );
    assert_eq!(shown, (FailureKind::Rejected, words));
    assert_eq!(real(&machine), []);
}

#[tokio::test]
async fn compute_instance_size_not_offered_by_driver_is_rejected() {
    let machine = Machine::new(A100S);
    let handle = machine.spawn();
    let outcome = with(&handle, 0, |control, calls| {
        let id = created(&control.call(gpu_instance(TWO, 0, 2), calls), 0, 2);
        (id, control.call(compute(id, 7), calls))
    });
    let (id, outcome) = outcome.await;
    assert_eq!(
        failure(outcome),
        (
            FailureKind::Rejected,
            format!("GPU instance {id} offers no compute instance of 7 slices")
        )
    );
}

#[tokio::test]
async fn instance_destroyed_concurrently_is_gone() {
    let machine = Arc::new(Machine::new(A100S));
    let handle = machine.spawn();
    let pci = handle.observe().await.devices[0].pci;
    let meanwhile = Arc::clone(&machine);
    let outcome = handle.work(move |driver, calls| {
        let mut controls = driver.controls(&[pci]);
        let id = created(&controls[0].call(gpu_instance(TWO, 0, 2), calls), 0, 2);
        meanwhile.change(|world| world.destroy_gi(Slot(0), id));
        controls[0].call(compute(id, 2), calls)
    });
    assert_eq!(
        failure(outcome.await.unwrap()),
        (FailureKind::NotFound, "nvmlDeviceGetGpuInstanceById: not found (6)".to_owned())
    );
}

#[tokio::test]
async fn accepted_mode_that_is_not_current_is_pending_with_reason() {
    let machine = Machine::new("machine: mode\ngpus: [{board: A100_80GB}]\n");
    let handle = machine.spawn();
    let enable = mode(MigMode::Enabled);
    let current = || machine.world().gpus[0].mig.as_ref().unwrap().current;
    for (status, words) in [("IN_USE", "in use (19)"), ("RESET_REQUIRED", "reset required (16)")] {
        machine.faults(&format!("- {{call: nvmlDeviceSetMigMode, activation: {status}}}"));
        let done = make_one(&handle, enable).await;
        assert_eq!(done, Ok(CallResult::Pending(words.to_owned())));
        assert!(!current());
    }
    // The driver reports success without effect; the next reading shows the old mode.
    machine.faults("- {call: nvmlDeviceSetMigMode, activation: SUCCESS}");
    assert_eq!(make_one(&handle, enable).await, Ok(CallResult::Completed));
    let read = handle.latest();
    let read = read.devices[0].mig.state().unwrap();
    assert_eq!(read.current, MigMode::Disabled);

    machine.faults("[]");
    let outcomes = with(&handle, 0, |control, calls| {
        // No reading between the mode change and the instances.
        let enabled = control.call(mode(MigMode::Enabled), calls);
        let three = control.call(gpu_instance(THREE, 0, 4), calls);
        let id = created(&three, 0, 4);
        [enabled, control.call(compute(id, 3), calls)]
    });
    assert_eq!(outcomes.await, [Ok(CallResult::Completed), Ok(CallResult::Completed)]);
    assert_eq!(real(&machine), [(THREE, 0, vec![3])]);
    let disable = make_one(&handle, mode(MigMode::Disabled)).await;
    assert_eq!(disable, Ok(CallResult::Pending("in use (19)".to_owned())));
}
