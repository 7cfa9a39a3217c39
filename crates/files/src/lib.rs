//! File formats: [`layouts`] in three dialects, price lists, the configuration of NVIDIA's device plugin, CDI
//! specifications, checkpoints and the journal. [`config_files`] reloads files when they are replaced.

pub mod cdi;
pub mod checkpoint;
pub mod config_files;
pub mod hooks;
pub mod journal;
pub mod layouts;
pub mod plugin_config;
