//! The aggregator's state and its read models.
//!
//! ```text
//!  status stream --> store (one writer) --> Fleet (immutable, shared) --> view, query, availability, usage, profiles
//! ```
//!
//! Readers hold an immutable [`fleet::Fleet`]. The writer creates a new one that shares everything unchanged with its
//! predecessor. A slow reader therefore delays no other task, and finds changes by comparing two fleets.

pub mod availability;
pub mod clock;
pub mod cluster_nodes;
pub mod demand;
pub mod dry_run;
pub mod estimate_engine;
pub mod estimates;
pub mod fleet;
pub mod history;
pub mod ledger;
pub mod offers;
mod page_token;
pub mod peer;
pub mod persistent_map;
pub mod policies;
pub mod profiles;
pub mod query;
pub mod search;
pub mod slo;
pub mod stale_while_revalidate;
pub mod startup;
pub mod stats;
pub mod store;
pub mod task_stream;
pub mod usage;
pub mod view;
