//! Settings of the authentication and authorization of HTTP clients.

use clap::ValueEnum;
use octavo_access::guard::TrustedIdentitySources;
use octavo_access::trusted_proxies::{Network, TrustedProxies};
use octavo_fleet::credential::Audience;
use octavo_settings::EarlyExit;

use super::{ServingSettings, usage};

/// Settings of the authentication of HTTP clients.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "HTTP clients")]
pub struct HttpAuthSettings {
    /// Authentication of HTTP clients, for pages, API and metrics
    ///
    /// Required if --http-listen is not a loopback address.
    #[arg(long, value_name = "METHOD", env = "OCTAVO_HTTP_AUTH")]
    pub http_auth: Option<HttpAuth>,

    /// Audience of the clients' tokens [default: the API server]
    #[arg(long, value_name = "AUDIENCE", env = "OCTAVO_HTTP_AUDIENCE")]
    pub http_audience: Option<Audience>,

    /// Trusted proxy for X-Forwarded-User, with --http-auth proxy-header: an IP address, or a network such as
    /// 10.1.0.0/16
    ///
    /// Repeat for several. Requests with this header from other addresses are rejected.
    #[arg(
        long = "trusted-proxy",
        value_name = "ADDRESS",
        env = "OCTAVO_TRUSTED_PROXIES",
        value_delimiter = ','
    )]
    pub trusted_proxies: Vec<Network>,

    /// Also trust X-Forwarded-Groups of the proxy
    ///
    /// Use this only if the proxy replaces this header of its clients. Without this flag, requests with this header
    /// are rejected.
    #[arg(long, env = "OCTAVO_TRUSTED_PROXY_GROUPS")]
    pub trusted_proxy_groups: bool,
}

/// Authentication of HTTP clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HttpAuth {
    /// No authentication: any client that can reach the port can read all data
    None,
    /// Bearer token, reviewed by the API server; cluster roles decide the access
    TokenReview,
    /// User name from a trusted proxy, or a bearer token; cluster roles decide the access
    ProxyHeader,
}

impl HttpAuthSettings {
    /// Returns the trusted sources of identities; `None` if clients are not authenticated.
    pub fn sources(&self) -> Option<TrustedIdentitySources> {
        let proxies = match self.http_auth {
            Some(HttpAuth::None) => return None,
            // Without a choice, access stays closed.
            None | Some(HttpAuth::TokenReview) => None,
            Some(HttpAuth::ProxyHeader) => Some(TrustedProxies {
                networks: self.trusted_proxies.clone(),
                groups: self.trusted_proxy_groups,
            }),
        };
        Some(TrustedIdentitySources { audience: self.http_audience.clone(), proxies })
    }

    /// Rejects invalid combinations, and returns the choice: without `--http-auth`, which requires a loopback address,
    /// clients are not authenticated.
    pub(super) fn check(&self, serving: &ServingSettings) -> Result<HttpAuth, EarlyExit> {
        let alone = serving.http_listen.ip().is_loopback();
        let Some(how) = self.http_auth.or_else(|| alone.then_some(HttpAuth::None)) else {
            return Err(usage(&format!(
                "--http-auth is required, because {} is reachable from other machines. \
                 token-review authenticates and authorizes clients through the cluster, \
                 proxy-header trusts a proxy, none shows everything to any client. Or use a \
                 loopback address: --http-listen 127.0.0.1:8443",
                serving.http_listen
            )));
        };
        if how != HttpAuth::None && serving.plaintext && !alone {
            return Err(usage(
                "--http-auth with --plaintext: tokens and user names would be sent unencrypted \
                 over the network. Use --tls-cert and --tls-key, or a loopback address for \
                 --http-listen, such as 127.0.0.1:8443",
            ));
        }
        let has_proxies = !self.trusted_proxies.is_empty();
        if how != HttpAuth::ProxyHeader && (self.trusted_proxy_groups || has_proxies) {
            return Err(usage(
                "--trusted-proxy and --trusted-proxy-groups need --http-auth proxy-header",
            ));
        }
        if how == HttpAuth::ProxyHeader && !has_proxies {
            return Err(usage(
                "--http-auth proxy-header needs --trusted-proxy, the address of the \
                 authenticating proxy",
            ));
        }
        Ok(how)
    }
}
