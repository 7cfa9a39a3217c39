//! Tests of layout reports and of their effect on the node state.

use octavo_model::id::PciAddress;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::text::{MAX_TEXT_BYTES, MAX_WORD_BYTES};
use octavo_planner::reconcile::{
    ApplyState, ChangeOutcome, DeviceLayoutStatus, MAX_LAYOUT_DEVICES, NodeLayoutStatus,
};

use super::*;

fn layout_status(state: &str, message: &str) -> NodeLayoutStatus {
    let device = |number: u8, state: &str, message: &str| DeviceLayoutStatus {
        message: message.to_owned(),
        ..DeviceLayoutStatus::new(
            PciAddress::new(0, number, 0, 0).unwrap(),
            format!("GPU {number}"),
            Reported::parse(state),
        )
    };
    NodeLayoutStatus {
        layout: Some("serving".to_owned()),
        state: Some(Reported::parse(state)),
        devices: vec![
            device(0, "applied", ""),
            device(1, state, message),
            device(2, state, message),
        ],
        ..NodeLayoutStatus::default()
    }
}

#[test]
fn unapplied_layout_is_the_reason_unless_more_severe() {
    let summary = |devices: &[Device], layout: &NodeLayoutStatus| {
        let nvml = NvmlState::Loading;
        let devices: Vec<DeviceSummary> =
            devices.iter().map(|device| DeviceSummary::new(device, &nvml)).collect();
        NodeSummary::new(&devices, &nvml, Some(LayoutSummary::of(layout)))
    };
    let good = [whole(Vec::new())];
    let blocked = summary(&good, &layout_status("blocked", "in use by pid 7"));
    assert_eq!(blocked.reason.as_deref(), Some("GPU 1: blocked: in use by pid 7 (and 1 more)"));
    assert_eq!(blocked.state, NodeState::Attention);
    for (state, wanted) in [
        ("drifted", NodeState::Attention),
        ("failed", NodeState::Attention),
        ("needs-reset", NodeState::Attention),
        ("infeasible", NodeState::Attention),
        ("rolled-back", NodeState::Attention),
        ("applied", NodeState::Ok),
        ("pending", NodeState::Ok),
        ("applying", NodeState::Applying),
        ("yielded", NodeState::Ok),
        ("of a later version", NodeState::Ok),
    ] {
        let node = summary(&good, &layout_status(state, "why"));
        assert_eq!((node.state, node.reason.is_some()), (wanted, wanted == NodeState::Attention));
        assert_eq!(node.layout.unwrap().state, Some(Reported::parse(state)));
    }
    let graver = summary(&[failing()], &layout_status("failed", "why"));
    assert_eq!(graver.state, NodeState::Degraded);
    assert!(graver.reason.unwrap().contains("GPU is lost"));

    // A layout that is unknown on this node.
    let unknown = NodeLayoutStatus {
        layout: Some("nosuch".to_owned()),
        notice: Some("there is no layout nosuch".to_owned()),
        ..NodeLayoutStatus::default()
    };
    assert_eq!(summary(&good, &unknown).reason.as_deref(), Some("there is no layout nosuch"));
    // It has no effect on a node without devices.
    assert_eq!(summary(&[], &unknown).state, NodeState::Empty);
}

#[test]
fn layout_report_is_bounded_and_absent_without_layout() {
    assert_eq!(NodeLayoutStatus::default().for_aggregator(), None);
    let device = DeviceLayoutStatus {
        message: "\u{20ac}".repeat(10_000),
        ..DeviceLayoutStatus::new(
            PciAddress::new(0, 7, 0, 0).unwrap(),
            "n".repeat(1000),
            Reason::Blocked.into(),
        )
    };
    let status = NodeLayoutStatus {
        layout: Some("l".repeat(1000)),
        devices: vec![device; 1000],
        ..NodeLayoutStatus::default()
    };
    let bounded = status.for_aggregator().unwrap();
    assert_eq!(bounded.layout.map(|name| name.len()), Some(MAX_WORD_BYTES));
    assert_eq!(bounded.devices.len(), MAX_LAYOUT_DEVICES);
    assert_eq!(bounded.devices[0].name.len(), MAX_WORD_BYTES);
    // Three bytes per character, and no partial character.
    assert_eq!(bounded.devices[0].message.len(), MAX_TEXT_BYTES / 3 * 3);
}

#[test]
fn states_are_ordered_by_severity() {
    let states = [
        ApplyState::Ended(ChangeOutcome::Applied),
        ApplyState::Pending { reason: String::new() },
        ApplyState::Applying,
        ApplyState::Ended(ChangeOutcome::Yielded { reason: String::new() }),
        ApplyState::Drifted,
        ApplyState::Ended(ChangeOutcome::Blocked { causes: Vec::new(), rolled_back: false }),
        ApplyState::Ended(ChangeOutcome::RolledBack { reason: String::new() }),
    ];
    for (place, state) in states.iter().enumerate() {
        assert_eq!(ApplyState::severity(state.reason()), Some(place));
    }
    let failed = ChangeOutcome::Failed { reason: String::new(), rollback: None };
    assert_eq!(ApplyState::severity(failed.reason()), Some(9));
}
