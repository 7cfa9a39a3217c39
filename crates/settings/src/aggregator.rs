//! Settings of the aggregator.

mod advice;
mod auth;
mod cluster;
mod http_auth;
mod serving;
mod sharing;
mod workload;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{CommandFactory, Parser, value_parser};
use octavo_toolkit::log::LogSettings;

use super::duration;
use super::kubernetes::KubernetesSettings;
use super::{Answer, parse};
use advice::AdviceArgs;
pub use advice::{AdviceSettings, EngineSettings};
use auth::AuthArgs;
pub use auth::{AgentAuth, TokenReviewSettings};
use cluster::ClusterArgs;
pub use cluster::ClusterSettings;
use http_auth::HttpAuthArgs;
pub use http_auth::{HttpAuth, HttpReviewSettings, Network, NetworkError, TrustedProxies};
use serving::ServingArgs;
pub use serving::{ServingSettings, TlsFiles, Transport};
pub use sharing::PluginConfigSettings;
use sharing::SharingArgs;
pub use workload::PodAnnotationSettings;
use workload::WorkloadArgs;

const EXAMPLES: &str = "\
Examples:
  # On a laptop, without certificates, for this machine alone
  octavo-aggregator --plaintext --grpc-listen 127.0.0.1:7443 --http-listen 127.0.0.1:8443

  # In a cluster, with a certificate that something renews in place: agents report for their own node, roles say who sees what
  octavo-aggregator --tls-cert /tls/tls.crt --tls-key /tls/tls.key --agent-auth token-review --http-auth token-review

  # Beside a proxy that signs people in, such as OpenShift's oauth-proxy in the same pod
  octavo-aggregator --tls-cert /tls/tls.crt --tls-key /tls/tls.key --http-auth proxy-header --trusted-proxy 127.0.0.1

  # In a network where everybody may see everything
  octavo-aggregator --tls-cert /tls/tls.crt --tls-key /tls/tls.key --http-auth none

  # In a cluster that it follows: what is free, and who waits for it
  octavo-aggregator --tls-cert /tls/tls.crt --tls-key /tls/tls.key --agent-auth token-review --http-auth token-review --follow-cluster

  # And that makes hardware profiles there, for people whom the cluster's roles let
  octavo-aggregator --tls-cert /tls/tls.crt --tls-key /tls/tls.key --http-auth token-review --follow-cluster --create-profiles

  # In a cluster whose pods are to say which accelerators they were given
  octavo-aggregator --tls-cert /tls/tls.crt --tls-key /tls/tls.key --agent-auth token-review --http-auth token-review --annotate-pods

Every flag can be set by its variable too; the flag wins.";

/// Collects what all agents say, and serves it to people and programs
///
/// It keeps nothing on disk: after a restart the agents say everything again.
#[derive(Debug, Parser)]
#[command(name = "octavo-aggregator", version, after_long_help = EXAMPLES)]
struct AggregatorArgs {
    #[command(flatten)]
    serving: ServingArgs,

    #[command(flatten)]
    auth: AuthArgs,

    #[command(flatten)]
    http_auth: HttpAuthArgs,

    #[command(flatten)]
    fleet: FleetArgs,

    #[command(flatten)]
    advice: AdviceArgs,

    #[command(flatten)]
    kubernetes: KubernetesSettings,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    sharing: SharingArgs,

    #[command(flatten)]
    workload: WorkloadArgs,

    #[command(flatten)]
    log: LogSettings,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Fleet")]
struct FleetArgs {
    /// How old what an agent said may be before its node counts as stale
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_STALE_AFTER",
        default_value = "30s",
        value_parser = duration::positive
    )]
    stale_after: Duration,

    /// How long a stale node is still shown
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_FORGET_AFTER",
        default_value = "24h",
        value_parser = duration::positive
    )]
    forget_after: Duration,

    /// Most nodes that are kept; agents of more are sent away
    ///
    /// Before that, the node that is stale and gone for longest is forgotten. What is kept of a node is mostly some 10 KiB and
    /// never more than 256 KiB, whatever its agent sends.
    #[arg(
        long,
        value_name = "COUNT",
        env = "OCTAVO_MAX_NODES",
        default_value_t = 100_000,
        value_parser = value_parser!(u32).range(1..=10_000_000)
    )]
    max_nodes: u32,

    /// Layouts whose plans can be looked at on a node's page and in the API
    ///
    /// A layout file in either dialect. It is read again when it has changed; one that cannot be read leaves the layouts
    /// before in use. The layouts made for a node's own devices, such as all-balanced, need no file.
    #[arg(long, value_name = "FILE", env = "OCTAVO_LAYOUTS")]
    layouts: Option<PathBuf>,

    /// Hardware profiles, for clusters that do not have them as objects
    ///
    /// YAML documents, each as the API server would have it. The file is read again when it has changed; one that cannot be
    /// read leaves the profiles before in use. Of the same name, the cluster's counts.
    #[arg(long, value_name = "FILE", env = "OCTAVO_PROFILES")]
    profiles: Option<PathBuf>,
}

/// Settings of the aggregator.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregatorSettings {
    serving: ServingSettings,
    agent_auth: AgentAuth,
    http_auth: HttpAuth,
    fleet: FleetSettings,
    layouts: Option<PathBuf>,
    profiles: Option<PathBuf>,
    cluster: Option<ClusterSettings>,
    advice: AdviceSettings,
    plugin_configs: Option<PluginConfigSettings>,
    pod_types: Option<PodAnnotationSettings>,
    log: LogSettings,
}

/// Limits of the fleet's state, and its retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetSettings {
    stale_after: Duration,
    forget_after: Duration,
    max_nodes: usize,
}

impl AggregatorSettings {
    /// Parses the arguments and the environment of this process.
    pub fn from_process() -> Result<Self, Answer> {
        Self::from_arguments(env::args_os())
    }

    /// Parses `arguments`, program name first.
    pub fn from_arguments<A>(arguments: impl IntoIterator<Item = A>) -> Result<Self, Answer>
    where
        A: Into<OsString> + Clone,
    {
        let args = parse::<AggregatorArgs, _>(arguments)?;
        let serving = args.serving.resolve()?;
        let kubeconfig = args.kubernetes.kubeconfig.clone();
        let http_auth = args.http_auth.resolve(kubeconfig.clone(), &serving)?;
        let readers = (&http_auth, &serving);
        Ok(Self {
            cluster: args.cluster.resolve(kubeconfig.clone(), readers)?,
            http_auth,
            agent_auth: args.auth.resolve(args.kubernetes, &serving)?,
            serving,
            layouts: args.fleet.layouts.clone(),
            profiles: args.fleet.profiles.clone(),
            fleet: args.fleet.into(),
            advice: args.advice.into(),
            plugin_configs: args.sharing.resolve(kubeconfig.clone()),
            pod_types: args.workload.resolve(kubeconfig)?,
            log: args.log,
        })
    }

    /// Returns the watched cluster, if there is one.
    pub fn cluster(&self) -> Option<&ClusterSettings> {
        self.cluster.as_ref()
    }

    /// Returns the configuration of NVIDIA's device plugin to write, if any.
    pub fn plugin_configs(&self) -> Option<&PluginConfigSettings> {
        self.plugin_configs.as_ref()
    }

    /// Returns how pods are annotated with their accelerator types, if they are.
    pub fn pod_annotations(&self) -> Option<&PodAnnotationSettings> {
        self.pod_types.as_ref()
    }

    /// Returns the addresses and the transport of the servers.
    pub fn serving(&self) -> &ServingSettings {
        &self.serving
    }

    /// Returns how agents are authenticated.
    pub fn agent_auth(&self) -> &AgentAuth {
        &self.agent_auth
    }

    /// Returns how HTTP clients are authenticated.
    pub fn http_auth(&self) -> &HttpAuth {
        &self.http_auth
    }

    /// Returns the limits of the fleet's state, and its retention.
    pub fn fleet(&self) -> FleetSettings {
        self.fleet
    }

    /// Returns the layouts file, if there is one.
    pub fn layouts(&self) -> Option<&Path> {
        self.layouts.as_deref()
    }

    /// Returns the file of hardware profiles, if there is one.
    pub fn profiles(&self) -> Option<&Path> {
        self.profiles.as_deref()
    }

    /// Returns the additional data for matching and estimates.
    pub fn advice(&self) -> &AdviceSettings {
        &self.advice
    }

    /// Returns the settings of the log.
    pub fn log(&self) -> &LogSettings {
        &self.log
    }
}

impl From<FleetArgs> for FleetSettings {
    fn from(args: FleetArgs) -> Self {
        Self::new(args.stale_after, args.forget_after, count(args.max_nodes))
    }
}

fn usage(message: &str) -> Answer {
    Answer::usage(&mut AggregatorArgs::command(), message)
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl FleetSettings {
    /// Creates the settings: a node is stale `stale_after` its last report, and is removed after being stale for
    /// `forget_after`.
    pub fn new(stale_after: Duration, forget_after: Duration, max_nodes: usize) -> Self {
        Self {
            stale_after,
            forget_after,
            max_nodes,
        }
    }

    /// Returns the age of an agent's last report at which its node becomes stale.
    pub fn stale_after(&self) -> Duration {
        self.stale_after
    }

    /// Returns how long a stale node is still shown.
    pub fn forget_after(&self) -> Duration {
        self.forget_after
    }

    /// Returns the maximum number of nodes.
    pub fn max_nodes(&self) -> usize {
        self.max_nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EarlyExitKind;

    fn settings(arguments: &[&str]) -> Result<AggregatorSettings, Answer> {
        let program = ["octavo-aggregator"].iter();
        AggregatorSettings::from_arguments(program.chain(arguments))
    }

    #[test]
    fn clap_command_is_valid() {
        AggregatorArgs::command().debug_assert();
    }

    #[test]
    fn everything_but_the_transport_has_its_documented_default() {
        let settings = settings(&["--plaintext", "--http-auth=none"]).unwrap();
        assert_eq!(settings.serving().grpc_listen().to_string(), "0.0.0.0:7443");
        assert_eq!(settings.serving().http_listen().to_string(), "0.0.0.0:8443");
        assert_eq!(settings.serving().transport(), &Transport::Plaintext);
        assert_eq!(settings.serving().max_connections(), 20_000);
        let fleet = FleetSettings::new(Duration::from_secs(30), Duration::from_hours(24), 100_000);
        assert_eq!(settings.fleet(), fleet);
        assert_eq!(settings.plugin_configs(), None);
        assert_eq!(settings.advice().price_book, None);
        assert_eq!(settings.advice().engine, None);
        assert_eq!(settings.cluster(), None);
        assert_eq!(settings.pod_annotations(), None);
    }

    #[test]
    fn watched_cluster_is_from_kubeconfig_or_pod() {
        let followed = |more: &[&str]| {
            let settings = settings(
                &[
                    &["--plaintext", "--http-auth=none", "--follow-cluster"],
                    more,
                ]
                .concat(),
            )
            .unwrap();
            settings.cluster().unwrap().kubeconfig.clone()
        };
        assert_eq!(followed(&[]), None);
        assert_eq!(followed(&["--kubeconfig=/k"]), Some(PathBuf::from("/k")));
    }

    #[test]
    fn profile_creation_is_opt_in_and_needs_authenticated_clients() {
        let tls = ["--tls-cert=/c", "--tls-key=/k"];
        let with = |arguments: &[&str]| settings(&[&tls[..], arguments].concat());
        let both = ["--follow-cluster", "--create-profiles"];
        let makes = |arguments: &[&str]| {
            let found = with(arguments).unwrap();
            found
                .cluster()
                .is_some_and(|cluster| cluster.create_profiles)
        };
        assert!(!makes(&["--http-auth=none", "--follow-cluster"]));
        assert!(makes(&[&both[..], &["--http-auth=token-review"]].concat()));
        assert!(makes(&[&both[..], &["--http-listen=127.0.0.1:0"]].concat()));
        for (arguments, said) in [
            (
                &["--http-auth=token-review", "--create-profiles"][..],
                "needs --follow-cluster",
            ),
            (
                &[both[0], both[1], "--http-auth=none"],
                "could make hardware profiles",
            ),
        ] {
            let text = with(arguments).unwrap_err().to_string();
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn pod_annotation_settings_are_resolved_and_validated() {
        let found = settings(&[
            "--plaintext",
            "--http-auth=none",
            "--annotate-pods",
            "--kubeconfig=/k",
        ])
        .unwrap();
        let found = found.pod_annotations().unwrap();
        assert_eq!(found.lease_namespace, "octavo-system");
        assert_eq!(found.lease_name, "octavo-aggregator");
        assert_eq!(found.kubeconfig, Some("/k".into()));
        assert!(!found.holder_prefix.is_empty());
        let wrong = [
            "--plaintext",
            "--http-auth=none",
            "--annotate-pods",
            "--lease-namespace=../x",
        ];
        let text = settings(&wrong).unwrap_err().to_string();
        assert!(text.contains("--lease-namespace"), "{text}");
    }

    #[test]
    fn unmatchable_host_name_is_rejected() {
        let named = |name: &str| {
            let name = format!("--http-host={name}");
            settings(&["--plaintext", "--http-auth=none", &name])
        };
        for (name, said) in [
            ("https://octavo.example", "without a scheme"),
            ("octavo.example:8443", "without a scheme"),
            ("octavo.example/nodes", "without a scheme"),
            ("octavo.example.", "without a dot"),
            ("a,,b", "is empty"),
        ] {
            let answer = named(name).unwrap_err();
            assert_eq!(answer.kind(), EarlyExitKind::UsageError, "{name}");
            let text = answer.to_string();
            assert!(
                text.contains("--http-host") && text.contains(said),
                "{text}"
            );
        }
        let settings = named("octavo.example,fleet").unwrap();
        assert_eq!(settings.serving().http_hosts(), ["octavo.example", "fleet"]);
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
        assert_eq!(
            settings(&["--plaintext", "--http-auth=none"])
                .unwrap()
                .agent_auth(),
            &AgentAuth::None
        );
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
            let AgentAuth::TokenReview(found) = found.agent_auth() else {
                panic!("{found:?}");
            };
            assert_eq!(
                found.rule().account.to_string(),
                "octavo-system/octavo-agent"
            );
            assert_eq!(found.rule().audience.as_str(), "octavo");
            assert_eq!(found.kubeconfig(), None);
        }
        for (arguments, said) in [
            (&["--plaintext"][..], "unencrypted"),
            (&["--plaintext", "--grpc-listen=10.0.0.1:1"], "unencrypted"),
            (
                &["--plaintext", "--agent-service-account=agent"],
                "octavo-system/octavo-agent",
            ),
            (&["--plaintext", "--agent-audience="], "--agent-audience"),
            (&["--plaintext", "--kubeconfig="], "--kubeconfig"),
        ] {
            let text = reviewed(arguments).unwrap_err().to_string();
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn incomplete_or_unused_certificate_is_rejected() {
        for (arguments, said) in [
            (&["--tls-cert=/c"][..], "--tls-cert needs --tls-key"),
            (&["--tls-key=/k"], "--tls-key needs --tls-cert"),
            (&["--tls-key=/k", "--plaintext"], "cannot be used with"),
            (&["--plaintext", "--max-nodes=0"], "--max-nodes"),
            (&["--plaintext", "--stale-after=0s"], "--stale-after"),
            (
                &["--plaintext", "--plugin-config-map=a"],
                "a namespace and a name",
            ),
            (&["--plaintext", "--grpc-listen=here"], "--grpc-listen"),
            (
                &["--plaintext", "--estimate-engine=ftp://x"],
                "--estimate-engine",
            ),
            (
                &["--plaintext", "--estimate-timeout=0s"],
                "--estimate-timeout",
            ),
        ] {
            let text = settings(arguments).unwrap_err().to_string();
            assert!(text.contains(said), "{text}");
        }
        let with = settings(&["--tls-cert=/c", "--tls-key=/k", "--http-auth=none"]).unwrap();
        let files = TlsFiles::new("/c".into(), "/k".into());
        assert_eq!(with.serving().transport(), &Transport::Tls(files));
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
            assert_eq!(with(&[&listen]).unwrap().http_auth(), &HttpAuth::None);
        }
        let settings = with(&["--http-auth=token-review", "--http-audience=octavo"]).unwrap();
        let HttpAuth::Reviewed(reviewed) = settings.http_auth() else {
            panic!("{settings:?}");
        };
        assert_eq!(reviewed.audience().unwrap().as_str(), "octavo");
        assert_eq!(reviewed.proxies(), None);
        let proxies = "--trusted-proxy=127.0.0.1,10.1.0.0/16";
        let settings = with(&["--http-auth=proxy-header", proxies]).unwrap();
        let HttpAuth::Reviewed(reviewed) = settings.http_auth() else {
            panic!("{settings:?}");
        };
        let proxies = reviewed.proxies().unwrap();
        assert!(proxies.contains("10.1.9.9".parse().unwrap()) && !proxies.groups());
    }

    #[test]
    fn http_auth_needs_tls_and_trusted_proxies() {
        for (arguments, said) in [
            (
                &["--plaintext", "--http-auth=token-review"][..],
                "unencrypted",
            ),
            (
                &[
                    "--plaintext",
                    "--http-auth=proxy-header",
                    "--trusted-proxy=10.0.0.1",
                ],
                "unencrypted",
            ),
            (
                &[
                    "--plaintext",
                    "--http-listen=127.0.0.1:0",
                    "--http-auth=proxy-header",
                ],
                "needs --trusted-proxy",
            ),
            (
                &[
                    "--plaintext",
                    "--http-auth=none",
                    "--trusted-proxy=10.0.0.1",
                ],
                "are for --http-auth proxy-header",
            ),
            (
                &["--plaintext", "--http-auth=none", "--trusted-proxy-groups"],
                "are for --http-auth proxy-header",
            ),
            (&["--plaintext", "--trusted-proxy=proxy"], "10.1.0.0/16"),
            (&["--plaintext", "--http-auth=some"], "--http-auth"),
        ] {
            let text = settings(arguments).unwrap_err().to_string();
            assert!(text.contains(said), "{text}");
        }
    }
}
