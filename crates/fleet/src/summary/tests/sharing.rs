//! Tests of the sharing states that need attention, and of usage alarms.

use std::time::Duration;

use octavo_model::inventory::NvmlState;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::MemoryUse;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::resource::ResourceName;
use octavo_model::sharing_status::{Health, ResourceStatus, SharingStatus, UnitStatus};
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};

use crate::summary::{
    DeviceHealth, DeviceSummary, NodeState, NodeSummary, Occupancy, ReportAction, ReportRate,
    Sharing, SharingSummary, alarms,
};

fn summary(state: &str, message: Option<&str>) -> SharingSummary {
    SharingSummary::of(&SharingStatus {
        mode: Reported::parse("embedded"),
        state: Reported::parse(state),
        message: message.map(str::to_owned),
        ..SharingStatus::default()
    })
}

#[test]
fn failed_sharing_needs_attention_pending_does_not() {
    for (state, look) in [
        (Reason::SharingInForce.as_str(), false),
        (Reason::SharingPending.as_str(), false),
        (Reason::SharingHeld.as_str(), true),
        (Reason::SharingNotInForce.as_str(), true),
        (Reason::SharingRefused.as_str(), true),
        (Reason::DevicePluginConflict.as_str(), true),
        ("of-a-newer-agent", false),
    ] {
        assert_eq!(summary(state, None).needs_attention(), look, "{state}");
    }
    let long = "x".repeat(5000);
    assert_eq!(summary("sharing-held", Some(&long)).why().chars().count(), 1000);
}

fn usage(used: u64, is_nearly_exhausted: bool) -> Usage {
    let tenant = |pod: &str, is_over| Tenant {
        namespace: Some("a".to_owned()),
        pod: Some(pod.to_owned()),
        is_over_share: is_over,
        ..Tenant::default()
    };
    let unit = UnitUsage {
        uuid: "GPU-1".to_owned(),
        gpu_instance: None,
        compute_instance: None,
        profile: None,
        resource: None,
        replicas: Some(3),
        fair_share: None,
        memory: Some(MemoryUse {
            total: Mebibytes::new(81_920),
            used: Mebibytes::new(used),
            reserved: Mebibytes::new(100),
        }),
        tenants: vec![tenant("b", true), tenant("c", false)],
        utilization: None,
        unattributed: None,
        exhausted_in: None,
        is_nearly_exhausted,
    };
    Usage {
        devices: vec![DeviceUsage {
            pci: "0000:07:00.0".parse().unwrap(),
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
}

#[test]
fn alarms_are_reported_immediately() {
    let over = ("GPU-1".to_owned(), Some(("a/b".to_owned(), String::new())));
    let full = ("GPU-1".to_owned(), None);
    let of = |usage: &Usage| alarms(usage).into_iter().collect::<Vec<_>>();
    assert_eq!(of(&usage(81_000, true)), [full, over.clone()]);
    assert_eq!(of(&usage(81_900, false)), [over]);
    let mut pace = ReportRate::default();
    let seconds = Duration::from_secs;
    assert_eq!(pace.next_action(seconds(0), &usage(81_000, true)), ReportAction::Report);
    // More memory is free than at the alarm threshold, but the guard has not cleared the alarm yet.
    let wait = ReportAction::Wait(seconds(14));
    assert_eq!(pace.next_action(seconds(1), &usage(80_000, true)), wait);
    assert_eq!(pace.next_action(seconds(2), &usage(79_000, false)), ReportAction::Report);
}

#[test]
fn fluctuating_sensors_cause_no_report() {
    let seconds = Duration::from_secs;
    let sensors = |power_watts, temperature_celsius| {
        let mut usage = usage(1000, false);
        usage.devices[0].power_watts = power_watts;
        usage.devices[0].temperature_celsius = temperature_celsius;
        usage
    };
    let mut pace = ReportRate::default();
    let mut action = |second, usage: Usage| pace.next_action(seconds(second), &usage);
    assert_eq!(action(0, sensors(Some(70), Some(34))), ReportAction::Report);
    assert_eq!(action(20, sensors(Some(79), Some(36))), ReportAction::Nothing);
    assert_eq!(action(40, sensors(Some(61), Some(32))), ReportAction::Nothing);
    // Slow changes add up: the report is compared with the last one that was sent.
    assert_eq!(action(60, sensors(Some(70), Some(37))), ReportAction::Report);
    assert_eq!(action(61, sensors(Some(80), Some(37))), ReportAction::Wait(seconds(14)));
    assert_eq!(action(80, sensors(Some(80), Some(37))), ReportAction::Report);
    assert_eq!(action(100, sensors(None, Some(37))), ReportAction::Report);
    assert_eq!(action(120, sensors(None, None)), ReportAction::Report);
    assert_eq!(action(140, sensors(None, None)), ReportAction::Nothing);
}

#[test]
fn slices_of_a_gpu_are_counted_while_another_gpu_is_lost() {
    let unit = |uuid: &str, health| UnitStatus { uuid: uuid.to_owned(), replicas: Some(3), health };
    let lost = Health::Unhealthy { reason: "it is lost".to_owned() };
    let report = |state: Reason, allocatable| SharingStatus {
        state: state.into(),
        resources: vec![ResourceStatus {
            name: ResourceName::gpu(),
            wanted: 6,
            allocatable,
            units: vec![unit("GPU-1", Health::Healthy), unit("GPU-2", lost.clone())],
        }],
        ..SharingStatus::default()
    };
    for (state, allocatable, units) in [
        (Reason::SharingNotInForce, Some(3), 2),
        (Reason::SharingNotInForce, Some(6), 0),
        (Reason::SharingNotInForce, Some(0), 0),
        (Reason::SharingNotInForce, None, 0),
        (Reason::SharingPending, Some(3), 0),
    ] {
        let report = report(state, allocatable);
        let count = report.applied_units().count();
        assert_eq!(count, units, "{} {allocatable:?}", state.as_str());
    }
    let mut report = report(Reason::SharingNotInForce, Some(0));
    report.resources[0].units.remove(0);
    assert_eq!(report.applied_units().count(), 0, "a removed unit counts");
}

#[test]
fn time_slicing_is_reported_once_applied() {
    let unit =
        |replicas| UnitStatus { uuid: "GPU-1".to_owned(), replicas, health: Health::Healthy };
    let given = |state: Reason, replicas: &[Option<u32>]| {
        let report = SharingStatus {
            state: state.into(),
            resources: vec![ResourceStatus {
                name: ResourceName::gpu(),
                wanted: 1,
                allocatable: None,
                units: replicas.iter().copied().map(unit).collect(),
            }],
            ..SharingStatus::default()
        };
        Some(SharingSummary::of(&report))
    };
    let node = |is_there: bool| {
        let device = DeviceSummary {
            facts: DeviceSummary::new(&octavo_model::examples::gpu(), &NvmlState::Loading).facts,
            health: DeviceHealth::OK,
            node_state: NodeState::Ok,
            occupancy: Occupancy::Free,
            type_name: None,
            is_manual_type: false,
            memory: None,
            worst_issue: None,
            sharing: Some(Sharing::Exclusive),
        };
        let devices = Some(device).filter(|_| is_there);
        NodeSummary::new(devices.as_slice(), &NvmlState::Loading, None)
    };
    let (force, pending) = (Reason::SharingInForce, Reason::SharingPending);
    for (given, word) in [
        (None, "exclusive"),
        (given(force, &[]), "exclusive"),
        (given(force, &[None, None]), "exclusive"),
        (given(force, &[Some(3), Some(2)]), "time-slicing"),
        (given(Reason::SharingHeld, &[Some(3)]), "time-slicing"),
        (given(force, &[Some(3), None]), "mixed"),
        (given(pending, &[Some(3), Some(2)]), "exclusive"),
    ] {
        let node = node(true).with_sharing(given);
        assert_eq!(node.sharing.as_str(), word, "{:?}", node.sharing_status);
    }
    let empty = node(false).with_sharing(given(force, &[Some(3)]));
    assert_eq!(empty.sharing.as_str(), "none");
}
