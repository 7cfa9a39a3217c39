//! Controller of the `ConfigMap` of NVIDIA's device plugin. Only the aggregator writes it, on behalf of all agents.
//!
//! ```text
//!  Fleet: configuration that each node requests --> Ledger: desired keys --> ConfigMap: changed keys
//!                                                     ^------ current keys ---/
//! ```
//!
//! Requests from nodes are validated as strictly as agents write them. A client that can report as a node can therefore
//! only set replica counts for the device plugins of other nodes, and only under Octavo's own keys.

pub mod ledger;

use std::collections::BTreeMap;
use std::time::Duration;

use octavo_kube::nvidia_plugin_config::{PluginConfigMap, PluginConfigMapError};
use octavo_model::id::NodeName;
use octavo_node::node_object::write_backoff::WriteBackoff;
use octavo_store::fleet::{Fleet, Node};
use octavo_store::view::FleetView;
use octavo_stream::protocol::PartKey;
use octavo_stream::status;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use self::ledger::{ConfigRequest, ConfigRequests, KeyLedger};

/// Delay after a change of the fleet, so that nodes that change their layouts together cause one write.
const DEBOUNCE: Duration = Duration::from_millis(500);
/// Interval of regular checks, which restore keys deleted by others and remove expired ones.
const RESYNC_INTERVAL: Duration = Duration::from_mins(1);

/// Controller of the `ConfigMap`.
#[derive(Debug)]
pub struct PluginConfigController {
    config_map: PluginConfigMap,
    view: FleetView,
    fleet: Fleet,
    requests: ConfigRequests,
    ledger: KeyLedger,
    began: Instant,
    pace: WriteBackoff<()>,
    refused: BTreeMap<NodeName, String>,
    last_error: Option<String>,
}

impl PluginConfigController {
    /// Creates a controller of this `ConfigMap` for the nodes of this fleet.
    pub fn new(config_map: PluginConfigMap, view: FleetView) -> Self {
        Self {
            config_map,
            view,
            fleet: Fleet::default(),
            requests: ConfigRequests::new(),
            ledger: KeyLedger::default(),
            began: Instant::now(),
            pace: WriteBackoff::default(),
            refused: BTreeMap::new(),
            last_error: None,
        }
    }

    /// Reconciles the `ConfigMap` until the fleet's store is dropped.
    pub async fn run(mut self) {
        info!(
            config_map = self.config_map.name(),
            "reconciling the ConfigMap of NVIDIA's device plugin"
        );
        let mut due = Instant::now();
        loop {
            tokio::select! {
                changed = self.view.changed() => {
                    let Some(fleet) = changed else { return };
                    if self.update_requests(fleet) {
                        due = Instant::now();
                    }
                    sleep(DEBOUNCE).await;
                }
                () = sleep_until(due) => {
                    let wait = self.reconcile().await;
                    due = Instant::now().checked_add(wait).unwrap_or(due);
                }
            }
        }
    }

    /// Reads the nodes' requests; returns whether any changed.
    fn update_requests(&mut self, fleet: Fleet) -> bool {
        let mut differs = false;
        let difference = fleet.since(&self.fleet);
        for node in difference.changed.into_iter().filter(|node| node.is_local()) {
            let before = self.fleet.nodes.get(&node.name);
            if before.is_some_and(|before| part(before) == part(node)) {
                continue;
            }
            let before = match requested_config(node) {
                Some(request) if self.requests.get(&node.name) == Some(&request) => continue,
                Some(request) => {
                    self.requests.insert(node.name.clone(), request);
                    true
                }
                None => self.requests.remove(&node.name).is_some(),
            };
            differs |= before;
        }
        for node in difference.removed {
            differs |= self.requests.remove(&node.name).is_some();
        }
        self.fleet = fleet;
        differs
    }

    /// Reads, decides and writes; returns the time until the next run.
    async fn reconcile(&mut self) -> Duration {
        let now = self.began.elapsed();
        if let Some(wait) = self.pace.wait(now, &()) {
            return wait;
        }
        match self.write(now).await {
            Ok(()) => {
                if self.last_error.take().is_some() {
                    info!(
                        config_map = self.config_map.name(),
                        "ConfigMap updated after earlier failures"
                    );
                }
                self.pace = WriteBackoff::default();
                RESYNC_INTERVAL
            }
            Err(error) => {
                self.pace.record_failure(now, None);
                let message = error.to_string();
                if self.last_error.as_ref() != Some(&message) {
                    warn!(error = message, "ConfigMap update failed; retrying");
                    self.last_error = Some(message);
                }
                self.pace.wait(now, &()).unwrap_or(RESYNC_INTERVAL)
            }
        }
    }

    async fn write(&mut self, now: Duration) -> Result<(), PluginConfigMapError> {
        let contents = self.config_map.read().await?;
        let decision = self.ledger.decide(now, &self.requests, &contents);
        for (node, why) in &decision.refused {
            if self.refused.get(node) != Some(why) {
                warn!(%node, reason = why, "rejected the device plugin configuration that the node requested");
            }
        }
        self.refused = decision.refused;
        let Some(keys) = decision.apply else {
            debug!(config_map = self.config_map.name(), "ConfigMap is up to date");
            return Ok(());
        };
        self.config_map.apply(&keys, &contents).await?;
        let count = keys.len();
        info!(config_map = self.config_map.name(), managed_keys = count, "ConfigMap updated");
        Ok(())
    }
}

fn part(node: &Node) -> Option<&octavo_stream::protocol::Content> {
    node.parts.get(PartKey::SHARING)
}

/// Configuration that the node requests. The store decoded the part before it accepted it.
fn requested_config(node: &Node) -> Option<ConfigRequest> {
    let report = status::decode_sharing(part(node)?).ok()?;
    let request = ConfigRequest { hand_off: report.hand_off, named: report.named };
    (request != ConfigRequest::default()).then_some(request)
}
