//! Who an agent proves to be: bearer tokens of pods, and what the API server says of one.
//!
//! A token that is bound to a pod carries the name of the pod's node, signed by the API server. So whoever holds the token of
//! an agent on node A is believed to be node A, and never node B. Source: Kubernetes, KEP-4193.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::id::NodeName;

/// A token longer than this is not looked at. A pod's has about 1.5 KiB.
pub const LONGEST_TOKEN: usize = 16 * 1024;

/// The key under which the API server tells the node of a pod's token. Source: KEP-4193.
pub const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";

/// Characters of the API server's reason that are passed on.
const LONGEST_REASON: usize = 200;

/// A bearer token. Whoever has it is believed, so it is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// A text that is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TokenError {
    /// Nothing.
    #[error("the token is empty")]
    Empty,
    /// Too much.
    #[error("the token has more than {LONGEST_TOKEN} bytes")]
    TooLong,
    /// Something else. The text may be a secret of another kind, so it is not repeated.
    #[error("the token is not a signed one of a service account (three parts with dots between)")]
    Malformed,
    /// Something that no bearer token can be.
    #[error("the token has characters that a bearer token cannot have")]
    Odd,
}

/// A service account of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    namespace: String,
    name: String,
}

/// Whom a token is meant for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audience(String);

/// A text that does not name a service account or an audience.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not {expected}")]
pub struct NameError {
    text: String,
    expected: &'static str,
}

/// What the API server says of a token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Review {
    /// Whether it is one that counts.
    pub authenticated: bool,
    /// Why not.
    pub error: String,
    /// Whose it is.
    pub username: String,
    /// For whom it is, of those that were asked about.
    pub audiences: Vec<String>,
    /// The nodes that it names under [`NODE_CLAIM`].
    pub nodes: Vec<String>,
}

/// Whose tokens are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// As whom agents run.
    pub account: ServiceAccount,
    /// For whom their tokens are.
    pub audience: Audience,
}

/// Why a token does not let its holder in.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Denial {
    /// It has expired, its pod is gone, nobody signed it, or it is for somebody else.
    #[error("the API server does not accept the token: {0}")]
    NotAuthenticated(String),
    /// It is not for us.
    #[error("the token is not for the audience {0}")]
    Audience(Audience),
    /// It is of somebody else.
    #[error("the token is of {found:?} and not of {wanted}")]
    Account {
        /// Whose it is.
        found: String,
        /// Whose it should be.
        wanted: ServiceAccount,
    },
    /// It is bound to no pod on a node, or to something odd.
    #[error("the token names no node ({NODE_CLAIM}): it has to be bound to a pod that has one")]
    NoNode,
}

impl Token {
    /// A bearer token of whatever kind, as people have them: those of `OpenShift` and of many who sign people in are no signed ones of
    /// three parts. Source of what can be in one: RFC 6750, section 2.1.
    pub fn of_any_kind(text: &str) -> Result<Self, TokenError> {
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        if text.len() > LONGEST_TOKEN {
            return Err(TokenError::TooLong);
        }
        let known = |byte: u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/')
        };
        let padded = text.trim_end_matches('=');
        if !padded.is_empty() && padded.bytes().all(known) {
            Ok(Self(text.to_owned()))
        } else {
            Err(TokenError::Odd)
        }
    }

    /// The token itself, for those who send it on.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        if text.len() > LONGEST_TOKEN {
            return Err(TokenError::TooLong);
        }
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

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl FromStr for ServiceAccount {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        // A namespace has no dot and a service account may; both are parts of host names.
        let parts = text.split_once('/').filter(|(namespace, name)| {
            let fine = |part: &str| part.parse::<NodeName>().is_ok();
            fine(namespace) && !namespace.contains('.') && fine(name)
        });
        let (namespace, name) = parts.ok_or_else(|| NameError {
            text: text.to_owned(),
            expected: "a service account like octavo-system/octavo-agent",
        })?;
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl ServiceAccount {
    /// What the API server calls it.
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
    /// The audience as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Rule {
    /// The node that the holder of a token with this review speaks for.
    pub fn judge(&self, review: &Review) -> Result<NodeName, Denial> {
        if !review.authenticated {
            return Err(Denial::NotAuthenticated(tamed(&review.error)));
        }
        // An API server whose authenticator knows no audiences says none: its word would be for any.
        if !review
            .audiences
            .iter()
            .any(|one| one == self.audience.as_str())
        {
            return Err(Denial::Audience(self.audience.clone()));
        }
        if review.username != self.account.username() {
            return Err(Denial::Account {
                found: tamed(&review.username),
                wanted: self.account.clone(),
            });
        }
        match review.nodes.as_slice() {
            [node] => node.parse().map_err(|_odd| Denial::NoNode),
            _ => Err(Denial::NoNode),
        }
    }
}

/// The beginning of what somebody else said, without what a terminal could take for a command.
pub(super) fn tamed(said: &str) -> String {
    if said.is_empty() {
        return "it gives no reason".to_owned();
    }
    let said = said.chars().take(LONGEST_REASON);
    said.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
