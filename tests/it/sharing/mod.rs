//! Devices allocated to pods, and their holders: the real agent on simulated machines.

mod device_health;
mod kubelet_restarts;
mod plugin;
mod plugin_faults;
mod plugin_mig;
mod plugin_start;
mod slices;
