//! Settings of device allocation to pods, and of the observation of usage.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use octavo_node::sharing::allocation::AllocationPolicy;
use octavo_node::sharing::health::IgnoredXids;
use octavo_node::sharing::injection::InjectionMethod;
use octavo_settings::Answer;
use octavo_settings::duration::{self, MaybeDuration};
use octavo_settings::kubernetes::ConfigMapName;

use super::usage;

/// Minimum interval: more frequent requests would load kubelet.
const MIN_USAGE_INTERVAL: Duration = Duration::from_secs(1);

/// Settings of device allocation to pods.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Sharing")]
pub struct SharingSettings {
    /// Who gives devices and partitions out to pods, and shares them as the layout's timeSlicing says
    #[arg(
        long = "sharing",
        value_name = "GIVER",
        env = "OCTAVO_SHARING",
        default_value = "auto"
    )]
    pub mode: SharingMode,

    /// Where kubelet and device plugins meet; for --sharing embedded
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_DEVICE_PLUGINS",
        default_value = "/var/lib/kubelet/device-plugins"
    )]
    pub device_plugins: PathBuf,

    /// How containers get what they were given; for --sharing embedded
    #[arg(
        long = "device-list",
        value_name = "WAY",
        env = "OCTAVO_DEVICE_LIST",
        value_delimiter = ',',
        default_value = "envvar"
    )]
    pub device_lists: Vec<DeviceList>,

    /// Where CDI specifications are written; for --device-list cdi
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_CDI_DIR",
        default_value = "/var/run/cdi"
    )]
    pub cdi_dir: PathBuf,

    /// Which unit a replica is given of; for --sharing embedded
    #[arg(
        long,
        value_name = "POLICY",
        env = "OCTAVO_ALLOCATION",
        default_value = "spread"
    )]
    pub allocation: Allocation,

    /// Xids that keep no device from being given out, such as 79,119, or `all`; for --sharing embedded
    ///
    /// What the device itself shows still does: it does not answer, the driver asks for a reset, its memory has errors.
    #[arg(long, value_name = "XIDS", env = "OCTAVO_IGNORE_XID")]
    pub ignore_xid: Option<IgnoredXids>,

    /// The ConfigMap that NVIDIA's device plugin reads; for --sharing hand-off
    #[arg(long, value_name = "NAMESPACE/NAME", env = "OCTAVO_PLUGIN_CONFIG_MAP")]
    pub plugin_config_map: Option<ConfigMapName>,

    /// After this time, replicas that the Node does not offer are looked into
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_SHARING_DEADLINE",
        value_parser = duration::positive,
        default_value = "3m"
    )]
    pub sharing_deadline: Duration,

    /// After this time, idle partitions and replicas of a GPU with a blocked layout are not allocated; `none` for never; for --sharing embedded
    ///
    /// Pods keep what they have. The partitions and replicas are offered again when the layout is applied or another one is chosen.
    /// A GPU that pods are evicted for (--drain) is withheld immediately.
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_WITHHOLD_AFTER",
        value_parser = duration::maybe,
        default_value = "5m"
    )]
    pub withhold_after: MaybeDuration,

    /// How long kubelet may take to bring a new key of that ConfigMap to the plugin's pod; for --sharing hand-off
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_PLUGIN_CONFIG_DELAY",
        value_parser = duration::positive,
        default_value = "2m"
    )]
    pub plugin_config_delay: Duration,

    /// Observation of usage.
    #[command(flatten)]
    pub usage: UsageSettings,
}

/// Settings of the observation of usage, and of its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Sharing")]
pub struct UsageSettings {
    /// How often it is looked who uses which device and how much of its memory; `none` for never
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_USAGE_INTERVAL",
        value_parser = duration::maybe,
        default_value = "none"
    )]
    pub usage_interval: MaybeDuration,

    /// Serve what dcgm-exporter would, under its names, beside our own metrics
    #[arg(long, env = "OCTAVO_DCGM_METRICS")]
    pub dcgm_metrics: bool,

    /// Tell pods in events of their own when they use more than their share of a device
    #[arg(long, env = "OCTAVO_POD_EVENTS")]
    pub pod_events: bool,
}

/// Component that allocates devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SharingMode {
    /// NVIDIA's plugin where it runs, else nobody
    Auto,
    /// Nobody that we know of
    Off,
    /// NVIDIA's device plugin, which is told how
    HandOff,
    /// The agent is the device plugin
    Embedded,
}

/// How containers get what they were given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum DeviceList {
    /// NVIDIA's runtime reads `NVIDIA_VISIBLE_DEVICES`
    Envvar,
    /// The container runtime reads CDI specifications
    Cdi,
    /// Kubelet names the device files
    DeviceSpecs,
}

impl From<DeviceList> for InjectionMethod {
    fn from(list: DeviceList) -> Self {
        match list {
            DeviceList::Envvar => Self::Environment,
            DeviceList::Cdi => Self::Cdi,
            DeviceList::DeviceSpecs => Self::DeviceFiles,
        }
    }
}

/// Distribution of replicas over units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Allocation {
    /// The one that has most left
    Spread,
    /// The one that has least left
    Pack,
}

impl SharingSettings {
    /// Returns how replicas are distributed over units.
    pub fn policy(&self) -> AllocationPolicy {
        match self.allocation {
            Allocation::Spread => AllocationPolicy::Spread,
            Allocation::Pack => AllocationPolicy::Pack,
        }
    }

    /// Rejects invalid combinations; `asks_kubelet` is whether kubelet's allocations can be read.
    pub(super) fn check(&self, asks_kubelet: bool) -> Result<(), Answer> {
        if self.mode == SharingMode::Embedded && !asks_kubelet {
            return Err(usage(
                "--sharing embedded needs --pod-resources: who has what is asked of kubelet",
            ));
        }
        let interval = self.usage.usage_interval;
        if interval.is_some_and(|interval| interval < MIN_USAGE_INTERVAL) {
            return Err(usage("--usage-interval: at least a second is needed"));
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

    fn read(arguments: &[&str]) -> Result<SharingSettings, Answer> {
        let program = ["octavo-agent"].iter();
        AgentSettings::from_arguments(program.chain(arguments)).map(|all| all.sharing)
    }

    #[test]
    fn sharing_and_usage_are_off_by_default() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.mode, SharingMode::Auto);
        assert_eq!(settings.usage.usage_interval, None);
        assert_eq!(settings.device_lists, [DeviceList::Envvar]);
    }

    #[test]
    fn device_lists_are_deduplicated_and_config_map_is_parsed() {
        let settings = read(&[
            "--sharing=embedded",
            "--device-list=cdi,envvar,cdi",
            "--plugin-config-map=gpu-operator/plugin-config",
        ])
        .unwrap();
        assert_eq!(settings.device_lists, [DeviceList::Envvar, DeviceList::Cdi]);
        let name = settings.plugin_config_map.unwrap();
        assert_eq!(
            (name.namespace.as_str(), name.name.as_str()),
            ("gpu-operator", "plugin-config")
        );
    }

    #[test]
    fn i12_invalid_combinations_name_the_flag() {
        for (arguments, said) in [
            (&["--usage-interval=500ms"][..], "--usage-interval"),
            (&["--dcgm-metrics"], "--usage-interval"),
            (&["--pod-events"], "--usage-interval"),
            (
                &["--ignore-xid=79,x"],
                "entry 2 of the list, \"x\", is no number",
            ),
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
            assert!(answer.contains(said), "{arguments:?}: {answer}");
        }
    }
}
