//! Devices that still have their previous geometry after an interrupted change, and devices that are absent since.

use std::time::Duration;

use octavo_model::inventory::{Completeness, Condition, Driver, Inventory, MigMode, NvmlState};
use octavo_model::reason::Reason;

use crate::layout::tests_support::node;
use crate::layout::{DeviceTarget, MigTarget, TargetScope, Targets, current_target};
use crate::plan::Policy;
use crate::reconcile::tests::hardware::Hardware;
use crate::reconcile::tests::{interrupted, wants};
use crate::reconcile::{
    ApplyRecord, ApplyRecordEntry, ApplyState, DriftPolicy, NodeReconciler, ReconcileInput,
};

fn inventory(hardware: &Hardware) -> Inventory {
    Inventory {
        nvml: NvmlState::Ready(Driver { version: "570.133.20".parse().unwrap(), cuda: None }),
        ..node(vec![hardware.device.clone()])
    }
}

fn entry(hardware: &mut Hardware) -> ApplyRecordEntry {
    ApplyRecordEntry {
        pci: hardware.device.pci,
        uuid: None,
        plan: "p".to_owned(),
        layout: "l".to_owned(),
        previous: current_target(hardware.state()),
        target: wants(&[5]),
    }
}

#[test]
fn untouched_device_is_at_its_previous_geometry() {
    let mut hardware = Hardware::new(&[(19, 0, &[1]), (19, 2, &[1])]);
    let entry = entry(&mut hardware);
    assert!(entry.is_at_previous(&inventory(&hardware)));
    let fewer = Hardware::new(&[(19, 0, &[1])]);
    assert!(!entry.is_at_previous(&inventory(&fewer)));
    let elsewhere = Hardware::new(&[(19, 0, &[1]), (19, 3, &[1])]);
    assert!(!entry.is_at_previous(&inventory(&elsewhere)));
}

#[test]
fn i3_partial_change_or_unknown_state_keeps_entry() {
    let mut hardware = Hardware::new(&[(19, 0, &[1])]);
    let entry = entry(&mut hardware);
    let half_created = Hardware::new(&[(19, 0, &[1]), (19, 1, &[])]);
    assert!(!entry.is_at_previous(&inventory(&half_created)));
    let mut pending = Hardware::new(&[(19, 0, &[1])]);
    pending.state().pending = MigMode::Disabled;
    assert!(!entry.is_at_previous(&inventory(&pending)));
    let mut partial = Hardware::new(&[(19, 0, &[1])]);
    partial.state().geometry = Completeness::Partial;
    assert!(!entry.is_at_previous(&inventory(&partial)));
    let mut failing = Hardware::new(&[(19, 0, &[1])]);
    failing.device.condition = Condition::Failing { reason: "GPU is lost".to_owned() };
    assert!(!entry.is_at_previous(&inventory(&failing)));
    let lost = Inventory {
        nvml: NvmlState::Lost { reason: "unloaded".to_owned() },
        ..inventory(&hardware)
    };
    assert!(!entry.is_at_previous(&lost));
    let unknown = ApplyRecordEntry { previous: None, ..entry };
    assert!(!unknown.is_at_previous(&inventory(&hardware)));
}

#[test]
fn i2_target_is_reached_only_with_instances_of_interrupted_change() {
    let mut hardware = Hardware::new(&[(19, 0, &[1])]);
    let entry = entry(&mut hardware);
    assert!(!entry.is_reached(&inventory(&hardware)));
    let reached = Hardware::new(&[(5, 0, &[4])]);
    assert!(entry.is_reached(&inventory(&reached)));
    let more = Hardware::new(&[(5, 0, &[4]), (19, 4, &[1])]);
    assert!(!entry.is_reached(&inventory(&more)));
}

#[test]
fn i3_interrupted_change_is_completed_where_claims_determine_the_partitions() {
    let mut hardware = Hardware::new(&[(19, 0, &[1])]);
    let entry = entry(&mut hardware);
    let (plan, layout) = ("p".to_owned(), "l".to_owned());
    let record = ApplyRecord { plan, layout, devices: vec![entry.clone()] };
    let merged = |mig: &MigTarget, scope: TargetScope| {
        let target = DeviceTarget::generated(entry.pci, mig.clone(), scope);
        let targets = Targets { devices: vec![target], ..Targets::default() };
        record.with_interrupted(&inventory(&hardware), &targets).devices
    };
    let target = |mig: &MigTarget, scope: TargetScope| {
        vec![DeviceTarget::generated(entry.pci, mig.clone(), scope)]
    };
    let completed = merged(&MigTarget::Enabled(Vec::new()), TargetScope::Mode);
    assert_eq!(completed, target(&entry.target, TargetScope::Layout));
    // A target that changes the device takes precedence.
    for (mig, scope) in [
        (MigTarget::Disabled, TargetScope::Mode),
        (wants(&[0]), TargetScope::Layout),
        (wants(&[0]), TargetScope::Claims),
    ] {
        assert_eq!(merged(&mig, scope), target(&mig, scope));
    }
}

#[test]
fn i2_device_lost_during_change_is_failed_even_if_unselected() {
    let hardware = Hardware::new(&[]);
    let (inventory, targets, policy) = (node(vec![]), Targets::default(), Policy::default());
    let record = interrupted(hardware.device.pci, wants(&[0]));
    let view = ReconcileInput {
        inventory: &inventory,
        targets: &targets,
        holders: &[],
        holders_unknown: None,
        policy: &policy,
        drift: DriftPolicy::Repair,
        record: Some(&record),
    };
    let mut node = NodeReconciler::default();
    for _ in 0..2 {
        node.reconcile(Duration::ZERO, &view);
        assert_eq!(node.worst().map(ApplyState::reason), Some(Reason::Failed));
    }
    let view = ReconcileInput { record: None, ..view };
    node.reconcile(Duration::ZERO, &view);
    assert_eq!(node.worst(), None, "the journal no longer has it");
}

#[test]
fn i3_interrupted_change_resumes_even_if_holders_are_unknown() {
    let hardware = Hardware::new(&[(9, 0, &[3])]);
    let job = hardware.job(wants(&[0]));
    let targets = Targets { devices: vec![job.target.clone()], ..Targets::default() };
    let record = interrupted(job.target.pci, wants(&[0]));
    let policy = Policy::default();
    for (record, change) in [(Some(&record), vec![job.target.pci]), (None, vec![])] {
        let view = ReconcileInput {
            inventory: &job.inventory,
            targets: &targets,
            holders: &[],
            holders_unknown: Some("kubelet was started just now"),
            policy: &policy,
            drift: DriftPolicy::Repair,
            record,
        };
        let decision = NodeReconciler::default().reconcile(Duration::ZERO, &view);
        assert_eq!(decision.change, change, "an interrupted change is not finished");
    }
}
