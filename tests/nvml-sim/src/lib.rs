//! A stateful fake of NVIDIA's management library with the real C ABI.
//!
//! [`model`] is the hardware and the driver as data, [`scenario`] describes a machine, [`board`] contains the boards,
//! [`store`] stores the machine in a directory, [`fault`] injects faults, and `abi` is the C interface. The README
//! explains how to test a program with it.

mod abi;
pub mod board;
pub mod elf;
pub mod fault;
pub mod latency;
pub mod location;
pub mod model;
pub mod scenario;
pub mod store;
pub mod sysfs;
pub mod yaml;
