//! Proxies that authenticate users, identified by their network addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

/// Proxies that are trusted to authenticate users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Networks of the proxies.
    pub networks: Vec<Network>,
    /// Whether their group headers are trusted too.
    pub groups: bool,
}

/// A network: addresses with a common prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// A text is not an address or a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected an address such as 10.1.2.3 or a network such as 10.1.0.0/16")]
pub struct NetworkError;

impl TrustedProxies {
    /// Returns whether the peer is one of the proxies.
    pub fn contains(&self, peer: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(peer))
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
            assert_eq!(parsed.contains(address.parse().unwrap()), has, "{network} {address}");
        }
        for text in ["", "proxy", "10.1", "10.1.2.3/33", "::/129", "10.1.2.3/", "10.1.2.3/-1"] {
            assert_eq!(text.parse::<Network>(), Err(NetworkError), "{text}");
        }
    }
}
