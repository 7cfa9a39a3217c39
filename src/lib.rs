//! Octavo partitions, shares, labels and reports the accelerators of a Kubernetes fleet.
//!
//! A map of the crate, in reading order:
//!
//! - [`domain`] is what Octavo knows and decides: plain data and pure functions, no I/O of any kind. Start with
//!   [`domain::inventory`] (what a node has) and [`domain::labels`] (what it says of itself).
//! - [`files`] reads regular files within a bound.
//! - [`config`] reads arguments and environment into settings; nothing else does.
//! - [`hw`] is the hardware's edge: NVML behind one thread with a deadline on every call, the PCI bus through sysfs.
//! - [`k8s`] asks Kubernetes: which pod was given which device.
//! - [`wire`] turns domain values into JSON and messages, and back; [`proto`] is the generated half of the messages.
//! - [`book`] is a file of layouts that is read again when it was replaced; [`apply`] carries plans out, with journal and lock.
//! - [`agent`] is the node's shell: look, compile, publish, again; its uplink keeps the aggregator informed.
//! - [`aggregator`] is the fleet's shell: receives all agents, serves what it knows.
//! - [`cli`] renders domain values for a person.
//! - [`telemetry`] sets up logging.
//!
//! The programs are in `src/bin`: they parse, build the adapters, and run. Who may use whom is written in
//! `ARCHITECTURE.md` and enforced by `tests/it/tidy.rs`.

pub mod agent;
pub mod aggregator;
pub mod apply;
pub mod book;
pub mod cli;
pub mod config;
pub mod domain;
pub mod files;
pub mod hw;
pub mod k8s;
pub mod proto;
pub mod telemetry;
pub mod wire;
