//! This machine's Node: followed, and kept as it shall be.
//!
//! A [`Keeper`] runs beside whoever has its [`Link`]. It watches the Node, holds it against what is wanted
//! ([`crate::domain::node::decide`]) and writes the difference; it writes nothing while there is none, and it never makes whoever
//! looks at hardware wait for an API server.

mod eyes;
mod hands;
mod keeper;
mod patience;
mod read;
mod write;

pub use keeper::{Keeper, Link, Report};
pub(super) use patience::{LONGEST, Patience};
pub(super) use write::patience;
