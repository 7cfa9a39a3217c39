//! Octavo partitions, time-slices, labels and reports the accelerators of a Kubernetes fleet.
//!
//! The modules, in reading order:
//!
//! - [`domain`] holds the data model and the decisions: plain data and pure functions without I/O. Start with
//!   [`domain::inventory`] (the accelerators of a node) and [`domain::labels`] (the node labels).
//! - [`files`] reads regular files up to a size limit.
//! - [`config`] parses arguments and environment variables into settings. No other module reads them.
//! - [`hw`] accesses the hardware: NVML on one thread with a deadline for every call, and the PCI bus through sysfs.
//! - [`k8s`] talks to Kubernetes, for example to find out which pod a device is allocated to.
//! - [`wire`] converts domain values to and from JSON and Protobuf; [`proto`] contains the generated Protobuf code.
//! - [`config_files`] loads files of layouts and reloads them when they are replaced; [`apply`] executes plans, with a journal
//!   and a lock.
//! - [`agent`] is the node agent: it scans, reconciles and publishes in a loop, and its uplink reports to the
//!   aggregator.
//! - [`aggregator`] is the fleet service: it receives the status of all agents and serves it over HTTP.
//! - [`cli`] renders domain values for the terminal.
//! - [`telemetry`] sets up logging.
//!
//! The programs are in `src/bin`: they parse settings, create the adapters and run. The allowed dependencies between
//! modules are listed in `ARCHITECTURE.md` and enforced by `tests/it/tidy.rs`.

pub mod agent;
pub mod aggregator;
pub mod apply;
pub mod cli;
pub mod config;
pub mod config_files;
pub mod domain;
pub mod files;
pub mod hw;
pub mod k8s;
pub mod proto;
pub mod telemetry;
pub mod wire;
