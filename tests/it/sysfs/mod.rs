//! Machines as shown by `/sys`: the shipped programs on trees of files.

mod amd;
pub(crate) mod amd_host;
mod faults;
mod machines;
mod many_devices;
mod naming;
mod neuron;
mod neuron_fleet;
pub(crate) mod neuron_host;
mod sweep;
mod unprivileged;
