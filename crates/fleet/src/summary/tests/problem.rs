//! Tests of the problems of a node: each one exactly once, with its blocker and its remedy.

use octavo_model::id::PciAddress;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::sharing_status::SharingStatus;
use octavo_model::tone::Tone;
use octavo_planner::reconcile::{DeviceLayoutStatus, NodeLayoutStatus};

use super::*;

fn problems(
    devices: &[Device],
    nvml: &NvmlState,
    layout: Option<&NodeLayoutStatus>,
) -> Vec<NodeProblem> {
    let devices: Vec<DeviceSummary> =
        devices.iter().map(|device| DeviceSummary::new(device, nvml)).collect();
    let summary = NodeSummary::new(&devices, nvml, layout.map(LayoutSummary::of));
    summary.problems(&devices)
}

/// Reason and device of each problem.
fn short(problems: &[NodeProblem]) -> Vec<(&str, Option<&str>)> {
    problems.iter().map(|one| (one.reason, one.device.as_deref())).collect()
}

fn indexed(index: u32, mut device: Device) -> Device {
    device.index = Some(index);
    device
}

fn device_layout(number: u8, reason: Reason, message: &str) -> DeviceLayoutStatus {
    DeviceLayoutStatus {
        message: message.to_owned(),
        ..DeviceLayoutStatus::new(
            PciAddress::new(0, number, 0, 0).unwrap(),
            format!("GPU {number}"),
            Reported::from(reason),
        )
    }
}

#[test]
fn each_faulty_device_is_a_problem_and_a_healthy_node_has_none() {
    let ready = NvmlState::Loading;
    assert_eq!(problems(&[whole(Vec::new()), for_virtual_machines()], &ready, None), []);
    let devices = [
        indexed(0, whole(Vec::new())),
        indexed(1, asks(RecoveryAction::ResetGpu)),
        indexed(2, failing()),
        indexed(3, refuses("nvmlDeviceGetFoo")),
    ];
    let found = problems(&devices, &ready, None);
    assert_eq!(
        short(&found),
        [("needs-reset", Some("GPU 1")), ("failing", Some("GPU 2")), ("partial", Some("GPU 3"))]
    );
    assert_eq!(found[0].tone, Tone::Bad);
    assert_eq!(found[0].message, "the driver requests a GPU reset");
    assert!(found[0].remedy.contains("nvidia-smi --gpu-reset"));
    assert_eq!(found[2].tone, Tone::Warning);
}

#[test]
fn problem_of_the_driver_is_listed_once_for_all_devices() {
    let devices = || [indexed(0, whole(Vec::new())), indexed(1, whole(Vec::new()))];
    for (nvml, reason) in [(stalled(), Reason::NvmlStalled), (lost(), Reason::NvmlLost)] {
        let found = problems(&devices(), &nvml, None);
        assert_eq!(short(&found), [(reason.as_str(), Some("2 devices"))]);
        assert_eq!(found[0].remedy, reason.remedy());
    }
    let found = problems(&[bus_only(), bus_only(), bus_only()], &NvmlState::Loading, None);
    assert_eq!(short(&found), [(Reason::NoDriver.as_str(), Some("3 devices"))]);
    // A fault of a device is listed beside a hanging driver.
    let found = problems(&[whole(Vec::new()), indexed(7, failing())], &stalled(), None);
    assert_eq!(found.len(), 2);
}

#[test]
fn each_blocked_device_is_listed_with_its_blocker_and_the_drain() {
    let holder = format!("{} by pod serving/guardrail-0", "gi 2 is in use ".repeat(12));
    let status = NodeLayoutStatus {
        layout: Some("serving".to_owned()),
        state: Some(Reported::from(Reason::Failed)),
        notice: Some("the layouts file is invalid".to_owned()),
        drain: Some("drain (affected) is evicting pods: pod serving/guardrail-0: no".to_owned()),
        devices: vec![
            device_layout(0, Reason::Applied, ""),
            device_layout(1, Reason::Blocked, &holder),
            device_layout(2, Reason::Failed, "the driver refused"),
            device_layout(3, Reason::Applying, ""),
        ],
        ..NodeLayoutStatus::default()
    };
    let found = problems(&[whole(Vec::new())], &NvmlState::Loading, Some(&status));
    let notice = Reason::LayoutNotice.as_str();
    assert_eq!(
        short(&found),
        [("blocked", Some("GPU 1")), ("failed", Some("GPU 2")), ("drain", None), (notice, None)]
    );
    assert_eq!(found[0].message, holder, "it is not truncated");
    assert_eq!((found[0].tone, found[1].tone), (Tone::Warning, Tone::Bad));
    assert!(found[2].message.ends_with("pod serving/guardrail-0: no"));
    // It has no effect on a node without devices.
    assert_eq!(problems(&[], &NvmlState::Loading, Some(&status)), []);
}

#[test]
fn long_explanation_ends_with_an_ellipsis() {
    let status = NodeLayoutStatus {
        state: Some(Reported::from(Reason::Blocked)),
        devices: vec![device_layout(1, Reason::Blocked, &"x".repeat(5000))],
        ..NodeLayoutStatus::default()
    };
    let found = problems(&[whole(Vec::new())], &NvmlState::Loading, Some(&status));
    assert!(found[0].message.ends_with('\u{2026}') && found[0].message.len() < 1100);
}

#[test]
fn failed_sharing_is_a_problem_of_the_node() {
    let devices = [DeviceSummary::new(&whole(Vec::new()), &NvmlState::Loading)];
    let sharing = SharingSummary::of(&SharingStatus {
        state: Reported::from(Reason::SharingRefused),
        message: Some("no device plugin".to_owned()),
        ..SharingStatus::default()
    });
    let summary = NodeSummary::new(&devices, &NvmlState::Loading, None).with_sharing(Some(sharing));
    let found = summary.problems(&devices);
    assert_eq!(short(&found), [(Reason::SharingRefused.as_str(), None)]);
    assert_eq!(found[0].message, "no device plugin");
}

proptest! {
    /// A node needs attention if and only if it has a problem, and every faulty device is named or counted.
    #[test]
    fn every_problem_is_listed(kinds in prop::collection::vec(0_usize..6, 0..9), driver in 0..3) {
        let make = |(index, kind): (usize, &usize)| {
            let device = match kind {
                0 => whole(Vec::new()),
                1 => failing(),
                2 => bus_only(),
                3 => asks(RecoveryAction::DrainP2p),
                4 => for_virtual_machines(),
                _ => refuses("nvmlDeviceGetFoo"),
            };
            indexed(u32::try_from(index).unwrap(), device)
        };
        let devices: Vec<Device> = kinds.iter().enumerate().map(make).collect();
        let nvml = match driver { 0 => NvmlState::Loading, 1 => lost(), _ => stalled() };
        let summaries: Vec<DeviceSummary> =
            devices.iter().map(|device| DeviceSummary::new(device, &nvml)).collect();
        let summary = NodeSummary::new(&summaries, &nvml, None);
        let found = summary.problems(&summaries);
        prop_assert_eq!(summary.state.needs_attention(), !found.is_empty());
        let named = |index: usize| format!("GPU {index}");
        for (index, device) in summaries.iter().enumerate() {
            let lines = found.iter().filter(|one| one.device == Some(named(index))).count();
            let is_counted = matches!(kinds[index], 2) || device.health.state.as_str() == "stale";
            let expected = usize::from(device.node_state.needs_attention() && !is_counted);
            if kinds[index] != 2 {
                prop_assert_eq!(lines, expected, "{:?}", device);
            }
        }
        prop_assert!(found.iter().all(|one| one.tone >= Tone::Warning && !one.remedy.is_empty()));
    }
}
