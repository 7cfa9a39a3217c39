//! Sources of a node's layout, in order of precedence: a label of its Node, a manual choice, the settings.

use octavo_documents::agent_socket::LayoutChoice;
use octavo_engine::durable::DurableError;
use octavo_engine::store::StoreError;
use octavo_files::checkpoint::CheckpointError;
use octavo_files::config_files::{LayoutFileError, LayoutFileSnapshot, LayoutLookupError};
use octavo_node::node::SelectedLayout;
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

/// A manually selected layout.
#[derive(Debug)]
pub(super) struct ManualChoice {
    pub(super) layout: String,
    pub(super) what: ChoiceSource,
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
    pub(super) fn try_from_choice(choice: &LayoutChoice) -> Result<Self, LayoutFileError> {
        let what = match (&choice.checkpoint, &choice.layouts) {
            (Some(text), _) => ChoiceSource::Checkpoint(text.clone()),
            (None, Some(text)) => ChoiceSource::SentLayouts(LayoutFileSnapshot::parse(text)?),
            (None, None) => ChoiceSource::OwnLayouts,
        };
        Ok(Self {
            layout: choice.layout.clone(),
            what,
        })
    }
}

/// Reason for rejecting a choice.
#[derive(Debug, Error)]
pub enum ChoiceRejected {
    /// A label of the Node takes precedence.
    #[error(
        "this node's layout is chosen by the label {key}={layout} of its Node: change that, or remove it first"
    )]
    Label {
        /// The label.
        key: &'static str,
        /// The layout.
        layout: String,
    },
    /// It is not known yet whether the Node names a layout.
    #[error(
        "the Node of this machine was not seen yet, and may name a layout: is the API server away?"
    )]
    NodeNotRead,
    /// The file that was sent with the choice cannot be used.
    #[error(transparent)]
    Layouts(#[from] LayoutFileError),
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
