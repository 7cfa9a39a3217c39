//! Settings of the authentication and authorization of HTTP clients.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;
use octavo_fleet::credential::Audience;
use thiserror::Error;

use super::{ServingSettings, Transport, usage};
use crate::Answer;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Readers over HTTP")]
pub(super) struct HttpAuthArgs {
    /// What people and programs have to show before they see pages, API and metrics
    ///
    /// There is no default where others than this machine reach --http-listen: say which it shall be.
    #[arg(long = "http-auth", value_name = "HOW", env = "OCTAVO_HTTP_AUTH")]
    http_auth: Option<HttpAuthArg>,

    /// For whom their tokens are; for the API server itself where this is not given
    #[arg(
        long = "http-audience",
        value_name = "AUDIENCE",
        env = "OCTAVO_HTTP_AUDIENCE"
    )]
    http_audience: Option<Audience>,

    /// A proxy whose X-Forwarded-User is believed, with --http-auth proxy-header: an address, or a network such as 10.1.0.0/16
    ///
    /// Can be given more than once. From others the header is refused.
    #[arg(
        long = "trusted-proxy",
        value_name = "ADDRESS",
        env = "OCTAVO_TRUSTED_PROXIES",
        value_delimiter = ','
    )]
    trusted_proxies: Vec<Network>,

    /// Believe its X-Forwarded-Groups too
    ///
    /// Only for a proxy that replaces what its clients send under that name. Without this the header is refused.
    #[arg(long = "trusted-proxy-groups", env = "OCTAVO_TRUSTED_PROXY_GROUPS")]
    trusted_proxy_groups: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HttpAuthArg {
    /// Nothing: whoever reaches the port sees everything
    None,
    /// A bearer token, which the cluster's API server reviews; its roles decide
    TokenReview,
    /// The user whom a trusted proxy names, or a token; the cluster's roles decide
    ProxyHeader,
}

/// Authentication of HTTP clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpAuth {
    /// None.
    None,
    /// Clients are authenticated; the cluster's roles determine what they may read.
    Reviewed(HttpReviewSettings),
}

/// Accepted identities, and the cluster that reviews them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpReviewSettings {
    audience: Option<Audience>,
    proxies: Option<TrustedProxies>,
    kubeconfig: Option<PathBuf>,
}

/// Proxies that are trusted to authenticate users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<Network>,
    groups: bool,
}

/// A network: addresses with a common prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// A text is not an address or a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not an address such as 10.1.2.3 or a network such as 10.1.0.0/16")]
pub struct NetworkError;

impl HttpReviewSettings {
    /// Returns the audience of tokens; `None` for the API server itself.
    pub fn audience(&self) -> Option<&Audience> {
        self.audience.as_ref()
    }

    /// Returns the trusted proxies, if there are any.
    pub fn proxies(&self) -> Option<&TrustedProxies> {
        self.proxies.as_ref()
    }

    /// Returns the cluster that reviews tokens; `None` for the one of this pod.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }
}

impl TrustedProxies {
    /// Creates the proxies of these networks; `groups` is whether their group headers are trusted too.
    pub fn new(networks: Vec<Network>, groups: bool) -> Self {
        Self { networks, groups }
    }

    /// Returns whether the peer is one of the proxies.
    pub fn contains(&self, peer: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(peer))
    }

    /// Returns whether their group headers are trusted too.
    pub fn groups(&self) -> bool {
        self.groups
    }
}

impl Network {
    /// Returns whether the network contains the address. An IPv4-mapped IPv6 address counts as its IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let rest = 32_u32.saturating_sub(self.bits.into());
                own.to_bits().checked_shr(rest) == other.to_bits().checked_shr(rest)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let rest = 128_u32.saturating_sub(self.bits.into());
                own.to_bits().checked_shr(rest) == other.to_bits().checked_shr(rest)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().map_err(|_| NetworkError)?,
        };
        if bits > most {
            return Err(NetworkError);
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl HttpAuthArgs {
    pub(super) fn resolve(
        self,
        kubeconfig: Option<PathBuf>,
        serving: &ServingSettings,
    ) -> Result<HttpAuth, Answer> {
        let alone = serving.http_listen().ip().is_loopback();
        let Some(how) = self
            .http_auth
            .or_else(|| alone.then_some(HttpAuthArg::None))
        else {
            return Err(usage(&format!(
                "who may read over HTTP? {} is reached from other machines, so say it: --http-auth token-review asks the \
                 cluster who somebody is and what they may see, --http-auth proxy-header believes a proxy, --http-auth none \
                 shows everything to whoever reaches it. Or listen for this machine alone: --http-listen 127.0.0.1:8443",
                serving.http_listen()
            )));
        };
        let open = *serving.transport() == Transport::Plaintext;
        if how != HttpAuthArg::None && open && !alone {
            return Err(usage(
                "--http-auth with --plaintext: tokens and names would be sent unencrypted, for anybody on the way to take or \
                 to change. Use --tls-cert and --tls-key, or an --http-listen address of this machine alone, such as \
                 127.0.0.1:8443",
            ));
        }
        if how != HttpAuthArg::ProxyHeader
            && (self.trusted_proxy_groups || !self.trusted_proxies.is_empty())
        {
            return Err(usage(
                "--trusted-proxy and --trusted-proxy-groups are for --http-auth proxy-header",
            ));
        }
        let proxies = match how {
            HttpAuthArg::None => return Ok(HttpAuth::None),
            HttpAuthArg::TokenReview => None,
            HttpAuthArg::ProxyHeader if self.trusted_proxies.is_empty() => {
                return Err(usage(
                    "--http-auth proxy-header needs --trusted-proxy: the address of the proxy that signs people in",
                ));
            }
            HttpAuthArg::ProxyHeader => Some(TrustedProxies::new(
                self.trusted_proxies,
                self.trusted_proxy_groups,
            )),
        };
        Ok(HttpAuth::Reviewed(HttpReviewSettings {
            audience: self.http_audience,
            proxies,
            kubeconfig,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_contains_addresses_with_its_prefix() {
        for (network, address, has) in [
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("10.1.2.3", "::ffff:10.1.2.3", true),
            ("10.1.0.0/16", "10.1.255.1", true),
            ("10.1.0.0/16", "10.2.0.1", false),
            ("10.1.128.0/17", "10.1.127.255", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::1", "::1", true),
            ("2001:db8::/32", "2001:db8:1::9", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db9::1", true),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert_eq!(
                parsed.contains(address.parse().unwrap()),
                has,
                "{network} {address}"
            );
        }
        for text in [
            "",
            "proxy",
            "10.1",
            "10.1.2.3/33",
            "::/129",
            "10.1.2.3/",
            "10.1.2.3/-1",
        ] {
            assert_eq!(text.parse::<Network>(), Err(NetworkError), "{text}");
        }
    }
}
