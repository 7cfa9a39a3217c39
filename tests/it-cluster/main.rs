//! Integration tests that start an API server, nodes or a browser, or build images.
//!
//! They start in alphabetical order. The tests of [`cluster`] with exclusive nodes take longest and run one after the
//! other, so the tests with a browser, which can run beside them, are in a later module.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test reports errors by panicking, and passes its environment to the programs that it starts"
)]

mod cluster;
mod deploy;
mod image;
mod pages;
mod pod_resources;
mod release;
mod requests;
#[expect(dead_code, reason = "the tests in `it` use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod troubleshooting;

use support::{
    agent_stream, cdi_runtime, device_plugin, engine, fleet_api, kubelet, machine, manifests, node,
    peer, problem, process, record, sockets, sweep, time_limits, tree,
};
