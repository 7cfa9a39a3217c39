//! Property: the summary of a node never contradicts its parts, whatever the node reports.

use std::collections::BTreeMap;

use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::resource::{ResourceName, ShareId};
use octavo_model::sharing_status::{Health, ResourceStatus, SharingStatus, UnitStatus};
use octavo_model::tone::Tone;
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};
use octavo_planner::reconcile::{ApplyState, DeviceLayoutStatus, NodeLayoutStatus};
use serde_json::Value;

use super::*;

/// A random status of a node.
#[derive(Debug)]
struct Status {
    devices: Vec<Device>,
    nvml: NvmlState,
    layout: Option<NodeLayoutStatus>,
    sharing: Option<SharingStatus>,
    usage: Option<Usage>,
}

fn device() -> impl Strategy<Value = Device> {
    let running = process(7, None, None);
    prop::sample::select(vec![
        whole(Vec::new()),
        whole(vec![running.clone()]),
        migged(MigMode::Disabled, Vec::new(), Vec::new()),
        migged(MigMode::Enabled, Vec::new(), Vec::new()),
        split(Vec::new()),
        split(vec![running]),
        partial_geometry(),
        failing(),
        bus_only(),
        for_virtual_machines(),
        asks(RecoveryAction::ResetGpu),
        asks(RecoveryAction::DrainP2p),
        refuses("nvmlDeviceGetComputeRunningProcesses"),
        refuses("nvmlDeviceGetFoo"),
        gpu(),
    ])
}

fn layout() -> impl Strategy<Value = NodeLayoutStatus> {
    let states = prop::collection::vec(prop::sample::select(&ApplyState::REASONS[..]), 0..4);
    states.prop_map(|states| {
        let severity = |state: &Reason| ApplyState::severity(*state);
        let worst = states.iter().copied().max_by_key(severity);
        let devices = (0..).zip(states).map(|(number, state): (u8, _)| {
            let pci = PciAddress::new(0, number, 0, 0).unwrap();
            DeviceLayoutStatus::new(pci, format!("GPU {number}"), state.into())
        });
        NodeLayoutStatus {
            layout: Some("serving".to_owned()),
            state: worst.map(Reported::from),
            devices: devices.collect(),
            ..NodeLayoutStatus::default()
        }
    })
}

fn sharing() -> impl Strategy<Value = SharingStatus> {
    let state = prop::sample::select(vec![
        Reason::SharingInForce,
        Reason::SharingPending,
        Reason::SharingHeld,
        Reason::SharingRefused,
    ]);
    let units = prop::collection::vec(prop::option::of(2_u32..5), 0..3);
    (state, units).prop_map(|(state, units)| {
        let unit =
            |replicas| UnitStatus { uuid: "GPU-1".to_owned(), replicas, health: Health::Healthy };
        SharingStatus {
            state: state.into(),
            resources: vec![ResourceStatus {
                name: ResourceName::gpu(),
                wanted: 1,
                allocatable: None,
                units: units.into_iter().map(unit).collect(),
            }],
            ..SharingStatus::default()
        }
    })
}

fn usage() -> impl Strategy<Value = Usage> {
    (prop::option::of(2_u32..5), any::<bool>()).prop_map(|(replicas, is_replica)| {
        let id = if is_replica { ShareId::replica("GPU-1", 0) } else { ShareId::whole("GPU-1") };
        let unit = UnitUsage {
            uuid: "GPU-1".to_owned(),
            replicas,
            tenants: vec![Tenant { ids: vec![id], ..Tenant::default() }],
            ..UnitUsage::default()
        };
        Usage {
            devices: vec![DeviceUsage {
                pci: PciAddress::new(0, 0, 0, 0).unwrap(),
                name: "GPU 0".to_owned(),
                memory: None,
                utilization: None,
                power_watts: None,
                temperature_celsius: None,
                units: vec![unit],
            }],
            missing: Vec::new(),
            ..Usage::default()
        }
    })
}

fn status() -> impl Strategy<Value = Status> {
    let nvml = prop_oneof![
        4 => Just(NvmlState::Loading),
        1 => Just(stalled()),
        1 => Just(lost()),
    ];
    // Equal devices in one case of three, so that nodes of a single kind are common.
    let equal = (device(), 1_usize..4).prop_map(|(one, count)| vec![one; count]);
    let devices = prop_oneof![2 => prop::collection::vec(device(), 0..6), 1 => equal];
    let parts = (
        devices,
        nvml,
        prop::option::of(layout()),
        prop::option::of(sharing()),
        prop::option::of(usage()),
    );
    parts.prop_map(|(devices, nvml, layout, sharing, usage)| Status {
        devices,
        nvml,
        layout,
        sharing,
        usage,
    })
}

fn summarized(status: &Status) -> (Vec<DeviceSummary>, NodeSummary) {
    let inventory = Inventory {
        machine: octavo_model::inventory::Machine::default(),
        nvml: status.nvml.clone(),
        neuron: None,
        devices: status.devices.clone(),
    };
    let devices = DeviceSummary::all(&inventory);
    let node =
        NodeSummary::new(&devices, &status.nvml, status.layout.as_ref().map(LayoutSummary::of));
    let node = node.with_sharing(status.sharing.as_ref().map(SharingSummary::of));
    let usage = status.usage.as_ref().map(UsageRank::from_usage).unwrap_or_default();
    (devices, node.with_usage(&usage))
}

/// Counts by use in the JSON document; an absent count is unknown.
fn counts_in_json(counts: DeviceCounts) -> BTreeMap<&'static str, Option<u64>> {
    let json = serde_json::to_value(counts).unwrap();
    let count = |of: DeviceUse| (of.as_str(), json.get(of.json_key()).and_then(Value::as_u64));
    DeviceUse::ALL.map(count).into()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn counts_of_a_node_agree_with_its_devices(status in status()) {
        let (devices, node) = summarized(&status);
        let counts = node.counts();
        let with_use = |of: DeviceUse| {
            let all = devices.iter().filter(|device| device.occupancy.device_use() == of);
            u32::try_from(all.count()).unwrap()
        };
        for of in DeviceUse::ALL {
            prop_assert_eq!(counts.count(of), with_use(of), "{}", of);
        }
        // Unknown use is neither 0 nor free.
        let json = counts_in_json(counts);
        let known: u64 = json.values().flatten().sum();
        prop_assert_eq!(known, u64::from(counts.total));
        if counts.unknown > 0 {
            for of in [DeviceUse::Free, DeviceUse::InUse, DeviceUse::Partitioned] {
                prop_assert_ne!(json[of.as_str()], Some(0), "{}", of);
            }
        }
        prop_assert_eq!(json["unknown"], Some(u64::from(with_use(DeviceUse::Unknown))));
        let read: DeviceCounts = serde_json::from_value(serde_json::to_value(counts).unwrap()).unwrap();
        prop_assert_eq!(read, counts);
        // A stale node claims nothing about the use of its devices.
        let stale = DeviceCounts::all_unknown(counts.total);
        prop_assert_eq!(stale.known_count(DeviceUse::Free).is_none(), counts.total > 0);
    }

    #[test]
    fn state_of_a_node_agrees_with_its_devices_and_layout(status in status()) {
        let (devices, node) = summarized(&status);
        let (state, counts) = (node.state, node.counts());
        prop_assert_eq!(state == NodeState::Empty, devices.is_empty() && state < NodeState::NvmlLost);
        let is_changing = status.layout.as_ref().is_some_and(NodeLayoutStatus::is_busy);
        let is_changing = is_changing && !devices.is_empty();
        if state < NodeState::Attention {
            prop_assert_eq!(state == NodeState::Applying, is_changing);
            prop_assert_eq!(counts.unavailable, 0);
        }
        prop_assert!(!is_changing || state >= NodeState::Applying);
        if state <= NodeState::Ok {
            prop_assert!(devices.iter().all(|device| !device.node_state.needs_attention()));
            let layout = node.layout.as_ref().filter(|_| !devices.is_empty());
            prop_assert!(!layout.is_some_and(LayoutSummary::needs_attention));
        }
        prop_assert_eq!(state == NodeState::Ok, state.tone() == Tone::Good);
        // Passthrough is neutral, and never a failure.
        let is_passthrough = !devices.is_empty() && counts.passthrough == counts.total;
        if state == NodeState::Passthrough {
            prop_assert!(is_passthrough);
        }
        if is_passthrough && status.layout.is_none() && status.sharing.is_none() {
            let expected = match status.nvml {
                NvmlState::Stalled { .. } => NodeState::NvmlStalled,
                NvmlState::Lost { .. } => NodeState::NvmlLost,
                NvmlState::Absent { .. } | NvmlState::Loading | NvmlState::Ready(_) => {
                    NodeState::Passthrough
                }
            };
            prop_assert_eq!(state, expected);
        }
        // A node without a problem has nothing to explain.
        if state == NodeState::Ok || state == NodeState::Empty {
            prop_assert_eq!(&node.reason, &None);
        }
    }

    #[test]
    fn shared_device_is_never_exclusive(status in status()) {
        let (_, node) = summarized(&status);
        let applied = status.sharing.iter().flat_map(SharingStatus::applied_units);
        let mut applied = applied.map(|(_, unit)| unit.replicas);
        let units = status.usage.iter().flat_map(|usage| &usage.devices).flat_map(|one| &one.units);
        let mut used = units.map(|unit| {
            unit.replicas.is_some() || unit.tenants.iter().any(|one| one.ids.iter().any(|id| id.number().is_some()))
        });
        if applied.any(|replicas| replicas.is_some()) || used.any(|is_shared| is_shared) {
            prop_assert_ne!(node.sharing, Sharing::Exclusive);
        }
    }
}
