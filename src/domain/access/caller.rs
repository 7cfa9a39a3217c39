//! Who asks: what the API server says of a token, or a proxy of somebody who signed in with it.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::domain::credential::{Audience, Denial, tamed};

/// The group of everybody who proved to be somebody. Source: Kubernetes, `k8s.io/apiserver/pkg/authentication/user`.
pub const AUTHENTICATED: &str = "system:authenticated";

/// Bytes of a name that a proxy says, of its groups together, and how many those may be.
const LONGEST_NAME: usize = 1024;
const LONGEST_GROUPS: usize = 8 * 1024;
const MOST_GROUPS: usize = 512;

/// Somebody, as the cluster's roles know them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// The name.
    pub user: String,
    /// What tells apart those who had the name one after the other; empty where nobody says.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// What else is said of them, which authorizers other than roles may want.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What the API server says of a person's or program's token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proof {
    /// Whether it is one that counts.
    pub authenticated: bool,
    /// Why not.
    pub error: String,
    /// For whom it is, of those that were asked about.
    pub audiences: Vec<String>,
    /// Whose it is.
    pub caller: Caller,
}

/// Why what a proxy says names nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ForwardedError {
    /// No name, or a name of nothing.
    #[error("it names no user")]
    NoUser,
    /// A name longer than any.
    #[error("the user's name has more than {LONGEST_NAME} bytes")]
    User,
    /// Too many groups.
    #[error("there are more than {MOST_GROUPS} groups, or {LONGEST_GROUPS} bytes of them")]
    Groups,
}

impl Caller {
    /// Whom a proxy names, with groups that have commas between them.
    pub fn forwarded(user: &str, groups: &[&str]) -> Result<Self, ForwardedError> {
        let user = user.trim();
        if user.is_empty() {
            return Err(ForwardedError::NoUser);
        }
        if user.len() > LONGEST_NAME {
            return Err(ForwardedError::User);
        }
        let groups = groups.iter().flat_map(|line| line.split(','));
        let groups = groups.map(str::trim).filter(|group| !group.is_empty());
        let mut groups: Vec<String> = groups.map(ToOwned::to_owned).collect();
        let bytes: usize = groups.iter().map(String::len).sum();
        if groups.len() > MOST_GROUPS || bytes > LONGEST_GROUPS {
            return Err(ForwardedError::Groups);
        }
        // As the API server has it of whoever proved to be somebody.
        groups.push(AUTHENTICATED.to_owned());
        groups.sort();
        groups.dedup();
        Ok(Self {
            user: user.to_owned(),
            groups,
            ..Self::default()
        })
    }

    /// The name as it may stand in a line of a log.
    pub fn shown(&self) -> String {
        tamed(&self.user)
    }
}

impl Proof {
    /// Whose token it is, where it has to be for `audience`.
    pub fn judge(self, audience: Option<&Audience>) -> Result<Caller, Denial> {
        if !self.authenticated {
            return Err(Denial::NotAuthenticated(tamed(&self.error)));
        }
        match audience {
            // An API server whose authenticator knows no audiences says none: its word would be for any.
            Some(audience) if !self.audiences.iter().any(|one| one == audience.as_str()) => {
                Err(Denial::Audience(audience.clone()))
            }
            Some(_) | None if self.caller.user.is_empty() => {
                Err(Denial::NotAuthenticated("it names no user".to_owned()))
            }
            Some(_) | None => Ok(self.caller),
        }
    }
}
