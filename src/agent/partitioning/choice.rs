//! Who chooses a node's layout: a label of its Node, a person by hand, the settings; the first of them counts.

use thiserror::Error;

use crate::apply::durable::DurableError;
use crate::apply::store::StoreError;
use crate::book::{BookError, ChoiceError, Current};
use crate::domain::node::Selected;
use crate::wire::checkpoint::CheckpointError;
use crate::wire::local::Choice;

/// What the Node of this machine says of its layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Following {
    /// Nobody asks it.
    #[default]
    Nobody,
    /// It was not seen yet: nothing is begun before it was.
    Unseen,
    /// It says nothing.
    Free,
    /// A label names the layout.
    Label(Selected),
    /// Another program says that it is partitioning this node just now; and the layout that a label names for afterwards.
    Held(String, Option<Selected>),
}

/// A layout that a person chose by hand.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) layout: String,
    pub(super) what: What,
}

/// What a person's choice is among.
#[derive(Debug)]
pub(super) enum What {
    /// The agent's own layouts.
    Own,
    /// The file that came with it.
    Layouts(Current),
    /// Nothing else: a checkpoint.
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

/// Why a choice is not taken.
#[derive(Debug, Error)]
pub enum ChoiceRefused {
    /// A label of the Node goes before it.
    #[error(
        "this node's layout is chosen by the label {key}={layout} of its Node: change that, or remove it first"
    )]
    Label {
        /// The label.
        key: &'static str,
        /// The layout.
        layout: String,
    },
    /// Nobody knows yet whether the Node names a layout.
    #[error(
        "the Node of this machine was not seen yet, and may name a layout: is the API server away?"
    )]
    Unseen,
    /// The file that came with it cannot be used.
    #[error(transparent)]
    Layouts(#[from] BookError),
    /// The layout means nothing on this node.
    #[error(transparent)]
    Layout(#[from] ChoiceError),
    /// The checkpoint means nothing on this node.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// It could not be kept.
    #[error(transparent)]
    Keep(#[from] DurableError),
    /// What could not be finished could not be discarded.
    #[error(transparent)]
    Discard(#[from] StoreError),
}
