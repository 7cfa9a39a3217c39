//! The agent's view of its Node: reads the layout from the Node's labels, and reports progress in its annotation, its
//! taint and its events.
//!
//! Nothing here waits for an API server: a [`NodeHandle`] holds the last observed state, takes what is to be written, and
//! retries until it is written.

mod node_inputs;
mod operator_labels;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_hardware::DriverHandle;
use octavo_kube::node::NodeHandle;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Inventory, NvmlState};
use octavo_model::reason::Reason;
use octavo_node::label_set::LabelSet;
use octavo_node::node_object::drain::DrainStatus;
use octavo_node::node_object::event_deduplicator::{Event, EventDeduplicator, NodeObservation};
use octavo_node::node_object::operands::{self, OperandInputs, OperandPauser};
use octavo_node::node_object::status_annotation::annotation;
use octavo_node::node_object::{
    Compat, ConflictingKey, Debounced, MIG_CONFIG_LABEL, ObservedNode, PluginLabel,
    STATUS_ANNOTATION, SelectedLayout, select,
};
use octavo_planner::reconcile::NodeLayoutStatus;
use octavo_toolkit::telemetry::LogLevelHandle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use self::node_inputs::NodeInputs;
use self::operator_labels::{mig_config_state, partitions};
use crate::draining::{DrainController, DrainObservation, DrainResult};
use crate::node_sink::ONESHOT_TIMEOUT;
use crate::partitioning::{NodeChoice, Partitioning};
use crate::settings::ClusterSettings;
use crate::sink::SinkError;
use crate::soonest;
use crate::type_override::NodeTypeOverride;

/// Interval between annotation updates that differ only in the blockers.
const MIN_BLOCKER_UPDATE_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum time another program may claim to be partitioning the node: a GPU takes seconds, and a reboot minutes.
const MAX_FOREIGN_CHANGE: Duration = Duration::from_mins(15);
/// Timeout for the last write to the Node when the agent exits.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The agent's interface to its Node.
#[derive(Debug)]
pub struct NodeClient {
    handle: Arc<NodeHandle>,
    view: watch::Receiver<Option<Arc<ObservedNode>>>,
    began: Instant,
    compat: Compat,
    taint: bool,
    level: LogLevelHandle,
    /// The part of the Node that was last acted on.
    inputs: Option<NodeInputs>,
    selected: Debounced<Option<SelectedLayout>>,
    deduplicator: EventDeduplicator,
    /// `None` if operands must not be touched.
    operands: Option<OperandPauser>,
    /// `None` if pods must not be evicted.
    draining: Option<DrainController>,
    drain_result: DrainResult,
    plugin_label: PluginLabel,
    /// When another program was first seen to be partitioning this node.
    foreign_change_since: Option<Duration>,
    /// Names that administrators assign to unrecognized devices.
    names: NodeTypeOverride,
    /// The annotation written last and its steady form, without the parts that may change at every scan.
    last_annotation: Option<(String, String, Duration)>,
}

impl NodeClient {
    /// Creates the interface to the Node behind `handle`. With `once`, the agent neither waits for operands nor touches
    /// them.
    pub fn new(
        handle: Arc<NodeHandle>,
        settings: &ClusterSettings,
        level: LogLevelHandle,
        once: bool,
    ) -> Self {
        let operands = !once && settings.compat == Compat::MigManager;
        Self {
            view: handle.view.clone(),
            handle,
            began: Instant::now(),
            compat: settings.compat,
            taint: settings.taint,
            level,
            inputs: None,
            selected: Debounced::default(),
            deduplicator: EventDeduplicator::default(),
            operands: operands.then(|| OperandPauser::new(settings.plugin_configs.clone())),
            draining: None,
            drain_result: DrainResult::default(),
            // With `once`, the agent never sees the effect of the label.
            plugin_label: if once { PluginLabel::Unchanged } else { PluginLabel::Absent },
            foreign_change_since: None,
            names: NodeTypeOverride::default(),
            last_annotation: None,
        }
    }

    /// Returns whether the Node was not read yet, so that its name for unrecognized devices is not known.
    pub fn is_node_unread(&self) -> bool {
        self.inputs.is_none()
    }

    /// Applies the Node's label that names unrecognized devices. If the Node is gone, its last known label applies.
    pub fn name(&mut self, hardware: &DriverHandle) {
        if let Some(seen) = &self.inputs {
            self.names.update(seen.type_override.as_deref(), hardware);
        }
    }

    /// Sets the drain that evicts blocking pods.
    #[must_use]
    pub fn with_draining(mut self, draining: Option<DrainController>) -> Self {
        self.draining = draining;
        self
    }

    /// Waits until the Node, or the pods, change in a way that the agent acts on.
    pub async fn changed(&mut self) {
        loop {
            let pods = async {
                match &mut self.draining {
                    Some(draining) => draining.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.view.changed() => if changed.is_err() {
                    // The Node watcher has ended, so no change will ever arrive.
                    return std::future::pending().await;
                },
                () = pods => return,
            }
            let current_inputs = self.current_inputs();
            if current_inputs.is_some() && current_inputs != self.inputs {
                return;
            }
        }
    }

    /// Waits until the Node was read, and applies its choice of layout: for an agent that runs once.
    pub async fn run_once(
        &mut self,
        partitioning: Option<&mut Partitioning>,
    ) -> Result<(), SinkError> {
        let mut view = self.view.clone();
        if timeout(ONESHOT_TIMEOUT, view.wait_for(Option::is_some)).await.is_err() {
            return Err(SinkError::Cluster(self.handle.error()));
        }
        let (choice, _) = self.follow();
        if let Some(partitioning) = partitioning {
            partitioning.set_node_choice(choice, false);
        }
        Ok(())
    }

    /// Returns whether the API server has returned the Node yet. Whether it accepts writes is reported elsewhere:
    /// restarting an agent does not help if it is denied one key.
    pub fn has_responded(&self) -> bool {
        self.handle.task.observed.borrow().is_read
    }

    /// Returns the Node's choice of layout, and when to check again if that is before the Node changes.
    pub fn follow(&mut self) -> (NodeChoice, Option<Duration>) {
        let current_inputs = self.current_inputs();
        if let Some(current_inputs) = &current_inputs {
            let known = self.inputs.as_ref().and_then(|seen| seen.log_level.as_ref());
            if known != current_inputs.log_level.as_ref() {
                self.level.set(current_inputs.log_level.as_deref());
            }
            self.inputs = Some(current_inputs.clone());
        }
        // If the Node is gone, its last state applies.
        let Some(current_inputs) = self.inputs.clone() else {
            return (NodeChoice::NotRead, None);
        };
        let now = self.began.elapsed();
        if let Some(owner) = current_inputs.at_work {
            let since = *self.foreign_change_since.get_or_insert(now);
            let waited = now.saturating_sub(since);
            // A program that was killed while it worked leaves its mark indefinitely.
            if waited < MAX_FOREIGN_CHANGE {
                let choice = NodeChoice::ForeignChange(owner, current_inputs.selected);
                return (choice, Some(MAX_FOREIGN_CHANGE.saturating_sub(waited)));
            }
        } else {
            self.foreign_change_since = None;
        }
        let again = self.selected.update(now, &current_inputs.selected);
        let selected = self.selected.get().cloned().flatten();
        (selected.map_or(NodeChoice::NoChoice, NodeChoice::Label), again)
    }

    /// Evicts blocking pods where the node's status calls for it, and returns the status with the drain's progress, if
    /// it has any. While the driver does not respond nothing can be changed, so no pod is evicted.
    pub fn drain(
        &mut self,
        inventory: &Inventory,
        status: Option<&NodeLayoutStatus>,
    ) -> Option<NodeLayoutStatus> {
        let draining = self.draining.as_mut()?;
        let view = self.view.borrow().clone();
        // A round may take long, and its layout may be withdrawn meanwhile.
        let selection = view.as_deref().map(|view| select(view, self.compat));
        let is_current = selection.as_ref() == self.inputs.as_ref().map(|seen| &seen.selected);
        let now = self.began.elapsed();
        let answers = matches!(inventory.nvml, NvmlState::Ready(_));
        let able = status.filter(|status| answers || status.is_busy());
        let seen = view.as_deref().zip(able).map(|(view, status)| DrainObservation {
            view,
            status,
            is_current,
            wall_clock: Timestamp::now(),
        });
        let shown = draining.step(now, seen);
        let drain = draining.status().map(ToString::to_string);
        self.emit_events(shown.events.clone());
        self.drain_result = shown;
        Some(NodeLayoutStatus { drain: Some(drain?), ..status?.clone() })
    }

    /// Writes the node's status to the Node. Returns when to call again if that is before something changes.
    pub fn report(
        &mut self,
        inventory: &Inventory,
        labels: &LabelSet,
        status: Option<&NodeLayoutStatus>,
    ) -> Option<Duration> {
        let now = self.began.elapsed();
        self.names.log_effect(inventory);
        let yielded = self.handle.task.observed.borrow().foreign_keys.clone();
        let observation = NodeObservation { status, nvml: &inventory.nvml, yielded: &yielded };
        if self.inputs.is_some() {
            for change in self.deduplicator.changes(now, &observation) {
                // All other events are already in the log.
                if let Some(event) = &change.event
                    && event.reason == Reason::KeysLeftToOthers
                {
                    warn!(reason = %event.reason.as_str(), "{}", event.message);
                }
                self.handle.report_event(change);
            }
        }
        let nothing = NodeLayoutStatus::default();
        let status = status.unwrap_or(&nothing);
        let operands = self.step_operands(now, labels, status);
        let (text, later) = self.annotation(now, status, (inventory, &yielded));
        let is_applied = status.state == Some(Reason::Applied.into());
        let not_ready = self.taint && status.layout.is_some() && !is_applied;
        let repartitioning = self.drain_result.is_tainted;
        let plugin_label = self.plugin_label.clone();
        let mig_state = (status.label == Some(MIG_CONFIG_LABEL)).then(|| mig_config_state(status));
        // The status that an earlier agent wrote remains until this one knows better.
        let uid = self.inputs.as_ref().map(|seen| seen.uid.clone());
        self.handle.task.update(|desired| {
            desired.uid = uid;
            desired.annotations.insert(STATUS_ANNOTATION.to_owned(), text);
            desired.not_ready = not_ready;
            desired.repartitioning = repartitioning;
            desired.mig_config_state = mig_state.flatten();
            desired.paused = operands.paused;
            desired.plugin_config = operands.plugin_config;
            desired.plugin_label = plugin_label;
        });
        let again = soonest(operands.again, self.drain_result.again);
        soonest(again.map(|at| at.saturating_sub(now)), later)
    }

    /// Returns the annotation's text. The blockers may differ at every scan: if nothing else changed, the update is
    /// deferred, and the second value is when it is due.
    fn annotation(
        &mut self,
        now: Duration,
        status: &NodeLayoutStatus,
        (inventory, yielded): (&Inventory, &[ConflictingKey]),
    ) -> (String, Option<Duration>) {
        let drain = self.draining.as_ref().and_then(DrainController::status);
        let steady = drain.map(DrainStatus::without_processes);
        let text = annotation(status, inventory, yielded, drain);
        if self.last_annotation.as_ref().is_some_and(|(_, text_before, _)| *text_before == text) {
            return (text, None);
        }
        let mut core = status.clone();
        for device in &mut core.devices {
            device.message.clear();
        }
        let core = annotation(&core, inventory, yielded, steady.as_ref());
        if let Some((known, text_before, at)) = &self.last_annotation
            && *known == core
        {
            let waited = now.saturating_sub(*at);
            if waited < MIN_BLOCKER_UPDATE_INTERVAL {
                return (
                    text_before.clone(),
                    Some(MIN_BLOCKER_UPDATE_INTERVAL.saturating_sub(waited)),
                );
            }
        }
        self.last_annotation = Some((core, text.clone(), now));
        (text, None)
    }

    fn step_operands(
        &mut self,
        now: Duration,
        labels: &LabelSet,
        status: &NodeLayoutStatus,
    ) -> operands::OperandOutcome {
        let view = self.view.borrow().clone();
        let (Some(view), Some(operands)) = (view, &mut self.operands) else {
            return operands::OperandOutcome::default();
        };
        let partitions = partitions(labels);
        let facts = OperandInputs {
            view: &view,
            // Pods go first: operands need not be stopped for devices that pods hold.
            is_device_held: !self.drain_result.waits_for_pods
                && status.devices.iter().any(|device| device.is_held),
            busy: status.is_busy(),
            changes: status.history.changes,
            choice: status.generation,
            partitions: partitions.as_ref(),
        };
        let outcome = operands.reconcile(now, &facts);
        if let Some(event) = outcome.event.clone() {
            let event = Event::from(event);
            info!(reason = %event.reason.as_str(), "{}", event.message);
            self.emit_events(vec![event]);
        }
        outcome
    }

    /// Returns the devices whose pods were evicted for the layout that is currently selected.
    pub fn drained_devices(&self) -> &BTreeSet<PciAddress> {
        &self.drain_result.devices
    }

    /// Returns the Node, if it was read.
    pub fn view(&self) -> Option<Arc<ObservedNode>> {
        self.view.borrow().clone()
    }

    /// Queues the events for the API server.
    pub fn emit_events(&self, events: Vec<Event>) {
        for event in events {
            self.handle.report_event(event.into());
        }
    }

    /// Sets the label that selects the configuration of NVIDIA's device plugin.
    pub fn set_plugin_label(&mut self, label: PluginLabel) {
        self.plugin_label = label;
    }

    /// Stops evicting pods, because the agent is about to exit and that may take a while.
    pub fn stop_evictions(&mut self) {
        if let Some(draining) = &mut self.draining {
            draining.close();
        }
    }

    /// Writes the final state: paused operands run again, and pods may be scheduled.
    pub async fn write_final_state(&mut self) {
        self.stop_evictions();
        self.handle.task.update(|desired| {
            desired.paused.clear();
            desired.repartitioning = false;
        });
        if self.view.borrow().is_some()
            && timeout(FINAL_WRITE_TIMEOUT, self.handle.wait_until_applied()).await.is_err()
        {
            warn!("the Node was not updated before shutdown; the next agent updates it");
        }
    }

    fn current_inputs(&self) -> Option<NodeInputs> {
        let view = self.view.borrow();
        view.as_deref().map(|view| NodeInputs::from_view(view, self.compat))
    }
}
