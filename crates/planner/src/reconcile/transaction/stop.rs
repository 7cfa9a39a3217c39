//! Rollback to the previous state, and the end of a transaction.

use super::{Goal, Pass, Transaction};
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

impl Transaction {
    /// Ends the transaction because the device is lost and cannot even be rolled back.
    pub(super) fn end_device_lost(&mut self, what: String) -> NextAction {
        let what = self.with_work(what);
        NextAction::End(match self.rollback_reason() {
            Some(stop) => ChangeOutcome::Failed {
                reason: self.describe(&stop),
                rollback: Some(what),
            },
            None => ChangeOutcome::Failed {
                reason: what,
                rollback: None,
            },
        })
    }

    /// Appends the number of destroyed and created GPU instances to `what`.
    fn with_work(&self, what: String) -> String {
        let OperationCounts {
            destroyed, created, ..
        } = self.work;
        if destroyed == 0 && created == 0 {
            return what;
        }
        format!("{what}; before that, GPU instances destroyed: {destroyed}, created: {created}")
    }

    /// The reason for the rollback, if one is in progress.
    pub(super) fn rollback_reason(&self) -> Option<StopReason> {
        match &self.aim {
            Goal::Target => None,
            Goal::Previous(stop) => Some(stop.clone()),
        }
    }

    /// Ends the transaction after a reading that matches the current target.
    pub(super) fn end_at_target(&self) -> NextAction {
        let Some(stop) = self.rollback_reason() else {
            return NextAction::End(ChangeOutcome::Applied);
        };
        NextAction::End(match stop {
            StopReason::Blocked(causes) => ChangeOutcome::Blocked {
                causes,
                rolled_back: true,
            },
            StopReason::Infeasible(infeasible) => ChangeOutcome::Infeasible(infeasible),
            StopReason::Failed(reason) => ChangeOutcome::RolledBack { reason },
        })
    }

    /// Stops the change, and starts the rollback if the device was touched.
    pub(super) fn stop(&mut self, stop: StopReason) -> NextAction {
        if let Some(first) = self.rollback_reason() {
            return NextAction::End(ChangeOutcome::Failed {
                reason: self.describe(&first),
                rollback: Some(self.describe(&stop)),
            });
        }
        if !self.has_changed_device {
            return NextAction::End(match stop {
                StopReason::Blocked(causes) => ChangeOutcome::Blocked {
                    causes,
                    rolled_back: false,
                },
                StopReason::Infeasible(infeasible) => ChangeOutcome::Infeasible(infeasible),
                StopReason::Failed(reason) => ChangeOutcome::Failed {
                    reason,
                    rollback: None,
                },
            });
        }
        if self.job.previous.is_none() {
            return NextAction::End(ChangeOutcome::Failed {
                reason: self.describe(&stop),
                rollback: Some("nobody could tell what it had before".to_owned()),
            });
        }
        self.work.rollbacks = self.work.rollbacks.saturating_add(1);
        self.back_since = Some(self.now);
        self.obstacle = None;
        self.aim = Goal::Previous(stop);
        self.pass = Pass::default();
        self.idle_passes = 0;
        self.last_failure = None;
        self.postponed_call = None;
        self.refused.clear();
        NextAction::Read
    }

    fn describe(&self, stop: &StopReason) -> String {
        let words = PlanFormatter::new(&self.job.inventory, self.pci());
        match stop {
            StopReason::Blocked(causes) => {
                let causes: Vec<String> = causes.iter().map(|cause| words.cause(cause)).collect();
                causes.join("; ")
            }
            StopReason::Infeasible(infeasible) => words.rule(&infeasible.rule),
            StopReason::Failed(reason) => reason.clone(),
        }
    }
}
