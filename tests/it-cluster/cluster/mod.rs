//! A real API server for tests, and tests of it.
//!
//! `hack/cluster` builds and runs it. A test uses the shared one with its own namespace and Node objects or, if it
//! stops the server or counts its requests, a fresh one. Everything ends with the process that started it.

pub(crate) mod agent;
mod api;
pub(crate) mod auth;
mod available;
mod claims;
mod demand;
mod facts;
mod followed;
mod generated;
mod kubeconfig_access;
mod kubectl;
mod migration;
mod node_pods;
pub(crate) mod nodes;
mod objects;
mod permissions;
mod plugin;
mod pod_types;
mod policies;
mod prepared_claims;
mod profiles;
mod readers;
mod real;
mod scheduled;
pub(crate) mod sharing;
mod sharing_kubelet;
mod standby;
mod supervisor;
mod validation;

pub(crate) use api::Api;
