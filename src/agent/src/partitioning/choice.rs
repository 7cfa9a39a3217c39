//! Sources of a node's layout, in order of precedence: a label of its Node, a manual choice, the settings.

use octavo_engine::agent_socket::LayoutChoice;
use octavo_engine::durable::DurableError;
use octavo_engine::store::StoreError;
use octavo_files::checkpoint::CheckpointError;
use octavo_files::config_files::{InvalidLayouts, LayoutFileSnapshot, LayoutLookupError};
use octavo_node::node_object::SelectedLayout;
use thiserror::Error;

/// Layout choice of this machine's Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NodeChoice {
    /// The Node is not consulted.
    #[default]
    NotConsulted,
    /// The Node was not read yet; no change is started before it was.
    NotRead,
    /// The Node makes no choice.
    NoChoice,
    /// A label names the layout.
    Label(SelectedLayout),
    /// Another program is partitioning this node; with the layout that a label names for afterwards.
    ForeignChange(String, Option<SelectedLayout>),
}

/// The choice of each source.
#[derive(Debug)]
pub(super) struct LayoutChoices {
    settings: Option<String>,
    /// Takes precedence over the settings.
    pub(super) manual: Option<ManualChoice>,
    /// Takes precedence over both.
    pub(super) node: NodeChoice,
    /// Whether the Node's choice changes so often that the agent waits for it to settle.
    pub(super) is_node_unsettled: bool,
}

impl LayoutChoices {
    pub(super) fn new(settings: Option<String>) -> Self {
        Self { settings, manual: None, node: NodeChoice::NotConsulted, is_node_unsettled: false }
    }

    /// The layout that a label of the Node selects, even if another program partitions the node now.
    pub(super) fn label(&self) -> Option<&SelectedLayout> {
        match &self.node {
            NodeChoice::Label(selected) => Some(selected),
            NodeChoice::ForeignChange(_, selected) => selected.as_ref(),
            NodeChoice::NotConsulted | NodeChoice::NotRead | NodeChoice::NoChoice => None,
        }
    }

    /// The manual choice, unless the Node takes precedence over it.
    pub(super) fn manual(&self) -> Option<&ManualChoice> {
        match self.node {
            NodeChoice::NotConsulted | NodeChoice::NoChoice => self.manual.as_ref(),
            NodeChoice::NotRead | NodeChoice::Label(_) | NodeChoice::ForeignChange(..) => None,
        }
    }

    /// The name of the selected layout.
    pub(super) fn name(&self) -> Option<&str> {
        if self.node == NodeChoice::NotRead {
            return None;
        }
        let label = self.label().map(|selected| selected.layout.as_str());
        let manual = self.manual.as_ref().map(|manual| manual.layout.as_str());
        label.or(manual).or(self.settings.as_deref())
    }
}

/// A manually selected layout.
#[derive(Debug)]
pub(super) struct ManualChoice {
    pub(super) layout: String,
    pub(super) source: ChoiceSource,
}

/// Origin of a manually selected layout.
#[derive(Debug)]
pub(super) enum ChoiceSource {
    /// One of the agent's own layouts.
    OwnLayouts,
    /// A layout of the file that was sent with the choice.
    SentLayouts(LayoutFileSnapshot),
    /// A checkpoint.
    Checkpoint(String),
}

impl ManualChoice {
    pub(super) fn try_from_choice(choice: &LayoutChoice) -> Result<Self, InvalidLayouts> {
        let source = match (&choice.checkpoint, &choice.layouts) {
            (Some(text), _) => ChoiceSource::Checkpoint(text.clone()),
            (None, Some(text)) => ChoiceSource::SentLayouts(LayoutFileSnapshot::parse(text)?),
            (None, None) => ChoiceSource::OwnLayouts,
        };
        Ok(Self { layout: choice.layout.clone(), source })
    }
}

/// Reason for rejecting a choice.
#[derive(Debug, Error)]
pub enum ChoiceRejected {
    /// A label of the Node takes precedence.
    #[error(
        "the Node label {key}={layout} selects the layout of this node: change or remove the label first"
    )]
    Label {
        /// The label.
        key: &'static str,
        /// The layout.
        layout: String,
    },
    /// It is not known yet whether the Node names a layout.
    #[error(
        "the Node of this machine has not been read yet, and might select a layout; check that the API server is reachable"
    )]
    NodeNotRead,
    /// The file that was sent with the choice cannot be used.
    #[error(transparent)]
    Layouts(#[from] InvalidLayouts),
    /// The layout cannot be used on this node.
    #[error(transparent)]
    Layout(#[from] LayoutLookupError),
    /// The checkpoint cannot be used on this node.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The choice could not be stored.
    #[error(transparent)]
    Store(#[from] DurableError),
    /// A pending change could not be discarded.
    #[error(transparent)]
    Discard(#[from] StoreError),
}
