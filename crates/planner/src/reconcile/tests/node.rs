//! Decisions for a node over successive reconciliations.

use std::collections::BTreeSet;
use std::time::Duration;

use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    Completeness, Condition, Device, Driver, Inventory, Mig, MigMode, NvmlState, Process,
    ProcessKind,
};
use octavo_model::reason::Reason;
use octavo_model::source_position::SourcePosition;

use super::hardware::Hardware;
use super::{interrupted, wants};
use crate::layout::tests_support::{A100_40, failing, node, t4};
use crate::layout::{DeviceTarget, MigTarget, TargetScope, Targets, UnverifiedDevice};
use crate::plan::Policy;
use crate::plan::messages::PlanFormatter;
use crate::reconcile::node::HOLDER_QUERY_INTERVAL;
use crate::reconcile::{
    ApplyRecord, ApplyState, ChangeOutcome, Decision, DriftPolicy, NodeReconciler, ReconcileInput,
};

const SECOND: Duration = Duration::from_secs(1);

struct Case {
    inventory: Inventory,
    targets: Targets,
    drift: DriftPolicy,
    record: Option<ApplyRecord>,
    unreported: Option<&'static str>,
    node: NodeReconciler,
}

impl Case {
    fn new(devices: Vec<Device>, targets: Vec<MigTarget>) -> Self {
        let addresses: Vec<PciAddress> = devices.iter().map(|device| device.pci).collect();
        let targets = addresses.into_iter().zip(targets);
        Self {
            inventory: Inventory {
                neuron: None,
                nvml: NvmlState::Ready(Driver {
                    version: "570.133.20".parse().unwrap(),
                    cuda: None,
                }),
                ..node(devices)
            },
            targets: Targets {
                devices: targets
                    .map(|(pci, mig)| DeviceTarget::generated(pci, mig, TargetScope::Layout))
                    .collect(),
                ..Targets::default()
            },
            drift: DriftPolicy::Repair,
            record: None,
            unreported: None,
            node: NodeReconciler::default(),
        }
    }

    fn reconcile(&mut self, now: Duration) -> Decision {
        let policy = Policy::default();
        self.node.reconcile(
            now,
            &ReconcileInput {
                inventory: &self.inventory,
                targets: &self.targets,
                holders: &[],
                holders_unknown: self.unreported,
                policy: &policy,
                drift: self.drift,
                record: self.record.as_ref(),
            },
        )
    }

    fn ended(&mut self, now: Duration, pci: PciAddress, outcome: ChangeOutcome) {
        let after = (&self.inventory, &[][..]);
        self.node.ended(now, after, pci, outcome);
    }

    /// Replaces the instances of the first device.
    fn becomes(&mut self, instances: &[(u32, u32, &[u32])]) {
        self.inventory.devices[0] = A100_40.with(0, instances);
    }

    fn state(&self) -> &ApplyState {
        self.node.states().next().unwrap().1
    }
}

fn at(number: usize) -> PciAddress {
    A100_40.gpu(u8::try_from(number).unwrap()).pci
}

#[test]
fn device_at_target_is_applied_and_unchanged() {
    let mut case = Case::new(vec![A100_40.with(0, &[(9, 0, &[3])])], vec![wants(&[9])]);
    assert_eq!(case.reconcile(SECOND), Decision::default());
    assert_eq!(case.state(), &ApplyState::Ended(ChangeOutcome::Applied));
    assert_eq!(case.node.worst(), Some(&ApplyState::Ended(ChangeOutcome::Applied)));
}

#[test]
fn i4_infeasible_device_prevents_all_changes() {
    let mut case = Case::new(vec![A100_40.gpu(0), t4(1)], vec![wants(&[9]), wants(&[9])]);
    assert_eq!(case.reconcile(SECOND), Decision::default());
    let states: Vec<&str> = case.node.states().map(|(_, state)| state.reason().as_str()).collect();
    assert_eq!(states, ["pending", "infeasible"]);
    assert_eq!(case.node.worst().unwrap().reason(), Reason::Infeasible);
}

/// Found by `tests/fleet-simulation` (seed 18): one incomplete reading let the other GPU change.
#[test]
fn i4_infeasible_device_prevents_all_changes_while_its_partitions_are_not_reported() {
    let mut second = A100_40.with(1, &[(14, 0, &[2])]);
    let Mig::Capable(state) = &mut second.mig else { panic!("{second:?}") };
    state.geometry = Completeness::Partial;
    let mut case = Case::new(vec![A100_40.gpu(0), second], vec![wants(&[9]), wants(&[5, 9, 19])]);
    assert_eq!(case.reconcile(SECOND), Decision::default());
    let states: Vec<&str> = case.node.states().map(|(_, state)| state.reason().as_str()).collect();
    assert_eq!(states, ["pending", "infeasible"]);
    // A profile that was not read can exist.
    case.targets.devices[1].mig = Some(wants(&[99]));
    case.reconcile(SECOND);
    let states: Vec<&str> = case.node.states().map(|(_, state)| state.reason().as_str()).collect();
    assert_eq!(states[1], "blocked");
    // A feasible target is not known to be reached, and the other GPU is changed.
    case.targets.devices[1].mig = Some(wants(&[9]));
    assert_eq!(case.reconcile(SECOND).change, [at(0)]);
}

/// Found by `tests/fleet-simulation`.
#[test]
fn i4_infeasible_device_prevents_all_changes_while_its_interrupted_change_is_completed() {
    let half_changed = A100_40.with(1, &[(14, 0, &[2]), (19, 2, &[])]);
    let devices = vec![A100_40.gpu(0), half_changed];
    let mut case = Case::new(devices, vec![wants(&[9]), wants(&[5, 9, 19])]);
    case.record = Some(interrupted(at(1), wants(&[14, 19])));
    let decision = case.reconcile(SECOND);
    assert_eq!((decision.change, decision.finish), (vec![at(1)], vec![at(1)]));
    assert_eq!(case.state().reason(), Reason::Pending);
    // Nothing prevents a layout that does not select the device, although the interrupted change is infeasible.
    case.targets.devices.pop();
    case.record = Some(interrupted(at(1), wants(&[5, 9, 19])));
    assert_eq!(case.reconcile(SECOND).change, [at(0), at(1)]);
}

#[test]
fn i4_infeasible_target_delays_no_claim_and_no_claim_delays_a_layout() {
    for infeasible in [TargetScope::Layout, TargetScope::Claims] {
        let devices = vec![A100_40.gpu(0), t4(1), A100_40.gpu(2)];
        let mut case = Case::new(devices, vec![wants(&[9]), wants(&[9]), wants(&[9])]);
        case.targets.devices[1].scope = infeasible;
        case.targets.devices[2].scope = TargetScope::Claims;
        // A layout is changed as a whole, each claim alone.
        let changed = match infeasible {
            TargetScope::Claims => vec![at(0), at(2)],
            TargetScope::Layout | TargetScope::Mode => vec![at(2)],
        };
        assert_eq!(case.reconcile(SECOND).change, changed, "{infeasible:?}");
    }
}

#[test]
fn partitions_of_claims_are_not_drift() {
    let mut case = Case::new(vec![A100_40.gpu(0)], vec![MigTarget::Enabled(Vec::new())]);
    case.targets.devices[0].scope = TargetScope::Mode;
    for instances in [&[][..], &[(9, 0, &[3][..])], &[(9, 4, &[1, 2])], &[]] {
        case.becomes(instances);
        assert_eq!(case.reconcile(SECOND), Decision::default(), "{instances:?}");
        assert_eq!(case.state(), &ApplyState::Ended(ChangeOutcome::Applied));
    }
    // The layout determines the mode.
    set_modes(&mut case.inventory.devices[0], MigMode::Disabled, MigMode::Disabled);
    let decision = case.reconcile(SECOND);
    assert_eq!((decision.change, decision.drifted), (vec![at(0)], vec![]));
    case.targets.devices[0].mig = Some(MigTarget::Disabled);
    assert_eq!(case.reconcile(SECOND), Decision::default());
    // A mode that is only pending would destroy the partitions at the next reset.
    case.becomes(&[(9, 0, &[3])]);
    case.targets.devices[0].mig = Some(MigTarget::Enabled(Vec::new()));
    set_modes(&mut case.inventory.devices[0], MigMode::Enabled, MigMode::Disabled);
    assert_eq!(case.reconcile(SECOND).change, [at(0)]);
}

fn set_modes(device: &mut Device, current: MigMode, pending: MigMode) {
    let Mig::Capable(state) = &mut device.mig else { panic!("{device:?}") };
    (state.current, state.pending) = (current, pending);
}

#[test]
fn unknown_holders_block_destroying_but_not_creating() {
    let full = A100_40.with(0, &[(9, 0, &[3])]);
    let mut case = Case::new(vec![full, A100_40.with(1, &[])], vec![wants(&[0]), wants(&[9])]);
    case.unreported = Some("kubelet was started just now");
    let decision = case.reconcile(SECOND);
    assert_eq!(decision.change, [at(1)]);
    assert_eq!(decision.again, Some(SECOND + HOLDER_QUERY_INTERVAL));
    let message = case.state().message(&PlanFormatter::new(&case.inventory, at(0)));
    assert_eq!(case.state().reason(), Reason::Blocked);
    assert!(message.contains("kubelet was started just now"), "{message}");
    case.ended(SECOND, at(1), ChangeOutcome::Applied);
    // While holders are unknown, no attempt is made, so no backoff is due afterwards.
    for second in 2..60 {
        assert_eq!(case.reconcile(SECOND * second).change, [at(1)]);
    }
    case.unreported = None;
    assert_eq!(case.reconcile(SECOND * 60).change, [at(0), at(1)]);
}

#[test]
fn device_in_use_does_not_block_others() {
    let busy = Hardware::new(&[(9, 0, &[3])]).used_by(1, 0).device;
    let mut case = Case::new(vec![busy, A100_40.gpu(1)], vec![wants(&[0]), wants(&[0])]);
    assert_eq!(case.reconcile(SECOND).change, [at(1)]);
    assert_eq!(case.state().reason(), Reason::Blocked);
    // No event reports that a holder is gone; the next reconciliation finds out.
    case.inventory.devices[0].processes.clear();
    assert_eq!(case.reconcile(SECOND * 2).change, [at(0), at(1)]);
}

#[test]
fn i5_failed_change_is_retried_with_backoff_or_after_device_change() {
    let failed = || ChangeOutcome::RolledBack { reason: "no".to_owned() };
    let mut case = Case::new(vec![A100_40.gpu(0)], vec![wants(&[9])]);
    let mut now = SECOND;
    for wait in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        assert_eq!(case.reconcile(now).change, [at(0)], "after {wait}");
        case.node.change_started(at(0));
        assert_eq!(case.state(), &ApplyState::Applying);
        case.ended(now, at(0), failed());
        assert_eq!(case.state().reason(), Reason::RolledBack);
        let soon = case.reconcile(now + SECOND / 2);
        assert!(soon.change.is_empty());
        let again = now + SECOND * wait;
        assert_eq!(soon.again, Some(again));
        assert_eq!(case.state().reason(), Reason::RolledBack, "the reason is lost");
        now = again;
    }
    // The end of a process or a manual change justifies another attempt.
    case.becomes(&[(19, 0, &[1])]);
    assert_eq!(case.reconcile(now + SECOND / 100).change, [at(0)]);
    case.ended(now, at(0), failed());
    assert!(case.reconcile(now + SECOND).change.is_empty());
    case.inventory.devices[0].processes.push(Process {
        pid: 5,
        kind: ProcessKind::Compute,
        gpu_instance: Some(7),
        compute_instance: Some(0),
        memory: None,
    });
    case.becomes(&[]);
    assert!(case.reconcile(now).change.is_empty(), "not within a second");
    assert_eq!(case.reconcile(now + SECOND).change, [at(0)]);
    // A new selection justifies an immediate attempt.
    case.ended(now, at(0), failed());
    case.node.select(&BTreeSet::from([at(0)]));
    assert_eq!(case.reconcile(now).change, [at(0)]);
    // A successful change resets the failure count.
    case.becomes(&[(9, 0, &[3])]);
    case.ended(now, at(0), ChangeOutcome::Applied);
    case.becomes(&[]);
    assert_eq!(case.reconcile(now).change, [at(0)]);
    case.ended(now, at(0), failed());
    assert_eq!(case.reconcile(now).again, Some(now + SECOND));
}

#[test]
fn drift_is_repaired_or_reported_by_policy() {
    for (drift, change) in [(DriftPolicy::Repair, vec![at(0)]), (DriftPolicy::Report, vec![])] {
        let mut case = Case::new(vec![A100_40.with(0, &[(9, 0, &[3])])], vec![wants(&[9])]);
        case.drift = drift;
        assert_eq!(case.reconcile(SECOND), Decision::default());
        case.becomes(&[(9, 0, &[3]), (19, 4, &[1])]);
        let decision = case.reconcile(SECOND * 2);
        assert_eq!(decision.change, change);
        assert_eq!(decision.drifted, change);
        if drift == DriftPolicy::Report {
            assert_eq!(case.state(), &ApplyState::Drifted);
        }
    }
}

#[test]
fn drift_that_looked_like_a_reset_is_reported_after_the_transaction_yielded() {
    let yielded = ChangeOutcome::Yielded { reason: "another process changed it".to_owned() };
    let failed = ChangeOutcome::Failed { reason: "no".to_owned(), rollback: None };
    for (outcome, drifted) in [(yielded, vec![at(0)]), (failed, vec![])] {
        let mut case = Case::new(vec![A100_40.with(0, &[(9, 0, &[3])])], vec![wants(&[9])]);
        assert_eq!(case.reconcile(SECOND), Decision::default());
        // The other process has destroyed the instance and not yet created its own.
        case.becomes(&[]);
        let decision = case.reconcile(SECOND * 2);
        assert_eq!((decision.change, decision.drifted), (vec![at(0)], vec![]));
        case.becomes(&[(19, 4, &[1])]);
        case.ended(SECOND * 2, at(0), outcome);
        case.unreported = Some("kubelet was started just now");
        assert_eq!(case.reconcile(SECOND * 3).change, []);
        case.unreported = None;
        let decision = case.reconcile(SECOND * 4);
        assert_eq!((decision.change, decision.drifted), (vec![at(0)], drifted.clone()));
        // An incomplete change of the agent continues.
        case.drift = DriftPolicy::Report;
        let decision = case.reconcile(SECOND * 5);
        assert_eq!(decision.change.is_empty(), !drifted.is_empty());
    }
}

#[test]
fn instance_that_another_process_is_creating_is_drift() {
    let mut case = Case::new(vec![A100_40.with(0, &[(9, 0, &[3])])], vec![wants(&[9])]);
    assert_eq!(case.reconcile(SECOND), Decision::default());
    // Its compute instance does not exist yet.
    case.becomes(&[(19, 4, &[])]);
    let decision = case.reconcile(SECOND * 2);
    assert_eq!((decision.change, decision.drifted), (vec![at(0)], vec![at(0)]));
}

#[test]
fn drift_in_use_is_reported_under_both_policies() {
    let mut case = Case::new(vec![A100_40.with(0, &[(9, 0, &[3])])], vec![wants(&[9])]);
    assert_eq!(case.reconcile(SECOND), Decision::default());
    case.inventory.devices[0] = Hardware::new(&[(0, 0, &[7])]).used_by(1, 0).device;
    assert_eq!(case.reconcile(SECOND * 2), Decision::default());
    assert_eq!(case.state().reason(), Reason::Blocked);
}

#[test]
fn instances_lost_by_reset_are_recreated_and_are_not_drift() {
    let mut lost = A100_40.gpu(0);
    if let Mig::Capable(state) = &mut lost.mig {
        state.current = MigMode::Disabled;
        state.pending = MigMode::Disabled;
    }
    for after in [A100_40.gpu(0), lost] {
        let mut case = Case::new(vec![A100_40.with(0, &[(9, 0, &[3])])], vec![wants(&[9])]);
        case.drift = DriftPolicy::Report;
        assert_eq!(case.reconcile(SECOND), Decision::default());
        case.inventory.devices[0] = after;
        let decision = case.reconcile(SECOND * 2);
        assert_eq!((decision.change, decision.drifted), (vec![at(0)], vec![]));
    }
}

#[test]
fn i2_device_without_target_is_forgotten() {
    let mut case = Case::new(vec![A100_40.gpu(0)], vec![wants(&[9])]);
    assert_eq!(case.reconcile(SECOND).change, [at(0)]);
    case.targets.devices.clear();
    assert_eq!(case.reconcile(SECOND), Decision::default());
    assert_eq!(case.node.states().count(), 0);
    assert_eq!(case.node.worst(), None);
}

#[test]
fn device_lost_during_change_is_failed_with_cause() {
    let mut case = Case::new(vec![A100_40.gpu(0)], vec![wants(&[9])]);
    assert_eq!(case.reconcile(SECOND).change, [at(0)]);
    let failed =
        ChangeOutcome::Failed { reason: "driver not loaded (9)".to_owned(), rollback: None };
    case.ended(SECOND, at(0), failed.clone());
    case.inventory.devices.clear();
    let policy = Policy::default();
    let record = interrupted(at(0), wants(&[9]));
    let view = ReconcileInput {
        inventory: &case.inventory,
        targets: &case.targets,
        holders: &[],
        policy: &policy,
        drift: DriftPolicy::Repair,
        record: Some(&record),
        holders_unknown: None,
    };
    case.node.reconcile(SECOND * 9, &view);
    assert_eq!(case.node.worst(), Some(&ApplyState::Ended(failed)));
    // A new process knows that the change is unfinished, but not why.
    let mut node = NodeReconciler::default();
    node.reconcile(SECOND, &view);
    assert_eq!(node.worst().map(ApplyState::reason), Some(Reason::Failed));
}

#[test]
fn i3_blocked_interrupted_change_is_rolled_back() {
    let hardware = Hardware::new(&[(19, 0, &[1]), (19, 1, &[])]).used_by(1, 0);
    let job = hardware.job(wants(&[5, 14]));
    let targets = Targets { devices: vec![job.target.clone()], ..Targets::default() };
    let policy = Policy::default();
    let record = interrupted(job.target.pci, wants(&[5, 14]));
    let view = |record| ReconcileInput {
        inventory: &job.inventory,
        targets: &targets,
        holders: &[],
        holders_unknown: None,
        policy: &policy,
        drift: DriftPolicy::Repair,
        record,
    };
    let mut node = NodeReconciler::default();
    let decision = node.reconcile(Duration::ZERO, &view(None));
    assert!(decision.change.is_empty(), "a change begins although nothing is interrupted");
    let blocked = node.worst().cloned();
    assert!(
        matches!(blocked, Some(ApplyState::Ended(ChangeOutcome::Blocked { .. }))),
        "{blocked:?}"
    );
    let decision = node.reconcile(Duration::ZERO, &view(Some(&record)));
    assert_eq!(decision.change, [job.target.pci]);
    assert_eq!(decision.finish, [job.target.pci], "the interrupted change is not finished");
    // If the rollback failed too, it is retried, but not immediately.
    let failed = ChangeOutcome::Failed {
        reason: "it is in use".to_owned(),
        rollback: Some("and it is stuck".to_owned()),
    };
    let after = (&*job.inventory, &[][..]);
    node.ended(Duration::ZERO, after, job.target.pci, failed);
    let decision = node.reconcile(Duration::ZERO, &view(Some(&record)));
    assert!(decision.change.is_empty());
    let again = decision.again.unwrap();
    assert!(again > Duration::ZERO);
    assert_eq!(node.worst().map(ApplyState::reason), Some(Reason::Failed));
    let decision = node.reconcile(again, &view(Some(&record)));
    assert_eq!(decision.change, [job.target.pci]);
}

#[test]
fn i5_memory_growth_or_monitor_does_not_trigger_retry() {
    let mut busy = Hardware::new(&[(9, 0, &[3])]).used_by(1, 0).device;
    busy.processes[0].memory = None;
    let mut case = Case::new(vec![busy], vec![wants(&[9, 9])]);
    assert_eq!(case.reconcile(SECOND).change, [at(0)]);
    let reason = "no".to_owned();
    case.ended(SECOND, at(0), ChangeOutcome::RolledBack { reason });
    let memory = octavo_model::quantity::Mebibytes::new(7);
    case.inventory.devices[0].processes[0].memory = Some(memory);
    assert!(case.reconcile(SECOND + SECOND / 2).change.is_empty());
}

#[test]
fn reset_device_is_retried_immediately_but_only_once() {
    let mut case = Case::new(vec![A100_40.gpu(0)], vec![wants(&[9])]);
    for again in [vec![at(0)], vec![]] {
        let _decided = case.reconcile(SECOND);
        let reason = "no".to_owned();
        case.ended(SECOND, at(0), ChangeOutcome::RolledBack { reason });
        case.node.was_reset(at(0));
        assert_eq!(case.reconcile(SECOND).change, again);
    }
}

#[test]
fn lost_selected_device_is_failed_and_others_are_changed() {
    let mut case = Case::new(vec![A100_40.gpu(0), failing(1)], vec![wants(&[0])]);
    let lost = case.inventory.devices[1].pci;
    case.targets.unverified.push(UnverifiedDevice {
        pci: lost,
        rule: SourcePosition::default(),
        scope: TargetScope::Layout,
        reason: "failing: GPU is lost".to_owned(),
    });
    let here = case.inventory.devices[0].pci;
    assert_eq!(case.reconcile(SECOND).change, [here]);
    case.becomes(&[(0, 0, &[7])]);
    assert!(case.reconcile(SECOND).change.is_empty());
    let states: Vec<(PciAddress, &str)> =
        case.node.states().map(|(pci, state)| (pci, state.reason().as_str())).collect();
    assert_eq!(states, [(here, "applied"), (lost, "failed")]);
    assert_eq!(case.node.worst().map(ApplyState::reason), Some(Reason::Failed));
    // The driver responds again, but the device's state is not known yet.
    case.inventory.devices[1].condition = Condition::Working;
    case.reconcile(SECOND);
    assert_eq!(case.node.worst().map(ApplyState::reason), Some(Reason::Blocked));
}
