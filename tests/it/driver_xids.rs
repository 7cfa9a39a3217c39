//! Errors that devices report: no relevant one is lost, and a burst does not harm consumers.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use nvml_sim::model::Slot;
use octavo_hardware::DriverHandle;
use octavo_model::inventory::NvmlState;
use octavo_model::xid::Xid;
use octavo_node::mig_strategy::MigStrategy;
use octavo_node::sharing::Offers;
use octavo_node::sharing::health::HealthMonitor;
use octavo_node::sharing::offer::compile;
use octavo_planner::layout::Targets;

use crate::driver_contract::H100S;
use crate::machine::{Machine, follow};
use crate::process::{Program, resident};
use crate::time_limits::within;

const MIG: &str = "machine: mig\ngpus:\n- {board: T4}\n- {board: A100_80GB, mig: enabled, instances: [{profile: 3g.40gb, start: 4}, {profile: 2g.20gb, compute: [1c.2g.20gb, 1c.2g.20gb]}]}\n";

/// Starts to listen, and returns when events are received.
async fn listen(machine: &Machine) -> DriverHandle {
    let handle = machine.spawn();
    let is_ready = |state: &NvmlState| matches!(state, NvmlState::Ready(_));
    follow(&handle, &mut handle.changes(), is_ready).await;
    handle
}

/// Received Xids up to `last`.
async fn received_until(handle: &DriverHandle, last: Xid) -> Vec<Xid> {
    let mut hints = handle.changes();
    let mut received = Vec::new();
    let hearing = async {
        loop {
            received.extend(handle.xids());
            if received.contains(&last) {
                return;
            }
            hints.changed().await;
        }
    };
    within(&format!("{last:?}"), hearing).await;
    received
}

/// An Xid of the GPU in this slot.
fn xid(machine: &Machine, slot: usize, number: u64) -> Xid {
    Xid {
        pci: machine.world().gpus[slot].pci.sysfs().parse().unwrap(),
        gpu_instance: None,
        compute_instance: None,
        number,
    }
}

#[tokio::test]
async fn xid_is_reported_with_its_device_and_number() {
    let machine = Machine::new(H100S);
    let handle = listen(&machine).await;
    assert_eq!(handle.xids(), []);
    machine.change(|world| world.xid(Slot(5), 79, None));
    let expected = xid(&machine, 5, 79);
    assert_eq!(received_until(&handle, expected).await, [expected]);
    assert_eq!(handle.xids(), [], "an Xid is returned twice");
}

#[tokio::test]
async fn xid_of_an_instance_is_reported_with_the_instance() {
    let machine = Machine::new(MIG);
    let handle = listen(&machine).await;
    let world = machine.world();
    let instances = &world.gpus[1].mig.as_ref().unwrap().instances;
    let gi = instances.iter().find(|gi| gi.compute.len() == 2).unwrap();
    let of = |gpu_instance, compute_instance, number| Xid {
        gpu_instance,
        compute_instance,
        ..xid(&machine, 1, number)
    };
    let expected = [
        of(Some(gi.id), Some(gi.compute[1].id), 94),
        of(Some(gi.id), None, 43),
        of(None, None, 95),
    ];
    machine.change(|world| {
        let one = (gi.id, Some(gi.compute[1].id));
        world.xid(Slot(1), 94, Some(one))?;
        world.xid(Slot(1), 43, Some((gi.id, None)))?;
        world.xid(Slot(1), 95, None)
    });
    assert_eq!(received_until(&handle, expected[2]).await, expected);
}

#[tokio::test]
async fn every_xid_consumer_receives_all_xids() {
    let machine = Machine::new(H100S);
    let handle = listen(&machine).await;
    let other = handle.clone();
    machine.change(|world| world.xid(Slot(0), 48, None));
    let first = xid(&machine, 0, 48);
    received_until(&handle, first).await;
    let late = handle.clone();
    assert_eq!(other.xids(), [first]);
    assert_eq!(late.xids(), [], "a new handle returns an earlier Xid");
    machine.change(|world| world.xid(Slot(0), 48, None));
    for taker in [handle, other, late] {
        assert_eq!(received_until(&taker, first).await, [first]);
    }
}

#[tokio::test]
async fn other_events_are_hints_without_an_xid() {
    let machine = Machine::new("machine: mig\ngpus: [{board: H100_80GB_SXM, mig: enabled}]\n");
    let handle = listen(&machine).await;
    let mut hints = handle.changes();
    machine.change(|world| world.create_gi(Slot(0), 9, None));
    within("a hint", hints.changed()).await;
    assert_eq!(handle.xids(), []);
}

/// Health of the devices in order.
fn fit(monitor: &HealthMonitor, offers: &Offers) -> Vec<bool> {
    let units = offers.units().map(|(_, unit)| unit);
    units.map(|unit| monitor.health(unit).is_healthy()).collect()
}

#[tokio::test]
async fn lost_gpu_alone_is_unhealthy_until_a_minute_after_its_reset() {
    let machine = Machine::new(H100S);
    let handle = listen(&machine).await;
    let inventory = handle.observe().await;
    let offers = compile(&inventory, &Targets::default(), MigStrategy::None).offers;
    let mut monitor = HealthMonitor::default();
    let seconds = Duration::from_secs;
    monitor.record_inventory(seconds(0), &inventory, &handle.xids());
    assert_eq!(fit(&monitor, &offers), [true; 8]);

    machine.change(|world| world.lose_gpu(Slot(2)));
    let xids = received_until(&handle, xid(&machine, 2, 79)).await;
    monitor.record_inventory(seconds(10), &*handle.observe().await, &xids);
    let mut expected = [true; 8];
    expected[2] = false;
    assert_eq!(fit(&monitor, &offers), expected);

    machine.change(|world| world.reset_gpu(Slot(2)));
    monitor.record_inventory(seconds(100), &*handle.observe().await, &handle.xids());
    assert_eq!(fit(&monitor, &offers), expected);
    assert_eq!(monitor.again(), Some(seconds(160)));
    monitor.record_inventory(seconds(160), &*handle.observe().await, &handle.xids());
    assert_eq!(fit(&monitor, &offers), [true; 8]);
}

/// The simulator buffers as many events as a driver and drops the oldest.
#[tokio::test]
async fn ten_thousand_xids_are_summarized_and_the_last_is_included() {
    let machine = Machine::new(H100S);
    let handle = listen(&machine).await;
    for _ in 0..10 {
        machine.change(|world| {
            for number in 0..1000_u64 {
                let slot = usize::try_from(number % 8).unwrap();
                world.xid(Slot(slot), 13, None)?;
            }
            Ok(())
        });
    }
    machine.change(|world| world.xid(Slot(3), 79, None));
    let last = xid(&machine, 3, 79);
    let received: BTreeSet<Xid> = received_until(&handle, last).await.into_iter().collect();
    assert!(received.iter().all(|one| *one == last || one.number == 13));
    assert!(received.len() <= 9, "{received:?}");
    assert_eq!(handle.xids(), []);
}

/// An agent that polls once an hour unless it receives a hint.
fn idle(machine: &Machine) -> Program {
    let file = machine.path().join("features.d/octavo");
    let mut agent = machine.agent(&[
        "--interval=1h",
        "--feature-file-expiry=0",
        "--label-sink=file",
        "--log-level=debug",
        "--feature-file",
        file.to_str().unwrap(),
    ]);
    agent.expect_log("labels published");
    agent
}

#[test]
fn agent_scans_immediately_after_an_xid() {
    let machine = Machine::new(MIG);
    let mut agent = idle(&machine);
    machine.change(|world| world.xid(Slot(0), 79, None));
    let error = format!(
        "Xid error reported device={} xid=79 description=the GPU has fallen off the bus",
        xid(&machine, 0, 79).pci
    );
    // A scan in progress can log the error before the agent receives the hint.
    agent.expect_all_logs(&["possible hardware change; scanning", &error]);
    machine.change(|world| world.xid(Slot(1), 94, Some((1, Some(0)))));
    let line = agent.expect_log("xid=94");
    assert!(line.contains("gi=1 ci=0"), "{line}");
    assert!(agent.stop().success());
}

#[test]
fn agent_survives_ten_thousand_xids_and_reports_the_last() {
    let machine = Machine::new(H100S);
    let mut agent = idle(&machine);
    // The first burst fills the buffers, the second finds them full.
    let memory = [95, 79].map(|last| {
        for _ in 0..10 {
            machine.change(|world| {
                for number in 0..1000_u32 {
                    let slot = usize::try_from(number % 8).unwrap();
                    world.xid(Slot(slot), 48, Some((number % 5, None)))?;
                }
                Ok(())
            });
        }
        machine.change(|world| world.xid(Slot(3), last, None));
        agent.expect_log(&format!("xid={last}"));
        resident(agent.id())
    });
    let [first, second] = memory;
    assert!(second < first + 8192, "{first} KiB, then {second} KiB");
    let lines = agent.kill();
    let shown: Vec<&String> =
        lines.iter().filter(|line| line.contains("Xid error reported")).collect();
    // A kind is logged again after a minute, which a busy machine needs.
    let time = |line: &str| line.split_whitespace().next().unwrap().parse::<Timestamp>().unwrap();
    let seconds = time(shown.last().unwrap()).duration_since(time(shown[0])).as_secs();
    let periods = usize::try_from(seconds / 60).unwrap() + 1;
    assert!(shown.len() <= 42 * periods, "a kind is logged twice: {lines:#?}");
}
