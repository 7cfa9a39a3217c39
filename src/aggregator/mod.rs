//! The aggregator: receives the agents' streams, stores their reports, and serves them.
//!
//! ```text
//!  agents --> auth --> ingest --> store (one writer) --> Fleet (immutable, shared) --> rest, pages, events, watch, metrics
//! ```
//!
//! Readers hold an immutable [`fleet::Fleet`]. The writer creates a new one that shares everything unchanged with its
//! predecessor. A slow reader therefore delays no other task, and finds changes by comparing two fleets.

pub mod access;
pub mod audit;
pub mod auth;
pub mod availability;
mod cached_lookup;
pub mod clock;
mod cluster_nodes;
pub mod creation;
pub mod dry_run;
pub mod engine;
pub mod estimates;
pub mod fleet;
pub mod ingest;
pub mod offers;
pub mod pages;
pub mod peer;
pub mod persistent_map;
pub mod plugin_configs;
pub mod pod_types;
pub mod profiles;
pub mod query;
pub mod rest;
pub mod run;
pub mod serve;
pub mod slo;
mod stale_while_revalidate;
pub mod startup;
pub mod stats;
pub mod store;
mod task_stream;
pub mod tls;
pub mod usage;
pub mod view;
mod watch;
