//! The name that an administrator assigns, with a label of the Node, to unrecognized devices.
//!
//! The label is read and never written. It is the only storage, so the name survives restarts of the agent and ends
//! with the label.

use std::sync::Arc;

use octavo_hardware::DriverHandle;
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
        Self { began: Instant::now(), waits: false }
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
                waited = ?MAX_PUBLISH_DELAY,
                label = %TYPE_OVERRIDE,
                "the Node has not been read; publishing unrecognized devices as unknown, without the type override of its label"
            );
        }
        left
    }
}

/// The label's value, and its last logged effect.
#[derive(Debug, Default)]
pub(super) struct NodeTypeOverride {
    current: Option<Arc<TypeOverride>>,
    effect: Option<OverrideEffect>,
}

impl NodeTypeOverride {
    /// Applies `label` as the name of unrecognized devices.
    pub(super) fn update(&mut self, label: Option<&str>, hardware: &DriverHandle) {
        if label == self.current.as_ref().map(|current| current.text()) {
            return;
        }
        if label.is_none() {
            info!(label = %TYPE_OVERRIDE, "type override removed from the Node; unrecognized devices are unknown again");
        }
        self.current = label.map(|text| {
            // The catalog is built for this lookup and dropped: the lookup is rare.
            Arc::new(TypeOverride::new(text, &Catalog::built_in()))
        });
        self.effect = None;
        hardware.name_unknown_devices(self.current.clone());
    }

    /// Logs the effect of the label if it has changed.
    pub(super) fn log_effect(&mut self, inventory: &Inventory) {
        // Before the driver has responded, even devices that it recognizes look unknown.
        let Some(current) = self.current.as_ref().filter(|_| inventory.nvml != NvmlState::Loading)
        else {
            return;
        };
        let effect = current.effect(inventory);
        if self.effect.as_ref() == Some(&effect) {
            return;
        }
        if effect.needs_attention {
            warn!("{}", effect.text);
        } else {
            info!("{}", effect.text);
        }
        self.effect = Some(effect);
    }
}

#[cfg(test)]
mod tests {
    use octavo_files::inventory::parse;
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
        assert_eq!(unnamed.remaining(&nameless, true), Some(MAX_PUBLISH_DELAY / 2));
        assert_eq!(unnamed.remaining(&nameless, false), None);
        advance(MAX_PUBLISH_DELAY).await;
        assert_eq!(unnamed.remaining(&nameless, true), None);
    }
}
