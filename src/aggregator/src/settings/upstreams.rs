//! Settings of the aggregators of other clusters, whose nodes this one shows too.

use std::path::PathBuf;

use octavo_client::endpoint::{AggregatorEndpoint, Security, host, is_loopback, parse_url};
use octavo_model::id::is_label_name;
use octavo_settings::EarlyExit;
use rustls::pki_types::ServerName;

use super::usage;

/// Number of bytes that an upstream aggregator may send before they are read. The status of a node has 6 KB to 10 KB.
const WINDOW_BYTES: u32 = 1 << 20;

/// Settings of upstream aggregators.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Other clusters")]
pub struct UpstreamSettings {
    /// Aggregator of another cluster, whose nodes are shown too; can be repeated
    ///
    /// URL is that of its gRPC service. NAME is appended to the names of its nodes, as in gpu-0.NAME, and is the value of their label
    /// octavo.dev/cluster. https:// needs --upstream-credentials; http:// is accepted for loopback addresses only.
    #[arg(
        long = "upstream",
        value_name = "NAME=URL",
        env = "OCTAVO_UPSTREAMS",
        value_delimiter = ','
    )]
    pub upstreams: Vec<String>,

    /// Directory with the files NAME/ca.crt and NAME/token for each --upstream
    ///
    /// The CA certificates (PEM) to verify the aggregator with, and the token of an account with the permission to watch its nodes. They are
    /// read for each connection, so they can be replaced at any time.
    #[arg(
        long,
        value_name = "DIRECTORY",
        env = "OCTAVO_UPSTREAM_CREDENTIALS",
        requires = "upstreams"
    )]
    pub upstream_credentials: Option<PathBuf>,

    /// The aggregators by the name of their cluster.
    #[arg(skip)]
    pub endpoints: Vec<(String, AggregatorEndpoint)>,
}

impl UpstreamSettings {
    /// Parses the addresses.
    pub(super) fn resolve(&mut self) -> Result<(), EarlyExit> {
        for text in &self.upstreams {
            let (name, endpoint) = self.endpoint(text)?;
            if self.endpoints.iter().any(|(known, _)| *known == name) {
                return Err(usage(&format!("--upstream: two aggregators have the name {name}")));
            }
            self.endpoints.push((name, endpoint));
        }
        Ok(())
    }

    fn endpoint(&self, text: &str) -> Result<(String, AggregatorEndpoint), EarlyExit> {
        let (name, url) = text.split_once('=').unwrap_or((text, ""));
        // A wrong URL can contain a password.
        let url = parse_url(url).ok_or_else(|| {
            usage(&format!(
                "--upstream {name}: use a name and a URL like paris=https://octavo.paris.example:7443"
            ))
        })?;
        if !is_label_name(name) {
            return Err(usage(&format!(
                "--upstream: {name:?} is not a name: use at most 63 lower-case letters, digits and '-'"
            )));
        }
        let directory = self.upstream_credentials.as_ref().map(|directory| directory.join(name));
        let (security, token) = match (url.scheme_str(), directory) {
            (Some("https"), Some(directory)) => {
                let server = ServerName::try_from(host(&url).to_owned()).map_err(|_| {
                    usage(&format!(
                        "--upstream {name}: the host is not a valid name for a certificate"
                    ))
                })?;
                (
                    Security::Tls { ca: directory.join("ca.crt"), server },
                    Some(directory.join("token")),
                )
            }
            (Some("https"), None) => {
                return Err(usage(&format!(
                    "--upstream {name}: https:// needs --upstream-credentials DIRECTORY with {name}/ca.crt and {name}/token"
                )));
            }
            _ if is_loopback(&url) => (Security::Plaintext, None),
            _ => {
                return Err(usage(&format!(
                    "--upstream {name}: http:// is neither encrypted nor authenticated. Use https://, or a loopback address \
                     such as http://127.0.0.1:7443"
                )));
            }
        };
        let endpoint = AggregatorEndpoint { url, security, token, window_bytes: WINDOW_BYTES };
        Ok((name.to_owned(), endpoint))
    }
}
