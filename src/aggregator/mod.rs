//! The fleet's shell: receives the agents' streams, keeps what they say, and serves it.
//!
//! ```text
//!  agents --> auth --> ingest --> store (one writer) --> Fleet (immutable, shared) --> rest, pages, events, watch, metrics
//! ```
//!
//! Readers hold a [`fleet::Fleet`] that never changes under them; the writer makes a new one that shares all that did not
//! change. So a reader can be as slow as it likes without delaying anybody, and compares two fleets to see what happened.

pub mod access;
mod asking;
pub mod audit;
pub mod auth;
pub mod availability;
pub mod clock;
pub mod creation;
pub mod dry_run;
pub mod engine;
pub mod estimates;
pub mod fleet;
pub mod ingest;
mod kept;
pub mod offers;
pub mod pages;
pub mod peer;
pub mod plugin_configs;
pub mod pod_types;
pub mod profiles;
pub mod query;
pub mod rest;
pub mod roster;
pub mod run;
pub mod serve;
pub mod slo;
pub mod stats;
pub mod store;
pub mod tls;
pub mod usage;
pub mod view;
mod watch;
mod without_agent;
