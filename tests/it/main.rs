//! Integration tests with processes and files. Tests that need an API server, a browser or images are in `it-cluster`.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test reports errors by panicking, and passes its environment to the programs that it starts"
)]

mod agent;
mod aggregator;
mod apply;
mod cdi;
mod cli;
mod command_reference;
mod control;
mod crash;
mod demo;
mod deploy;
mod doctor;
mod driver_contract;
mod driver_gaps;
mod driver_life;
mod driver_xids;
mod estimating;
mod fixtures;
mod fleet;
mod fleet_cli;
mod fuzz;
mod golden;
mod hardware;
mod hostile;
mod hw_smoke;
mod labels;
mod layouts;
mod ledger;
mod man;
mod matching;
mod mig_parted;
mod migration;
mod missing_partition_data;
mod monitoring;
mod offers;
mod peer_gfd;
mod peer_mig_parted;
mod plan;
mod pod_devices;
mod promtool;
mod python;
mod readme;
mod recorded_stream;
mod requirements;
mod rest;
mod sharing;
mod supply_chain;
#[path = "../support/mod.rs"]
mod support;
mod sysfs;
mod tidy;
mod time_limits;
mod top;
mod troubleshooting;
mod usage;
mod workflows;

use support::{
    agent_stream, cdi_runtime, device_plugin, engine, fleet_api, kubelet, machine, manifests, node,
    peer, problem, process, record, sockets, sweep, tree,
};
