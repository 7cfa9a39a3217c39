//! Reconciliation of one node: which devices to change now, which to leave alone, and when to reconcile again.
//!
//! Reconciliation is level-triggered: every inventory is compared with the desired state. Earlier attempts only
//! determine the delay before the next one. The state in which a device reached its target is stored, so that a
//! change by another process can be distinguished from a requested one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, Inventory, MigMode};

use super::record::{ApplyRecord, targets_with_interrupted};
use super::state::{ApplyState, ChangeOutcome, retry_delay};
use crate::layout::{MigTarget, TargetScope, Targets, current_target};
use crate::plan::{Cause, DevicePlanResult, NodePlan, PlanInput, PlanOutcome, Policy, Step, plan};

/// Policy for changes made by other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriftPolicy {
    /// Undo them, unless the affected partitions are in use.
    #[default]
    Repair,
    /// Leave and report them.
    Report,
}

/// The inputs of one reconciliation.
#[derive(Debug, Clone, Copy)]
pub struct ReconcileInput<'a> {
    /// The node's current inventory.
    pub inventory: &'a Inventory,
    /// The desired state.
    pub targets: &'a Targets,
    /// Holders of its devices, in addition to the processes in the inventory.
    pub holders: &'a [Holder],
    /// Human-readable reason why not all holders are known: kubelet was just started, or does not answer.
    pub holders_unknown: Option<&'a str>,
    /// The permitted operations.
    pub policy: &'a Policy,
    /// Policy for changes made by other processes.
    pub drift: DriftPolicy,
    /// The journal: changes that were interrupted, or could be neither completed nor rolled back.
    pub record: Option<&'a ApplyRecord>,
}

/// The decision of one reconciliation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// Devices to change, in the order of their addresses.
    pub change: Vec<PciAddress>,
    /// Devices that cannot reach their desired state now and are between it and their previous state. Changing them
    /// completes the interrupted change or rolls it back.
    pub finish: Vec<PciAddress>,
    /// Devices in `change` that another process had modified.
    pub drifted: Vec<PciAddress>,
    /// Time of the next reconciliation, even without an event; `None` if none is needed.
    pub again: Option<Duration>,
}

/// Minimum interval between two attempts, regardless of changes: blockers may come and go continuously.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which holders are queried again while they are unknown.
pub(super) const HOLDER_QUERY_INTERVAL: Duration = Duration::from_secs(5);

/// State of each device and its recent attempts.
#[derive(Debug, Clone, Default)]
pub struct NodeReconciler {
    devices: BTreeMap<PciAddress, DeviceRecord>,
}

#[derive(Debug, Clone)]
struct DeviceRecord {
    state: ApplyState,
    /// Consecutive failed attempts.
    failures: u32,
    /// State of the device after the last failed attempt, and the time of the next attempt.
    retry: Option<Retry>,
    /// The geometry of the device since it reached its target.
    reached: Option<MigTarget>,
}

/// Backoff after a failed attempt.
#[derive(Debug, Clone)]
struct Retry {
    /// True if the attempt was abandoned because another process was changing the device.
    has_yielded: bool,
    fingerprint: DeviceFingerprint,
    /// Earliest time of the next attempt, even if the device changes.
    not_before: Duration,
    /// Time of the next attempt if the device does not change.
    at: Duration,
}

/// The properties of a device that justify another attempt when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DeviceFingerprint {
    geometry: Option<MigTarget>,
    /// Number of GPU instances, of which the geometry omits those without a compute instance.
    gpu_instances: usize,
    pending: Option<MigMode>,
    condition: Condition,
    users: BTreeSet<UserKey>,
}

/// A possible blocker: GPU instance, compute instance, process. Memory usage is not included, nor are monitors that
/// open the device briefly: neither justifies another attempt.
type UserKey = (Option<u32>, Option<u32>, Option<u32>);

impl NodeReconciler {
    /// Resets these devices because their desired state has changed: they are tried immediately, and their current
    /// state is not drift.
    pub fn select(&mut self, devices: &BTreeSet<PciAddress>) {
        self.devices.retain(|pci, _| !devices.contains(pci));
    }

    /// Resets all devices because their desired state has changed.
    pub fn reset_all(&mut self) {
        self.devices.clear();
    }

    /// Allows an immediate attempt after a device reset, but not after a second reset in a row.
    pub fn was_reset(&mut self, pci: PciAddress) {
        if let Some(record) = self.devices.get_mut(&pci)
            && record.failures <= 1
        {
            record.retry = None;
        }
    }

    /// Compares the inventory with the desired state.
    pub fn reconcile(&mut self, now: Duration, view: &ReconcileInput<'_>) -> Decision {
        let targets = targets_with_interrupted(view.record, view.inventory, view.targets);
        let planned = plan(&PlanInput {
            inventory: view.inventory,
            targets: &targets,
            holders: view.holders,
            policy: view.policy,
            refused: &BTreeSet::new(),
        });
        let unfinished = view.record.map(|record| record.interrupted(view.inventory));
        let begun = |pci: PciAddress| unfinished.iter().flatten().any(|one| *one == pci);
        let absent = view.record.map(|record| record.absent(view.inventory)).unwrap_or_default();
        self.select_planned(&planned, &absent);
        let is_claimed = |pci: PciAddress| view.targets.has_scope(pci, TargetScope::Claims);
        let impossible = is_infeasible(view.targets, &targets, &planned);
        let mut decision = Decision::default();
        let NodePlan { devices } = planned;
        for device in devices {
            let fingerprint = fingerprint(view.inventory, view.holders, device.pci);
            let record = self.devices.entry(device.pci).or_default();
            match device.verdict {
                DevicePlanResult::Unchanged => record.mark_applied(fingerprint),
                DevicePlanResult::Change(change) if !impossible || is_claimed(device.pci) => {
                    let due = record.due(now, &fingerprint, view.drift);
                    let needs_idle = change.steps.iter().any(Step::needs_idle);
                    match view.holders_unknown.filter(|_| needs_idle && !begun(device.pci)) {
                        // Known before the plan: otherwise the change would be started and rolled back repeatedly.
                        Some(reason) if matches!(due, ChangeTime::Now { .. }) => {
                            record.state = ApplyState::Ended(ChangeOutcome::Blocked {
                                causes: vec![Cause::StateUnknown { reason: reason.to_owned() }],
                                rolled_back: false,
                            });
                            decision.schedule_next(now.saturating_add(HOLDER_QUERY_INTERVAL));
                        }
                        Some(_) | None => decision.schedule(device.pci, &due),
                    }
                }
                // The device must not be left in an intermediate state.
                DevicePlanResult::Change(_)
                | DevicePlanResult::Blocked(_)
                | DevicePlanResult::Infeasible(_)
                    if begun(device.pci) =>
                {
                    decision.schedule(device.pci, &record.due(now, &fingerprint, view.drift));
                    decision.finish.push(device.pci);
                }
                // The device is not in its previous state, which "blocked" would imply.
                DevicePlanResult::Blocked(_) if absent.contains(&device.pci) => {
                    record.mark_lost();
                }
                DevicePlanResult::Blocked(blocked) => {
                    record.state = ApplyState::Ended(match unreachable_reason(view, device.pci) {
                        Some(reason) => ChangeOutcome::Failed { reason, rollback: None },
                        None => {
                            ChangeOutcome::Blocked { causes: blocked.causes, rolled_back: false }
                        }
                    });
                }
                DevicePlanResult::Infeasible(infeasible) => {
                    record.state = ApplyState::Ended(ChangeOutcome::Infeasible(infeasible));
                }
                // A plan must be feasible as a whole before its first step runs.
                DevicePlanResult::Change(_) => {
                    record.state = ApplyState::Pending {
                        reason: "the layout is infeasible for another device of this node"
                            .to_owned(),
                    };
                }
            }
        }
        decision
    }

    /// Drops devices without a plan. A device that disappeared during its change stays failed, even if the layout
    /// selects only devices that are present.
    fn select_planned(&mut self, planned: &NodePlan, absent: &BTreeSet<PciAddress>) {
        let is_planned = |pci: &PciAddress| planned.devices.iter().any(|device| device.pci == *pci);
        self.devices.retain(|pci, _| is_planned(pci) || absent.contains(pci));
        for pci in absent.iter().filter(|pci| !is_planned(pci)) {
            self.devices.entry(*pci).or_default().mark_lost();
        }
    }

    /// Marks the device as being changed.
    pub fn change_started(&mut self, pci: PciAddress) {
        self.devices.entry(pci).or_default().state = ApplyState::Applying;
    }

    /// Records the outcome of a change, with the inventory and the holders read after it.
    pub fn ended(
        &mut self,
        now: Duration,
        (inventory, holders): (&Inventory, &[Holder]),
        pci: PciAddress,
        outcome: ChangeOutcome,
    ) {
        let fingerprint = fingerprint(inventory, holders, pci);
        let record = self.devices.entry(pci).or_default();
        if outcome == ChangeOutcome::Applied {
            record.mark_applied(fingerprint);
            return;
        }
        record.failures = record.failures.saturating_add(1);
        record.retry = Some(Retry {
            has_yielded: matches!(outcome, ChangeOutcome::Yielded { .. }),
            fingerprint,
            not_before: now.saturating_add(MIN_RETRY_INTERVAL),
            at: now.saturating_add(retry_delay(record.failures)),
        });
        record.state = ApplyState::Ended(outcome);
    }

    /// The state of each device that has a desired state, in the order of their addresses.
    pub fn states(&self) -> impl Iterator<Item = (PciAddress, &ApplyState)> {
        let all = self.devices.iter();
        all.map(|(pci, record)| (*pci, &record.state))
    }

    /// Devices that have reached their target.
    pub fn applied(&self) -> BTreeSet<PciAddress> {
        let applied = ApplyState::Ended(ChangeOutcome::Applied);
        let devices = self.states().filter(|(_, state)| **state == applied);
        devices.map(|(pci, _)| pci).collect()
    }

    /// The state that most needs attention.
    pub fn worst(&self) -> Option<&ApplyState> {
        let states = self.devices.values().map(|record| &record.state);
        states.max_by_key(|state| ApplyState::severity(state.reason()))
    }
}

impl Default for DeviceRecord {
    fn default() -> Self {
        Self {
            state: ApplyState::Pending { reason: "it has not been checked yet".to_owned() },
            failures: 0,
            retry: None,
            reached: None,
        }
    }
}

impl DeviceRecord {
    fn mark_applied(&mut self, fingerprint: DeviceFingerprint) {
        self.state = ApplyState::Ended(ChangeOutcome::Applied);
        self.failures = 0;
        self.retry = None;
        self.reached = fingerprint.geometry;
    }

    /// Marks a device that disappeared during its change as failed. An existing failure is retained, as its reason is
    /// more precise.
    fn mark_lost(&mut self) {
        if !matches!(self.state, ApplyState::Ended(ChangeOutcome::Failed { .. })) {
            self.state = ApplyState::Ended(ChangeOutcome::Failed {
                reason: "its change was interrupted, and the device is no longer on this node"
                    .to_owned(),
                rollback: None,
            });
        }
    }

    /// Decides when the device can be changed: not during backoff, and not if drift by another process is only to be
    /// reported.
    fn due(
        &mut self,
        now: Duration,
        fingerprint: &DeviceFingerprint,
        drift: DriftPolicy,
    ) -> ChangeTime {
        if let Some(then) = &self.retry {
            let at = if then.fingerprint == *fingerprint { then.at } else { then.not_before };
            if now < at {
                return ChangeTime::At(at);
            }
        }
        let reached = self.reached.as_ref();
        // After a failed attempt, the difference may be left over from it, unless another process interrupted it.
        let may_be_own = self.retry.as_ref().is_some_and(|retry| !retry.has_yielded);
        let drifted =
            !may_be_own && reached.is_some_and(|reached| !is_reset_loss(reached, fingerprint));
        if drifted && drift == DriftPolicy::Report {
            self.state = ApplyState::Drifted;
            return ChangeTime::Never;
        }
        ChangeTime::Now { drifted }
    }
}

/// Time at which a device should be changed.
enum ChangeTime {
    Now { drifted: bool },
    At(Duration),
    Never,
}

impl Decision {
    fn schedule(&mut self, pci: PciAddress, due: &ChangeTime) {
        match due {
            ChangeTime::Now { drifted } => {
                self.change.push(pci);
                self.drifted.extend(drifted.then_some(pci));
            }
            ChangeTime::At(at) => self.schedule_next(*at),
            ChangeTime::Never => {}
        }
    }

    fn schedule_next(&mut self, at: Duration) {
        self.again = Some(self.again.map_or(at, |again| again.min(at)));
    }
}

/// Returns whether the desired layout is infeasible on one of its devices. A layout is one request for all its devices. A claim and an
/// interrupted change for another layout are requests of their own, which do not prevent changes of other devices.
fn is_infeasible(wanted: &Targets, planned_targets: &Targets, planned: &NodePlan) -> bool {
    let is_of_layout = |pci: PciAddress| {
        let target = planned_targets.devices.iter().find(|target| target.pci == pci);
        !wanted.has_scope(pci, TargetScope::Claims)
            && target.is_none_or(|target| wanted.devices.contains(target))
    };
    let mut devices = planned.devices.iter().filter(|device| is_of_layout(device.pci));
    devices.any(|device| device.verdict.outcome() == PlanOutcome::Infeasible)
}

/// Returns whether a reset, a driver reload or a reboot removed the instances. These leave no instance at all; a user
/// usually leaves some, or enables MIG mode.
fn is_reset_loss(reached: &MigTarget, now: &DeviceFingerprint) -> bool {
    match (reached, &now.geometry) {
        (MigTarget::Enabled(_), None | Some(MigTarget::Disabled)) => true,
        (MigTarget::Enabled(had), Some(MigTarget::Enabled(has))) => {
            !had.is_empty() && has.is_empty() && now.gpu_instances == 0
        }
        (MigTarget::Disabled, _) => false,
    }
}

/// Returns the reason why a device selected by the layout does not respond; `None` for a device that responds but
/// reports incomplete data.
fn unreachable_reason(view: &ReconcileInput<'_>, pci: PciAddress) -> Option<String> {
    let mut unverified = view.targets.unverified.iter();
    let unverified = unverified.find(|one| one.pci == pci)?;
    let device = view.inventory.device(pci);
    let answers = device.is_some_and(|device| device.condition == Condition::Working);
    (!answers).then(|| format!("its state cannot be read: {}", unverified.reason))
}

fn fingerprint(inventory: &Inventory, holders: &[Holder], pci: PciAddress) -> DeviceFingerprint {
    let device = inventory.device(pci);
    let state = device.and_then(|device| device.mig.state());
    let holders = holders.iter().filter(|holder| holder.device == pci);
    let holders = holders
        .filter(|holder| holder.gpu_instance.is_some() || holder.details.kind.is_some())
        .map(|holder| (holder.gpu_instance, holder.compute_instance, holder.details.pid));
    let processes = device.into_iter().flat_map(|device| &device.processes);
    let processes = processes
        .map(|process| (process.gpu_instance, process.compute_instance, Some(process.pid)));
    DeviceFingerprint {
        geometry: state.and_then(current_target),
        gpu_instances: state.map_or(0, |state| state.gpu_instances.len()),
        pending: state.map(|state| state.pending),
        condition: device
            .map_or(Condition::PciOnly { kernel_driver: None }, |device| device.condition.clone()),
        users: holders.chain(processes).collect(),
    }
}
