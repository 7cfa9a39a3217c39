//! Machines as their `/sys` shows them: the shipped programs on trees of files.

mod amd;
pub(crate) mod amd_host;
mod crowds;
mod faults;
mod machines;
mod naming;
mod neuron;
mod neuron_fleet;
pub(crate) mod neuron_host;
mod sweep;
mod unprivileged;
