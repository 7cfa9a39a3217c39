//! A real API server for tests, and tests of that.
//!
//! `hack/cluster` builds and runs it. A test takes the one that all share, with a namespace and Node objects of its own, or, if it
//! stops the server or counts its requests, a fresh one. Whatever was started ends with the process that started it.

pub(crate) mod agent;
mod api;
pub(crate) mod auth;
mod available;
mod facts;
mod followed;
mod kubeconfig_access;
mod kubectl;
pub(crate) mod nodes;
mod objects;
mod permissions;
mod plugin;
mod pod_types;
mod profiles;
mod readers;
mod real;
mod scheduled;
pub(crate) mod sharing;
mod sharing_kubelet;
mod supervisor;

pub(crate) use api::Api;
