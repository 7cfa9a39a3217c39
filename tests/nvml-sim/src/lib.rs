//! A stateful fake of NVIDIA's management library, behind the real C ABI.
//!
//! [`model`] is the hardware and the driver as data, [`scenario`] describes a machine, [`board`] knows the boards,
//! [`store`] keeps the machine in a directory, [`fault`] breaks it, and `abi` shows it to C.
//! The README says how to test a program with it.

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
