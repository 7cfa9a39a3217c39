//! The agent's view of its Node: reads the layout from the Node's labels, and reports progress in its annotation, its
//! taint and its events.
//!
//! Nothing here waits for an API server: a [`Link`] holds the last observed state, takes what is to be written, and
//! retries until it is written.

mod facet;
mod words;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use self::facet::Facet;
use self::words::{answer, partitions};
use crate::agent::draining::{Draining, Seen, Shown};
use crate::agent::names::Names;
use crate::agent::node_sink::ONCE;
use crate::agent::partitioning::{Following, Partitioning};
use crate::agent::sink::SinkError;
use crate::agent::soonest;
use crate::config::agent::ClusterSettings;
use crate::domain::accelerators::Catalogue;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Inventory, NvmlState};
use crate::domain::labels::LabelSet;
use crate::domain::node::drain::Standing;
use crate::domain::node::operands::{self, Facts, Operands};
use crate::domain::node::telling::{Event, Scene, Telling};
use crate::domain::node::{
    Compat, MIG_CONFIG, PluginLabel, STATUS, Selected, Settled, View, Yielded, select,
};
use crate::domain::reason::Reason;
use crate::domain::reconcile::Status;
use crate::hw::Handle;
use crate::k8s::node::Link;
use crate::telemetry::Level;
use crate::wire::node_status::annotation;

/// Interval between annotation updates that differ only in the blockers.
const SAME_AGAIN: Duration = Duration::from_secs(30);
/// Maximum time another program may claim to be partitioning the node: a GPU takes seconds, and a reboot minutes.
const HELD_WITHIN: Duration = Duration::from_mins(15);
/// Timeout for the last write to the Node when the agent exits.
const LAST_WORD: Duration = Duration::from_secs(5);

/// The agent's interface to its Node.
#[derive(Debug)]
pub struct Cluster {
    link: Arc<Link>,
    view: watch::Receiver<Option<Arc<View>>>,
    began: Instant,
    compat: Compat,
    taint: bool,
    level: Level,
    /// The part of the Node that was last acted on.
    seen: Option<Facet>,
    selected: Settled<Option<Selected>>,
    telling: Telling,
    /// `None` if operands must not be touched.
    operands: Option<Operands>,
    /// `None` if pods must not be evicted.
    draining: Option<Draining>,
    shown: Shown,
    plugin_label: PluginLabel,
    /// When another program was first seen to be partitioning this node.
    held: Option<Duration>,
    /// Names that administrators assign to unrecognized devices.
    names: Names,
    /// The annotation written last and its steady form, without the parts that may change at every scan.
    said: Option<(String, String, Duration)>,
}

impl Cluster {
    /// Creates the interface to the Node behind `link`. With `once`, the agent neither waits for operands nor touches
    /// them.
    pub fn new(link: Arc<Link>, settings: &ClusterSettings, level: Level, once: bool) -> Self {
        let operands = !once && settings.compat() == Compat::MigManager;
        Self {
            view: link.view.clone(),
            link,
            began: Instant::now(),
            compat: settings.compat(),
            taint: settings.taint(),
            level,
            seen: None,
            selected: Settled::default(),
            telling: Telling::default(),
            operands: operands.then(|| Operands::new(settings.plugin_configs())),
            draining: None,
            shown: Shown::default(),
            // With `once`, the agent never sees the effect of the label.
            plugin_label: if once {
                PluginLabel::Leave
            } else {
                PluginLabel::Absent
            },
            held: None,
            names: Names::default(),
            said: None,
        }
    }

    /// Sets the administrator's catalog, used to look up the name that a label assigns to unrecognized devices.
    #[must_use]
    pub fn naming(mut self, catalogue: Option<Catalogue>) -> Self {
        self.names = Names::new(catalogue);
        self
    }

    /// Returns whether the Node was not read yet, so that its name for unrecognized devices is not known.
    pub fn is_unseen(&self) -> bool {
        self.seen.is_none()
    }

    /// Applies the Node's label that names unrecognized devices. If the Node is gone, its last known label applies.
    pub fn name(&mut self, hardware: &Handle) {
        if let Some(seen) = &self.seen {
            self.names.follow(seen.type_override.as_deref(), hardware);
        }
    }

    /// Sets the drain that evicts blocking pods.
    #[must_use]
    pub fn draining(mut self, draining: Option<Draining>) -> Self {
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
            let facet = self.facet();
            if facet.is_some() && facet != self.seen {
                return;
            }
        }
    }

    /// Waits until the Node was read, and applies its choice of layout: for an agent that runs once.
    pub async fn look(&mut self, partitioning: Option<&mut Partitioning>) -> Result<(), SinkError> {
        let mut view = self.view.clone();
        if timeout(ONCE, view.wait_for(Option::is_some)).await.is_err() {
            return Err(SinkError::Cluster(self.link.trouble()));
        }
        let (following, _) = self.follow();
        if let Some(partitioning) = partitioning {
            partitioning.follow(following, false);
        }
        Ok(())
    }

    /// Returns whether the API server has returned the Node yet. Whether it accepts writes is reported elsewhere:
    /// restarting an agent does not help if it is denied one key.
    pub fn is_heard(&self) -> bool {
        self.link.report.borrow().asked
    }

    /// Returns the Node's choice of layout, and when to check again if that is before the Node changes.
    pub fn follow(&mut self) -> (Following, Option<Duration>) {
        let facet = self.facet();
        if let Some(facet) = &facet {
            let known = self.seen.as_ref().and_then(|seen| seen.log_level.as_ref());
            if known != facet.log_level.as_ref() {
                self.level.set(facet.log_level.as_deref());
            }
            self.seen = Some(facet.clone());
        }
        // If the Node is gone, its last state applies.
        let Some(facet) = self.seen.clone() else {
            return (Following::Unseen, None);
        };
        let now = self.began.elapsed();
        if let Some(owner) = facet.at_work {
            let since = *self.held.get_or_insert(now);
            let waited = now.saturating_sub(since);
            // A program that was killed while it worked leaves its mark indefinitely.
            if waited < HELD_WITHIN {
                let held = Following::Held(owner, facet.selected);
                return (held, Some(HELD_WITHIN.saturating_sub(waited)));
            }
        } else {
            self.held = None;
        }
        let again = self.selected.see(now, &facet.selected);
        let selected = self.selected.get().cloned().flatten();
        (selected.map_or(Following::Free, Following::Label), again)
    }

    /// Evicts blocking pods where the node's status calls for it, and returns the status with the drain's progress, if
    /// it has any. While the driver does not respond nothing can be changed, so no pod is evicted.
    pub fn drain(&mut self, inventory: &Inventory, status: Option<&Status>) -> Option<Status> {
        let draining = self.draining.as_mut()?;
        let view = self.view.borrow().clone();
        // A round may take long, and its layout may be withdrawn meanwhile.
        let asked = view.as_deref().map(|view| select(view, self.compat));
        let is_current = asked.as_ref() == self.seen.as_ref().map(|seen| &seen.selected);
        let now = self.began.elapsed();
        let answers = matches!(inventory.nvml, NvmlState::Ready(_));
        let able = status.filter(|status| answers || status.is_busy());
        let seen = view.as_deref().zip(able).map(|(view, status)| Seen {
            view,
            status,
            is_current,
        });
        let shown = draining.look(now, seen);
        let drain = draining.standing().map(ToString::to_string);
        self.tell(shown.events.clone());
        self.shown = shown;
        Some(Status {
            drain: Some(drain?),
            ..status?.clone()
        })
    }

    /// Writes the node's status to the Node. Returns when to call again if that is before something changes.
    pub fn say(
        &mut self,
        inventory: &Inventory,
        labels: &LabelSet,
        status: Option<&Status>,
    ) -> Option<Duration> {
        let now = self.began.elapsed();
        self.names.tell(inventory);
        let yielded = self.link.report.borrow().yielded.clone();
        let scene = Scene {
            status,
            nvml: &inventory.nvml,
            yielded: &yielded,
        };
        if self.seen.is_some() {
            for change in self.telling.look(now, &scene) {
                // All other events are already in the log.
                if let Some(event) = &change.event
                    && event.reason == Reason::KeysLeftToOthers
                {
                    warn!(reason = %event.reason.word(), "{}", event.message);
                }
                self.link.tell(change);
            }
        }
        let nothing = Status::default();
        let status = status.unwrap_or(&nothing);
        let operands = self.look_at_operands(now, labels, status);
        let (text, later) = self.annotation(now, status, (inventory, &yielded));
        let not_ready =
            self.taint && status.layout.is_some() && status.state != Some(Reason::Applied.word());
        let repartitioning = self.shown.is_tainted;
        let plugin_label = self.plugin_label.clone();
        let answer = (status.label == Some(MIG_CONFIG)).then(|| answer(status));
        // The status that an earlier agent wrote remains until this one knows better.
        let uid = self.seen.as_ref().map(|seen| seen.uid.clone());
        self.link.want(|wanted| {
            wanted.uid = uid;
            wanted.annotations.insert(STATUS.to_owned(), text);
            wanted.not_ready = not_ready;
            wanted.repartitioning = repartitioning;
            wanted.mig_config_state = answer.flatten();
            wanted.paused = operands.paused;
            wanted.plugin_config = operands.plugin_config;
            wanted.plugin_label = plugin_label;
        });
        let again = soonest(operands.again, self.shown.again);
        soonest(again.map(|at| at.saturating_sub(now)), later)
    }

    /// Returns the annotation's text. The blockers may differ at every scan: if nothing else changed, the update is
    /// deferred, and the second value is when it is due.
    fn annotation(
        &mut self,
        now: Duration,
        status: &Status,
        (inventory, yielded): (&Inventory, &[Yielded]),
    ) -> (String, Option<Duration>) {
        let drain = self.draining.as_ref().and_then(Draining::standing);
        let steady = drain.map(Standing::steady);
        let text = annotation(status, inventory, yielded, drain);
        if self.said.as_ref().is_some_and(|(_, said, _)| *said == text) {
            return (text, None);
        }
        let mut core = status.clone();
        for device in &mut core.devices {
            device.message.clear();
        }
        let core = annotation(&core, inventory, yielded, steady.as_ref());
        if let Some((known, said, at)) = &self.said
            && *known == core
        {
            let waited = now.saturating_sub(*at);
            if waited < SAME_AGAIN {
                return (said.clone(), Some(SAME_AGAIN.saturating_sub(waited)));
            }
        }
        self.said = Some((core, text.clone(), now));
        (text, None)
    }

    fn look_at_operands(
        &mut self,
        now: Duration,
        labels: &LabelSet,
        status: &Status,
    ) -> operands::Outcome {
        let view = self.view.borrow().clone();
        let (Some(view), Some(operands)) = (view, &mut self.operands) else {
            return operands::Outcome::default();
        };
        let partitions = partitions(labels);
        let facts = Facts {
            view: &view,
            // Pods go first: operands need not be stopped for devices that pods hold.
            in_the_way: !self.shown.waits_for_pods
                && status.devices.iter().any(|device| device.is_held),
            busy: status.is_busy(),
            changes: status.past.changes,
            choice: status.generation,
            partitions: partitions.as_ref(),
        };
        let outcome = operands.look(now, &facts);
        if let Some(news) = outcome.news.clone() {
            let event = Event::from(news);
            info!(reason = %event.reason.word(), "{}", event.message);
            self.tell(vec![event]);
        }
        outcome
    }

    /// Returns the devices whose pods were evicted for the layout that is currently selected.
    pub fn drained(&self) -> &BTreeSet<PciAddress> {
        &self.shown.devices
    }

    /// Returns the Node, if it was read.
    pub fn view(&self) -> Option<Arc<View>> {
        self.view.borrow().clone()
    }

    /// Queues the events for the API server.
    pub fn tell(&self, events: Vec<Event>) {
        for event in events {
            self.link.tell(event.into());
        }
    }

    /// Sets the label that selects the configuration of NVIDIA's device plugin.
    pub fn follow_sharing(&mut self, label: PluginLabel) {
        self.plugin_label = label;
    }

    /// Stops evicting pods, because the agent is about to exit and that may take a while.
    pub fn close(&mut self) {
        if let Some(draining) = &mut self.draining {
            draining.close();
        }
    }

    /// Writes the final state: paused operands run again, and pods may be scheduled.
    pub async fn leave(&mut self) {
        self.close();
        self.link.want(|wanted| {
            wanted.paused.clear();
            wanted.repartitioning = false;
        });
        if self.view.borrow().is_some() && timeout(LAST_WORD, self.link.settled()).await.is_err() {
            warn!("the Node does not have the last that was to be said; the next agent says it");
        }
    }

    fn facet(&self) -> Option<Facet> {
        let view = self.view.borrow();
        view.as_deref().map(|view| Facet::of(view, self.compat))
    }
}
