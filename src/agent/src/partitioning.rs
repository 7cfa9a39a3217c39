//! Applies the selected layout to the node: selection, resolution, and rounds of the engine.

mod choice;
mod read_only;
mod target_changes;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use octavo_documents::agent_socket::LayoutChoice;
use octavo_engine::engine::{DesiredLayout, Engine, Settings};
use octavo_engine::executor::ProgressByDevice;
use octavo_engine::manual_choice as kept;
use octavo_engine::settings::usage_probe;
use octavo_engine::store::StoreError;
use octavo_engine::usage::{DevicePluginProbe, UsageProbe};
use octavo_files::checkpoint;
use octavo_files::config_files::LayoutFile;
use octavo_hardware::Handle;
use octavo_kubelet::device_plugin::AllocationGate;
use octavo_model::inventory::{Inventory, NvmlState};
use octavo_model::reason::Reason;
use octavo_node::node::SelectedLayout;
use octavo_node::sharing::usage::Usage;
use octavo_planner::layout::{ResolvedLayout, Targets};
use octavo_planner::reconcile::NodeLayoutStatus;
use octavo_settings::engine::EngineSettings;
use octavo_toolkit::error::chain;
use tokio::sync::watch;
use tracing::{info, warn};

pub use self::choice::{ChoiceRejected, NodeChoice};
use self::choice::{ChoiceSource, ManualChoice};
use self::read_only::Access;
use self::target_changes::{HELD_STATE, REFUSED_STATE, TargetChanges, UNSETTLED_STATE, differing};
use crate::control_socket::{self, ControlSocket};
use crate::metrics::LayoutMetrics;
use crate::settings::PartitioningSettings;

/// State of the node's partitioning.
#[derive(Debug)]
pub struct Partitioning {
    folder: PathBuf,
    settings: Settings,
    witness: Arc<dyn UsageProbe>,
    /// Gate of the built-in device plugin, which runs only if no other agent owns the node.
    gate: Option<Arc<AllocationGate>>,
    book: LayoutFile,
    /// The layout in the settings.
    layout: Option<String>,
    access: Access,
    /// The layout that was selected manually; takes precedence over the settings.
    chosen: Option<ManualChoice>,
    /// The Node's choice; takes precedence over both.
    following: NodeChoice,
    /// Whether the Node's choice changes so often that the agent waits for it to settle.
    is_unsettled: bool,
    /// Whether the selected layout cannot be used on this node.
    is_refused: bool,
    /// Content of the layouts file that was used.
    layouts: Option<String>,
    generation: u64,
    /// The last generation that a round handled.
    handled_generation: u64,
    progress: watch::Sender<ProgressByDevice>,
    applies: LayoutMetrics,
    /// `None` while another process owns the state directory.
    engine: Option<Engine>,
    /// The targets that the engine received last.
    last_targets: Option<(String, Arc<Targets>)>,
    /// Whether the engine must receive the targets again.
    resend: bool,
    /// Counts changes of the targets.
    meaning: TargetChanges,
    notice: Option<String>,
}

impl Partitioning {
    /// Creates the state; the kernel's files are below `sys_root`. Nothing is changed before the first
    /// [`Self::round`].
    pub fn new(
        settings: &PartitioningSettings,
        engine: &EngineSettings,
        book: LayoutFile,
        sys_root: &Path,
    ) -> Self {
        Self {
            folder: engine.state_dir.clone(),
            settings: Settings::new(engine, sys_root, settings.drift_policy(), "agent"),
            witness: usage_probe(engine),
            gate: None,
            book,
            layout: settings.layout.clone(),
            access: Access::new(settings.read_only),
            chosen: None,
            following: NodeChoice::NotConsulted,
            is_unsettled: false,
            is_refused: false,
            layouts: None,
            generation: 0,
            handled_generation: 0,
            progress: watch::Sender::new(ProgressByDevice::new()),
            applies: LayoutMetrics::default(),
            engine: None,
            last_targets: None,
            resend: false,
            meaning: TargetChanges::default(),
            notice: None,
        }
    }

    /// Sets the gate of the built-in device plugin.
    #[must_use]
    pub fn with_gate(self, gate: Arc<AllocationGate>) -> Self {
        let witness = Arc::new(DevicePluginProbe::new(self.witness, Arc::clone(&gate)));
        Self {
            witness,
            gate: Some(gate),
            ..self
        }
    }

    /// Returns whether this process owns the state directory.
    pub fn owns_state_dir(&self) -> bool {
        self.engine.is_some()
    }

    /// Opens the socket for commands; the caller owns the state directory.
    pub fn listen(&self, usage: Option<watch::Receiver<Arc<Usage>>>) -> Option<ControlSocket> {
        match control_socket::listen(&self.folder, usage) {
            Ok(desk) => Some(desk),
            Err(error) => {
                warn!("commands cannot reach this agent: {error}");
                None
            }
        }
    }

    /// Returns whether a choice was made that no round has handled yet.
    pub fn has_pending_choice(&self) -> bool {
        self.generation != self.handled_generation
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &LayoutMetrics {
        &self.applies
    }

    /// Subscribes to the progress of devices that are being changed.
    pub fn progress(&self) -> watch::Receiver<ProgressByDevice> {
        self.progress.subscribe()
    }

    /// Accepts a manual choice, which takes precedence over the settings' layout, also after a restart.
    pub fn choose(
        &mut self,
        choice: &LayoutChoice,
        inventory: &Inventory,
    ) -> Result<u64, ChoiceRejected> {
        match &self.following {
            NodeChoice::Label(selected) | NodeChoice::ForeignChange(_, Some(selected)) => {
                let (key, layout) = (selected.key, selected.layout.clone());
                return Err(ChoiceRejected::Label { key, layout });
            }
            NodeChoice::NotRead => return Err(ChoiceRejected::NodeNotRead),
            NodeChoice::NotConsulted
            | NodeChoice::NoChoice
            | NodeChoice::ForeignChange(_, None) => {}
        }
        let chosen = ManualChoice::try_from_choice(choice)?;
        match &chosen.what {
            ChoiceSource::OwnLayouts => {
                drop(self.book.current().resolve(&choice.layout, inventory)?);
            }
            ChoiceSource::SentLayouts(layouts) => drop(layouts.resolve(&choice.layout, inventory)?),
            ChoiceSource::Checkpoint(text) => drop(checkpoint::read(text, inventory)?),
        }
        kept::write(&self.folder, choice)?;
        info!("layout {} was chosen by hand", choice.layout);
        self.chosen = Some(chosen);
        Ok(self.bump_generation())
    }

    /// Returns to the settings' layout, and discards changes that cannot be finished.
    pub fn forget(&mut self, inventory: &Inventory) -> Result<u64, ChoiceRejected> {
        kept::remove(&self.folder)?;
        if let Some(engine) = &mut self.engine {
            engine.discard(inventory)?;
        }
        info!("what was chosen by hand is forgotten");
        self.chosen = None;
        Ok(self.bump_generation())
    }

    /// Sets the Node's choice; `is_unsettled` if the Node is about to change it again.
    pub fn follow(&mut self, following: NodeChoice, unsettled: bool) {
        self.is_unsettled = unsettled;
        if self.following == following {
            return;
        }
        if let NodeChoice::Label(SelectedLayout { layout, key }) = &following {
            info!("layout {layout} is chosen by the label {key}");
        }
        self.following = following;
        self.bump_generation();
    }

    /// Records a choice, even if it is the same one: everything is retried.
    fn bump_generation(&mut self) -> u64 {
        self.resend = true;
        self.generation = self.generation.saturating_add(1);
        self.generation
    }

    /// Takes the node one round closer to its desired layout. Returns the maximum delay until the next round, if any.
    pub async fn round(
        &mut self,
        hardware: &Handle,
        inventory: &Arc<Inventory>,
    ) -> Option<Duration> {
        if self.access == Access::ReadOnly {
            self.report_read_only();
            return None;
        }
        if let Err(error) = self.open_engine() {
            self.set_notice(Reason::LayoutNotice, chain(&error));
            return None;
        }
        if !matches!(inventory.nvml, NvmlState::Ready(_)) {
            return None;
        }
        let generation = self.generation;
        if let NodeChoice::ForeignChange(owner, _) = &self.following {
            self.handled_generation = generation;
            let notice =
                format!("{owner} says that it partitions this node just now: it is left to it");
            self.set_notice(HELD_STATE, notice);
            return None;
        }
        let (layout, targets) = self.targets(inventory);
        let engine = self.engine.as_mut()?;
        let wanted = DesiredLayout {
            layout: layout.as_deref().unwrap_or("(none)"),
            targets: &targets,
        };
        let round = engine.round(hardware, inventory, wanted).await;
        self.applies.record_round(&round);
        self.handled_generation = generation;
        round.again
    }

    /// Returns the node's status.
    pub fn status(&self, inventory: &Inventory) -> NodeLayoutStatus {
        let layout = self.name();
        let mut status = match &self.engine {
            Some(engine) => engine.status(inventory, layout),
            None => NodeLayoutStatus {
                layout: layout.map(ToOwned::to_owned),
                ..NodeLayoutStatus::default()
            },
        };
        match &self.following {
            NodeChoice::Label(selected) => status.label = Some(selected.key),
            NodeChoice::NotConsulted | NodeChoice::NoChoice => {
                status.is_manual = self.chosen.is_some();
            }
            NodeChoice::ForeignChange(_, selected) => {
                status.label = selected.as_ref().map(|selected| selected.key);
                status.state = Some(HELD_STATE.as_str());
            }
            NodeChoice::NotRead => {}
        }
        if self.is_refused {
            status.state = Some(REFUSED_STATE.as_str());
        }
        if (self.is_unsettled || self.has_pending_choice()) && status.state.is_some() {
            status.state = Some(UNSETTLED_STATE.as_str());
        }
        status.layouts_version.clone_from(&self.layouts);
        status.targets = self
            .last_targets
            .as_ref()
            .map(|(_, targets)| Arc::clone(targets));
        status.generation = self.handled_generation;
        status.target_generation = self.meaning.count();
        let notices = self.notice.iter().cloned().chain(status.notice);
        status.notice = notices.reduce(|one, other| format!("{one}; {other}"));
        status
    }

    /// Returns the name of the selected layout.
    fn name(&self) -> Option<&str> {
        match &self.following {
            NodeChoice::Label(selected) | NodeChoice::ForeignChange(_, Some(selected)) => {
                Some(&selected.layout)
            }
            NodeChoice::NotRead => None,
            NodeChoice::NotConsulted
            | NodeChoice::NoChoice
            | NodeChoice::ForeignChange(_, None) => {
                let chosen = self.chosen.as_ref().map(|chosen| chosen.layout.as_str());
                chosen.or(self.layout.as_deref())
            }
        }
    }

    /// Returns the manual choice, unless the Node takes precedence over it.
    fn manual_choice(&self) -> Option<&ChoiceSource> {
        match &self.following {
            NodeChoice::NotConsulted | NodeChoice::NoChoice => {
                self.chosen.as_ref().map(|chosen| &chosen.what)
            }
            NodeChoice::Label(_) | NodeChoice::NotRead | NodeChoice::ForeignChange(..) => None,
        }
    }

    fn open_engine(&mut self) -> Result<(), StoreError> {
        if self.engine.is_none() {
            let witness = Arc::clone(&self.witness);
            let progress = self.progress.clone();
            let settings = self.settings.clone();
            self.engine = Some(Engine::open(&self.folder, settings, witness, progress)?);
            self.chosen = self.stored_choice();
            self.notice = None;
            if let Some(gate) = &self.gate {
                gate.open();
            }
        }
        Ok(())
    }

    /// Reads the manual choice that was stored before this agent started.
    fn stored_choice(&self) -> Option<ManualChoice> {
        let choice = match kept::read(&self.folder) {
            Ok(choice) => choice?,
            Err(error) => {
                warn!("cannot read what was chosen by hand, and go by the settings: {error}");
                return None;
            }
        };
        match ManualChoice::try_from_choice(&choice) {
            Ok(chosen) => Some(chosen),
            Err(error) => {
                warn!("cannot use what was chosen by hand, and go by the settings: {error}");
                None
            }
        }
    }

    /// Resolves the selected layout on this node. The second value is the problem with its file, if there is one.
    fn resolve(
        &mut self,
        name: &str,
        inventory: &Inventory,
    ) -> Result<(ResolvedLayout, Option<String>), ChoiceRejected> {
        let current = match self.manual_choice() {
            Some(ChoiceSource::Checkpoint(text)) => {
                let resolved = ResolvedLayout {
                    targets: checkpoint::read(text, inventory)?,
                    ..ResolvedLayout::default()
                };
                return Ok((resolved, None));
            }
            Some(ChoiceSource::SentLayouts(layouts)) => layouts.clone(),
            Some(ChoiceSource::OwnLayouts) | None => self.book.current(),
        };
        self.layouts.clone_from(&current.hash);
        Ok((current.resolve(name, inventory)?, current.notice))
    }

    /// Returns the selected layout and its targets; the targets are empty if the layout cannot be used here.
    fn targets(&mut self, inventory: &Inventory) -> (Option<String>, Targets) {
        self.is_refused = false;
        let Some(name) = self.name().map(ToOwned::to_owned) else {
            // This was already logged.
            self.notice = self.book.current().notice;
            self.last_targets = None;
            return (None, Targets::default());
        };
        match self.resolve(&name, inventory) {
            Ok((resolved, notice)) => {
                self.notice = notice;
                let meant = (name.clone(), Arc::new(resolved.targets.clone()));
                let anew = std::mem::take(&mut self.resend);
                self.meaning.observe(anew, &name, &resolved.targets);
                if anew || self.last_targets.as_ref() != Some(&meant) {
                    info!("layout {name}: {} devices", resolved.targets.devices.len());
                    for warning in &resolved.warnings {
                        warn!("layout {name}: {warning}");
                    }
                    let changed = differing(self.last_targets.as_ref().filter(|_| !anew), &meant);
                    if let Some(engine) = &mut self.engine {
                        engine.select(&changed);
                    }
                    self.last_targets = Some(meant);
                }
                (Some(name), resolved.targets)
            }
            Err(error) => {
                self.is_refused = true;
                let notice = format!("{}. What was in force before stays so", chain(&error));
                self.set_notice(REFUSED_STATE, notice);
                let meant = self.last_targets.clone();
                meant.map_or_else(
                    || (Some(name), Targets::default()),
                    |(name, targets)| (Some(name), Targets::clone(&targets)),
                )
            }
        }
    }

    /// Logs and records a notice, once.
    fn set_notice(&mut self, reason: Reason, notice: String) {
        if self.notice.as_ref() != Some(&notice) {
            warn!(reason = %reason.as_str(), "{notice}");
            self.notice = Some(notice);
        }
    }
}
