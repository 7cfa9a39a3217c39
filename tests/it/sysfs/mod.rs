//! Machines as their `/sys` shows them: the shipped programs on trees of files.

mod amd;
mod neuron;
mod neuron_host;
mod told;
pub(crate) mod tree;
