//! Settings of the aggregator.

mod advice;
mod auth;
mod cluster;
mod http_auth;
mod ledger;
mod serving;
mod upstreams;
mod workload;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{CommandFactory, Parser, value_parser};
use octavo_fleet::cluster::{Quantity, QuantityError};
use octavo_settings::kubernetes::{ConfigMapName, KubernetesSettings};
use octavo_settings::server_url::{ServerUrl, ServerUrlError};
use octavo_settings::{EarlyExit, duration, parse};
use octavo_store::store::StoreLimits;
use octavo_toolkit::log::LogSettings;
use thiserror::Error;

pub use self::advice::AdviceSettings;
pub use self::auth::{AgentAuth, AgentAuthSettings};
pub use self::cluster::ClusterSettings;
pub use self::http_auth::{HttpAuth, HttpAuthSettings};
pub use self::ledger::LedgerSettings;
pub use self::serving::ServingSettings;
pub use self::upstreams::UpstreamSettings;
pub use self::workload::WorkloadSettings;

const EXAMPLES: &str = "\
Examples:
  # On a laptop: without TLS, for local clients only
  octavo-aggregator --plaintext \\
    --grpc-listen 127.0.0.1:7443 --http-listen 127.0.0.1:8443

  # In a cluster: the API server authenticates agents and clients
  octavo-aggregator --tls-cert tls.crt --tls-key tls.key \\
    --agent-auth token-review --http-auth token-review

  # Behind an authenticating proxy in the same pod, such as OpenShift's
  # oauth-proxy
  octavo-aggregator --tls-cert tls.crt --tls-key tls.key \\
    --http-auth proxy-header --trusted-proxy 127.0.0.1

  # In a network where every client can see everything
  octavo-aggregator --tls-cert tls.crt --tls-key tls.key --http-auth none

  # Watch the cluster, to show free devices and pending pods
  octavo-aggregator --tls-cert tls.crt --tls-key tls.key \\
    --agent-auth token-review --http-auth token-review --follow-cluster

  # Also create hardware profiles for users whose cluster roles allow it
  octavo-aggregator --tls-cert tls.crt --tls-key tls.key \\
    --http-auth token-review --follow-cluster --create-profiles

  # Roll out accelerator policies
  octavo-aggregator --tls-cert tls.crt --tls-key tls.key \\
    --http-auth token-review --follow-cluster --policies

  # Record usage, for reports of device hours and cost
  octavo-aggregator --tls-cert tls.crt --tls-key tls.key \\
    --http-auth token-review --follow-cluster \\
    --ledger sqlite:///var/lib/octavo/ledger.db --price-book prices.yaml \\
    --budgets budgets.yaml

  # Also write a Parquet file of each day
  octavo-aggregator --tls-cert tls.crt --tls-key tls.key \\
    --http-auth token-review --follow-cluster \\
    --ledger sqlite:///var/lib/octavo/ledger.db --ledger-export-directory /var/lib/octavo-export

  # Annotate pods with the types of their accelerators
  octavo-aggregator --tls-cert tls.crt --tls-key tls.key \\
    --agent-auth token-review --http-auth token-review --annotate-pods

Flags take precedence over environment variables. A renewed certificate is reloaded.";

/// Collect the reports of all agents, and serve them as web pages, an API and metrics
///
/// Stores nothing on disk, except for the usage ledger (--ledger) and its export (--ledger-export-directory). After a restart, every
/// agent sends its full status again.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "octavo-aggregator", version, after_long_help = EXAMPLES)]
pub struct AggregatorSettings {
    /// Addresses and transport of the servers.
    #[command(flatten)]
    pub serving: ServingSettings,

    /// Authentication of agents.
    #[command(flatten)]
    pub agent_auth: AgentAuthSettings,

    /// Authentication of HTTP clients.
    #[command(flatten)]
    pub http_auth: HttpAuthSettings,

    /// The fleet's state.
    #[command(flatten)]
    pub fleet: FleetSettings,

    /// Additional data for matching and estimates.
    #[command(flatten)]
    pub advice: AdviceSettings,

    /// The cluster.
    #[command(flatten)]
    pub kubernetes: KubernetesSettings,

    /// Use of the cluster.
    #[command(flatten)]
    pub cluster: ClusterSettings,

    /// Aggregators of other clusters.
    #[command(flatten)]
    pub upstreams: UpstreamSettings,

    /// ConfigMap that NVIDIA's device plugin reads; written on behalf of agents with --sharing hand-off
    ///
    /// Only keys that begin with octavo- are written.
    #[arg(
        long,
        help_heading = "Sharing",
        value_name = "NAMESPACE/NAME",
        env = "OCTAVO_PLUGIN_CONFIG_MAP"
    )]
    pub plugin_config_map: Option<ConfigMapName>,

    /// The usage ledger.
    #[command(flatten)]
    pub ledger: LedgerSettings,

    /// Annotation of pods.
    #[command(flatten)]
    pub workload: WorkloadSettings,

    /// The log.
    #[command(flatten)]
    pub log: LogSettings,
}

/// Settings of the fleet's state.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Fleet")]
pub struct FleetSettings {
    /// Age of the last report after which a node is stale
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_STALE_AFTER",
        default_value = "30s",
        value_parser = duration::positive
    )]
    pub stale_after: Duration,

    /// Time after which a stale node is removed
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_FORGET_AFTER",
        default_value = "24h",
        value_parser = duration::positive
    )]
    pub forget_after: Duration,

    /// Maximum number of nodes; agents beyond it are rejected
    ///
    /// At the limit, the node that has been stale longest is removed first. A node usually needs about 10 KiB of memory, and never
    /// more than 256 KiB.
    #[arg(
        long,
        value_name = "COUNT",
        env = "OCTAVO_MAX_NODES",
        default_value_t = 100_000,
        value_parser = value_parser!(u32).range(1..=10_000_000).map(count)
    )]
    pub max_nodes: usize,

    /// Maximum memory of the history of devices; 0 turns the history off
    ///
    /// The history has utilization, memory, power, temperature and allocation: every 15 s for an hour, every minute for 24 h. If the
    /// memory is exhausted, devices that no longer report lose their history, then partitions, then the devices that were added last.
    /// The minimum is 1Mi.
    #[arg(
        long,
        value_name = "BYTES",
        env = "OCTAVO_HISTORY_MEMORY",
        default_value = "64Mi",
        value_parser = history_memory
    )]
    pub history_memory: usize,

    /// Name of the cluster, shown in the header and the title of every page, in the API and by octavo version
    #[arg(long, value_name = "NAME", env = "OCTAVO_CLUSTER_NAME", value_parser = cluster_name)]
    pub cluster_name: Option<String>,

    /// URL of a Prometheus that scrapes the agents; the charts of the pages link to its graphs
    ///
    /// The URL is that of the web interface, as users reach it, with the path prefix if it has one. docs/operations/monitoring.md
    /// describes the labels that the links require.
    #[arg(
        long,
        value_name = "URL",
        env = "OCTAVO_PROMETHEUS_URL",
        value_parser = prometheus_url
    )]
    pub prometheus_url: Option<ServerUrl>,

    /// Also expose metrics with the names and labels of OpenCost: prices and devices of nodes, and devices of containers
    ///
    /// They have a series for each node, and for each container with a device up to 20,000, so any client with access to the metrics
    /// sees the names of nodes and pods. Costs need --price-book. docs/tasks/cost.md describes the metrics.
    #[arg(long, env = "OCTAVO_OPENCOST_METRICS")]
    pub opencost_metrics: bool,

    /// Layouts to preview plans for, on the pages of nodes and in the API
    ///
    /// A layout file in Octavo's or mig-parted's format. The file is reloaded when it changes; if it is invalid, the
    /// previous layouts stay in use. Generated layouts, such as all-balanced, need no file.
    #[arg(long, value_name = "FILE", env = "OCTAVO_LAYOUTS")]
    pub layouts: Option<PathBuf>,

    /// Hardware profiles, for clusters without HardwareProfile objects
    ///
    /// YAML documents in the format of the API server. The file is reloaded when it changes; if it is invalid, the
    /// previous profiles stay in use. A profile of the cluster overrides one with the same name.
    #[arg(long, value_name = "FILE", env = "OCTAVO_PROFILES")]
    pub profiles: Option<PathBuf>,
}

impl AggregatorSettings {
    /// Parses the arguments and the environment of this process.
    pub fn from_process() -> Result<Self, EarlyExit> {
        Self::from_arguments(env::args_os())
    }

    /// Parses `arguments`, program name first.
    pub fn from_arguments<A>(arguments: impl IntoIterator<Item = A>) -> Result<Self, EarlyExit>
    where
        A: Into<OsString> + Clone,
    {
        let mut settings: Self = parse(arguments)?;
        let serving = &settings.serving;
        serving.check()?;
        let choice = settings.http_auth.check(serving)?;
        settings.http_auth.http_auth = Some(choice);
        let has_auth = settings.http_auth.sources().is_some();
        settings.cluster.check(has_auth, serving)?;
        settings.ledger.check(settings.cluster.leader_election.is_some())?;
        settings.agent_auth.check(serving)?;
        settings.upstreams.resolve()?;
        settings.workload.identify(settings.cluster.policies)?;
        Ok(settings)
    }
}

impl FleetSettings {
    /// Returns the limits of the store.
    pub fn limits(&self) -> StoreLimits {
        StoreLimits {
            stale_after: self.stale_after,
            forget_after: self.forget_after,
            max_nodes: self.max_nodes,
            history_bytes: self.history_memory,
        }
    }
}

fn usage(message: &str) -> EarlyExit {
    EarlyExit::usage(&mut AggregatorSettings::command(), message)
}

/// Smallest memory of the history, in bytes.
const MIN_HISTORY_MEMORY: usize = 1 << 20;

/// Invalid memory of the history.
#[derive(Debug, Error)]
enum HistoryMemoryError {
    /// Not a quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// Less than [`MIN_HISTORY_MEMORY`].
    #[error(
        "it is less than 1Mi; set at least 1Mi, such as 64Mi, or 0 to turn the history off (in Kubernetes' notation, m is a \
         thousandth)"
    )]
    TooSmall,
}

/// Parses a size in bytes in the notation of Kubernetes.
fn history_memory(text: &str) -> Result<usize, HistoryMemoryError> {
    let quantity: Quantity = text.parse()?;
    match usize::try_from(quantity.rounded_up()).unwrap_or(usize::MAX) {
        1..MIN_HISTORY_MEMORY => Err(HistoryMemoryError::TooSmall),
        bytes => Ok(bytes),
    }
}

/// Maximum length of the name of a cluster, in characters.
const MAX_CLUSTER_NAME: usize = 63;

/// Parses the name of a cluster.
fn cluster_name(name: &str) -> Result<String, &'static str> {
    let name = name.trim();
    if name.is_empty() {
        return Err("the name is empty");
    }
    if name.chars().count() > MAX_CLUSTER_NAME {
        return Err("use at most 63 characters");
    }
    if name.chars().any(char::is_control) {
        return Err("the name contains a control character");
    }
    Ok(name.to_owned())
}

/// Parses the URL of Prometheus. The error of [`ServerUrl`] is about aggregators.
fn prometheus_url(text: &str) -> Result<ServerUrl, &'static str> {
    text.parse().map_err(|_: ServerUrlError| {
        "not a URL such as https://prometheus.example.org or http://127.0.0.1:9090"
    })
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use octavo_settings::EarlyExitKind;

    use super::*;
    use crate::tls::TlsFiles;

    fn settings(arguments: &[&str]) -> Result<AggregatorSettings, EarlyExit> {
        let program = ["octavo-aggregator"].iter();
        AggregatorSettings::from_arguments(program.chain(arguments))
    }

    #[test]
    fn clap_command_is_valid() {
        AggregatorSettings::command().debug_assert();
    }

    #[test]
    fn all_settings_but_transport_have_documented_defaults() {
        let settings = settings(&["--plaintext", "--http-auth=none"]).unwrap();
        assert_eq!(settings.serving.grpc_listen.to_string(), "0.0.0.0:7443");
        assert_eq!(settings.serving.http_listen.to_string(), "0.0.0.0:8443");
        assert_eq!(settings.serving.tls(), None);
        assert_eq!(settings.serving.max_connections, 20_000);
        let limits = StoreLimits {
            stale_after: Duration::from_secs(30),
            forget_after: Duration::from_hours(24),
            max_nodes: 100_000,
            history_bytes: 64 << 20,
        };
        assert_eq!(settings.fleet.limits(), limits);
        assert_eq!(settings.plugin_config_map, None);
        assert_eq!((settings.fleet.cluster_name, settings.fleet.prometheus_url), (None, None));
        assert_eq!(settings.advice.price_book, None);
        assert_eq!(settings.advice.estimate_engine, None);
        assert!(!settings.cluster.follow_cluster);
        assert!(!settings.workload.annotate_pods);
    }

    #[test]
    fn watched_cluster_is_from_kubeconfig_or_pod() {
        let watched = |more: &[&str]| {
            let settings = settings(
                &[&["--plaintext", "--http-auth=none", "--follow-cluster"], more].concat(),
            )
            .unwrap();
            assert!(settings.cluster.follow_cluster);
            settings.kubernetes.kubeconfig
        };
        assert_eq!(watched(&[]), None);
        assert_eq!(watched(&["--kubeconfig=/k"]), Some(PathBuf::from("/k")));
    }

    #[test]
    fn profile_creation_is_opt_in_and_needs_authenticated_clients() {
        let tls = ["--tls-cert=/c", "--tls-key=/k"];
        let with = |arguments: &[&str]| settings(&[&tls[..], arguments].concat());
        let both = ["--follow-cluster", "--create-profiles"];
        let makes = |arguments: &[&str]| with(arguments).unwrap().cluster.create_profiles;
        assert!(!makes(&["--http-auth=none", "--follow-cluster"]));
        assert!(makes(&[&both[..], &["--http-auth=token-review"]].concat()));
        assert!(makes(&[&both[..], &["--http-listen=127.0.0.1:0"]].concat()));
        for (arguments, expected) in [
            (&["--http-auth=token-review", "--create-profiles"][..], "needs --follow-cluster"),
            (&[both[0], both[1], "--http-auth=none"], "could create hardware profiles"),
        ] {
            let text = with(arguments).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn policies_are_opt_in_and_need_the_cluster() {
        let with = |arguments: &[&str]| {
            settings(&[&["--plaintext", "--http-auth=none"], arguments].concat())
        };
        assert!(!with(&["--follow-cluster"]).unwrap().cluster.policies);
        let enabled = with(&["--follow-cluster", "--policies"]).unwrap();
        assert!(enabled.cluster.policies && !enabled.workload.holder_prefix.is_empty());
        let text = with(&["--policies"]).unwrap_err().to_string();
        assert!(text.contains("needs --follow-cluster"), "{text}");
    }

    #[test]
    fn leader_election_needs_the_name_of_a_pod() {
        let with = |pod: &str| {
            settings(&["--plaintext", "--http-auth=none", "--leader-election", pod])
                .map(|settings| settings.cluster.leader_election)
        };
        assert_eq!(with("aggregator-7d9f-x2x").unwrap().as_deref(), Some("aggregator-7d9f-x2x"));
        for wrong in ["", "Aggregator", "a/b"] {
            let text = with(wrong).unwrap_err().to_string();
            assert!(text.contains("--leader-election"), "{text}");
        }
    }

    #[test]
    fn upstreams_need_credentials_and_different_names() {
        let with = |arguments: &[&str]| {
            settings(&[&["--plaintext", "--http-auth=none"], arguments].concat())
                .map(|settings| settings.upstreams.endpoints)
        };
        assert_eq!(with(&[]).unwrap(), []);
        let found = with(&[
            "--upstream=paris=https://octavo.paris.example:7443,oslo=http://127.0.0.1:7443",
            "--upstream-credentials=/keys",
        ]);
        let found = found.unwrap();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["paris", "oslo"]);
        assert_eq!(found[0].1.token, Some("/keys/paris/token".into()));
        assert_eq!(found[1].1.token, None);
        for (wrong, expected) in [
            ("--upstream=paris", "--upstream paris: use a name and a URL"),
            ("--upstream=paris=ftp://a:1", "use a name and a URL"),
            ("--upstream=Paris=http://127.0.0.1:1", "is not a name: use at most 63"),
            ("--upstream=a.b=http://127.0.0.1:1", "is not a name: use at most 63"),
            ("--upstream=paris=https://a:1", "https:// needs --upstream-credentials"),
            ("--upstream=paris=http://a:1", "neither encrypted nor authenticated"),
            ("--upstream=a=http://127.0.0.1:1,a=http://127.0.0.1:2", "have the name a"),
            ("--upstream-credentials=/keys", "--upstream"),
        ] {
            let text = with(&[wrong]).unwrap_err().to_string();
            assert!(text.contains(expected), "{wrong}: {text}");
        }
    }

    #[test]
    fn replicas_need_a_ledger_that_they_can_share() {
        let with = |ledger: &str| {
            let election = "--leader-election=aggregator-7d9f-x2x";
            settings(&["--plaintext", "--http-auth=none", election, "--ledger", ledger])
        };
        with("postgres://db/ledger").unwrap();
        let text = with("sqlite:///var/lib/octavo/ledger.db").unwrap_err().to_string();
        assert!(text.contains("use a PostgreSQL database"), "{text}");
    }

    #[test]
    fn pod_annotation_settings_are_resolved_and_validated() {
        let found =
            settings(&["--plaintext", "--http-auth=none", "--annotate-pods", "--kubeconfig=/k"])
                .unwrap();
        assert_eq!(found.workload.lease_namespace, "octavo-system");
        assert_eq!(found.kubernetes.kubeconfig, Some("/k".into()));
        assert!(!found.workload.holder_prefix.is_empty());
        let wrong =
            ["--plaintext", "--http-auth=none", "--annotate-pods", "--lease-namespace=../x"];
        let text = settings(&wrong).unwrap_err().to_string();
        assert!(text.contains("--lease-namespace"), "{text}");
    }

    #[test]
    fn unmatchable_host_name_is_rejected() {
        let named = |name: &str| {
            let name = format!("--http-host={name}");
            settings(&["--plaintext", "--http-auth=none", &name])
        };
        for (name, expected) in [
            ("https://octavo.example", "without a scheme"),
            ("octavo.example:8443", "without a scheme"),
            ("octavo.example/nodes", "without a scheme"),
            ("octavo.example.", "without a dot"),
            ("a,,b", "is empty"),
        ] {
            let answer = named(name).unwrap_err();
            assert_eq!(answer.kind(), EarlyExitKind::UsageError, "{name}");
            let text = answer.to_string();
            assert!(text.contains("--http-host") && text.contains(expected), "{text}");
        }
        let settings = named("octavo.example,fleet").unwrap();
        assert_eq!(settings.serving.http_hosts, ["octavo.example", "fleet"]);
    }

    #[test]
    fn missing_certificate_error_names_both_options() {
        let answer = settings(&[]).unwrap_err();
        assert_eq!(answer.kind(), EarlyExitKind::UsageError);
        let text = answer.to_string();
        for flag in ["--tls-cert", "--tls-key", "--plaintext"] {
            assert!(text.contains(flag), "{text}");
        }
    }

    #[test]
    fn token_review_has_documented_defaults_and_needs_tls() {
        assert_eq!(settings(&["--plaintext", "--http-auth=none"]).unwrap().agent_auth.rule(), None);
        let reviewed = |arguments: &[&str]| {
            let auth = ["--agent-auth=token-review", "--http-auth=none"];
            settings(&[&auth[..], arguments].concat())
        };
        for arguments in [
            &["--tls-cert=/c", "--tls-key=/k"][..],
            &["--plaintext", "--grpc-listen=127.0.0.1:0"],
            &["--plaintext", "--grpc-listen=[::1]:0"],
        ] {
            let found = reviewed(arguments).unwrap();
            let rule = found.agent_auth.rule().unwrap();
            assert_eq!(rule.account.to_string(), "octavo-system/octavo-agent");
            assert_eq!(rule.audience.as_str(), "octavo");
            assert_eq!(found.kubernetes.kubeconfig, None);
        }
        for (arguments, expected) in [
            (&["--plaintext"][..], "unencrypted"),
            (&["--plaintext", "--grpc-listen=10.0.0.1:1"], "unencrypted"),
            (&["--plaintext", "--agent-service-account=agent"], "octavo-system/octavo-agent"),
            (&["--plaintext", "--agent-audience="], "--agent-audience"),
            (&["--plaintext", "--kubeconfig="], "--kubeconfig"),
        ] {
            let text = reviewed(arguments).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn incomplete_or_unused_certificate_is_rejected() {
        for (arguments, expected) in [
            (&["--tls-cert=/c"][..], "--tls-cert needs --tls-key"),
            (&["--tls-key=/k"], "--tls-key needs --tls-cert"),
            (&["--tls-key=/k", "--plaintext"], "cannot be used with"),
            (&["--plaintext", "--max-nodes=0"], "--max-nodes"),
            (&["--plaintext", "--stale-after=0s"], "--stale-after"),
            (&["--plaintext", "--history-memory=much"], "64Gi"),
            (
                &["--plaintext", "--history-memory=64m"],
                "'--history-memory <BYTES>': it is less than",
            ),
            (&["--plaintext", "--history-memory=1048575"], "at least 1Mi"),
            (&["--plaintext", "--cluster-name= "], "the name is empty"),
            (&["--plaintext", "--cluster-name=a\u{7}b"], "a control character"),
            (&["--plaintext", "--prometheus-url=ftp://metrics"], "https://prometheus.example.org"),
            (&["--plaintext", "--prometheus-url=javascript:alert(1)"], "--prometheus-url"),
            (&["--plaintext", "--plugin-config-map=a"], "a namespace and a name"),
            (&["--plaintext", "--grpc-listen=here"], "--grpc-listen"),
            (&["--plaintext", "--estimate-engine=ftp://x"], "--estimate-engine"),
            (&["--plaintext", "--estimate-timeout=0s"], "--estimate-timeout"),
        ] {
            let text = settings(arguments).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
        let with = settings(&["--tls-cert=/c", "--tls-key=/k", "--http-auth=none"]).unwrap();
        let files = TlsFiles { certificate: "/c".into(), key: "/k".into() };
        assert_eq!(with.serving.tls(), Some(files));
    }

    #[test]
    fn non_loopback_http_needs_an_explicit_auth_choice() {
        let tls = ["--tls-cert=/c", "--tls-key=/k"];
        let with = |arguments: &[&str]| settings(&[&tls[..], arguments].concat());
        let text = with(&[]).unwrap_err().to_string();
        for choice in ["token-review", "proxy-header", "none", "127.0.0.1:8443"] {
            assert!(text.contains(choice), "{text}");
        }
        for alone in ["127.0.0.1:0", "[::1]:0"] {
            let listen = format!("--http-listen={alone}");
            assert_eq!(with(&[&listen]).unwrap().http_auth.sources(), None);
        }
        let settings = with(&["--http-auth=token-review", "--http-audience=octavo"]).unwrap();
        let reviewed = settings.http_auth.sources().unwrap();
        assert_eq!(reviewed.audience.unwrap().as_str(), "octavo");
        assert_eq!(reviewed.proxies, None);
        let proxies = "--trusted-proxy=127.0.0.1,10.1.0.0/16";
        let settings = with(&["--http-auth=proxy-header", proxies]).unwrap();
        let reviewed = settings.http_auth.sources().unwrap();
        let proxies = reviewed.proxies.unwrap();
        assert!(proxies.contains("10.1.9.9".parse().unwrap()) && !proxies.groups);
    }

    #[test]
    fn http_auth_needs_tls_and_trusted_proxies() {
        for (arguments, expected) in [
            (&["--plaintext", "--http-auth=token-review"][..], "unencrypted"),
            (
                &["--plaintext", "--http-auth=proxy-header", "--trusted-proxy=10.0.0.1"],
                "unencrypted",
            ),
            (
                &["--plaintext", "--http-listen=127.0.0.1:0", "--http-auth=proxy-header"],
                "needs --trusted-proxy",
            ),
            (
                &["--plaintext", "--http-auth=none", "--trusted-proxy=10.0.0.1"],
                "need --http-auth proxy-header",
            ),
            (
                &["--plaintext", "--http-auth=none", "--trusted-proxy-groups"],
                "need --http-auth proxy-header",
            ),
            (&["--plaintext", "--trusted-proxy=proxy"], "10.1.0.0/16"),
            (&["--plaintext", "--http-auth=some"], "--http-auth"),
        ] {
            let text = settings(arguments).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
    }
}
