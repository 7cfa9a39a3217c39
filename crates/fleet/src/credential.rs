//! Authentication of agents: bearer tokens of pods, and the API server's review of them.
//!
//! A token bound to a pod contains the name of the pod's node, signed by the API server. The bearer of the token of
//! an agent on node A is therefore authenticated as node A, and never as node B. Source: Kubernetes, KEP-4193.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use octavo_model::id::NodeName;
use thiserror::Error;

/// Maximum length of a token in bytes; longer ones are rejected. A pod's token has about 1.5 KiB.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Key under which a `TokenReview` contains the node of a pod's token. Source: KEP-4193.
pub const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";

/// Maximum number of characters of the API server's reason that are passed on.
const MAX_REASON_CHARS: usize = 200;

/// Bearer token. It is a secret, so `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Reason why a text is not accepted as a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TokenError {
    /// It is empty.
    #[error("the token is empty")]
    Empty,
    /// It is too long.
    #[error("the token has more than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    /// It is not a signed token. It may be a secret of another kind, so the message does not repeat it.
    #[error("the token is not a signed service account token (three parts separated by dots)")]
    Malformed,
    /// It has characters that no bearer token can have.
    #[error("the token has characters that are not allowed in a bearer token")]
    InvalidCharacters,
}

/// Service account of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    namespace: String,
    name: String,
}

/// Audience of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audience(String);

/// Text that is not a valid service account or audience.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not {expected}")]
pub struct NameError {
    text: String,
    expected: &'static str,
}

/// Authenticated user, as RBAC sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// The name.
    pub user: String,
    /// Identifier that distinguishes successive users of the same name; empty if unknown.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Additional attributes that authorizers other than RBAC may use.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Result of a `TokenReview`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenReview {
    /// True if the token is valid.
    pub authenticated: bool,
    /// Reason why it is not valid.
    pub error: String,
    /// Requested audiences for which the token is valid.
    pub audiences: Vec<String>,
    /// User of the token.
    pub caller: Caller,
}

/// Acceptance rule for agents' tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptanceRule {
    /// Service account of the agents.
    pub account: ServiceAccount,
    /// Required audience.
    pub audience: Audience,
}

/// Reason why a token is rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Denial {
    /// It is expired, its pod is gone, its signature is invalid, or it is for another audience.
    #[error("the API server rejected the token: {0}")]
    NotAuthenticated(String),
    /// It is not for the required audience.
    #[error("the token is not for the audience {0}")]
    Audience(Audience),
    /// It belongs to another account.
    #[error("the token belongs to {found:?}, not to {wanted}")]
    Account {
        /// User name of the token.
        found: String,
        /// Required service account.
        wanted: ServiceAccount,
    },
    /// It is not bound to a pod on a node, or the node name is invalid.
    #[error(
        "the token contains no node ({NODE_CLAIM}): it must be bound to a pod that runs on a node"
    )]
    NoNode,
}

impl Token {
    /// Parses any kind of bearer token, as users have them: tokens of `OpenShift` and of many identity providers are
    /// not signed tokens of three parts. Source of the permitted characters: RFC 6750, section 2.1.
    pub fn parse_opaque(text: &str) -> Result<Self, TokenError> {
        check_length(text)?;
        let known = |byte: u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/')
        };
        let padded = text.trim_end_matches('=');
        if !padded.is_empty() && padded.bytes().all(known) {
            Ok(Self(text.to_owned()))
        } else {
            Err(TokenError::InvalidCharacters)
        }
    }

    /// The token itself, for forwarding.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        check_length(text)?;
        let part = |part: &str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            !part.is_empty() && part.bytes().all(known)
        };
        if text.split('.').count() == 3 && text.split('.').all(part) {
            Ok(Self(text.to_owned()))
        } else {
            Err(TokenError::Malformed)
        }
    }
}

fn check_length(text: &str) -> Result<(), TokenError> {
    match text.len() {
        0 => Err(TokenError::Empty),
        1..=MAX_TOKEN_BYTES => Ok(()),
        _ => Err(TokenError::TooLong),
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl FromStr for ServiceAccount {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        // A namespace has no dot, a service account may have; both are DNS labels or subdomains.
        let parts = text.split_once('/').filter(|(namespace, name)| {
            let fine = |part: &str| part.parse::<NodeName>().is_ok();
            fine(namespace) && !namespace.contains('.') && fine(name)
        });
        let (namespace, name) = parts.ok_or_else(|| NameError {
            text: text.to_owned(),
            expected: "a service account like octavo-system/octavo-agent",
        })?;
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl ServiceAccount {
    /// User name of the account, as the API server reports it.
    pub fn username(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for Audience {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError {
                text: text.to_owned(),
                expected: "an audience: printable characters without spaces",
            })
        }
    }
}

impl Audience {
    /// Returns the audience as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TokenReview {
    /// Checks that the token is valid, and valid for `audience`.
    pub(super) fn check(&self, audience: Option<&Audience>) -> Result<(), Denial> {
        if !self.authenticated {
            return Err(Denial::NotAuthenticated(sanitized(&self.error)));
        }
        // An API server whose authenticator ignores audiences returns none; such a token would be valid for any
        // audience.
        match audience {
            Some(audience) if !self.audiences.iter().any(|one| one == audience.as_str()) => {
                Err(Denial::Audience(audience.clone()))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl AcceptanceRule {
    /// Node for which the bearer of a token with this review may report.
    pub fn authenticate(&self, review: &TokenReview) -> Result<NodeName, Denial> {
        review.check(Some(&self.audience))?;
        let Caller { user, extra, .. } = &review.caller;
        if *user != self.account.username() {
            return Err(Denial::Account { found: sanitized(user), wanted: self.account.clone() });
        }
        match extra.get(NODE_CLAIM).map(Vec::as_slice) {
            Some([node]) => node.parse().map_err(|_odd| Denial::NoNode),
            Some(_) | None => Err(Denial::NoNode),
        }
    }
}

/// Start of an external message without control characters, which a terminal could interpret.
pub(super) fn sanitized(message: &str) -> String {
    if message.is_empty() {
        return "no reason given".to_owned();
    }
    let message = message.chars().take(MAX_REASON_CHARS);
    message.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
