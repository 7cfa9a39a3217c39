//! The name that an administrator assigns, with a label of the Node, to unrecognized devices.
//!
//! The label is read and never written. It is the only storage, so the name survives restarts of the agent and ends
//! with the label.

use std::sync::Arc;

use tokio::time::{Duration, Instant};
use tracing::{info, warn};

use crate::domain::accelerators::{Catalogue, Given, TYPE_OVERRIDE, Told};
use crate::domain::inventory::{Identity, Inventory, NvmlState};
use crate::hw::Handle;

/// Delays publishing while an unrecognized device may still receive its name from the Node.
///
/// A new agent must not remove a name that its predecessor published. An unreachable API server must not block
/// everything: after a while devices are published as they were detected.
#[derive(Debug)]
pub(super) struct Unnamed {
    began: Instant,
    waits: bool,
}

/// Maximum delay: enough for an API server that responds.
const NAMES_WITHIN: Duration = Duration::from_secs(30);

impl Unnamed {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            waits: false,
        }
    }

    /// Returns how long publishing is still delayed. `unseen`: the Node is watched, but was not read yet.
    pub(super) fn wait(&mut self, inventory: &Inventory, unseen: bool) -> Option<Duration> {
        let mut devices = inventory.devices.iter();
        let waits = unseen && devices.any(|device| device.identity == Identity::Unknown);
        let left = NAMES_WITHIN.saturating_sub(self.began.elapsed());
        let left = (waits && !left.is_zero()).then_some(left);
        let waited = std::mem::replace(&mut self.waits, left.is_some());
        if waits && waited && left.is_none() {
            warn!(
                "the Node was not seen within {NAMES_WITHIN:?}, so what nobody knows is told as unknown, whatever {TYPE_OVERRIDE} says there"
            );
        }
        left
    }
}

/// The label's value, and its last logged effect.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The administrator's catalog, if there is one.
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

    /// Applies `label` as the name of unrecognized devices.
    pub(super) fn follow(&mut self, label: Option<&str>, hardware: &Handle) {
        if label == self.given.as_ref().map(|given| given.text()) {
            return;
        }
        if label.is_none() {
            info!("{TYPE_OVERRIDE} is gone from the Node: what nobody knows is unknown again");
        }
        self.given = label.map(|text| {
            // The built-in catalog is built for this lookup and dropped: the lookup is rare.
            Arc::new(match &self.catalogue {
                Some(catalogue) => Given::new(text, catalogue),
                None => Given::new(text, &Catalogue::built_in()),
            })
        });
        self.told = None;
        hardware.call_unknown(self.given.clone());
    }

    /// Logs the effect of the label if it has changed.
    pub(super) fn tell(&mut self, inventory: &Inventory) {
        // Before the driver has responded, even devices that it recognizes look unknown.
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

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::wire::inventory::parse;

    fn machine(name: &str) -> Inventory {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/machines");
        let json = std::fs::read_to_string(format!("{golden}/{name}/inventory.json")).unwrap();
        parse(&json).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_device_without_a_name_waits_for_its_node_and_not_for_ever() {
        let known = machine("mi210x2");
        let mut nameless = known.clone();
        nameless.devices[1].identity = Identity::Unknown;
        let mut unnamed = Unnamed::new();
        assert_eq!(unnamed.wait(&known, true), None);
        assert_eq!(unnamed.wait(&nameless, false), None);
        assert_eq!(unnamed.wait(&nameless, true), Some(NAMES_WITHIN));
        advance(NAMES_WITHIN / 2).await;
        assert_eq!(unnamed.wait(&nameless, true), Some(NAMES_WITHIN / 2));
        assert_eq!(unnamed.wait(&nameless, false), None);
        advance(NAMES_WITHIN).await;
        assert_eq!(unnamed.wait(&nameless, true), None);
    }
}
