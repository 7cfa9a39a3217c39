//! What the agent has to do with its Node: takes the layout from its labels, and says in its annotation, its taint and its
//! events how far it is.
//!
//! Nothing here waits for an API server: a [`Link`] has what was seen last and takes what is to be said, and keeps at it.

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

/// What differs only in who is in the way is said again after this.
const SAME_AGAIN: Duration = Duration::from_secs(30);
/// How long another program may say that it is partitioning the node: a GPU takes seconds, and a reboot minutes.
const HELD_WITHIN: Duration = Duration::from_mins(15);
/// How long the last that is to be said may take when the agent ends.
const LAST_WORD: Duration = Duration::from_secs(5);

/// The agent's side of its Node.
#[derive(Debug)]
pub struct Cluster {
    link: Arc<Link>,
    view: watch::Receiver<Option<Arc<View>>>,
    began: Instant,
    compat: Compat,
    taint: bool,
    level: Level,
    /// What of the Node was acted on.
    seen: Option<Facet>,
    selected: Settled<Option<Selected>>,
    telling: Telling,
    /// Absent where they are not to be touched.
    operands: Option<Operands>,
    /// Absent where no pod is to be evicted.
    draining: Option<Draining>,
    shown: Shown,
    plugin_label: PluginLabel,
    /// Since when another program says that it is partitioning this node.
    held: Option<Duration>,
    /// What people call devices that nobody knows.
    names: Names,
    /// What was said last, without what may change with every look.
    said: Option<(String, String, Duration)>,
}

impl Cluster {
    /// With the Node at the other end of `link`. One that looks only once does not wait for operands, and touches none.
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
            // One that looks only once does not see what comes of it.
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

    /// The same with an administrator's catalogue, in which the name is looked up that a label gives to unknown devices.
    #[must_use]
    pub fn naming(mut self, catalogue: Option<Catalogue>) -> Self {
        self.names = Names::new(catalogue);
        self
    }

    /// Whether nobody knows yet what its label calls unknown devices.
    pub fn is_unseen(&self) -> bool {
        self.seen.is_none()
    }

    /// Lets the Node's label name devices that nobody knows. Of a Node that is gone what it said last counts.
    pub fn name(&mut self, hardware: &Handle) {
        if let Some(seen) = &self.seen {
            self.names.follow(seen.type_override.as_deref(), hardware);
        }
    }

    /// The same, with pods evicted where they are in the way.
    #[must_use]
    pub fn draining(mut self, draining: Option<Draining>) -> Self {
        self.draining = draining;
        self
    }

    /// Waits until the Node, or the API server of its pods, says something else that the agent acts on.
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
                    // Whoever followed the Node has ended, and so will we.
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

    /// Waits until the Node was seen, and lets it choose the layout: for an agent that looks once.
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

    /// Whether the API server has told of the Node yet. Whether it takes what is said is told elsewhere: an agent that is refused
    /// one key is no better for being started again.
    pub fn is_heard(&self) -> bool {
        self.link.report.borrow().asked
    }

    /// What the Node says of its layout, and when to come again, where that is before it changes.
    pub fn follow(&mut self) -> (Following, Option<Duration>) {
        let facet = self.facet();
        if let Some(facet) = &facet {
            let known = self.seen.as_ref().and_then(|seen| seen.log_level.as_ref());
            if known != facet.log_level.as_ref() {
                self.level.set(facet.log_level.as_deref());
            }
            self.seen = Some(facet.clone());
        }
        // A Node that is gone has said what it has said.
        let Some(facet) = self.seen.clone() else {
            return (Following::Unseen, None);
        };
        let now = self.began.elapsed();
        if let Some(owner) = facet.at_work {
            let since = *self.held.get_or_insert(now);
            let waited = now.saturating_sub(since);
            // One that was killed while it worked says so for ever.
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

    /// Holds pods in the way against where the node stands, and says that of it, where something is done about them. While the
    /// driver does not answer nothing can be changed, and nobody is evicted for it.
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

    /// Says where the node stands; says when to come again, where that is before something changes.
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
            for event in self.telling.look(now, &scene) {
                // All else that is told is in the log already, by whom it happened to.
                if event.reason == Reason::KeysLeftToOthers {
                    warn!(reason = %event.reason.word(), "{}", event.message);
                }
                self.link.tell(event);
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
        // What an earlier agent said stands until we know better.
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

    /// The annotation. Who is in the way may be somebody else at every look: what changes in nothing but that is said again after
    /// a while, and when that is.
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
            // First the pods, for whose sake nothing else need be stopped.
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

    /// Devices that pods were evicted for, for the layout that is chosen now.
    pub fn drained(&self) -> &BTreeSet<PciAddress> {
        &self.shown.devices
    }

    /// The Node, where it was seen.
    pub fn view(&self) -> Option<Arc<View>> {
        self.view.borrow().clone()
    }

    /// Tells what happened by the way, if there is still room for it.
    pub fn tell(&mut self, events: Vec<Event>) {
        let now = self.began.elapsed();
        for event in self.telling.afford(now, events) {
            self.link.tell(event);
        }
    }

    /// What NVIDIA's device plugin shall follow from now on.
    pub fn follow_sharing(&mut self, label: PluginLabel) {
        self.plugin_label = label;
    }

    /// The agent is to end: no more pods are evicted, however long it takes.
    pub fn close(&mut self) {
        if let Some(draining) = &mut self.draining {
            draining.close();
        }
    }

    /// Says the last: what was paused runs again, and pods may come.
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
