//! Settings of the configuration of NVIDIA's device plugin that the aggregator writes.

use std::path::PathBuf;

use crate::kubernetes::ConfigMapName;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sharing")]
pub(super) struct SharingArgs {
    /// The ConfigMap that NVIDIA's device plugin reads, which is written as agents with --sharing hand-off ask for it
    ///
    /// Keys that begin with octavo- are written there, and others are left alone.
    #[arg(long, value_name = "NAMESPACE/NAME", env = "OCTAVO_PLUGIN_CONFIG_MAP")]
    plugin_config_map: Option<ConfigMapName>,
}

/// The configuration of NVIDIA's device plugin, and its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginConfigSettings {
    /// The `ConfigMap`.
    pub config_map: ConfigMapName,
    /// Kubeconfig of its cluster; `None` for the one of this pod.
    pub kubeconfig: Option<PathBuf>,
}

impl SharingArgs {
    /// Resolves the settings; `None` if nothing is to be written. `kubeconfig` selects the cluster.
    pub(super) fn resolve(self, kubeconfig: Option<PathBuf>) -> Option<PluginConfigSettings> {
        self.plugin_config_map
            .map(|config_map| PluginConfigSettings {
                config_map,
                kubeconfig,
            })
    }
}
