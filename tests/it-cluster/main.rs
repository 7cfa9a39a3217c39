//! Integration tests that start an API server, nodes or a browser, or build images.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what went wrong by panicking, and hands its environment to the programs it starts"
)]

mod browser;
mod cluster;
mod deploy;
mod image;
mod pod_resources;
mod requests;
#[expect(dead_code, reason = "`it` needs more of it")]
#[path = "../support/mod.rs"]
mod support;
mod troubleshooting;

use support::{
    agent_stream, cdi_runtime, device_plugin, engine, fleet_api, kubelet, machine, manifests, node,
    patience, peer, process, record, row, sockets, tree,
};
