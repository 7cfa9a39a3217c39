//! The one integration binary: linking it once is cheaper than linking a dozen.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what went wrong by panicking, and hands its environment to the programs it starts"
)]

mod agent;
mod aggregator;
mod apply;
mod browser;
mod cdi;
mod cli;
mod cluster;
mod control;
mod crash;
mod demo;
mod deploy;
mod doctor;
mod driver_contract;
mod driver_gaps;
mod driver_life;
mod driver_xids;
mod engine;
mod estimating;
mod fleet;
mod fleet_cli;
mod golden;
mod hardware;
mod hw_smoke;
mod image;
mod labels;
mod layouts;
mod machine;
mod matching;
mod mig_parted;
mod monitoring;
mod offers;
mod partitions_untold;
mod patience;
mod peer;
mod peer_gfd;
mod peer_mig_parted;
mod plan;
mod process;
mod promtool;
mod record;
mod requirements;
mod rest;
mod sharing;
mod sockets;
mod supply_chain;
mod sysfs;
mod tidy;
mod top;
mod troubleshooting;
mod usage;
