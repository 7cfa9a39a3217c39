//! The aggregator: receives the agents' streams, stores their reports, and serves them.
//!
//! ```text
//!  agents --> auth --> ingest --+
//!  other clusters --> upstreams -+--> store (one writer) --> Fleet (immutable, shared) --> rest, pages, events, watch, metrics
//! ```
//!
//! `octavo_store` has the state and its read models, `octavo_access` decides who may read it, and `octavo_pages` renders
//! it.

pub mod access;
pub mod auth;
pub mod budgets;
pub mod ingest;
pub mod ledger;
pub mod opencost;
pub mod plugin_configs;
pub mod pod_types;
pub mod policies;
pub mod rest;
pub mod run;
pub mod serve;
pub mod settings;
pub mod tls;
pub mod upstreams;
mod watch;

#[cfg(test)]
#[path = "../../../tests/support/inventories/mod.rs"]
mod inventories;
