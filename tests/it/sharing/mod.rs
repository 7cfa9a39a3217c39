//! Devices allocated to pods, and their holders: the real agent on simulated machines.

mod fitness;
mod plugin;
mod plugin_faults;
mod plugin_mig;
mod plugin_start;
mod slices;
mod unheard;
