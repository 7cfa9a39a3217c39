//! Settings of device allocation to pods, and of the observation of usage.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{CommandFactory, ValueEnum};
use octavo_node::sharing::allocation::AllocationPolicy;
use octavo_node::sharing::health::IgnoredXids;
use octavo_node::sharing::injection::InjectionMethod;
use octavo_settings::Answer;
use octavo_settings::duration;
use octavo_settings::kubernetes::ConfigMapName;

/// Minimum interval: more frequent requests would load kubelet.
const MIN_USAGE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sharing")]
pub(super) struct SharingArgs {
    /// Who gives devices and partitions out to pods, and shares them as the layout's timeSlicing says
    #[arg(
        long,
        value_name = "GIVER",
        env = "OCTAVO_SHARING",
        default_value = "auto"
    )]
    sharing: SharingArg,

    /// Where kubelet and device plugins meet; for --sharing embedded
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_DEVICE_PLUGINS",
        default_value = "/var/lib/kubelet/device-plugins"
    )]
    device_plugins: PathBuf,

    /// How containers get what they were given; for --sharing embedded
    #[arg(
        long,
        value_name = "WAY",
        env = "OCTAVO_DEVICE_LIST",
        value_delimiter = ',',
        default_value = "envvar"
    )]
    device_list: Vec<DeviceList>,

    /// Where CDI specifications are written; for --device-list cdi
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_CDI_DIR",
        default_value = "/var/run/cdi"
    )]
    cdi_dir: PathBuf,

    /// Which unit a replica is given of; for --sharing embedded
    #[arg(
        long,
        value_name = "POLICY",
        env = "OCTAVO_ALLOCATION",
        default_value = "spread"
    )]
    allocation: AllocationArg,

    /// Xids that keep no device from being given out, such as 79,119, or `all`; for --sharing embedded
    ///
    /// What the device itself shows still does: it does not answer, the driver asks for a reset, its memory has errors.
    #[arg(long, value_name = "XIDS", env = "OCTAVO_IGNORE_XID")]
    ignore_xid: Option<IgnoredXids>,

    /// The ConfigMap that NVIDIA's device plugin reads; for --sharing hand-off
    #[arg(long, value_name = "NAMESPACE/NAME", env = "OCTAVO_PLUGIN_CONFIG_MAP")]
    plugin_config_map: Option<ConfigMapName>,

    /// After this time, replicas that the Node does not offer are looked into
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_SHARING_DEADLINE",
        value_parser = duration::positive,
        default_value = "3m"
    )]
    sharing_deadline: Duration,

    /// After this time, idle partitions and replicas of a GPU with a blocked layout are not allocated; `none` for never; for --sharing embedded
    ///
    /// Pods keep what they have. The partitions and replicas are offered again when the layout is applied or another one is chosen.
    /// A GPU that pods are evicted for (--drain) is withheld immediately.
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_WITHHOLD_AFTER",
        value_parser = optional,
        default_value = "5m"
    )]
    withhold_after: OptionalDuration,

    /// How long kubelet may take to bring a new key of that ConfigMap to the plugin's pod; for --sharing hand-off
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_PLUGIN_CONFIG_DELAY",
        value_parser = duration::positive,
        default_value = "2m"
    )]
    plugin_config_delay: Duration,

    /// How often it is looked who uses which device and how much of its memory; `none` for never
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_USAGE_INTERVAL",
        value_parser = optional,
        default_value = "none"
    )]
    usage_interval: OptionalDuration,

    /// Serve what dcgm-exporter would, under its names, beside our own metrics
    #[arg(long, env = "OCTAVO_DCGM_METRICS")]
    dcgm_metrics: bool,

    /// Tell pods in events of their own when they use more than their share of a device
    #[arg(long, env = "OCTAVO_POD_EVENTS")]
    pod_events: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SharingArg {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AllocationArg {
    /// The one that has most left
    Spread,
    /// The one that has least left
    Pack,
}

/// Component that allocates devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharingMode {
    /// NVIDIA's plugin if it runs, otherwise none.
    Auto,
    /// None that is known.
    Off,
    /// NVIDIA's device plugin.
    HandOff,
    /// The agent.
    Embedded,
}

/// A duration, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OptionalDuration(Option<Duration>);

/// Settings of device allocation to pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharingSettings {
    giver: SharingMode,
    device_plugins: PathBuf,
    device_lists: Vec<DeviceList>,
    cdi_dir: PathBuf,
    policy: AllocationPolicy,
    ignored_xids: IgnoredXids,
    plugin_config_map: Option<ConfigMapName>,
    deadline: Duration,
    delay: Duration,
    withhold_after: Option<Duration>,
    usage: UsageSettings,
}

/// Settings of the observation of usage, and of its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageSettings {
    interval: Option<Duration>,
    dcgm: bool,
    pod_events: bool,
}

impl SharingSettings {
    /// Returns the component that allocates devices.
    pub fn mode(&self) -> SharingMode {
        self.giver
    }

    /// Returns the directory in which kubelet and device plugins have their sockets.
    pub fn device_plugins(&self) -> &Path {
        &self.device_plugins
    }

    /// Returns the ways to inject devices into containers; at least one.
    pub fn device_lists(&self) -> &[DeviceList] {
        &self.device_lists
    }

    /// Returns the directory in which CDI specifications are written.
    pub fn cdi_dir(&self) -> &Path {
        &self.cdi_dir
    }

    /// Returns how replicas are distributed over units.
    pub fn policy(&self) -> AllocationPolicy {
        self.policy
    }

    /// Returns the Xids that are ignored in a device's health.
    pub fn ignored_xids(&self) -> &IgnoredXids {
        &self.ignored_xids
    }

    /// Returns the `ConfigMap` that NVIDIA's plugin reads.
    pub fn plugin_config_map(&self) -> Option<&ConfigMapName> {
        self.plugin_config_map.as_ref()
    }

    /// Returns the time after which replicas that the Node does not offer are reported as a problem.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Returns the maximum time for kubelet to propagate a new key of the `ConfigMap` to the plugin's pod.
    pub fn plugin_config_delay(&self) -> Duration {
        self.delay
    }

    /// Returns the time after which idle partitions and replicas of a GPU with a blocked layout are not allocated;
    /// `None` for never.
    pub fn withhold_after(&self) -> Option<Duration> {
        self.withhold_after
    }

    /// Returns the settings of the observation of usage.
    pub fn usage(&self) -> UsageSettings {
        self.usage
    }
}

impl UsageSettings {
    /// Returns the interval of scans; `None` for never.
    pub fn interval(self) -> Option<Duration> {
        self.interval
    }

    /// Returns whether metrics are also served with dcgm-exporter's names.
    pub fn dcgm(self) -> bool {
        self.dcgm
    }

    /// Returns whether events on pods are created.
    pub fn pod_events(self) -> bool {
        self.pod_events
    }
}

impl SharingArgs {
    /// Resolves the settings; `asks_kubelet` is whether kubelet's allocations can be read.
    pub(super) fn resolve(self, asks_kubelet: bool) -> Result<SharingSettings, Answer> {
        if self.sharing == SharingArg::Embedded && !asks_kubelet {
            return Err(usage(
                "--sharing embedded needs --pod-resources: who has what is asked of kubelet",
            ));
        }
        let OptionalDuration(interval) = self.usage_interval;
        if interval.is_some_and(|interval| interval < MIN_USAGE_INTERVAL) {
            return Err(usage("--usage-interval: at least a second is needed"));
        }
        if interval.is_none() && self.dcgm_metrics {
            return Err(usage("--dcgm-metrics needs --usage-interval"));
        }
        if interval.is_none() && self.pod_events {
            return Err(usage("--pod-events needs --usage-interval"));
        }
        let mut device_lists = self.device_list;
        device_lists.sort_unstable();
        device_lists.dedup();
        Ok(SharingSettings {
            giver: match self.sharing {
                SharingArg::Auto => SharingMode::Auto,
                SharingArg::Off => SharingMode::Off,
                SharingArg::HandOff => SharingMode::HandOff,
                SharingArg::Embedded => SharingMode::Embedded,
            },
            device_plugins: self.device_plugins,
            device_lists,
            cdi_dir: self.cdi_dir,
            policy: match self.allocation {
                AllocationArg::Spread => AllocationPolicy::Spread,
                AllocationArg::Pack => AllocationPolicy::Pack,
            },
            ignored_xids: self.ignore_xid.unwrap_or_default(),
            plugin_config_map: self.plugin_config_map,
            deadline: self.sharing_deadline,
            delay: self.plugin_config_delay,
            withhold_after: self.withhold_after.0,
            usage: UsageSettings {
                interval,
                dcgm: self.dcgm_metrics,
                pod_events: self.pod_events,
            },
        })
    }
}

fn optional(text: &str) -> Result<OptionalDuration, duration::DurationError> {
    if text == "none" {
        return Ok(OptionalDuration(None));
    }
    duration::positive(text).map(|duration| OptionalDuration(Some(duration)))
}

fn usage(message: &str) -> Answer {
    Answer::usage(&mut super::AgentArgs::command(), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::AgentSettings;

    fn read(arguments: &[&str]) -> Result<SharingSettings, Answer> {
        let program = ["octavo-agent"].iter();
        AgentSettings::from_arguments(program.chain(arguments)).map(|all| all.sharing().clone())
    }

    #[test]
    fn sharing_and_usage_are_off_by_default() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.mode(), SharingMode::Auto);
        assert_eq!(settings.usage().interval(), None);
        assert_eq!(settings.device_lists(), [DeviceList::Envvar]);
    }

    #[test]
    fn device_lists_are_deduplicated_and_config_map_is_parsed() {
        let settings = read(&[
            "--sharing=embedded",
            "--device-list=cdi,envvar,cdi",
            "--plugin-config-map=gpu-operator/plugin-config",
        ])
        .unwrap();
        assert_eq!(
            settings.device_lists(),
            [DeviceList::Envvar, DeviceList::Cdi]
        );
        let name = settings.plugin_config_map().unwrap();
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
