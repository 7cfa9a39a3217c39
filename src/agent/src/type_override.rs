//! The name that an administrator assigns, with a label of the Node, to unrecognized devices.
//!
//! The label is read and never written. It is the only storage, so the name survives restarts of the agent and ends
//! with the label.

use std::sync::Arc;

use octavo_hardware::Handle;
use octavo_model::accelerators::{Catalog, OverrideEffect, TYPE_OVERRIDE, TypeOverride};
use octavo_model::inventory::{Identity, Inventory, NvmlState};
use tokio::time::{Duration, Instant};
use tracing::{info, warn};

/// Delays publishing while an unrecognized device may still receive its name from the Node.
///
/// A new agent must not remove a name that its predecessor published. An unreachable API server must not block
/// everything: after a while devices are published as they were detected.
#[derive(Debug)]
pub(super) struct PublishDelay {
    began: Instant,
    waits: bool,
}

/// Maximum delay: enough for an API server that responds.
const MAX_PUBLISH_DELAY: Duration = Duration::from_secs(30);

impl PublishDelay {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            waits: false,
        }
    }

    /// Returns how long publishing is still delayed. `unseen`: the Node is watched, but was not read yet.
    pub(super) fn remaining(&mut self, inventory: &Inventory, unseen: bool) -> Option<Duration> {
        let mut devices = inventory.devices.iter();
        let waits = unseen && devices.any(|device| device.identity == Identity::Unknown);
        let left = MAX_PUBLISH_DELAY.saturating_sub(self.began.elapsed());
        let left = (waits && !left.is_zero()).then_some(left);
        let waited = std::mem::replace(&mut self.waits, left.is_some());
        if waits && waited && left.is_none() {
            warn!(
                "the Node was not seen within {MAX_PUBLISH_DELAY:?}, so what nobody knows is told as unknown, whatever {TYPE_OVERRIDE} says there"
            );
        }
        left
    }
}

/// The label's value, and its last logged effect.
#[derive(Debug, Default)]
pub(super) struct NodeTypeOverride {
    /// The administrator's catalog, if there is one.
    catalogue: Option<Catalog>,
    given: Option<Arc<TypeOverride>>,
    told: Option<OverrideEffect>,
}

impl NodeTypeOverride {
    pub(super) fn new(catalogue: Option<Catalog>) -> Self {
        Self {
            catalogue,
            ..Self::default()
        }
    }

    /// Applies `label` as the name of unrecognized devices.
    pub(super) fn update(&mut self, label: Option<&str>, hardware: &Handle) {
        if label == self.given.as_ref().map(|given| given.text()) {
            return;
        }
        if label.is_none() {
            info!("{TYPE_OVERRIDE} is gone from the Node: what nobody knows is unknown again");
        }
        self.given = label.map(|text| {
            // The built-in catalog is built for this lookup and dropped: the lookup is rare.
            Arc::new(match &self.catalogue {
                Some(catalogue) => TypeOverride::new(text, catalogue),
                None => TypeOverride::new(text, &Catalog::built_in()),
            })
        });
        self.told = None;
        hardware.name_unknown_devices(self.given.clone());
    }

    /// Logs the effect of the label if it has changed.
    pub(super) fn log_effect(&mut self, inventory: &Inventory) {
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
        if told.needs_attention {
            warn!("{}", told.text);
        } else {
            info!("{}", told.text);
        }
        self.told = Some(told);
    }
}

#[cfg(test)]
mod tests {
    use octavo_documents::inventory::parse;
    use tokio::time::advance;

    use super::*;

    fn machine(name: &str) -> Inventory {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/machines");
        let json = std::fs::read_to_string(format!("{golden}/{name}/inventory.json")).unwrap();
        parse(&json).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn publishing_unrecognized_device_is_delayed_for_a_limited_time() {
        let known = machine("mi210x2");
        let mut nameless = known.clone();
        nameless.devices[1].identity = Identity::Unknown;
        let mut unnamed = PublishDelay::new();
        assert_eq!(unnamed.remaining(&known, true), None);
        assert_eq!(unnamed.remaining(&nameless, false), None);
        assert_eq!(unnamed.remaining(&nameless, true), Some(MAX_PUBLISH_DELAY));
        advance(MAX_PUBLISH_DELAY / 2).await;
        assert_eq!(
            unnamed.remaining(&nameless, true),
            Some(MAX_PUBLISH_DELAY / 2)
        );
        assert_eq!(unnamed.remaining(&nameless, false), None);
        advance(MAX_PUBLISH_DELAY).await;
        assert_eq!(unnamed.remaining(&nameless, true), None);
    }
}
