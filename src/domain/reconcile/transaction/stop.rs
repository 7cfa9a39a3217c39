//! Rollback to the previous state, and the end of a transaction.

use super::{Aim, Pass, Transaction};
use crate::domain::plan::words::Words;
use crate::domain::plan::{Cause, Infeasible};
use crate::domain::reconcile::ending::{Ending, Work};
use crate::domain::reconcile::job::Action;

/// The reason for stopping.
#[derive(Debug, Clone)]
pub(super) enum Stop {
    Blocked(Vec<Cause>),
    Infeasible(Infeasible),
    Failed(String),
}

impl Transaction {
    /// Ends the transaction because the device is lost and cannot even be rolled back.
    pub(super) fn lost(&mut self, what: String) -> Action {
        let what = self.with_work(what);
        Action::End(match self.given_up() {
            Some(stop) => Ending::Failed {
                reason: self.say(&stop),
                rollback: Some(what),
            },
            None => Ending::Failed {
                reason: what,
                rollback: None,
            },
        })
    }

    /// Appends the number of destroyed and created GPU instances to `what`.
    fn with_work(&self, what: String) -> String {
        let Work {
            destroyed, created, ..
        } = self.work;
        if destroyed == 0 && created == 0 {
            return what;
        }
        format!("{what}; before that, GPU instances destroyed: {destroyed}, created: {created}")
    }

    /// The reason for the rollback, if one is in progress.
    pub(super) fn given_up(&self) -> Option<Stop> {
        match &self.aim {
            Aim::Target => None,
            Aim::Previous(stop) => Some(stop.clone()),
        }
    }

    /// Ends the transaction after a reading that matches the current target.
    pub(super) fn settled(&self) -> Action {
        let Some(stop) = self.given_up() else {
            return Action::End(Ending::Applied);
        };
        Action::End(match stop {
            Stop::Blocked(causes) => Ending::Blocked {
                causes,
                rolled_back: true,
            },
            Stop::Infeasible(infeasible) => Ending::Infeasible(infeasible),
            Stop::Failed(reason) => Ending::RolledBack { reason },
        })
    }

    /// Stops the change, and starts the rollback if the device was touched.
    pub(super) fn stop(&mut self, stop: Stop) -> Action {
        if let Some(first) = self.given_up() {
            return Action::End(Ending::Failed {
                reason: self.say(&first),
                rollback: Some(self.say(&stop)),
            });
        }
        if !self.touched {
            return Action::End(match stop {
                Stop::Blocked(causes) => Ending::Blocked {
                    causes,
                    rolled_back: false,
                },
                Stop::Infeasible(infeasible) => Ending::Infeasible(infeasible),
                Stop::Failed(reason) => Ending::Failed {
                    reason,
                    rollback: None,
                },
            });
        }
        if self.job.previous.is_none() {
            return Action::End(Ending::Failed {
                reason: self.say(&stop),
                rollback: Some("nobody could tell what it had before".to_owned()),
            });
        }
        self.work.rollbacks = self.work.rollbacks.saturating_add(1);
        self.back_since = Some(self.now);
        self.obstacle = None;
        self.aim = Aim::Previous(stop);
        self.pass = Pass::default();
        self.idle_passes = 0;
        self.note = None;
        self.put_off = None;
        self.refused.clear();
        Action::Read
    }

    fn say(&self, stop: &Stop) -> String {
        let words = Words::new(&self.job.inventory, self.pci());
        match stop {
            Stop::Blocked(causes) => {
                let causes: Vec<String> = causes.iter().map(|cause| words.cause(cause)).collect();
                causes.join("; ")
            }
            Stop::Infeasible(infeasible) => words.rule(&infeasible.rule),
            Stop::Failed(reason) => reason.clone(),
        }
    }
}
