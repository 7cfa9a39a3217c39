//! Logs and history entries about changes that were made and devices that were left unchanged.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use octavo_files::history::{Attempt, DeviceAttempt};
use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_model::reason::Reason;
use octavo_planner::plan::messages::PlanFormatter;
use octavo_planner::reconcile::{
    ApplyRecordEntry, ApplyState, ChangeOutcome, DeviceLayoutStatus, InterruptedChange,
};
use octavo_toolkit::error::chain;
use tracing::{info, warn};

use super::{DesiredLayout, Engine, InterruptedLayouts};
use crate::executor::Outcome;

impl Engine {
    /// Logs once why a device is left unchanged.
    pub(super) fn log_unchanged(&mut self, inventory: &Inventory) {
        let mut now = BTreeMap::new();
        for (pci, state) in self.node.states() {
            let left = match state {
                ApplyState::Drifted
                | ApplyState::Ended(ChangeOutcome::Blocked { .. } | ChangeOutcome::Infeasible(_)) => {
                    true
                }
                ApplyState::Pending { .. } | ApplyState::Applying | ApplyState::Ended(_) => false,
            };
            if left {
                let formatter = PlanFormatter::new(inventory, pci);
                let (device, message) = (formatter.device(pci), state.message(&formatter));
                let reason = state.reason();
                let text = format!("{device}: {reason}: {message}");
                if self.logged.get(&pci) != Some(&text) {
                    warn!(reason = %reason, "{text}");
                }
                now.insert(pci, text);
            }
        }
        self.logged = now;
    }

    /// Logs the devices that were changed by others.
    pub(super) fn log_drifted(&mut self, inventory: &Inventory, drifted: &[PciAddress]) {
        if drifted.is_empty() {
            return;
        }
        let names = drifted.iter().map(|pci| PlanFormatter::new(inventory, *pci).device(*pci));
        self.past.drifted = names.collect();
        self.past.drifts = self.past.drifts.saturating_add(1);
        for device in &self.past.drifted {
            let reason = Reason::Drifted.as_str();
            warn!(reason = %reason, "{device}: another program changed it; restoring the layout");
        }
    }

    /// Logs and records the result of a device's change.
    pub(super) fn record_outcome(
        &mut self,
        (inventory, holders): (&Inventory, &[Holder]),
        outcome: &Outcome,
    ) {
        let device = PlanFormatter::new(inventory, outcome.pci).device(outcome.pci);
        let message = outcome.result.message(&PlanFormatter::new(inventory, outcome.pci));
        if outcome.result == ChangeOutcome::Applied {
            let took = outcome.took.as_millis();
            let reason = Reason::Applied.as_str();
            info!(reason = %reason, "{device}: {reason} in {took} ms");
        } else {
            let text = format!("{device}: {}: {message}", outcome.result.reason());
            warn!(reason = %outcome.result.reason(), "{text}");
            self.logged.insert(outcome.pci, text);
        }
        if outcome.work.created > 0 || outcome.work.destroyed > 0 {
            self.past.changes = self.past.changes.saturating_add(1);
        }
        let now = self.began.elapsed();
        let after = (inventory, holders);
        self.node.ended(now, after, outcome.pci, outcome.result.clone());
        if outcome.result.is_settled()
            && let Some(record) = &mut self.record
        {
            record.devices.retain(|entry| entry.pci != outcome.pci);
        }
    }

    /// Writes one history entry per layout, with the node's current layout last.
    pub(super) fn write_history(
        &self,
        inventory: &Inventory,
        (plan, layout): (&str, &str),
        (others, outcomes): (&InterruptedLayouts, &[Outcome]),
        took: Duration,
    ) {
        let mut lines: BTreeMap<(bool, &str), Vec<DeviceAttempt>> = BTreeMap::new();
        for outcome in outcomes {
            let of = others.get(&outcome.pci).map_or(layout, String::as_str);
            let line = lines.entry((of == layout, of)).or_default();
            line.push(attempt(inventory, outcome));
        }
        for ((_, layout), devices) in lines {
            self.record_attempt((plan, layout), devices, took);
        }
    }

    /// Records a change that was interrupted after its last call: the device has reached its target, but the history
    /// has no entry.
    pub(super) fn write_reached_to_history(
        &mut self,
        inventory: &Inventory,
        wanted: DesiredLayout<'_>,
        entry: &ApplyRecordEntry,
    ) {
        if self.store.has_applied(&entry.plan, entry.pci) || !entry.is_reached(inventory) {
            return;
        }
        let layout = entry.layout.as_str();
        let message =
            "the change was interrupted after its last step; the GPU already matches the layout";
        self.record_attempt(
            (&entry.plan, layout),
            vec![DeviceAttempt {
                pci: entry.pci.to_string(),
                result: Reason::Applied.into(),
                message: message.to_owned(),
                destroyed: 0,
                created: 0,
                retries: 0,
                rolled_back: false,
                duration_ms: 0,
                hardware_ms: 0,
            }],
            Duration::ZERO,
        );
        if !wanted.targets_partitions(entry.pci) {
            let change = InterruptedChange {
                pci: entry.pci,
                name: PlanFormatter::new(inventory, entry.pci).device(entry.pci),
                layout: layout.to_owned(),
                state: Reason::Applied.into(),
                message: message.to_owned(),
            };
            self.interrupted.insert(entry.pci, change);
        }
    }

    fn record_attempt(
        &self,
        (plan, layout): (&str, &str),
        devices: Vec<DeviceAttempt>,
        took: Duration,
    ) {
        let attempt = Attempt {
            time: Timestamp::now().to_string(),
            plan: plan.to_owned(),
            layout: layout.to_owned(),
            by: self.settings.by.to_owned(),
            duration_ms: millis(took),
            devices,
        };
        if let Err(error) = self.store.append_history(&attempt) {
            warn!(%plan, error = %chain(&error), "cannot write the plan to the history");
        }
    }

    /// Stores the results of interrupted changes, so that a command for another layout can report them.
    pub(super) fn record_interrupted(
        &mut self,
        inventory: &Inventory,
        (others, outcomes): (&InterruptedLayouts, &[Outcome]),
    ) {
        for outcome in outcomes {
            let Some(other) = others.get(&outcome.pci) else {
                continue;
            };
            let state = ApplyState::Ended(outcome.result.clone()).without_arguments();
            let formatter = PlanFormatter::new(inventory, outcome.pci);
            let change = InterruptedChange {
                pci: outcome.pci,
                name: formatter.device(outcome.pci),
                layout: other.clone(),
                state: state.reason().into(),
                message: state.message(&formatter),
            };
            self.interrupted.insert(outcome.pci, change);
        }
    }

    /// Returns the status of a device. If the device is listed only because its change for another layout was
    /// interrupted, the message names that layout.
    pub(super) fn device_status(
        &self,
        inventory: &Inventory,
        layout: Option<&str>,
        (pci, state): (PciAddress, &ApplyState),
    ) -> DeviceLayoutStatus {
        let mut status = DeviceLayoutStatus::from_state(inventory, pci, state);
        let mut entries = self.record.iter().flat_map(|record| &record.devices);
        let absent = || entries.find(|entry| entry.pci == pci && inventory.device(pci).is_none());
        let entry = self.journal_entry(inventory, pci).or_else(absent);
        let other = entry.map(|entry| &entry.layout);
        if let Some(other) = other.filter(|other| Some(other.as_str()) != layout)
            && !status.message.is_empty()
        {
            status.message = format!("layout {other}: {}", status.message);
        }
        status
    }

    /// Returns problems with the journal, and interrupted changes that wait for an absent device.
    pub(super) fn notices(&self, inventory: &Inventory) -> Option<String> {
        let mut all: Vec<String> = self.notice.iter().chain(&self.unreadable).cloned().collect();
        let entries = self.record.iter().flat_map(|record| &record.devices);
        let absent = entries.filter(|entry| inventory.device(entry.pci).is_none());
        all.extend(absent.map(absent_notice));
        (!all.is_empty()).then(|| all.join("; "))
    }
}

fn attempt(inventory: &Inventory, outcome: &Outcome) -> DeviceAttempt {
    DeviceAttempt {
        pci: outcome.pci.to_string(),
        result: outcome.result.reason().into(),
        message: outcome.result.message(&PlanFormatter::new(inventory, outcome.pci)),
        destroyed: outcome.work.destroyed,
        created: outcome.work.created,
        retries: outcome.work.retries,
        rolled_back: outcome.work.rollbacks > 0,
        duration_ms: millis(outcome.took),
        hardware_ms: millis(outcome.driver_time),
    }
}

/// Returns the notice for an interrupted change of an absent device.
fn absent_notice(entry: &ApplyRecordEntry) -> String {
    format!(
        "plan {} (layout {}) was interrupted on the GPU at {}, which is currently missing: the plan is resumed when the GPU \
        returns; `octavo apply --forget` discards it",
        entry.plan, entry.layout, entry.pci
    )
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
