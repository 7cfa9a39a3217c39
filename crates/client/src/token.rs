//! The bearer token: read from a file for every request, because another process may renew it, or from a kubeconfig.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::Uri;
use hyper::header::HeaderValue;
use octavo_fleet::credential::{MAX_TOKEN_BYTES, Token, TokenError};
use octavo_kube::aggregator_access::AggregatorAccess;
use octavo_toolkit::files;
use tokio::sync::Mutex;

use super::RequestError;

/// Source of the bearer token.
#[derive(Debug, Clone)]
pub(super) enum Credentials {
    /// Requests have no token.
    None,
    /// A file with the token.
    File(PathBuf),
    /// The kubeconfig. The token is unknown until the aggregator requires one.
    Cluster { access: Arc<AggregatorAccess>, token: Arc<Mutex<Option<HeaderValue>>> },
}

impl Credentials {
    /// Creates the credentials of a kubeconfig's user.
    pub(super) fn from_cluster(access: Arc<AggregatorAccess>) -> Self {
        Self::Cluster { access, token: Arc::default() }
    }

    /// Returns the `Authorization` header of a request to `to`.
    pub(super) async fn current(&self, to: &Uri) -> Result<Option<HeaderValue>, RequestError> {
        match self {
            Self::None => Ok(None),
            Self::File(file) => authorization(file, to).map(Some),
            Self::Cluster { token, .. } => Ok(token.lock().await.clone()),
        }
    }

    /// Returns another header, after the aggregator rejected the current one; `None` if there is no other.
    pub(super) async fn renew(&self) -> Result<Option<HeaderValue>, RequestError> {
        let Self::Cluster { access, token } = self else {
            return Ok(None);
        };
        let renewed = access.authorization().await;
        let renewed = renewed.map_err(|error| RequestError::from_access(&error))?;
        *token.lock().await = Some(renewed.clone());
        Ok(Some(renewed))
    }
}

/// Returns the `Authorization` header of a request to `to`. The token is never sent unencrypted over a network.
pub(super) fn authorization(file: &Path, to: &Uri) -> Result<HeaderValue, RequestError> {
    if to.scheme_str() != Some("https") && !to.host().is_some_and(is_this_machine) {
        return Err(RequestError::TokenInClear);
    }
    let unusable = |source: Box<dyn std::error::Error + Send + Sync>| RequestError::Token {
        path: file.to_owned(),
        source,
    };
    // Reading more than the maximum detects an oversized file of any length.
    let most = u64::try_from(MAX_TOKEN_BYTES).unwrap_or(u64::MAX);
    let bytes = File::open(file)
        .and_then(|file| files::prefix_of(file, most.saturating_add(2)))
        .map_err(|error| unusable(error.into()))?;
    let text =
        str::from_utf8(&bytes).map_err(|_odd| unusable(TokenError::InvalidCharacters.into()))?;
    let token = Token::parse_opaque(text.trim_ascii()).map_err(|error| unusable(error.into()))?;
    let value = HeaderValue::try_from(format!("Bearer {}", token.expose()));
    let mut value = value.map_err(|_odd| unusable(TokenError::InvalidCharacters.into()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn token_is_sent_only_over_tls_or_loopback_and_is_not_printed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        fs::write(&file, "sha256~secret\n").unwrap();
        for to in [
            "https://octavo.example/x",
            "http://127.0.0.1:8080/x",
            "http://[::1]:8080/x",
            "http://localhost/x",
        ] {
            let value = authorization(&file, &to.parse().unwrap()).unwrap();
            assert_eq!(value, "Bearer sha256~secret", "{to}");
            assert!(!format!("{value:?}").contains("secret"));
        }
        for to in ["http://octavo.example/x", "http://10.0.0.1/x", "http://localhost.example/x"] {
            let error = authorization(&file, &to.parse().unwrap()).unwrap_err();
            assert!(matches!(error, RequestError::TokenInClear), "{to}");
        }
    }

    #[test]
    fn unusable_token_file_is_named_without_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let to: Uri = "https://octavo.example/x".parse().unwrap();
        let long = "s".repeat(MAX_TOKEN_BYTES + 1);
        for (content, message) in [
            (None, "No such file"),
            (Some(""), "empty"),
            (Some("two secrets"), "characters"),
            (Some(long.as_str()), "more than"),
        ] {
            let file = directory.path().join("token");
            if let Some(content) = content {
                fs::write(&file, content).unwrap();
            }
            let error = authorization(&file, &to).unwrap_err();
            let text = octavo_toolkit::error::chain(&error);
            assert!(text.contains("cannot use the token in "), "{text}");
            assert!(text.contains(message) && !text.contains("secrets"), "{text}");
        }
    }
}
