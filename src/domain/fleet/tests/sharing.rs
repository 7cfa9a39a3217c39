//! What of sharing makes a node worth a look, and what of usage somebody should know of at once.

use crate::domain::fleet::{
    DeviceSummary, NodeSummary, Occupancy, SharingReport, SharingSummary, alarms,
    is_nearly_exhausted,
};
use crate::domain::inventory::{DeviceState, NvmlState};
use crate::domain::quantity::Mebibytes;
use crate::domain::reason::Reason;
use crate::domain::sharing::ResourceName;
use crate::domain::sharing::health::Health;
use crate::domain::sharing::status::{ResourceStatus, UnitStatus};
use crate::domain::sharing::usage::{DeviceUsage, MemoryUse, Tenant, UnitUsage, Usage};

fn summary(state: &str, message: Option<&str>) -> SharingSummary {
    SharingSummary::of(&SharingReport {
        mode: "embedded".to_owned(),
        state: state.to_owned(),
        message: message.map(str::to_owned),
        ..SharingReport::default()
    })
}

#[test]
fn what_is_not_given_out_as_it_shall_be_is_worth_a_look_and_what_is_about_to_be_is_not() {
    for (state, look) in [
        (Reason::SharingInForce.word(), false),
        (Reason::SharingPending.word(), false),
        (Reason::SharingHeld.word(), true),
        (Reason::SharingNotInForce.word(), true),
        (Reason::SharingRefused.word(), true),
        (Reason::DevicePluginConflict.word(), true),
        ("of-a-newer-agent", false),
    ] {
        assert_eq!(summary(state, None).wants_a_look(), look, "{state}");
    }
    let long = "x".repeat(500);
    assert_eq!(
        summary("sharing-held", Some(&long)).why().chars().count(),
        160
    );
}

#[test]
fn a_unit_is_nearly_exhausted_below_a_twentieth_or_a_gibibyte_and_only_where_it_is_shared() {
    let unit = |total, used, replicas| UnitUsage {
        uuid: "GPU-1".to_owned(),
        partition: None,
        profile: None,
        resource: None,
        replicas,
        fair_share: None,
        memory: Some(MemoryUse {
            total: Mebibytes::new(total),
            used: Mebibytes::new(used),
            reserved: Mebibytes::new(100),
        }),
        tenants: Vec::new(),
        unattributed: None,
        exhausted_in: None,
    };
    for (total, used, replicas, full) in [
        (81_920, 80_700, Some(3), false),
        (81_920, 80_800, Some(3), true),
        (81_920, 80_800, None, false),
        (9_728, 9_100, Some(2), false),
        (9_728, 9_200, Some(2), true),
        (0, 0, Some(2), false),
        (100, u64::MAX, Some(2), true),
    ] {
        assert_eq!(
            is_nearly_exhausted(&unit(total, used, replicas)),
            full,
            "{total} {used}"
        );
    }
    let tenant = |pod: &str, is_over| Tenant {
        namespace: Some("a".to_owned()),
        pod: Some(pod.to_owned()),
        is_over,
        ..Tenant::default()
    };
    let device = DeviceUsage {
        pci: "0000:07:00.0".parse().unwrap(),
        name: "GPU 0".to_owned(),
        memory: None,
        utilization: None,
        units: vec![UnitUsage {
            tenants: vec![tenant("b", true), tenant("c", false)],
            ..unit(81_920, 81_000, Some(3))
        }],
    };
    let usage = Usage {
        devices: vec![device],
        missing: Vec::new(),
    };
    let expected = [
        ("GPU-1".to_owned(), None),
        ("GPU-1".to_owned(), Some(("a/b".to_owned(), String::new()))),
    ];
    assert_eq!(alarms(&usage).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn what_is_given_out_by_turns_is_called_so_once_it_is_and_where_all_of_it_is() {
    let unit = |replicas| UnitStatus {
        uuid: "GPU-1".to_owned(),
        replicas,
        health: Health::Healthy,
    };
    let given = |state: Reason, replicas: &[Option<u32>]| {
        let report = SharingReport {
            state: state.word().to_owned(),
            resources: vec![ResourceStatus {
                name: ResourceName::gpu(),
                wanted: 1,
                allocatable: None,
                units: replicas.iter().copied().map(unit).collect(),
            }],
            ..SharingReport::default()
        };
        Some(SharingSummary::of(&report))
    };
    let node = |is_there: bool| {
        let device = DeviceSummary {
            state: DeviceState::Ok,
            occupancy: Occupancy::Free,
            type_name: None,
            memory: None,
            trouble: None,
            in_parts: Some(false),
        };
        let devices = Some(device).filter(|_| is_there);
        NodeSummary::of(devices.as_slice(), &NvmlState::Loading, None)
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
        assert_eq!(node.sharing.as_str(), word, "{:?}", node.given);
    }
    let empty = node(false).with_sharing(given(force, &[Some(3)]));
    assert_eq!(empty.sharing.as_str(), "none");
}
