//! URL of an aggregator.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;
use thiserror::Error;

/// URL of an aggregator: scheme, authority, and a proxy's path prefix, without a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

/// A text is not the URL of an aggregator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a URL such as https://octavo.example.org or http://127.0.0.1:8080")]
pub struct ServerUrlError;

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
        let text = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_normalized_to_its_base() {
        for (text, expected) in [
            ("https://octavo.example.org", "https://octavo.example.org"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
            ("localhost:8443", "https://localhost:8443"),
            ("octavo", "https://octavo"),
            ("https://proxy/octavo/", "https://proxy/octavo"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("HTTPS://Host", "https://Host"),
        ] {
            assert_eq!(text.parse(), Ok(ServerUrl(expected.to_owned())), "{text}");
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
