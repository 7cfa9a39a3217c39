//! Settings of the authentication and authorization of HTTP clients.

use clap::ValueEnum;
use octavo_access::access::TrustedIdentitySources;
use octavo_access::trusted_proxies::{Network, TrustedProxies};
use octavo_fleet::credential::Audience;
use octavo_settings::Answer;

use super::{ServingSettings, usage};

/// Settings of the authentication of HTTP clients.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Readers over HTTP")]
pub struct HttpAuthSettings {
    /// What people and programs have to show before they see pages, API and metrics
    ///
    /// There is no default where others than this machine reach --http-listen: say which it shall be.
    #[arg(long, value_name = "HOW", env = "OCTAVO_HTTP_AUTH")]
    pub http_auth: Option<HttpAuth>,

    /// For whom their tokens are; for the API server itself where this is not given
    #[arg(long, value_name = "AUDIENCE", env = "OCTAVO_HTTP_AUDIENCE")]
    pub http_audience: Option<Audience>,

    /// A proxy whose X-Forwarded-User is believed, with --http-auth proxy-header: an address, or a network such as 10.1.0.0/16
    ///
    /// Can be given more than once. From others the header is refused.
    #[arg(
        long = "trusted-proxy",
        value_name = "ADDRESS",
        env = "OCTAVO_TRUSTED_PROXIES",
        value_delimiter = ','
    )]
    pub trusted_proxies: Vec<Network>,

    /// Believe its X-Forwarded-Groups too
    ///
    /// Only for a proxy that replaces what its clients send under that name. Without this the header is refused.
    #[arg(long, env = "OCTAVO_TRUSTED_PROXY_GROUPS")]
    pub trusted_proxy_groups: bool,
}

/// Authentication of HTTP clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HttpAuth {
    /// Nothing: whoever reaches the port sees everything
    None,
    /// A bearer token, which the cluster's API server reviews; its roles decide
    TokenReview,
    /// The user whom a trusted proxy names, or a token; the cluster's roles decide
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
        Some(TrustedIdentitySources {
            audience: self.http_audience.clone(),
            proxies,
        })
    }

    /// Rejects invalid combinations, and returns the choice: without `--http-auth`, which requires a loopback address,
    /// clients are not authenticated.
    pub(super) fn check(&self, serving: &ServingSettings) -> Result<HttpAuth, Answer> {
        let alone = serving.http_listen.ip().is_loopback();
        let Some(how) = self.http_auth.or_else(|| alone.then_some(HttpAuth::None)) else {
            return Err(usage(&format!(
                "who may read over HTTP? {} is reached from other machines, so say it: --http-auth token-review asks the \
                 cluster who somebody is and what they may see, --http-auth proxy-header believes a proxy, --http-auth none \
                 shows everything to whoever reaches it. Or listen for this machine alone: --http-listen 127.0.0.1:8443",
                serving.http_listen
            )));
        };
        if how != HttpAuth::None && serving.plaintext && !alone {
            return Err(usage(
                "--http-auth with --plaintext: tokens and names would be sent unencrypted, for anybody on the way to take or \
                 to change. Use --tls-cert and --tls-key, or an --http-listen address of this machine alone, such as \
                 127.0.0.1:8443",
            ));
        }
        let has_proxies = !self.trusted_proxies.is_empty();
        if how != HttpAuth::ProxyHeader && (self.trusted_proxy_groups || has_proxies) {
            return Err(usage(
                "--trusted-proxy and --trusted-proxy-groups are for --http-auth proxy-header",
            ));
        }
        if how == HttpAuth::ProxyHeader && !has_proxies {
            return Err(usage(
                "--http-auth proxy-header needs --trusted-proxy: the address of the proxy that signs people in",
            ));
        }
        Ok(how)
    }
}
