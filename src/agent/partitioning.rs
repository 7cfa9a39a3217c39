//! Gives the node the layout that is chosen for it: which one, what it means here, one round of the engine after the other.

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

/// Everything that partitions the node.
#[derive(Debug)]
pub struct Partitioning {
    folder: PathBuf,
    settings: Settings,
    witness: Arc<dyn Witness>,
    /// Where this program gives devices out, which it does only where no other agent has the node.
    gate: Option<Arc<Gate>>,
    book: Book,
    /// The layout that the settings name.
    layout: Option<String>,
    access: Access,
    /// The one that a person chose by hand, which goes before that.
    chosen: Option<Chosen>,
    /// What the Node says, which goes before both.
    following: Following,
    /// The Node says something else so often that it is waited for.
    unsettled: bool,
    /// The layout that counts means nothing here.
    refused: bool,
    /// The content of the file that it was looked up in.
    layouts: Option<String>,
    generation: u64,
    /// The last of them that a round was made for.
    looked_at: u64,
    progress: watch::Sender<Board>,
    applies: Applies,
    /// Absent while another process has the state directory.
    engine: Option<Engine>,
    /// What the engine was last told to make of the node.
    meant: Option<(String, Arc<Targets>)>,
    /// It is to be told so once more.
    anew: bool,
    /// What of that is new.
    meaning: Meaning,
    notice: Option<String>,
}

impl Partitioning {
    /// As `settings` say; the kernel's files are below `sys_root`. Nothing is changed before the first [`Self::round`].
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

    /// The same on a node where this program gives devices to pods, at `gate`.
    #[must_use]
    pub fn giving(self, gate: Arc<Gate>) -> Self {
        let witness = Arc::new(Giving::new(self.witness, Arc::clone(&gate)));
        Self {
            witness,
            gate: Some(gate),
            ..self
        }
    }

    /// Whether the state directory is ours.
    pub fn is_open(&self) -> bool {
        self.engine.is_some()
    }

    /// The socket for commands, for whoever has the state directory.
    pub fn listen(&self, usage: Option<watch::Receiver<Arc<Usage>>>) -> Option<Desk> {
        match local::listen(&self.folder, usage) {
            Ok(desk) => Some(desk),
            Err(error) => {
                warn!("commands cannot reach this agent: {error}");
                None
            }
        }
    }

    /// Whether something was chosen that no round was made for yet.
    pub fn is_due(&self) -> bool {
        self.generation != self.looked_at
    }

    /// What is counted of it.
    pub fn applies(&self) -> &Applies {
        &self.applies
    }

    /// How far the devices are that are being changed.
    pub fn progress(&self) -> watch::Receiver<Board> {
        self.progress.subscribe()
    }

    /// Takes a person's choice, which then goes before the settings' layout, here and after a restart.
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

    /// Goes back to the settings' layout, and discards changes that cannot be finished.
    pub fn forget(&mut self, inventory: &Inventory) -> Result<u64, ChoiceRefused> {
        kept::forget(&self.folder)?;
        if let Some(engine) = &mut self.engine {
            engine.discard(inventory)?;
        }
        info!("what was chosen by hand is forgotten");
        self.chosen = None;
        Ok(self.turn())
    }

    /// The Node says this now, or is `unsettled` and will soon say what counts.
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

    /// A choice was made, be it the same one: everything is tried anew.
    fn turn(&mut self) -> u64 {
        self.anew = true;
        self.generation = self.generation.saturating_add(1);
        self.generation
    }

    /// Brings the node one round nearer to what it shall have. Says when to come again at the latest, where there is a reason.
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

    /// Where the node stands.
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

    /// The layout that counts.
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

    /// What a person chose by hand, where nothing goes before it.
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

    /// What was chosen by hand before this agent started.
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

    /// What the layout that counts means on this node, and what is wrong with the file that it is in.
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

    /// The chosen layout and what it means here; nothing is asked of any device where it means nothing.
    fn wanted(&mut self, inventory: &Inventory) -> (Option<String>, Targets) {
        self.refused = false;
        let Some(name) = self.name().map(ToOwned::to_owned) else {
            // The log has it already.
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

    /// Says it once.
    fn complain(&mut self, reason: Reason, notice: String) {
        if self.notice.as_ref() != Some(&notice) {
            warn!(reason = %reason.word(), "{notice}");
            self.notice = Some(notice);
        }
    }
}
