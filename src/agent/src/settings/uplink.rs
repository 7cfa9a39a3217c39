//! Settings of the connection to the aggregator.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Uri;
use octavo_client::endpoint::{AggregatorEndpoint, Security, host, is_loopback, parse_url};
use octavo_model::id::NodeName;
use octavo_settings::{EarlyExit, duration};
use octavo_toolkit::files;
use rustls::pki_types::ServerName;

use super::usage;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Reporting")]
pub(super) struct UplinkArgs {
    /// URL of the aggregator; without it, the agent does not report
    ///
    /// Scheme, host and port. https needs --aggregator-ca; http needs --aggregator-plaintext.
    #[arg(long, value_name = "URL", env = "OCTAVO_AGGREGATOR")]
    aggregator: Option<String>,

    /// CA certificates (PEM) to verify the aggregator with
    ///
    /// Read for each connection, so the file can be replaced at any time.
    #[arg(long, value_name = "FILE", env = "OCTAVO_AGGREGATOR_CA")]
    aggregator_ca: Option<PathBuf>,

    /// Name in the aggregator's certificate [default: the host of the URL]
    #[arg(long, value_name = "NAME", env = "OCTAVO_AGGREGATOR_SERVER_NAME")]
    aggregator_server_name: Option<String>,

    /// Projected service account token that identifies this node to the aggregator
    ///
    /// Read for each connection, so the file can be replaced at any time. The token needs https or an aggregator at a
    /// loopback address, because it is never sent unencrypted over a network.
    #[arg(long, value_name = "FILE", env = "OCTAVO_AGGREGATOR_TOKEN")]
    aggregator_token: Option<PathBuf>,

    /// Report without encryption and without verifying the aggregator
    #[arg(long, env = "OCTAVO_AGGREGATOR_PLAINTEXT")]
    aggregator_plaintext: bool,

    /// Name of this Kubernetes node [default: the host name in lower case]
    ///
    /// Set this to spec.nodeName (downward API) in pods without hostNetwork, because their host name is the pod's
    /// name.
    #[arg(long, value_name = "NAME", env = "OCTAVO_NODE_NAME")]
    node_name: Option<String>,

    /// Interval of heartbeats to the aggregator while nothing changes
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_HEARTBEAT",
        default_value = "10s",
        value_parser = duration::positive
    )]
    heartbeat: Duration,
}

/// Settings of the aggregator that a node reports to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UplinkSettings {
    /// Its gRPC service.
    pub aggregator: AggregatorEndpoint,
    /// Name of the reported node.
    pub node: NodeName,
    /// Interval of heartbeats.
    pub heartbeat: Duration,
}

/// Answers are a few bytes; the default of 2 MiB would let a peer occupy that much memory of this process.
const WINDOW_BYTES: u32 = 64 * 1024;
/// The kernel's host name, which kubelet uses in lower case.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";
const MAX_HOSTNAME_BYTES: u64 = 4096;

impl UplinkArgs {
    pub(super) fn resolve(&self) -> Result<Option<UplinkSettings>, EarlyExit> {
        let Some(text) = &self.aggregator else {
            return Ok(None);
        };
        let url = parse_url(text).ok_or_else(|| {
            usage(&format!(
                "--aggregator: {text:?} is not a URL like https://octavo-aggregator.octavo:7443"
            ))
        })?;
        let security = if url.scheme_str() == Some("https") {
            let ca = self.aggregator_ca.clone().ok_or_else(|| {
                usage("--aggregator-ca is required for https://, to verify the aggregator")
            })?;
            let name = self.aggregator_server_name.as_deref();
            Security::Tls { ca, server: server_name(name, &url)? }
        } else {
            if !self.aggregator_plaintext {
                return Err(usage(
                    "--aggregator: http:// is neither encrypted nor authenticated. Use https://, \
                     or set --aggregator-plaintext",
                ));
            }
            if self.aggregator_ca.is_some() {
                return Err(usage(
                    "--aggregator-ca has no effect with http://, which does not verify the \
                     aggregator",
                ));
            }
            if self.aggregator_token.is_some() && !is_loopback(&url) {
                return Err(usage(
                    "--aggregator-token with http://: the token would be sent unencrypted over \
                     the network. Use https://, or an aggregator at a loopback address such as \
                     http://127.0.0.1:7443",
                ));
            }
            Security::Plaintext
        };
        Ok(Some(UplinkSettings {
            aggregator: AggregatorEndpoint {
                url,
                security,
                token: self.aggregator_token.clone(),
                window_bytes: WINDOW_BYTES,
            },
            node: self.node()?,
            heartbeat: self.heartbeat,
        }))
    }

    /// Returns the name of this machine's Node.
    pub(super) fn node(&self) -> Result<NodeName, EarlyExit> {
        node_name(self.node_name.as_deref(), Path::new(HOSTNAME))
    }
}

fn server_name(name: Option<&str>, url: &Uri) -> Result<ServerName<'static>, EarlyExit> {
    let name = name.unwrap_or_else(|| host(url)).to_owned();
    ServerName::try_from(name.clone()).map_err(|_| {
        usage(&format!("--aggregator-server-name: {name:?} is not a valid name for a certificate"))
    })
}

fn node_name(name: Option<&str>, hostname: &Path) -> Result<NodeName, EarlyExit> {
    let name = match name {
        Some(name) => name.to_owned(),
        None => files::text(hostname, MAX_HOSTNAME_BYTES)
            .map_err(|error| {
                usage(&format!(
                    "--node-name is needed: cannot read {}: {error}",
                    hostname.display()
                ))
            })?
            .trim()
            .to_ascii_lowercase(),
    };
    name.parse().map_err(|error| usage(&format!("--node-name: {error}")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::settings::AgentSettings;

    #[test]
    fn token_requires_tls_or_loopback() {
        let settings = |arguments: &[&str]| {
            let fixed = ["octavo-agent", "--node-name=n", "--aggregator-token=/token"];
            let settings = AgentSettings::from_arguments(fixed.iter().chain(arguments))?;
            Ok::<_, EarlyExit>(settings.uplink.unwrap())
        };
        for arguments in [
            &["--aggregator=https://a:1", "--aggregator-ca=/ca"][..],
            &["--aggregator=http://127.0.0.1:1", "--aggregator-plaintext"],
            &["--aggregator=http://127.8.0.9:1", "--aggregator-plaintext"],
            &["--aggregator=http://[::1]:1", "--aggregator-plaintext"],
        ] {
            let found = settings(arguments).unwrap();
            assert_eq!(found.aggregator.token, Some("/token".into()), "{arguments:?}");
        }
        for host in ["10.0.0.1", "[2001:db8::1]", "localhost", "127.0.0.1.example.org", "0.0.0.0"] {
            let url = format!("--aggregator=http://{host}:1");
            let refusal = settings(&[&url, "--aggregator-plaintext"]).unwrap_err();
            assert!(refusal.to_string().contains("sent unencrypted"), "{refusal}");
        }
    }

    #[test]
    fn node_name_defaults_to_lowercase_hostname() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hostname");
        fs::write(&file, "IP-10-0-0-1.EC2.internal\n").unwrap();
        let named = |given| node_name(given, &file).map(|name| name.to_string());
        assert_eq!(named(None).unwrap(), "ip-10-0-0-1.ec2.internal");
        assert_eq!(named(Some("node-1")).unwrap(), "node-1");
        // An explicit name is not normalized but rejected.
        assert!(named(Some("Node-1")).is_err());
        fs::write(&file, "my_host\n").unwrap();
        let refusal = named(None).unwrap_err().to_string();
        assert!(refusal.contains("--node-name: \"my_host\" is not"), "{refusal}");
        let refusal = node_name(None, &directory.path().join("none")).unwrap_err();
        assert!(refusal.to_string().contains("--node-name is needed"), "{refusal}");
    }
}
