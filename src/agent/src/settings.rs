//! Settings of the node agent.

mod cluster;
mod dra;
mod partitioning;
mod publishing;
mod sharing;
mod uplink;

use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;

use clap::{CommandFactory, Parser};
use octavo_model::id::NodeName;
use octavo_node::mig_strategy::MigStrategy;
use octavo_settings::engine::EngineSettings;
use octavo_settings::hardware::HardwareSettings;
use octavo_settings::labels::LabelSettings;
use octavo_settings::{EarlyExit, parse};
use octavo_toolkit::log::LogSettings;

use self::cluster::ClusterArgs;
pub use self::cluster::{Cleanup, ClusterSettings, DrainAnnotationError};
pub(crate) use self::cluster::{DEFAULT_DRAIN_TIMEOUT, parse_drain};
pub use self::dra::DraSettings;
pub use self::partitioning::PartitioningSettings;
pub use self::publishing::{LabelSink, PublishingSettings, Schedule};
pub use self::sharing::{DeviceProvider, SharingSettings, UsageSettings};
use self::uplink::UplinkArgs;
pub use self::uplink::UplinkSettings;

const EXAMPLES: &str = "\
Examples:
  # Print the labels of this node once
  octavo-agent --oneshot

  # Maintain a feature file for Node Feature Discovery
  octavo-agent --label-sink file --interval 10s

  # Use a driver in another root directory
  octavo-agent --driver-root /host --oneshot

  # Apply a layout and maintain it
  octavo-agent --layouts /etc/octavo/layouts.yaml --layout serving

  # In a cluster: label the Node of this machine, and apply the layout that
  # its label octavo.dev/layout names
  octavo-agent --label-sink node --layouts /etc/octavo/layouts.yaml

  # Remove everything that the agent wrote to the Node
  octavo-agent --label-sink node --cleanup

  # Report to an aggregator, verified by its CA
  octavo-agent --aggregator https://aggregator:7443 --aggregator-ca ca.crt

Flags take precedence over environment variables.";

/// Discover, partition and label the accelerators of this node
///
/// Runs on every accelerator node. If the driver is missing, starts late, is replaced or hangs, the agent reports it,
/// waits and continues.
#[derive(Debug, Parser)]
#[command(name = "octavo-agent", version, after_long_help = EXAMPLES)]
struct AgentArgs {
    #[command(flatten)]
    hardware: HardwareSettings,

    #[command(flatten)]
    labels: LabelSettings,

    #[command(flatten)]
    publishing: PublishingSettings,

    #[command(flatten)]
    partitioning: PartitioningSettings,

    #[command(flatten)]
    engine: EngineSettings,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    sharing: SharingSettings,

    #[command(flatten)]
    dra: DraSettings,

    #[command(flatten)]
    uplink: UplinkArgs,

    /// Address for /metrics, /healthz and /readyz; port 0 for any free port
    ///
    /// Without this flag, nothing is served. The connection is not encrypted. With --usage-interval, metrics include
    /// usage by pod.
    #[arg(long, help_heading = "Metrics", value_name = "ADDRESS", env = "OCTAVO_METRICS_LISTEN")]
    metrics_listen: Option<SocketAddr>,

    #[command(flatten)]
    log: LogSettings,
}

/// Settings of the agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentSettings {
    /// Paths of the hardware.
    pub hardware: HardwareSettings,
    /// Settings of labels.
    pub labels: LabelSettings,
    /// Destination of labels, and schedule.
    pub publishing: PublishingSettings,
    /// Settings of partitioning; `None` if nothing is changed.
    pub partitioning: Option<PartitioningSettings>,
    /// How the node is inspected and its devices are changed; also set without a layout.
    pub engine: EngineSettings,
    /// Name of this machine's Node, if it is a valid one.
    pub node: Option<NodeName>,
    /// Settings of this machine's Node; `None` if no API server is contacted.
    pub cluster: Option<ClusterSettings>,
    /// How devices are allocated to pods.
    pub sharing: SharingSettings,
    /// Settings of resource claims.
    pub dra: DraSettings,
    /// The aggregator that the node reports to, if any. An agent that runs once does not report.
    pub uplink: Option<UplinkSettings>,
    /// The address that serves metrics, if any. An agent that runs once serves none.
    pub metrics: Option<SocketAddr>,
    /// What happens after a cleanup; `None` unless the agent only removes what it has written.
    pub cleanup: Option<Cleanup>,
    /// Settings of the log.
    pub log: LogSettings,
}

impl AgentSettings {
    /// Parses the arguments and the environment of this process.
    pub fn from_process() -> Result<Self, EarlyExit> {
        Self::from_arguments(env::args_os())
    }

    /// Parses `arguments`, program name first.
    pub fn from_arguments<A>(arguments: impl IntoIterator<Item = A>) -> Result<Self, EarlyExit>
    where
        A: Into<OsString> + Clone,
    {
        parse::<AgentArgs, _>(arguments)?.resolve()
    }

    /// Returns whether the Node is watched.
    pub fn watches_node(&self) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.watches_node)
    }
}

impl AgentArgs {
    fn resolve(mut self) -> Result<AgentSettings, EarlyExit> {
        self.publishing.check()?;
        let cleanup = self.cluster.cleanup;
        let node = || self.uplink.node();
        let cluster = self.cluster.resolve(self.publishing.label_sink, self.sharing.dra, node)?;
        self.sharing.check(self.engine.pod_resources().is_some())?;
        if self.sharing.dra {
            // NVIDIA's device plugin is never configured for the same GPUs.
            self.sharing.mode = DeviceProvider::Off;
        }
        self.sharing.device_lists.sort_unstable();
        self.sharing.device_lists.dedup();
        self.engine.device_plugins = Some(self.sharing.device_plugins.clone());
        let is_embedded = self.sharing.mode == DeviceProvider::Embedded;
        if is_embedded {
            // Partitions without a resource could not be allocated.
            let strategy = &mut self.labels.mig_strategy;
            strategy.get_or_insert(MigStrategy::Mixed);
        }
        let is_once = self.publishing.schedule() == Schedule::Once;
        if self.sharing.dra && self.partitioning.read_only {
            return Err(usage("--dra excludes --read-only: claims create and destroy partitions"));
        }
        let is_changing = self.partitioning.layouts.is_some()
            || self.partitioning.layout.is_some()
            || cluster.as_ref().is_some_and(|one| one.watches_node)
            // Claims change devices without a layout.
            || self.sharing.dra
            // The built-in device plugin must be notified of every change of the devices.
            || is_embedded;
        Ok(AgentSettings {
            hardware: self.hardware,
            labels: self.labels,
            partitioning: is_changing.then_some(self.partitioning),
            engine: self.engine,
            node: self.uplink.node().ok(),
            cluster,
            sharing: self.sharing,
            dra: self.dra,
            uplink: if is_once { None } else { self.uplink.resolve()? },
            metrics: self.metrics_listen.filter(|_| !is_once),
            publishing: self.publishing,
            cleanup,
            log: self.log,
        })
    }
}

/// Returns the description of `octavo-agent`: its options with their help.
pub fn agent_command() -> clap::Command {
    AgentArgs::command()
}

fn usage(message: &str) -> EarlyExit {
    EarlyExit::usage(&mut AgentArgs::command(), message)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use jiff::Timestamp;
    use octavo_client::endpoint::Security;
    use octavo_node::labels::Options;
    use octavo_settings::duration::Expiry;

    use super::*;

    fn settings(arguments: &[&str]) -> AgentSettings {
        let program = ["octavo-agent"].iter();
        AgentSettings::from_arguments(program.chain(arguments)).unwrap()
    }

    #[test]
    fn clap_command_is_valid() {
        AgentArgs::command().debug_assert();
    }

    #[test]
    fn interval_longer_than_half_of_expiry_is_rejected() {
        let refused = |arguments: &[&str]| {
            let program = ["octavo-agent", "--label-sink=file"].iter();
            AgentSettings::from_arguments(program.chain(arguments)).is_err()
        };
        assert!(refused(&["--interval=31m"]));
        assert!(refused(&["--feature-file-expiry=19s"]));
        assert!(!refused(&["--interval=30m"]));
        assert!(!refused(&["--interval=31m", "--oneshot"]));
        assert!(!refused(&["--interval=31m", "--feature-file-expiry=0"]));
    }

    #[test]
    fn defaults_match_the_documentation_without_flags() {
        let settings = settings(&[]);
        assert_eq!(settings.publishing.label_sink, LabelSink::Stdout);
        assert_eq!(settings.publishing.schedule(), Schedule::Every(Duration::from_secs(10)));
        // No timestamp: a value that changes at every start would cause a write at every start.
        assert_eq!(settings.labels.options(Timestamp::UNIX_EPOCH), Options::default());
        let hardware = &settings.hardware;
        assert_eq!(hardware.nvml_library, None);
        assert_eq!(hardware.call_deadline, Duration::from_secs(10));
        assert_eq!(
            hardware.driver_roots,
            ["/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia"].map(PathBuf::from)
        );
    }

    #[test]
    fn embedded_sharing_defaults_to_mixed_strategy() {
        let strategy = |arguments: &[&str]| {
            let options = settings(arguments).labels.options(Timestamp::UNIX_EPOCH);
            options.mig_strategy
        };
        assert_eq!(strategy(&["--sharing=embedded"]), MigStrategy::Mixed);
        assert_eq!(strategy(&["--sharing=hand-off"]), MigStrategy::None);
        for (name, expected) in [("none", MigStrategy::None), ("single", MigStrategy::Single)] {
            let given = format!("--mig-strategy={name}");
            assert_eq!(strategy(&["--sharing=embedded", &given]), expected);
        }
    }

    #[test]
    fn claims_need_an_agent_that_can_change_devices() {
        let settings = settings(&["--dra", "--node-name=n", "--dra-release=keep"]);
        assert!(settings.partitioning.is_some());
        assert_eq!(settings.dra.release, octavo_dra::claims::ReleasePolicy::Keep);
        let refused = ["octavo-agent", "--dra", "--node-name=n", "--read-only"];
        let answer = AgentSettings::from_arguments(refused).unwrap_err().to_string();
        assert!(answer.contains("--dra excludes --read-only"), "{answer}");
    }

    #[test]
    fn roots_may_be_repeated_and_replace_the_defaults() {
        let settings = settings(&["--driver-root", "/a", "--driver-root", "/b"]);
        assert_eq!(settings.hardware.driver_roots, ["/a", "/b"].map(PathBuf::from));
    }

    #[test]
    fn feature_file_has_a_path_and_an_expiry() {
        let settings = settings(&[
            "--label-sink=file",
            "--feature-file=/f",
            "--feature-file-expiry=0",
            "--oneshot",
        ]);
        let publishing = settings.publishing;
        assert_eq!(publishing.label_sink, LabelSink::File);
        assert_eq!(publishing.feature_file, Path::new("/f"));
        assert_eq!(publishing.feature_file_expiry, Expiry::Never);
        assert_eq!(publishing.schedule(), Schedule::Once);
    }

    #[test]
    fn invalid_value_is_named_with_its_flag_and_reason() {
        let answer = AgentSettings::from_arguments(["octavo-agent", "--interval=10"]).unwrap_err();
        assert_eq!(answer.kind(), octavo_settings::EarlyExitKind::UsageError);
        assert!(answer.to_string().starts_with(
            "error: invalid value '10' for '--interval <DURATION>': not a duration such as 500ms, 10s, 5m or 1h30m"
        ), "{answer}");
    }

    #[test]
    fn metrics_need_an_address_and_are_off_with_oneshot() {
        assert_eq!(settings(&[]).metrics, None);
        let address = "--metrics-listen=127.0.0.1:9402";
        assert_eq!(settings(&[address]).metrics, Some("127.0.0.1:9402".parse().unwrap()));
        assert_eq!(settings(&[address, "--oneshot"]).metrics, None);
    }

    #[test]
    fn uplink_needs_an_aggregator_and_is_off_with_oneshot() {
        assert_eq!(settings(&[]).uplink, None);
        let once = settings(&[
            "--oneshot",
            "--aggregator=http://a",
            "--aggregator-plaintext",
            "--node-name=n",
        ]);
        assert_eq!(once.uplink, None);
    }

    #[test]
    fn aggregator_is_verified_by_ca_and_server_name() {
        let arguments = [
            "--aggregator=https://aggregator.octavo:7443",
            "--aggregator-ca=/ca.crt",
            "--node-name=node-1",
        ];
        let both = settings(&arguments);
        let uplink = both.uplink.as_ref().unwrap();
        assert_eq!(uplink.aggregator.url, "https://aggregator.octavo:7443");
        assert_eq!(uplink.node.as_str(), "node-1");
        assert_eq!(uplink.heartbeat, Duration::from_secs(10));
        let secured = |uplink: &UplinkSettings, ca: &str, name: &str| {
            let Security::Tls { ca: file, server } = &uplink.aggregator.security else {
                panic!("{uplink:?}");
            };
            assert_eq!((file.as_path(), server), (Path::new(ca), &name.try_into().unwrap()));
        };
        secured(uplink, "/ca.crt", "aggregator.octavo");
        let named = settings(&[&arguments[..], &["--aggregator-server-name=other"]].concat());
        secured(named.uplink.as_ref().unwrap(), "/ca.crt", "other");
        let by_address = settings(&[
            "--aggregator=https://[fd00::1]:7443",
            "--aggregator-ca=/ca.crt",
            "--node-name=node-1",
        ]);
        secured(by_address.uplink.as_ref().unwrap(), "/ca.crt", "fd00::1");
    }

    #[test]
    fn i12_invalid_aggregator_settings_are_rejected_with_a_reason() {
        let refusal = |arguments: &[&str]| {
            let program = ["octavo-agent"].iter();
            let answer = AgentSettings::from_arguments(program.chain(arguments)).unwrap_err();
            assert_eq!(answer.kind(), octavo_settings::EarlyExitKind::UsageError);
            answer.to_string()
        };
        for (arguments, reason) in [
            (&["--aggregator=http://a:1"][..], "--aggregator-plaintext"),
            (&["--aggregator=https://a:1"], "--aggregator-ca"),
            (&["--aggregator=a:1"], "like https://"),
            (&["--aggregator=ftp://a:1"], "like https://"),
            (&["--aggregator=https://u:p@a:1"], "like https://"),
            (&["--aggregator=https://a:1/path"], "like https://"),
            (&["--aggregator=https://a:1/?q"], "like https://"),
            (
                &["--aggregator=http://a:1", "--aggregator-plaintext", "--aggregator-ca=/f"],
                "has no effect",
            ),
            (
                &["--aggregator=https://a", "--aggregator-ca=/f", "--aggregator-server-name=a b"],
                "--aggregator-server-name",
            ),
            (&["--aggregator=http://a", "--aggregator-plaintext", "--node-name=A_b"], "node name"),
            (&["--heartbeat=0s"], "--heartbeat"),
        ] {
            let message = refusal(arguments);
            assert!(message.contains(reason), "{arguments:?}: {message}");
        }
    }
}
