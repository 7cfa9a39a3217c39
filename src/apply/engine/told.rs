//! What is told of what was done, and of what was not: the log, and the history.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tracing::warn;

use super::Engine;
use crate::apply::executor::Outcome;
use crate::domain::error::chain;
use crate::domain::id::PciAddress;
use crate::domain::inventory::Inventory;
use crate::domain::plan::words::Words;
use crate::domain::reason::Reason;
use crate::domain::reconcile::State;
use crate::wire::history::{Attempt, DeviceAttempt};

impl Engine {
    /// Says once why a device is left as it is.
    pub(super) fn say_left(&mut self, inventory: &Inventory) {
        let mut now = BTreeMap::new();
        for (pci, state) in self.node.states() {
            let left = match state {
                State::Blocked { .. } | State::Infeasible(_) | State::Drifted => true,
                State::Applied
                | State::Pending { .. }
                | State::Applying
                | State::RolledBack { .. }
                | State::Failed { .. }
                | State::NeedsReset { .. }
                | State::Yielded { .. } => false,
            };
            if left {
                let words = Words::new(inventory, pci);
                let (device, message) = (words.device(pci), state.message(&words));
                let reason = state.as_str();
                let text = format!("{device}: {reason}: {message}");
                if self.said.get(&pci) != Some(&text) {
                    warn!(reason = %reason, "{text}");
                }
                now.insert(pci, text);
            }
        }
        self.said = now;
    }

    /// Says which devices somebody else changed.
    pub(super) fn say_drifted(&mut self, inventory: &Inventory, drifted: &[PciAddress]) {
        if drifted.is_empty() {
            return;
        }
        let names = drifted
            .iter()
            .map(|pci| Words::new(inventory, *pci).device(*pci));
        self.past.drifted = names.collect();
        self.past.drifts = self.past.drifts.saturating_add(1);
        for device in &self.past.drifted {
            let reason = Reason::Drifted.word();
            warn!(reason = %reason, "{device}: somebody changed what it had; it is brought back");
        }
    }

    pub(super) fn remember(
        &self,
        inventory: &Inventory,
        (plan, layout): (&str, &str),
        outcomes: &[Outcome],
        took: Duration,
    ) {
        let devices = outcomes.iter().map(|outcome| {
            let state = State::from(outcome.ending.clone());
            DeviceAttempt {
                pci: outcome.pci.to_string(),
                result: outcome.ending.as_str().to_owned(),
                message: state.message(&Words::new(inventory, outcome.pci)),
                destroyed: outcome.work.destroyed,
                created: outcome.work.created,
                retries: outcome.work.retries,
                rolled_back: outcome.work.rollbacks > 0,
                duration_ms: millis(outcome.took),
                hardware_ms: millis(outcome.hardware),
            }
        });
        let attempt = Attempt {
            time: Timestamp::now().to_string(),
            plan: plan.to_owned(),
            layout: layout.to_owned(),
            by: self.settings.by.to_owned(),
            duration_ms: millis(took),
            devices: devices.collect(),
        };
        if let Err(error) = self.store.remember(&attempt) {
            warn!("the history lacks plan {plan}: {}", chain(&error));
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
