//! Settings of the aggregator.

mod auth;
mod sharing;

use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{CommandFactory, Parser, value_parser};

use super::duration;
use super::kubernetes::KubernetesArgs;
use super::log::{LogArgs, LogSettings};
use super::{Answer, parse};

use auth::AuthArgs;
pub use auth::{AgentAuth, TokenReviewSettings};
pub use sharing::PluginConfigs;
use sharing::SharingArgs;

const EXAMPLES: &str = "\
Examples:
  # On a laptop, without certificates
  octavo-aggregator --plaintext

  # In a cluster, with a certificate that something renews in place
  octavo-aggregator --tls-cert /tls/tls.crt --tls-key /tls/tls.key

  # In a cluster where only agents report, each for its own node
  octavo-aggregator --tls-cert /tls/tls.crt --tls-key /tls/tls.key --agent-auth token-review

  # Behind a proxy that does TLS
  octavo-aggregator --plaintext --grpc-listen 127.0.0.1:7443 --http-listen 127.0.0.1:8443

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
    fleet: FleetArgs,

    #[command(flatten)]
    kubernetes: KubernetesArgs,

    #[command(flatten)]
    sharing: SharingArgs,

    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Serving")]
struct ServingArgs {
    /// Where agents connect, and programs that watch the fleet; port 0 takes any free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "OCTAVO_GRPC_LISTEN",
        hide_env_values = true,
        default_value = "0.0.0.0:7443"
    )]
    grpc_listen: SocketAddr,

    /// Where pages, REST and metrics are served; port 0 takes any free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "OCTAVO_HTTP_LISTEN",
        hide_env_values = true,
        default_value = "0.0.0.0:8443"
    )]
    http_listen: SocketAddr,

    /// The certificate of both servers, with its chain, in PEM
    ///
    /// It is read again when it or the key has changed. A pair that cannot be used leaves the one before in use.
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_TLS_CERT",
        hide_env_values = true
    )]
    tls_cert: Option<PathBuf>,

    /// The certificate's private key, in PEM
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_TLS_KEY",
        hide_env_values = true
    )]
    tls_key: Option<PathBuf>,

    /// Serve both without TLS: for a laptop, or behind something that does TLS
    #[arg(long, env = "OCTAVO_PLAINTEXT", hide_env_values = true)]
    plaintext: bool,

    /// Most connections of each server; more are refused
    ///
    /// Each takes a file descriptor, so the limit of open files (ulimit -n) must be above twice this number. Each may
    /// also hold messages that came in part: 2 MiB of memory at worst.
    #[arg(
        long,
        value_name = "COUNT",
        env = "OCTAVO_MAX_CONNECTIONS",
        hide_env_values = true,
        default_value_t = 20_000,
        value_parser = value_parser!(u32).range(1..=1_000_000)
    )]
    max_connections: u32,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Fleet")]
struct FleetArgs {
    /// How old what an agent said may be before its node counts as stale
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_STALE_AFTER",
        hide_env_values = true,
        default_value = "30s",
        value_parser = duration::positive
    )]
    stale_after: Duration,

    /// How long a stale node is still shown
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_FORGET_AFTER",
        hide_env_values = true,
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
        hide_env_values = true,
        default_value_t = 100_000,
        value_parser = value_parser!(u32).range(1..=10_000_000)
    )]
    max_nodes: u32,

    /// Layouts whose plans can be looked at on a node's page and in the API
    ///
    /// A layout file in either dialect. It is read again when it has changed; one that cannot be read leaves the layouts
    /// before in use. The layouts made for a node's own devices, such as all-balanced, need no file.
    #[arg(
        long,
        value_name = "FILE",
        env = "OCTAVO_LAYOUTS",
        hide_env_values = true
    )]
    layouts: Option<PathBuf>,
}

/// What the aggregator runs on.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregatorSettings {
    serving: ServingSettings,
    agent_auth: AgentAuth,
    fleet: FleetSettings,
    layouts: Option<PathBuf>,
    plugin_configs: Option<PluginConfigs>,
    log: LogSettings,
}

/// Where and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServingSettings {
    grpc_listen: SocketAddr,
    http_listen: SocketAddr,
    transport: Transport,
    max_connections: usize,
}

/// What the connections are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// TCP as it is.
    Plaintext,
    /// TLS with this certificate.
    Tls(TlsFiles),
}

/// Where a certificate lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
}

/// What is kept of the fleet, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetSettings {
    stale_after: Duration,
    forget_after: Duration,
    max_nodes: usize,
}

impl AggregatorSettings {
    /// The settings that the arguments and the environment of this process give.
    pub fn from_process() -> Result<Self, Answer> {
        Self::from_arguments(env::args_os())
    }

    /// The settings that `arguments` give, program name first.
    pub fn from_arguments<A>(arguments: impl IntoIterator<Item = A>) -> Result<Self, Answer>
    where
        A: Into<OsString> + Clone,
    {
        let args = parse::<AggregatorArgs, _>(arguments)?;
        let serving = args.serving.resolve()?;
        let kubeconfig = args.kubernetes.kubeconfig.clone();
        Ok(Self {
            agent_auth: args.auth.resolve(args.kubernetes, &serving)?,
            serving,
            layouts: args.fleet.layouts.clone(),
            fleet: args.fleet.into(),
            plugin_configs: args.sharing.resolve(kubeconfig),
            log: args.log.into(),
        })
    }

    /// The configuration of NVIDIA's device plugin that is written, where one is.
    pub fn plugin_configs(&self) -> Option<&PluginConfigs> {
        self.plugin_configs.as_ref()
    }

    /// Where and how it is reached.
    pub fn serving(&self) -> &ServingSettings {
        &self.serving
    }

    /// What an agent has to prove.
    pub fn agent_auth(&self) -> &AgentAuth {
        &self.agent_auth
    }

    /// What is kept of the fleet, and for how long.
    pub fn fleet(&self) -> FleetSettings {
        self.fleet
    }

    /// The file of layouts, if there is one.
    pub fn layouts(&self) -> Option<&Path> {
        self.layouts.as_deref()
    }

    /// What is logged and how.
    pub fn log(&self) -> &LogSettings {
        &self.log
    }
}

impl ServingArgs {
    fn resolve(self) -> Result<ServingSettings, Answer> {
        let usage = |message| Err(usage(message));
        let transport = match (self.tls_cert, self.tls_key, self.plaintext) {
            (None, None, true) => Transport::Plaintext,
            (Some(certificate), Some(key), false) => Transport::Tls(TlsFiles { certificate, key }),
            (None, None, false) => {
                return usage(
                    "there is no certificate: give --tls-cert and --tls-key, or say --plaintext to serve without TLS",
                );
            }
            (Some(_), None, false) => return usage("--tls-cert needs --tls-key"),
            (None, Some(_), false) => return usage("--tls-key needs --tls-cert"),
            (_, _, true) => {
                return usage("--plaintext cannot be used with --tls-cert or --tls-key");
            }
        };
        Ok(ServingSettings {
            grpc_listen: self.grpc_listen,
            http_listen: self.http_listen,
            transport,
            max_connections: count(self.max_connections),
        })
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

impl ServingSettings {
    /// Where agents connect.
    pub fn grpc_listen(&self) -> SocketAddr {
        self.grpc_listen
    }

    /// Where people and programs connect.
    pub fn http_listen(&self) -> SocketAddr {
        self.http_listen
    }

    /// What the connections are made of.
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Most connections of each server.
    pub fn max_connections(&self) -> usize {
        self.max_connections
    }
}

impl TlsFiles {
    /// A certificate chain and its key, both in PEM.
    pub fn new(certificate: PathBuf, key: PathBuf) -> Self {
        Self { certificate, key }
    }

    /// The certificate, with its chain.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Its key.
    pub fn key(&self) -> &Path {
        &self.key
    }
}

impl FleetSettings {
    /// A node is stale `stale_after` its last word, and forgotten when it has been for `forget_after`.
    pub fn new(stale_after: Duration, forget_after: Duration, max_nodes: usize) -> Self {
        Self {
            stale_after,
            forget_after,
            max_nodes,
        }
    }

    /// How old what an agent said may be before its node counts as stale.
    pub fn stale_after(&self) -> Duration {
        self.stale_after
    }

    /// How long a stale node is still shown.
    pub fn forget_after(&self) -> Duration {
        self.forget_after
    }

    /// Most nodes that are kept.
    pub fn max_nodes(&self) -> usize {
        self.max_nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AnswerKind;

    fn settings(arguments: &[&str]) -> Result<AggregatorSettings, Answer> {
        let program = ["octavo-aggregator"].iter();
        AggregatorSettings::from_arguments(program.chain(arguments))
    }

    #[test]
    fn the_description_given_to_clap_is_sound() {
        AggregatorArgs::command().debug_assert();
    }

    #[test]
    fn everything_but_the_transport_has_its_documented_default() {
        let settings = settings(&["--plaintext"]).unwrap();
        assert_eq!(settings.serving().grpc_listen().to_string(), "0.0.0.0:7443");
        assert_eq!(settings.serving().http_listen().to_string(), "0.0.0.0:8443");
        assert_eq!(settings.serving().transport(), &Transport::Plaintext);
        assert_eq!(settings.serving().max_connections(), 20_000);
        let fleet = FleetSettings::new(Duration::from_secs(30), Duration::from_hours(24), 100_000);
        assert_eq!(settings.fleet(), fleet);
        assert_eq!(settings.plugin_configs(), None);
    }

    #[test]
    fn without_a_certificate_both_ways_out_are_named() {
        let answer = settings(&[]).unwrap_err();
        assert_eq!(answer.kind(), AnswerKind::UsageError);
        let text = answer.to_string();
        for flag in ["--tls-cert", "--tls-key", "--plaintext"] {
            assert!(text.contains(flag), "{text}");
        }
    }

    #[test]
    fn agents_are_reviewed_by_a_documented_rule_and_only_where_a_token_stays_secret() {
        assert_eq!(
            settings(&["--plaintext"]).unwrap().agent_auth(),
            &AgentAuth::None
        );
        let reviewed =
            |arguments: &[&str]| settings(&[&["--agent-auth=token-review"], arguments].concat());
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
    fn half_a_certificate_and_a_needless_one_are_refused() {
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
        ] {
            let text = settings(arguments).unwrap_err().to_string();
            assert!(text.contains(said), "{text}");
        }
        let with = settings(&["--tls-cert=/c", "--tls-key=/k"]).unwrap();
        let files = TlsFiles::new("/c".into(), "/k".into());
        assert_eq!(with.serving().transport(), &Transport::Tls(files));
    }
}
