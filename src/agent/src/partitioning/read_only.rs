//! Agents that never modify a device.

use super::{Partitioning, REFUSED_STATE};

impl Partitioning {
    /// Reports a layout that is selected on a node whose devices are never modified.
    pub(super) fn report_read_only(&mut self) {
        self.handled_generation = self.generation;
        if let Some(gate) = &self.gate {
            gate.open();
        }
        let name = self.choices.name().map(ToOwned::to_owned);
        self.is_refused = name.is_some();
        match name {
            Some(name) => self.set_notice(
                REFUSED_STATE,
                format!(
                    "layout {name} has no effect: this agent is read-only, as in every tier except `applier`"
                ),
            ),
            None => self.notice = None,
        }
    }
}
