//! Rollback to the previous state, and the end of a transaction.

use super::{Attempt, Goal, Transaction};
use crate::plan::messages::PlanFormatter;
use crate::plan::{Cause, Infeasible};
use crate::reconcile::outcome::{ChangeOutcome, OperationCounts};
use crate::reconcile::request::NextAction;

/// The reason for stopping.
#[derive(Debug, Clone)]
pub(super) enum StopReason {
    Blocked(Vec<Cause>),
    Infeasible(Infeasible),
    Failed(String),
}

impl StopReason {
    /// Returns the outcome of a device that is in its previous state, either untouched or rolled back.
    fn outcome(self, rolled_back: bool) -> ChangeOutcome {
        match self {
            Self::Blocked(causes) => ChangeOutcome::Blocked { causes, rolled_back },
            Self::Infeasible(infeasible) => ChangeOutcome::Infeasible(infeasible),
            Self::Failed(reason) if rolled_back => ChangeOutcome::RolledBack { reason },
            Self::Failed(reason) => ChangeOutcome::Failed { reason, rollback: None },
        }
    }
}

impl Transaction {
    /// Ends the transaction because the device is lost and cannot even be rolled back.
    pub(super) fn end_device_lost(&mut self, what: String) -> NextAction {
        let what = self.with_work(what);
        NextAction::End(match self.rollback_reason() {
            Some(stop) => {
                ChangeOutcome::Failed { reason: self.describe(&stop), rollback: Some(what) }
            }
            None => ChangeOutcome::Failed { reason: what, rollback: None },
        })
    }

    /// Appends the number of destroyed and created GPU instances to `what`.
    fn with_work(&self, what: String) -> String {
        let OperationCounts { destroyed, created, .. } = self.work;
        if destroyed == 0 && created == 0 {
            return what;
        }
        format!("{what}; before that, GPU instances destroyed: {destroyed}, created: {created}")
    }

    /// The reason for the rollback, if one is in progress.
    pub(super) fn rollback_reason(&self) -> Option<StopReason> {
        match &self.goal {
            Goal::Target { .. } => None,
            Goal::Previous { reason, .. } => Some(reason.clone()),
        }
    }

    /// Ends the transaction after a reading that matches the current target.
    pub(super) fn end_at_target(&self) -> NextAction {
        let Some(stop) = self.rollback_reason() else {
            return NextAction::End(ChangeOutcome::Applied);
        };
        NextAction::End(stop.outcome(true))
    }

    /// Stops the change, and starts the rollback if the device was touched.
    pub(super) fn stop(&mut self, stop: StopReason) -> NextAction {
        let is_device_changed = match &self.goal {
            Goal::Target { is_device_changed } => *is_device_changed,
            Goal::Previous { reason, .. } => {
                return NextAction::End(ChangeOutcome::Failed {
                    reason: self.describe(reason),
                    rollback: Some(self.describe(&stop)),
                });
            }
        };
        if !is_device_changed {
            return NextAction::End(stop.outcome(false));
        }
        if self.request.previous.is_none() {
            return NextAction::End(ChangeOutcome::Failed {
                reason: self.describe(&stop),
                rollback: Some("its previous state is unknown".to_owned()),
            });
        }
        self.work.rollbacks = self.work.rollbacks.saturating_add(1);
        self.goal = Goal::Previous { reason: stop, since: self.now };
        self.attempt = Attempt::default();
        NextAction::Read
    }

    fn describe(&self, stop: &StopReason) -> String {
        let formatter = PlanFormatter::new(&self.request.inventory, self.pci());
        match stop {
            StopReason::Blocked(causes) => {
                let causes: Vec<String> =
                    causes.iter().map(|cause| formatter.cause(cause)).collect();
                causes.join("; ")
            }
            StopReason::Infeasible(infeasible) => formatter.rule(&infeasible.rule),
            StopReason::Failed(reason) => reason.clone(),
        }
    }
}
