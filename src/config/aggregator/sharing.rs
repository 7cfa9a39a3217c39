//! Whose configuration of NVIDIA's device plugin the aggregator writes.

use std::path::PathBuf;

use crate::config::kubernetes::ConfigMapName;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sharing")]
pub(super) struct SharingArgs {
    /// The ConfigMap that NVIDIA's device plugin reads, which is written as agents with --sharing hand-off ask for it
    ///
    /// Keys that begin with octavo- are written there, and others are left alone.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        env = "OCTAVO_PLUGIN_CONFIG_MAP",
        hide_env_values = true
    )]
    plugin_config_map: Option<ConfigMapName>,
}

/// Whose configuration of NVIDIA's device plugin is written, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginConfigs {
    /// The `ConfigMap`.
    pub config_map: ConfigMapName,
    /// The cluster that has it; that of this pod where there is none.
    pub kubeconfig: Option<PathBuf>,
}

impl SharingArgs {
    /// `kubeconfig` is the cluster that is asked; `None` where nothing is to be written.
    pub(super) fn resolve(self, kubeconfig: Option<PathBuf>) -> Option<PluginConfigs> {
        self.plugin_config_map.map(|config_map| PluginConfigs {
            config_map,
            kubeconfig,
        })
    }
}
