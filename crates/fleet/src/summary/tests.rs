//! Tests of device and node summaries: each device counts exactly once, whatever the hardware reports.

mod consistency;
mod layout;
mod neuron;
mod problem;
mod sharing;

use octavo_model::catalog::ProfileCatalog;
use octavo_model::examples::{compute_instance, gpu, gpu_instance, process};
use octavo_model::inventory::{
    Completeness, Condition, Device, GpuInstance, Mig, MigMode, MigState, NvmlState, Process,
    ReadProblem, RecoveryAction,
};
use octavo_model::quantity::Mebibytes;
use proptest::prelude::*;

use super::*;

fn whole(processes: Vec<Process>) -> Device {
    let mut device = gpu();
    device.mig = Mig::NotCapable;
    device.processes = processes;
    device
}

fn migged(current: MigMode, gpu_instances: Vec<GpuInstance>, processes: Vec<Process>) -> Device {
    let mut device = gpu();
    device.mig = Mig::Capable(MigState {
        current,
        pending: current,
        gpu_instances,
        geometry: Completeness::Complete,
        catalog: ProfileCatalog::default(),
    });
    device.processes = processes;
    device
}

/// Two GPU instances: one with two compute instances, one with one.
fn split(processes: Vec<Process>) -> Device {
    let mut first = gpu_instance(1, 0, 4);
    first.compute_instances = vec![compute_instance(0), compute_instance(1)];
    let mut second = gpu_instance(2, 4, 4);
    second.compute_instances = vec![compute_instance(0)];
    migged(MigMode::Enabled, vec![first, second], processes)
}

fn conditioned(condition: Condition) -> Device {
    let mut device = whole(Vec::new());
    device.condition = condition;
    device
}

fn failing() -> Device {
    conditioned(Condition::Failing { reason: "GPU is lost".to_owned() })
}

fn bus_only() -> Device {
    conditioned(Condition::PciOnly { kernel_driver: None })
}

fn for_virtual_machines() -> Device {
    conditioned(Condition::PciOnly { kernel_driver: Some("vfio-pci".to_owned()) })
}

fn asks(action: RecoveryAction) -> Device {
    let mut device = whole(Vec::new());
    device.health.recovery_action = Some(action);
    device
}

fn refuses(what: &str) -> Device {
    let mut device = whole(Vec::new());
    device.problems =
        vec![ReadProblem { source: what.to_owned(), error: "Unknown Error".to_owned() }];
    device
}

fn partial_geometry() -> Device {
    let mut device = split(Vec::new());
    if let Mig::Capable(state) = &mut device.mig {
        state.geometry = Completeness::Partial;
    }
    device
}

fn stalled() -> NvmlState {
    NvmlState::Stalled { call: "nvmlDeviceGetFoo".to_owned(), driver: None }
}

fn lost() -> NvmlState {
    NvmlState::Lost { reason: "unloaded".to_owned() }
}

fn partitioned(count: u32, in_use: u32) -> Occupancy {
    Occupancy::Partitioned(PartitionCounts { total: count, free: count - in_use, in_use })
}

#[test]
fn device_occupancy_follows_its_availability() {
    use RecoveryAction::{DrainP2p, Other, RebootNode, ResetGpu};
    let running = || vec![process(7, None, None)];
    for (device, expected) in [
        (whole(Vec::new()), Occupancy::Free),
        (whole(running()), Occupancy::InUse),
        (migged(MigMode::Disabled, Vec::new(), Vec::new()), Occupancy::Free),
        (migged(MigMode::Disabled, Vec::new(), running()), Occupancy::InUse),
        (migged(MigMode::Enabled, Vec::new(), Vec::new()), partitioned(0, 0)),
        (migged(MigMode::Enabled, vec![gpu_instance(1, 0, 1)], Vec::new()), partitioned(0, 0)),
        (split(Vec::new()), partitioned(3, 0)),
        (split(vec![process(7, Some(1), Some(1))]), partitioned(3, 1)),
        (split(vec![process(7, Some(1), None)]), partitioned(3, 2)),
        (
            split(vec![process(7, Some(2), Some(0)), process(8, Some(2), Some(0))]),
            partitioned(3, 1),
        ),
        // A process in an unlisted instance: it may run in any, as plans also assume.
        (split(vec![process(7, Some(9), Some(0))]), partitioned(3, 3)),
        (partial_geometry(), Occupancy::Unknown),
        // MIG state unknown: the device may be partitioned.
        (gpu(), Occupancy::Unknown),
        (refuses("nvmlDeviceGetComputeRunningProcesses"), Occupancy::Unknown),
        (refuses("nvmlDeviceGetFoo"), Occupancy::Free),
        (failing(), Occupancy::Unavailable),
        (bus_only(), Occupancy::Unavailable),
        (for_virtual_machines(), Occupancy::Passthrough),
        (asks(ResetGpu), Occupancy::Unavailable),
        (asks(RebootNode), Occupancy::Unavailable),
        (asks(DrainP2p), Occupancy::Free),
        (asks(Other(9)), Occupancy::Free),
    ] {
        let summary = DeviceSummary::new(&device, &NvmlState::Loading);
        assert_eq!(summary.occupancy, expected, "{device:?}");
    }
}

#[test]
fn data_from_hung_or_lost_driver_is_unknown() {
    for nvml in [stalled(), lost()] {
        for (device, expected) in [
            (whole(Vec::new()), Occupancy::Unknown),
            (split(Vec::new()), Occupancy::Unknown),
            (failing(), Occupancy::Unavailable),
        ] {
            assert_eq!(DeviceSummary::new(&device, &nvml).occupancy, expected);
        }
    }
}

fn node(devices: &[Device], nvml: &NvmlState) -> NodeSummary {
    let devices: Vec<DeviceSummary> =
        devices.iter().map(|device| DeviceSummary::new(device, nvml)).collect();
    NodeSummary::new(&devices, nvml, None)
}

#[test]
fn node_state_is_the_most_severe() {
    let ready = NvmlState::Loading;
    for (devices, nvml, expected) in [
        (vec![], &ready, "empty"),
        (vec![whole(Vec::new())], &ready, "ok"),
        (vec![whole(Vec::new()), refuses("nvmlDeviceGetFoo")], &ready, "attention"),
        (vec![asks(RecoveryAction::DrainP2p)], &ready, "attention"),
        (vec![whole(Vec::new()), failing()], &ready, "degraded"),
        (vec![for_virtual_machines()], &ready, "passthrough"),
        (vec![for_virtual_machines(), whole(Vec::new())], &ready, "ok"),
        (vec![failing(), bus_only()], &ready, "no-driver"),
        (vec![whole(Vec::new())], &lost(), "nvml-lost"),
        (vec![], &lost(), "nvml-lost"),
        (vec![failing()], &stalled(), "nvml-stalled"),
    ] {
        assert_eq!(node(&devices, nvml).state.as_str(), expected, "{devices:?}");
    }
}

#[test]
fn node_reason_names_first_device_and_count() {
    let ready = NvmlState::Loading;
    let mut third = failing();
    third.index = Some(3);
    let reason_of = |devices: &[Device], nvml: &NvmlState| node(devices, nvml).reason;
    assert_eq!(reason_of(&[whole(Vec::new())], &ready), None);
    // The most severe device is reported first, wherever it is, and driver messages are truncated.
    let several = reason_of(&[asks(RecoveryAction::DrainP2p), third.clone()], &ready).unwrap();
    assert!(several.starts_with("GPU 3: failing: "), "{several}");
    assert!(several.ends_with(" (and 1 more)"), "{several}");
    let Condition::Failing { reason } = &mut third.condition else {
        panic!("it fails");
    };
    *reason = "x".repeat(10_000);
    assert_eq!(reason_of(&[third], &ready).unwrap().chars().count(), 1000);
    let stalled = reason_of(&[failing()], &stalled()).unwrap();
    assert!(stalled.ends_with(" does not return"), "{stalled}");
}

#[test]
fn sharing_mode_comes_from_allocatable_devices() {
    for (devices, expected) in [
        (vec![], "none"),
        (vec![failing(), gpu()], "none"),
        (vec![whole(Vec::new()), failing()], "exclusive"),
        (vec![split(Vec::new()), split(Vec::new())], "mig"),
        (vec![split(Vec::new()), whole(Vec::new()), split(Vec::new())], "mixed"),
    ] {
        // While the driver hangs, the last reported sharing mode applies.
        for nvml in [NvmlState::Loading, stalled()] {
            let sharing = node(&devices, &nvml).sharing;
            assert_eq!(sharing.as_str(), expected, "{devices:?}");
        }
    }
}

#[test]
fn states_are_ordered_by_severity_with_unique_names() {
    assert!(NodeState::ALL.is_sorted());
    let mut words = NodeState::ALL.map(NodeState::as_str).to_vec();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), NodeState::ALL.len());
    assert!(Sharing::ALL.is_sorted());
}

#[test]
fn counts_of_an_earlier_aggregator_are_read() {
    let json = serde_json::json!({
        "total": 3, "free": 0, "inUse": 0, "partitioned": 0, "unavailable": 0, "setAside": 1, "unknown": 2,
        "partitions": {"total": 0, "free": 0, "inUse": 0},
    });
    let counts: DeviceCounts = serde_json::from_value(json).unwrap();
    assert_eq!((counts.passthrough, counts.known_count(DeviceUse::Free)), (1, None));
}

fn occupancy() -> impl Strategy<Value = Occupancy> {
    prop_oneof![
        Just(Occupancy::Free),
        Just(Occupancy::InUse),
        Just(Occupancy::Unavailable),
        Just(Occupancy::Passthrough),
        Just(Occupancy::Unknown),
        (0_u32..8, 0_u32..8).prop_map(|(a, b)| partitioned(a.max(b), a.min(b))),
    ]
}

fn summaries() -> impl Strategy<Value = Vec<DeviceSummary>> {
    let name =
        prop::option::of(prop::sample::select(vec!["nvidia-l4-24gb", "aws-trainium-32gb", "b"]));
    let one = (name, prop::option::of(1_u64..9), occupancy());
    let one = one.prop_map(|(name, memory, occupancy)| DeviceSummary {
        facts: DeviceSummary::new(&octavo_model::examples::gpu(), &NvmlState::Loading).facts,
        sharing: None,
        worst_issue: None,
        is_manual_type: name.is_some_and(|name| name.len() % 2 == 0),
        type_name: name.map(|name| name.parse().unwrap()),
        memory: memory.map(Mebibytes::new),
        health: DeviceHealth::OK,
        node_state: NodeState::Ok,
        occupancy,
    });
    prop::collection::vec(one, 0..16)
}

proptest! {
    #[test]
    fn counts_add_up_to_the_devices_in_every_grouping(devices in summaries()) {
        let types = TypeCounts::from_devices(&devices);
        prop_assert!(types.is_sorted_by_key(|one| (one.type_name.is_none(), one.type_name.clone())));
        let node = NodeSummary::new(&devices, &NvmlState::Loading, None);
        let counts = node.counts();
        prop_assert_eq!(counts.total as usize, devices.len());
        let one_by_one = devices.iter().fold(DeviceCounts::default(), |sum, device| sum.with(device.occupancy));
        prop_assert_eq!(counts, one_by_one);
        for one in &types {
            let of_type: Vec<_> = devices.iter().filter(|device| device.type_name == one.type_name).collect();
            prop_assert_eq!(one.counts.total as usize, of_type.len());
            prop_assert_eq!(one.manual as usize, of_type.iter().filter(|device| device.is_manual_type).count());
            prop_assert_eq!(one.memory, of_type.iter().filter_map(|device| device.memory).min());
        }
        let memory: u64 = devices.iter().filter_map(|device| device.memory).map(Mebibytes::get).sum();
        prop_assert_eq!(node.memory.get(), memory);
        prop_assert_eq!(DeviceUse::ALL.map(|of| counts.count(of)).into_iter().sum::<u32>(), counts.total);
        prop_assert_eq!(counts.partitions.free + counts.partitions.in_use, counts.partitions.total);
    }
}
