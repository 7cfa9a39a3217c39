//! The aggregator: receives the agents' streams, stores their reports, and serves them.
//!
//! ```text
//!  agents --> auth --> ingest --> store (one writer) --> Fleet (immutable, shared) --> rest, pages, events, watch, metrics
//! ```
//!
//! Readers hold an immutable [`fleet::Fleet`]. The writer creates a new one that shares everything unchanged with its
//! predecessor. A slow reader therefore delays no other task, and finds changes by comparing two fleets.

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
mod feed;
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
pub mod startup;
pub mod stats;
pub mod store;
pub mod tls;
pub mod usage;
pub mod view;
mod watch;
mod without_agent;
