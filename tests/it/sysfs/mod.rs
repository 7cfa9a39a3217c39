//! Machines as their `/sys` shows them: the shipped programs on trees of files.

mod amd;
mod naming;
mod neuron;
mod neuron_host;
pub(crate) mod tree;
