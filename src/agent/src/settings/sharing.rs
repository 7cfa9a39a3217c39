//! Settings of device allocation to pods, and of the observation of usage.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use octavo_node::sharing::allocation::AllocationPolicy;
use octavo_node::sharing::health::IgnoredXids;
use octavo_node::sharing::injection::InjectionMethod;
use octavo_settings::EarlyExit;
use octavo_settings::duration::{self, MaybeDuration};
use octavo_settings::kubernetes::ConfigMapName;
use octavo_toolkit::choice::choice;

use super::usage;

/// Minimum interval: more frequent requests would load kubelet.
const MIN_USAGE_INTERVAL: Duration = Duration::from_secs(1);

/// Settings of device allocation to pods.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Sharing")]
pub struct SharingSettings {
    /// Device plugin that allocates devices and partitions to pods, and applies the layout's timeSlicing
    #[arg(long = "sharing", value_name = "MODE", env = "OCTAVO_SHARING", default_value = "auto")]
    pub mode: DeviceProvider,

    /// Directory of the kubelet's device plugin sockets; for --sharing embedded
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_DEVICE_PLUGINS",
        default_value = "/var/lib/kubelet/device-plugins"
    )]
    pub device_plugins: PathBuf,

    /// Method to pass allocated devices to containers; for --sharing embedded
    #[arg(
        long = "device-list",
        value_name = "METHOD",
        env = "OCTAVO_DEVICE_LIST",
        value_delimiter = ',',
        default_value = "envvar",
        value_parser = choice(&[
            ("envvar", "`NVIDIA_VISIBLE_DEVICES`, read by NVIDIA's container runtime", InjectionMethod::Environment),
            ("cdi", "CDI specifications, read by the container runtime", InjectionMethod::Cdi),
            ("device-specs", "Device files, passed by the kubelet", InjectionMethod::DeviceFiles),
        ])
    )]
    pub device_lists: Vec<InjectionMethod>,

    /// Directory for CDI specifications; for --device-list cdi
    #[arg(long, value_name = "DIR", env = "OCTAVO_CDI_DIR", default_value = "/var/run/cdi")]
    pub cdi_dir: PathBuf,

    /// Policy to choose the device or partition of a replica; for --sharing embedded
    #[arg(
        long,
        value_name = "POLICY",
        env = "OCTAVO_ALLOCATION",
        default_value = "spread",
        value_parser = choice(&[
            ("spread", "The one with the most free replicas", AllocationPolicy::Spread),
            ("pack", "The one with the fewest free replicas", AllocationPolicy::Pack),
        ])
    )]
    pub allocation: AllocationPolicy,

    /// Xids to ignore in health checks, such as 79,119, or `all`; for --sharing embedded
    ///
    /// Problems that the device itself reports still count: no response, a reset required by the driver, memory
    /// errors.
    #[arg(long, value_name = "XIDS", env = "OCTAVO_IGNORE_XID")]
    pub ignore_xid: Option<IgnoredXids>,

    /// ConfigMap that NVIDIA's device plugin reads; for --sharing hand-off
    #[arg(long, value_name = "NAMESPACE/NAME", env = "OCTAVO_PLUGIN_CONFIG_MAP")]
    pub plugin_config_map: Option<ConfigMapName>,

    /// Time after which missing replicas of the Node are diagnosed
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_SHARING_DEADLINE",
        value_parser = duration::positive,
        default_value = "3m"
    )]
    pub sharing_deadline: Duration,

    /// Time after which idle partitions and replicas of a GPU with a blocked layout are no longer allocated; `none`
    /// to always allocate; for --sharing embedded
    ///
    /// Existing allocations are retained. The partitions and replicas are offered again when the layout is applied or
    /// another one is selected. With --drain, a GPU is withheld as soon as its pods are evicted.
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_WITHHOLD_AFTER",
        value_parser = duration::maybe,
        default_value = "5m"
    )]
    pub withhold_after: MaybeDuration,

    /// Maximum time for the kubelet to deliver a new ConfigMap key to the plugin's pod; for --sharing hand-off
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_PLUGIN_CONFIG_DELAY",
        value_parser = duration::positive,
        default_value = "2m"
    )]
    pub plugin_config_delay: Duration,

    /// Offer the GPUs that no layout covers to Dynamic Resource Allocation (experimental)
    ///
    /// The driver is gpu.octavo.dev. With MIG mode on, a GPU offers every possible partition; with MIG mode off, it is one
    /// device. A layout rule with `claims: dra` does not cover its GPUs. Excludes --sharing embedded and hand-off.
    #[arg(long, env = "OCTAVO_DRA", conflicts_with = "oneshot")]
    pub dra: bool,

    /// Observation of usage.
    #[command(flatten)]
    pub usage: UsageSettings,
}

/// Settings of the observation of usage, and of its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Sharing")]
pub struct UsageSettings {
    /// Interval between measurements of usage by pod and of used memory; `none` to disable
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_USAGE_INTERVAL",
        value_parser = duration::maybe,
        default_value = "none"
    )]
    pub usage_interval: MaybeDuration,

    /// Also serve the metrics of dcgm-exporter, under the same names
    #[arg(long, env = "OCTAVO_DCGM_METRICS")]
    pub dcgm_metrics: bool,

    /// Emit an event on a pod that exceeds its share of a device
    #[arg(long, env = "OCTAVO_POD_EVENTS")]
    pub pod_events: bool,
}

/// Component that allocates devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeviceProvider {
    /// NVIDIA's device plugin if it runs on the node, otherwise none
    Auto,
    /// Device plugins are not managed by the agent
    Off,
    /// NVIDIA's device plugin, configured by the agent
    HandOff,
    /// The agent's built-in device plugin
    Embedded,
}

impl SharingSettings {
    /// Rejects invalid combinations; `asks_kubelet` is whether kubelet's allocations can be read.
    pub(super) fn check(&self, asks_kubelet: bool) -> Result<(), EarlyExit> {
        if self.mode == DeviceProvider::Embedded && !asks_kubelet {
            return Err(usage(
                "--sharing embedded needs --pod-resources, to read allocations from the kubelet",
            ));
        }
        if self.dra && matches!(self.mode, DeviceProvider::Embedded | DeviceProvider::HandOff) {
            return Err(usage(
                "--dra excludes --sharing embedded and hand-off: a GPU must not be allocated by two drivers",
            ));
        }
        let interval = self.usage.usage_interval;
        if interval.is_some_and(|interval| interval < MIN_USAGE_INTERVAL) {
            return Err(usage("--usage-interval must be at least 1s"));
        }
        if interval.is_none() && self.usage.dcgm_metrics {
            return Err(usage("--dcgm-metrics needs --usage-interval"));
        }
        if interval.is_none() && self.usage.pod_events {
            return Err(usage("--pod-events needs --usage-interval"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::AgentSettings;

    fn read(arguments: &[&str]) -> Result<SharingSettings, EarlyExit> {
        let program = ["octavo-agent"].iter();
        AgentSettings::from_arguments(program.chain(arguments)).map(|all| all.sharing)
    }

    #[test]
    fn dra_excludes_device_plugins_and_needs_a_running_agent() {
        let dra = read(&["--dra", "--node-name=n"]).unwrap();
        assert_eq!((dra.dra, dra.mode), (true, DeviceProvider::Off));
        assert!(!read(&[]).unwrap().dra);
        for other in ["--sharing=embedded", "--sharing=hand-off", "--oneshot"] {
            assert!(read(&["--dra", "--node-name=n", other]).is_err(), "{other}");
        }
    }

    #[test]
    fn sharing_and_usage_are_off_by_default() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.mode, DeviceProvider::Auto);
        assert_eq!(settings.usage.usage_interval, None);
        assert_eq!(settings.device_lists, [InjectionMethod::Environment]);
    }

    #[test]
    fn device_lists_are_deduplicated_and_config_map_is_parsed() {
        let settings = read(&[
            "--sharing=embedded",
            "--device-list=cdi,envvar,cdi",
            "--plugin-config-map=gpu-operator/plugin-config",
        ])
        .unwrap();
        assert_eq!(settings.device_lists, [InjectionMethod::Environment, InjectionMethod::Cdi]);
        let name = settings.plugin_config_map.unwrap();
        assert_eq!(
            (name.namespace.as_str(), name.name.as_str()),
            ("gpu-operator", "plugin-config")
        );
    }

    #[test]
    fn i12_invalid_combinations_name_the_flag() {
        for (arguments, reason) in [
            (&["--usage-interval=500ms"][..], "--usage-interval"),
            (&["--dcgm-metrics"], "--usage-interval"),
            (&["--pod-events"], "--usage-interval"),
            (&["--ignore-xid=79,x"], "entry 2 of the list, \"x\", is not an Xid number"),
            (&["--ignore-xid=79,all"], "entry 2 of the list is `all`"),
            (&["--plugin-config-map=a"], "a namespace and a name"),
            (&["--plugin-config-map=a/b/c"], "a namespace and a name"),
            (&["--sharing=mps"], "--sharing"),
            (
                &["--sharing=embedded", "--pod-resources=none"],
                "--sharing embedded needs --pod-resources",
            ),
        ] {
            let answer = read(arguments).unwrap_err().to_string();
            assert!(answer.contains(reason), "{arguments:?}: {answer}");
        }
    }
}
