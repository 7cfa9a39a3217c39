//! Settings of the connection to the aggregator: the common flags of all commands about the fleet.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use hyper::Uri;
use thiserror::Error;

use crate::config::duration;

/// Raw arguments.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Aggregator")]
pub(super) struct ServerArgs {
    /// The aggregator to ask
    ///
    /// With https:// its certificate is checked; http:// is taken as given. Without either, https:// is meant.
    #[arg(
        long,
        value_name = "URL",
        env = "OCTAVO_SERVER",
        hide_env_values = true,
        default_value = "https://localhost:8443"
    )]
    server: ServerUrl,

    /// Certificates (PEM) of who may vouch for the aggregator, instead of the system's
    #[arg(long, value_name = "FILE", env = "OCTAVO_CA", hide_env_values = true)]
    ca: Option<PathBuf>,

    /// A file with the token that says who asks, where the aggregator wants to know
    ///
    /// Such as one that `kubectl create token` made. It is read anew for each request, and sent over TLS or to this machine only.
    #[arg(
        long,
        value_name = "FILE",
        env = "OCTAVO_TOKEN_FILE",
        hide_env_values = true
    )]
    token_file: Option<PathBuf>,

    /// How long one answer may take
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_TIMEOUT",
        hide_env_values = true,
        default_value = "10s",
        value_parser = duration::positive
    )]
    timeout: Duration,
}

/// Settings of the connection to the aggregator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    server: ServerUrl,
    ca: Option<PathBuf>,
    token_file: Option<PathBuf>,
    timeout: Duration,
}

/// URL of an aggregator: scheme, authority, and a proxy's path prefix, without a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

/// A text is not the URL of an aggregator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not an address such as https://octavo.example.org or http://127.0.0.1:8080")]
pub struct ServerUrlError;

impl ServerSettings {
    /// Creates settings for an aggregator without TLS at `server`, for a program that has just started it.
    pub fn plaintext(server: ServerUrl, timeout: Duration) -> Self {
        Self {
            server,
            ca: None,
            token_file: None,
            timeout,
        }
    }

    /// Returns its URL.
    pub fn server(&self) -> &ServerUrl {
        &self.server
    }

    /// Returns the CA certificates to trust; `None` for the system's.
    pub fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    /// Returns the file with the token that authenticates the client, if there is one.
    pub fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }

    /// Returns the timeout for one answer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}

impl ServerUrl {
    /// Returns whether the scheme is `https`.
    pub fn is_secure(&self) -> bool {
        self.0.starts_with("https://")
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ServerUrl {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = if text.contains("://") {
            text.to_owned()
        } else {
            format!("https://{text}")
        };
        let uri: Uri = text.parse().map_err(|_| ServerUrlError)?;
        let authority = uri.authority().ok_or(ServerUrlError)?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        let plain = !authority.host().is_empty() && !authority.as_str().contains('@');
        let port =
            authority.as_str().len() == authority.host().len() || authority.port_u16().is_some();
        // hyper silently drops a fragment.
        if !known || !plain || !port || uri.query().is_some() || text.contains('#') {
            return Err(ServerUrlError);
        }
        let scheme = uri.scheme_str().unwrap_or_default();
        let path = uri.path().trim_end_matches('/');
        Ok(Self(format!("{scheme}://{authority}{path}")))
    }
}

impl From<ServerArgs> for ServerSettings {
    fn from(args: ServerArgs) -> Self {
        Self {
            server: args.server,
            ca: args.ca,
            token_file: args.token_file,
            timeout: args.timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_normalized_to_its_base() {
        for (text, kept) in [
            ("https://octavo.example.org", "https://octavo.example.org"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
            ("localhost:8443", "https://localhost:8443"),
            ("octavo", "https://octavo"),
            ("https://proxy/octavo/", "https://proxy/octavo"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("HTTPS://Host", "https://Host"),
        ] {
            assert_eq!(text.parse(), Ok(ServerUrl(kept.to_owned())), "{text}");
        }
    }

    #[test]
    fn invalid_server_url_is_rejected() {
        for text in [
            "",
            "ftp://host",
            "https://",
            "https://user:word@host",
            "https://host/?a=b",
            "https://host/#a",
            "https://host name",
            "/nodes",
            "http://host:99999",
        ] {
            assert_eq!(text.parse::<ServerUrl>(), Err(ServerUrlError), "{text}");
        }
    }
}
