//! Applies the selected layout to the node: selection, resolution, and rounds of the engine.

mod choice;
mod read_only;
mod target_changes;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use octavo_engine::agent_socket::LayoutChoice;
use octavo_engine::claims::{ClaimProbe, ClaimRecord};
use octavo_engine::engine::{DesiredLayout, Engine, Settings};
use octavo_engine::executor::ProgressByDevice;
use octavo_engine::manual_choice;
use octavo_engine::settings::usage_probe;
use octavo_engine::store::StoreError;
use octavo_engine::usage::{DevicePluginProbe, UsageProbe};
use octavo_files::checkpoint;
use octavo_files::config_files::LayoutFile;
use octavo_hardware::DriverHandle;
use octavo_kubelet::device_plugin::AllocationGate;
use octavo_model::inventory::{Inventory, NvmlState};
use octavo_model::reason::Reason;
use octavo_node::node_object::SelectedLayout;
use octavo_node::sharing::usage::Usage;
use octavo_planner::layout::{ResolvedLayout, Targets};
use octavo_planner::reconcile::NodeLayoutStatus;
use octavo_settings::engine::EngineSettings;
use octavo_toolkit::error::chain;
use tokio::sync::watch;
use tracing::{info, warn};

pub use self::choice::{ChoiceRejected, NodeChoice};
use self::choice::{ChoiceSource, LayoutChoices, ManualChoice};
use self::target_changes::{HELD_STATE, REFUSED_STATE, TargetChanges, UNSETTLED_STATE, differing};
use crate::control_socket::{self, ControlSocket};
use crate::dra::claim_store::ClaimStore;
use crate::metrics::LayoutMetrics;
use crate::settings::PartitioningSettings;

/// Interval at which an agent with resource claims tries to own the state directory. During an update, the kubelet has no
/// driver in the meantime.
const TAKEOVER_INTERVAL: Duration = Duration::from_secs(1);

/// State of the node's partitioning.
#[derive(Debug)]
pub struct Partitioning {
    state_dir: PathBuf,
    settings: Settings,
    usage_probe: Arc<dyn UsageProbe>,
    /// Gate of the built-in device plugin, which runs only if no other agent owns the node.
    gate: Option<Arc<AllocationGate>>,
    /// Resource claims, which change GPUs whose partitions no layout determines.
    claims: Option<Arc<ClaimStore>>,
    layout_file: LayoutFile,
    choices: LayoutChoices,
    generation: u64,
    /// The last generation that a round handled.
    handled_generation: u64,
    /// Whether the engine must receive the targets again.
    resend: bool,
    engine: EngineState,
    progress: watch::Sender<ProgressByDevice>,
    metrics: LayoutMetrics,
    /// Content of the layouts file that was used.
    layouts_version: Option<String>,
    /// Whether the selected layout cannot be used on this node.
    is_refused: bool,
    /// The targets that the engine received last.
    last_targets: Option<(String, Arc<Targets>)>,
    target_changes: TargetChanges,
    notice: Option<String>,
}

#[derive(Debug)]
enum EngineState {
    /// No device is modified, whatever layout is selected.
    ReadOnly,
    /// No round ran yet, or another process owns the state directory.
    Closed,
    Open(Box<Engine>),
}

impl Partitioning {
    /// Creates the state; the kernel's files are below `sys_root`. Nothing is changed before the first
    /// [`Self::round`].
    pub fn new(
        settings: &PartitioningSettings,
        engine: &EngineSettings,
        layout_file: LayoutFile,
        sys_root: &Path,
    ) -> Self {
        Self {
            state_dir: engine.state_dir.clone(),
            settings: Settings::new(engine, sys_root, settings.drift, "agent"),
            usage_probe: usage_probe(engine),
            gate: None,
            claims: None,
            layout_file,
            choices: LayoutChoices::new(settings.layout.clone()),
            generation: 0,
            handled_generation: 0,
            resend: false,
            engine: if settings.read_only { EngineState::ReadOnly } else { EngineState::Closed },
            progress: watch::Sender::new(ProgressByDevice::new()),
            metrics: LayoutMetrics::default(),
            layouts_version: None,
            is_refused: false,
            last_targets: None,
            target_changes: TargetChanges::default(),
            notice: None,
        }
    }

    /// Sets the gate of the built-in device plugin.
    #[must_use]
    pub fn with_gate(self, gate: Arc<AllocationGate>) -> Self {
        let probe = DevicePluginProbe::new(self.usage_probe, Arc::clone(&gate));
        Self { usage_probe: Arc::new(probe), gate: Some(gate), ..self }
    }

    /// Lets resource claims change the GPUs whose partitions no layout determines.
    #[must_use]
    pub fn with_claims(self, claims: Arc<ClaimStore>) -> Self {
        let probe = ClaimProbe::new(self.usage_probe, Arc::clone(&claims) as Arc<dyn ClaimRecord>);
        Self { usage_probe: Arc::new(probe), claims: Some(claims), ..self }
    }

    /// Returns the probe of device usage.
    pub fn usage_probe(&self) -> Arc<dyn UsageProbe> {
        Arc::clone(&self.usage_probe)
    }

    /// Returns the resource claims of this node, if claims can change devices.
    pub fn claims(&self) -> Option<Arc<ClaimStore>> {
        self.claims.clone()
    }

    /// Subscribes to changes of resource claims that need a round, if there are claims.
    pub fn claim_changes(&self) -> Option<watch::Receiver<u64>> {
        self.claims.as_ref().map(|claims| claims.changes())
    }

    /// Ends the changes of resource claims: the state directory will have another owner.
    pub fn close(&self) {
        if let Some(claims) = &self.claims {
            claims.close();
        }
    }

    /// Returns whether this process owns the state directory.
    pub fn owns_state_dir(&self) -> bool {
        matches!(self.engine, EngineState::Open(_))
    }

    /// Opens the socket for commands; the caller owns the state directory.
    pub fn listen(&self, usage: Option<watch::Receiver<Arc<Usage>>>) -> Option<ControlSocket> {
        match control_socket::listen(&self.state_dir, usage) {
            Ok(socket) => Some(socket),
            Err(error) => {
                warn!(%error, "cannot open the command socket");
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
        &self.metrics
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
        if let Some(selected) = self.choices.label() {
            let (key, layout) = (selected.key, selected.layout.clone());
            return Err(ChoiceRejected::Label { key, layout });
        }
        if self.choices.node == NodeChoice::NotRead {
            return Err(ChoiceRejected::NodeNotRead);
        }
        let chosen = ManualChoice::try_from_choice(choice)?;
        match &chosen.source {
            ChoiceSource::OwnLayouts => {
                drop(self.layout_file.current().resolve(&choice.layout, inventory)?);
            }
            ChoiceSource::SentLayouts(layouts) => drop(layouts.resolve(&choice.layout, inventory)?),
            ChoiceSource::Checkpoint(text) => drop(checkpoint::read(text, inventory)?),
        }
        manual_choice::write(&self.state_dir, choice)?;
        info!(layout = %choice.layout, "layout selected manually");
        self.choices.manual = Some(chosen);
        Ok(self.bump_generation())
    }

    /// Returns to the settings' layout, and discards changes that cannot be finished.
    pub fn forget(&mut self, inventory: &Inventory) -> Result<u64, ChoiceRejected> {
        manual_choice::remove(&self.state_dir)?;
        if let EngineState::Open(engine) = &mut self.engine {
            engine.discard(inventory)?;
        }
        info!("manual layout selection discarded");
        self.choices.manual = None;
        Ok(self.bump_generation())
    }

    /// Sets the Node's choice; `is_unsettled` if the Node is about to change it again.
    pub fn set_node_choice(&mut self, choice: NodeChoice, is_unsettled: bool) {
        self.choices.is_node_unsettled = is_unsettled;
        if self.choices.node == choice {
            return;
        }
        if let NodeChoice::Label(SelectedLayout { layout, key, .. }) = &choice {
            info!(%layout, label = %key, "layout selected by Node label");
        }
        self.choices.node = choice;
        self.bump_generation();
    }

    /// Records a choice, even if it is the same one: everything is retried.
    fn bump_generation(&mut self) -> u64 {
        self.resend = true;
        self.generation = self.generation.saturating_add(1);
        self.generation
    }

    /// Takes the node one round closer to its desired layout and the claims of its pods. Returns the maximum delay until
    /// the next round, if any.
    pub async fn round(
        &mut self,
        hardware: &DriverHandle,
        inventory: &Arc<Inventory>,
    ) -> Option<Duration> {
        let claims = self.claims.clone();
        let generation = claims.as_ref().map(|claims| claims.generation());
        let again = self.change_devices(hardware, inventory).await;
        if let Some((claims, generation)) = claims.zip(generation) {
            let inventory = hardware.latest();
            let status = self.status(&inventory);
            claims.finish_round(generation, &inventory, &status, self.claim_blocker(&inventory));
        }
        again
    }

    /// Returns the reason why claims can change no device now.
    fn claim_blocker(&self, inventory: &Inventory) -> Option<String> {
        if !self.owns_state_dir() {
            return self.notice.clone();
        }
        match &self.choices.node {
            NodeChoice::ForeignChange(..) => self.notice.clone(),
            NodeChoice::NotRead => {
                Some("the Node was not read yet, so its layout is unknown".to_owned())
            }
            NodeChoice::NotConsulted | NodeChoice::NoChoice | NodeChoice::Label(_) => {
                let notice = self.notice.clone().filter(|_| self.is_layout_unusable());
                notice.or_else(|| inventory.nvml.error())
            }
        }
    }

    /// Adds the targets of claims to those of the layout, once the layout is known. A layout that cannot be used covers
    /// unknown GPUs, unless an earlier one stays in effect.
    fn with_claim_targets(&self, inventory: &Inventory, layout: Targets) -> Targets {
        let is_known = self.choices.node != NodeChoice::NotRead && !self.is_layout_unusable();
        match self.claims.as_ref().filter(|_| is_known) {
            Some(claims) => claims.with_targets(inventory, &layout),
            None => layout,
        }
    }

    /// Returns whether the selected layout cannot be used, and no earlier one stays in effect.
    fn is_layout_unusable(&self) -> bool {
        self.is_refused && self.last_targets.is_none()
    }

    async fn change_devices(
        &mut self,
        hardware: &DriverHandle,
        inventory: &Arc<Inventory>,
    ) -> Option<Duration> {
        if matches!(self.engine, EngineState::ReadOnly) {
            self.report_read_only();
            return None;
        }
        if let Err(error) = self.open_engine() {
            self.set_notice(Reason::LayoutNotice, chain(&error));
            return self.claims.as_ref().map(|_| TAKEOVER_INTERVAL);
        }
        if !matches!(inventory.nvml, NvmlState::Ready(_)) {
            return None;
        }
        let generation = self.generation;
        if let NodeChoice::ForeignChange(owner, _) = &self.choices.node {
            self.handled_generation = generation;
            let notice = format!(
                "{owner} reports that it is partitioning this node; waiting until it finishes"
            );
            self.set_notice(HELD_STATE, notice);
            return None;
        }
        let (layout, targets) = self.targets(inventory);
        let targets = self.with_claim_targets(inventory, targets);
        let EngineState::Open(engine) = &mut self.engine else {
            return None;
        };
        let desired =
            DesiredLayout { layout: layout.as_deref().unwrap_or("(none)"), targets: &targets };
        let round = engine.round(hardware, inventory, desired).await;
        self.metrics.record_round(&round);
        self.handled_generation = generation;
        round.again
    }

    /// Returns the node's status.
    pub fn status(&self, inventory: &Inventory) -> NodeLayoutStatus {
        let layout = self.choices.name();
        let mut status = match &self.engine {
            EngineState::Open(engine) => engine.status(inventory, layout),
            EngineState::ReadOnly | EngineState::Closed => NodeLayoutStatus {
                layout: layout.map(ToOwned::to_owned),
                ..NodeLayoutStatus::default()
            },
        };
        status.label = self.choices.label().map(|selected| selected.key);
        status.is_manual = self.choices.manual().is_some();
        if let NodeChoice::ForeignChange(..) = self.choices.node {
            status.state = Some(HELD_STATE.into());
        }
        if self.is_refused {
            status.state = Some(REFUSED_STATE.into());
        }
        if (self.choices.is_node_unsettled || self.has_pending_choice()) && status.state.is_some() {
            status.state = Some(UNSETTLED_STATE.into());
        }
        status.layouts_version.clone_from(&self.layouts_version);
        status.targets = self.last_targets.as_ref().map(|(_, targets)| Arc::clone(targets));
        status.generation = self.handled_generation;
        status.target_generation = self.target_changes.count();
        let notices = self.notice.iter().cloned().chain(status.notice);
        status.notice = notices.reduce(|one, other| format!("{one}; {other}"));
        status
    }

    fn open_engine(&mut self) -> Result<(), StoreError> {
        if matches!(self.engine, EngineState::Closed) {
            let probe = Arc::clone(&self.usage_probe);
            let progress = self.progress.clone();
            let settings = self.settings.clone();
            let engine = Engine::open(&self.state_dir, settings, probe, progress)?;
            if let Some(claims) = &self.claims {
                claims.open(&self.state_dir)?;
            }
            self.engine = EngineState::Open(Box::new(engine));
            self.choices.manual = self.stored_choice();
            self.notice = None;
            if let Some(gate) = &self.gate {
                gate.open();
            }
        }
        Ok(())
    }

    /// Reads the manual choice that was stored before this agent started.
    fn stored_choice(&self) -> Option<ManualChoice> {
        let choice = match manual_choice::read(&self.state_dir) {
            Ok(choice) => choice?,
            Err(error) => {
                warn!(%error, "cannot read the manual layout selection; using the settings");
                return None;
            }
        };
        match ManualChoice::try_from_choice(&choice) {
            Ok(chosen) => Some(chosen),
            Err(error) => {
                warn!(%error, "cannot use the manual layout selection; using the settings");
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
        if let Some(targets) = self.choices.exact_targets(inventory) {
            self.layouts_version = None;
            return Ok((ResolvedLayout { targets: targets?, ..ResolvedLayout::default() }, None));
        }
        let current = match self.choices.manual().map(|manual| &manual.source) {
            Some(ChoiceSource::Checkpoint(text)) => {
                let resolved = ResolvedLayout {
                    targets: checkpoint::read(text, inventory)?,
                    ..ResolvedLayout::default()
                };
                return Ok((resolved, None));
            }
            Some(ChoiceSource::SentLayouts(layouts)) => layouts.clone(),
            Some(ChoiceSource::OwnLayouts) | None => self.layout_file.current(),
        };
        self.layouts_version.clone_from(&current.hash);
        Ok((current.resolve(name, inventory)?, current.notice))
    }

    /// Returns the selected layout and its targets; the targets are empty if the layout cannot be used here.
    fn targets(&mut self, inventory: &Inventory) -> (Option<String>, Targets) {
        self.is_refused = false;
        let Some(name) = self.choices.name().map(ToOwned::to_owned) else {
            // This was already logged.
            self.notice = self.layout_file.current().notice;
            self.last_targets = None;
            return (None, Targets::default());
        };
        match self.resolve(&name, inventory) {
            Ok((resolved, notice)) => {
                self.notice = notice;
                let selected = (name.clone(), Arc::new(resolved.targets.clone()));
                let resend = std::mem::take(&mut self.resend);
                self.target_changes.observe(resend, &name, &resolved.targets);
                if resend || self.last_targets.as_ref() != Some(&selected) {
                    info!(layout = %name, devices = resolved.targets.devices.len(), "layout resolved");
                    for warning in &resolved.warnings {
                        warn!(layout = %name, %warning, "layout resolved with a warning");
                    }
                    let changed =
                        differing(self.last_targets.as_ref().filter(|_| !resend), &selected);
                    if let EngineState::Open(engine) = &mut self.engine {
                        engine.select(&changed);
                    }
                    self.last_targets = Some(selected);
                }
                (Some(name), resolved.targets)
            }
            Err(error) => {
                self.is_refused = true;
                let notice = format!("{}; the previous layout stays in effect", chain(&error));
                self.set_notice(REFUSED_STATE, notice);
                let previous = self.last_targets.clone();
                previous.map_or_else(
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
