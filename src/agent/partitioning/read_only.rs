//! Agents that change no device.

use super::{Partitioning, REFUSED};

impl Partitioning {
    /// Reports a layout that is chosen for a node whose devices are never changed.
    pub(super) fn decline(&mut self) {
        self.looked_at = self.generation;
        if let Some(gate) = &self.gate {
            gate.open();
        }
        let name = self.name().map(ToOwned::to_owned);
        self.refused = name.is_some();
        match name {
            Some(name) => self.complain(
                REFUSED,
                format!(
                    "layout {name} has no effect: this agent is read-only, as in every tier but `applier`"
                ),
            ),
            None => self.notice = None,
        }
    }
}
