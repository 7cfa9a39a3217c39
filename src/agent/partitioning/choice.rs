//! Sources of a node's layout, in order of precedence: a label of its Node, a manual choice, the settings.

use thiserror::Error;

use crate::apply::durable::DurableError;
use crate::apply::store::StoreError;
use crate::book::{BookError, ChoiceError, Current};
use crate::domain::node::Selected;
use crate::wire::checkpoint::CheckpointError;
use crate::wire::local::Choice;

/// Layout choice of this machine's Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Following {
    /// The Node is not consulted.
    #[default]
    Nobody,
    /// The Node was not read yet; no change is started before it was.
    Unseen,
    /// The Node makes no choice.
    Free,
    /// A label names the layout.
    Label(Selected),
    /// Another program is partitioning this node; with the layout that a label names for afterwards.
    Held(String, Option<Selected>),
}

/// A manually selected layout.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) layout: String,
    pub(super) what: What,
}

/// Origin of a manually selected layout.
#[derive(Debug)]
pub(super) enum What {
    /// One of the agent's own layouts.
    Own,
    /// A layout of the file that was sent with the choice.
    Layouts(Current),
    /// A checkpoint.
    Checkpoint(String),
}

impl Chosen {
    pub(super) fn of(choice: &Choice) -> Result<Self, BookError> {
        let what = match (&choice.checkpoint, &choice.layouts) {
            (Some(text), _) => What::Checkpoint(text.clone()),
            (None, Some(text)) => What::Layouts(Current::of(text)?),
            (None, None) => What::Own,
        };
        Ok(Self {
            layout: choice.layout.clone(),
            what,
        })
    }
}

/// Reason for rejecting a choice.
#[derive(Debug, Error)]
pub enum ChoiceRefused {
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
    Unseen,
    /// The file that was sent with the choice cannot be used.
    #[error(transparent)]
    Layouts(#[from] BookError),
    /// The layout cannot be used on this node.
    #[error(transparent)]
    Layout(#[from] ChoiceError),
    /// The checkpoint cannot be used on this node.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The choice could not be stored.
    #[error(transparent)]
    Keep(#[from] DurableError),
    /// A pending change could not be discarded.
    #[error(transparent)]
    Discard(#[from] StoreError),
}
