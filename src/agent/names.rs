//! The name that a person gives, by a label of the Node, to devices that nobody knows.
//!
//! The label is read and never written: it is all the memory there is, so that the name outlives agents, and goes when it does.

use std::sync::Arc;

use tracing::{info, warn};

use crate::domain::accelerators::{Catalogue, Given, TYPE_OVERRIDE, Told};
use crate::domain::inventory::{Inventory, NvmlState};
use crate::hw::Handle;

/// What the label says, and what was said of it.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// An administrator's.
    catalogue: Option<Catalogue>,
    given: Option<Arc<Given>>,
    told: Option<Told>,
}

impl Names {
    pub(super) fn new(catalogue: Option<Catalogue>) -> Self {
        Self {
            catalogue,
            ..Self::default()
        }
    }

    /// Has devices that nobody knows called so from now on.
    pub(super) fn follow(&mut self, label: Option<&str>, hardware: &Handle) {
        if label == self.given.as_ref().map(|given| given.text()) {
            return;
        }
        if label.is_none() {
            info!("{TYPE_OVERRIDE} is gone from the Node: what nobody knows is unknown again");
        }
        self.given = label.map(|text| {
            // The built-in catalogue is made for this question and let go of: it is asked once in a blue moon.
            Arc::new(match &self.catalogue {
                Some(catalogue) => Given::new(text, catalogue),
                None => Given::new(text, &Catalogue::built_in()),
            })
        });
        self.told = None;
        hardware.call_unknown(self.given.clone());
    }

    /// Says what came of it, where that is news.
    pub(super) fn tell(&mut self, inventory: &Inventory) {
        // Before the driver has answered, what it knows looks unknown.
        let Some(given) = self
            .given
            .as_ref()
            .filter(|_| inventory.nvml != NvmlState::Loading)
        else {
            return;
        };
        let told = given.told(inventory);
        if self.told.as_ref() == Some(&told) {
            return;
        }
        if told.is_trouble {
            warn!("{}", told.text);
        } else {
            info!("{}", told.text);
        }
        self.told = Some(told);
    }
}
