//! Applies the selected layout to the node: selection, resolution, and rounds of the engine.

mod choice;
mod meaning;
mod read_only;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{info, warn};

pub use self::choice::{ChoiceRefused, Following};
use self::choice::{Chosen, What};
use self::meaning::{HELD, Meaning, REFUSED, UNSETTLED, differing};
use self::read_only::Access;
use crate::agent::local::{self, Desk};
use crate::agent::metrics::Applies;
use crate::apply::choice as kept;
use crate::apply::engine::{Engine, Settings, Wanted};
use crate::apply::executor::Board;
use crate::apply::settings::witness;
use crate::apply::store::StoreError;
use crate::apply::witness::{Giving, Witness};
use crate::book::Book;
use crate::config::agent::PartitioningSettings;
use crate::domain::error::chain;
use crate::domain::inventory::{Inventory, NvmlState};
use crate::domain::layout::{Resolved, Targets};
use crate::domain::node::Selected;
use crate::domain::reason::Reason;
use crate::domain::reconcile::Status;
use crate::domain::sharing::usage::Usage;
use crate::hw::Handle;
use crate::k8s::device_plugin::Gate;
use crate::wire::checkpoint;
use crate::wire::local::Choice;

/// State of the node's partitioning.
#[derive(Debug)]
pub struct Partitioning {
    folder: PathBuf,
    settings: Settings,
    witness: Arc<dyn Witness>,
    /// Gate of the built-in device plugin, which runs only if no other agent owns the node.
    gate: Option<Arc<Gate>>,
    book: Book,
    /// The layout in the settings.
    layout: Option<String>,
    access: Access,
    /// The layout that was selected manually; takes precedence over the settings.
    chosen: Option<Chosen>,
    /// The Node's choice; takes precedence over both.
    following: Following,
    /// Whether the Node's choice changes so often that the agent waits for it to settle.
    unsettled: bool,
    /// Whether the selected layout cannot be used on this node.
    refused: bool,
    /// Content of the layouts file that was used.
    layouts: Option<String>,
    generation: u64,
    /// The last generation that a round handled.
    looked_at: u64,
    progress: watch::Sender<Board>,
    applies: Applies,
    /// `None` while another process owns the state directory.
    engine: Option<Engine>,
    /// The targets that the engine received last.
    meant: Option<(String, Arc<Targets>)>,
    /// Whether the engine must receive the targets again.
    anew: bool,
    /// Counts changes of the targets.
    meaning: Meaning,
    notice: Option<String>,
}

impl Partitioning {
    /// Creates the state; the kernel's files are below `sys_root`. Nothing is changed before the first
    /// [`Self::round`].
    pub fn new(settings: &PartitioningSettings, book: Book, sys_root: &Path) -> Self {
        let engine = settings.engine();
        Self {
            folder: engine.state_dir().to_owned(),
            settings: Settings::new(engine, sys_root, settings.drift(), "agent"),
            witness: witness(engine),
            gate: None,
            book,
            layout: settings.layout().map(ToOwned::to_owned),
            access: Access::new(settings.is_read_only()),
            chosen: None,
            following: Following::Nobody,
            unsettled: false,
            refused: false,
            layouts: None,
            generation: 0,
            looked_at: 0,
            progress: watch::Sender::new(Board::new()),
            applies: Applies::default(),
            engine: None,
            meant: None,
            anew: false,
            meaning: Meaning::default(),
            notice: None,
        }
    }

    /// Sets the gate of the built-in device plugin.
    #[must_use]
    pub fn giving(self, gate: Arc<Gate>) -> Self {
        let witness = Arc::new(Giving::new(self.witness, Arc::clone(&gate)));
        Self {
            witness,
            gate: Some(gate),
            ..self
        }
    }

    /// Returns whether this process owns the state directory.
    pub fn is_open(&self) -> bool {
        self.engine.is_some()
    }

    /// Opens the socket for commands; the caller owns the state directory.
    pub fn listen(&self, usage: Option<watch::Receiver<Arc<Usage>>>) -> Option<Desk> {
        match local::listen(&self.folder, usage) {
            Ok(desk) => Some(desk),
            Err(error) => {
                warn!("commands cannot reach this agent: {error}");
                None
            }
        }
    }

    /// Returns whether a choice was made that no round has handled yet.
    pub fn is_due(&self) -> bool {
        self.generation != self.looked_at
    }

    /// Returns the metrics.
    pub fn applies(&self) -> &Applies {
        &self.applies
    }

    /// Subscribes to the progress of devices that are being changed.
    pub fn progress(&self) -> watch::Receiver<Board> {
        self.progress.subscribe()
    }

    /// Accepts a manual choice, which takes precedence over the settings' layout, also after a restart.
    pub fn choose(&mut self, choice: &Choice, inventory: &Inventory) -> Result<u64, ChoiceRefused> {
        match &self.following {
            Following::Label(selected) | Following::Held(_, Some(selected)) => {
                let (key, layout) = (selected.key, selected.layout.clone());
                return Err(ChoiceRefused::Label { key, layout });
            }
            Following::Unseen => return Err(ChoiceRefused::Unseen),
            Following::Nobody | Following::Free | Following::Held(_, None) => {}
        }
        let chosen = Chosen::of(choice)?;
        match &chosen.what {
            What::Own => drop(self.book.current().meant(&choice.layout, inventory)?),
            What::Layouts(layouts) => drop(layouts.meant(&choice.layout, inventory)?),
            What::Checkpoint(text) => drop(checkpoint::read(text, inventory)?),
        }
        kept::write(&self.folder, choice)?;
        info!("layout {} was chosen by hand", choice.layout);
        self.chosen = Some(chosen);
        Ok(self.turn())
    }

    /// Returns to the settings' layout, and discards changes that cannot be finished.
    pub fn forget(&mut self, inventory: &Inventory) -> Result<u64, ChoiceRefused> {
        kept::forget(&self.folder)?;
        if let Some(engine) = &mut self.engine {
            engine.discard(inventory)?;
        }
        info!("what was chosen by hand is forgotten");
        self.chosen = None;
        Ok(self.turn())
    }

    /// Sets the Node's choice; `unsettled` if the Node is about to change it again.
    pub fn follow(&mut self, following: Following, unsettled: bool) {
        self.unsettled = unsettled;
        if self.following == following {
            return;
        }
        if let Following::Label(Selected { layout, key }) = &following {
            info!("layout {layout} is chosen by the label {key}");
        }
        self.following = following;
        self.turn();
    }

    /// Records a choice, even if it is the same one: everything is retried.
    fn turn(&mut self) -> u64 {
        self.anew = true;
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
            self.decline();
            return None;
        }
        if let Err(error) = self.take() {
            self.complain(Reason::LayoutNotice, chain(&error));
            return None;
        }
        if !matches!(inventory.nvml, NvmlState::Ready(_)) {
            return None;
        }
        let generation = self.generation;
        if let Following::Held(owner, _) = &self.following {
            self.looked_at = generation;
            let notice =
                format!("{owner} says that it partitions this node just now: it is left to it");
            self.complain(HELD, notice);
            return None;
        }
        let (layout, targets) = self.wanted(inventory);
        let engine = self.engine.as_mut()?;
        let wanted = Wanted {
            layout: layout.as_deref().unwrap_or("(none)"),
            targets: &targets,
        };
        let round = engine.round(hardware, inventory, wanted).await;
        self.applies.round(&round);
        self.looked_at = generation;
        round.again
    }

    /// Returns the node's status.
    pub fn status(&self, inventory: &Inventory) -> Status {
        let layout = self.name();
        let mut status = match &self.engine {
            Some(engine) => engine.status(inventory, layout),
            None => Status {
                layout: layout.map(ToOwned::to_owned),
                ..Status::default()
            },
        };
        match &self.following {
            Following::Label(selected) => status.label = Some(selected.key),
            Following::Nobody | Following::Free => status.by_hand = self.chosen.is_some(),
            Following::Held(_, selected) => {
                status.label = selected.as_ref().map(|selected| selected.key);
                status.state = Some(HELD.word());
            }
            Following::Unseen => {}
        }
        if self.refused {
            status.state = Some(REFUSED.word());
        }
        if (self.unsettled || self.is_due()) && status.state.is_some() {
            status.state = Some(UNSETTLED.word());
        }
        status.layouts.clone_from(&self.layouts);
        status.asked = self.meant.as_ref().map(|(_, targets)| Arc::clone(targets));
        status.generation = self.looked_at;
        status.meaning = self.meaning.count();
        let notices = self.notice.iter().cloned().chain(status.notice);
        status.notice = notices.reduce(|one, other| format!("{one}; {other}"));
        status
    }

    /// Returns the name of the selected layout.
    fn name(&self) -> Option<&str> {
        match &self.following {
            Following::Label(selected) | Following::Held(_, Some(selected)) => {
                Some(&selected.layout)
            }
            Following::Unseen => None,
            Following::Nobody | Following::Free | Following::Held(_, None) => {
                let chosen = self.chosen.as_ref().map(|chosen| chosen.layout.as_str());
                chosen.or(self.layout.as_deref())
            }
        }
    }

    /// Returns the manual choice, unless the Node takes precedence over it.
    fn by_hand(&self) -> Option<&What> {
        match &self.following {
            Following::Nobody | Following::Free => self.chosen.as_ref().map(|chosen| &chosen.what),
            Following::Label(_) | Following::Unseen | Following::Held(..) => None,
        }
    }

    fn take(&mut self) -> Result<(), StoreError> {
        if self.engine.is_none() {
            let witness = Arc::clone(&self.witness);
            let progress = self.progress.clone();
            let settings = self.settings.clone();
            self.engine = Some(Engine::open(&self.folder, settings, witness, progress)?);
            self.chosen = self.remembered();
            self.notice = None;
            if let Some(gate) = &self.gate {
                gate.open();
            }
        }
        Ok(())
    }

    /// Reads the manual choice that was stored before this agent started.
    fn remembered(&self) -> Option<Chosen> {
        let choice = match kept::read(&self.folder) {
            Ok(choice) => choice?,
            Err(error) => {
                warn!("cannot read what was chosen by hand, and go by the settings: {error}");
                return None;
            }
        };
        match Chosen::of(&choice) {
            Ok(chosen) => Some(chosen),
            Err(error) => {
                warn!("cannot use what was chosen by hand, and go by the settings: {error}");
                None
            }
        }
    }

    /// Resolves the selected layout on this node. The second value is the problem with its file, if there is one.
    fn looked_up(
        &mut self,
        name: &str,
        inventory: &Inventory,
    ) -> Result<(Resolved, Option<String>), ChoiceRefused> {
        let current = match self.by_hand() {
            Some(What::Checkpoint(text)) => {
                let resolved = Resolved {
                    targets: checkpoint::read(text, inventory)?,
                    ..Resolved::default()
                };
                return Ok((resolved, None));
            }
            Some(What::Layouts(layouts)) => layouts.clone(),
            Some(What::Own) | None => self.book.current(),
        };
        self.layouts.clone_from(&current.hash);
        Ok((current.meant(name, inventory)?, current.notice))
    }

    /// Returns the selected layout and its targets; the targets are empty if the layout cannot be used here.
    fn wanted(&mut self, inventory: &Inventory) -> (Option<String>, Targets) {
        self.refused = false;
        let Some(name) = self.name().map(ToOwned::to_owned) else {
            // This was already logged.
            self.notice = self.book.current().notice;
            self.meant = None;
            return (None, Targets::default());
        };
        match self.looked_up(&name, inventory) {
            Ok((resolved, notice)) => {
                self.notice = notice;
                let meant = (name.clone(), Arc::new(resolved.targets.clone()));
                let anew = std::mem::take(&mut self.anew);
                self.meaning.see(anew, &name, &resolved.targets);
                if anew || self.meant.as_ref() != Some(&meant) {
                    info!("layout {name}: {} devices", resolved.targets.devices.len());
                    for warning in &resolved.warnings {
                        warn!("layout {name}: {warning}");
                    }
                    let changed = differing(self.meant.as_ref().filter(|_| !anew), &meant);
                    if let Some(engine) = &mut self.engine {
                        engine.select(&changed);
                    }
                    self.meant = Some(meant);
                }
                (Some(name), resolved.targets)
            }
            Err(error) => {
                self.refused = true;
                let notice = format!("{}. What was in force before stays so", chain(&error));
                self.complain(REFUSED, notice);
                let meant = self.meant.clone();
                meant.map_or_else(
                    || (Some(name), Targets::default()),
                    |(name, targets)| (Some(name), Targets::clone(&targets)),
                )
            }
        }
    }

    /// Logs and records a notice, once.
    fn complain(&mut self, reason: Reason, notice: String) {
        if self.notice.as_ref() != Some(&notice) {
            warn!(reason = %reason.word(), "{notice}");
            self.notice = Some(notice);
        }
    }
}
