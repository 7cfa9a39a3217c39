//! Watches this machine's Node and keeps it in its desired state.
//!
//! A [`Keeper`] runs as a separate task for the owner of its [`Link`]. It watches the Node, compares it with the
//! desired state ([`crate::domain::node::decide`]) and writes the differences. It writes nothing while the Node does
//! not exist, and never makes the hardware code wait for an API server.

mod eyes;
mod hands;
mod keeper;
mod patience;
mod read;
mod write;

pub use keeper::{Keeper, Link, Report};
pub(super) use patience::{LONGEST, Patience};
pub(super) use write::patience;
