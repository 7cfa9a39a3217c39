//! Authenticated requesters: from a token that the API server reviewed, or from the headers of an authenticating
//! proxy.

use thiserror::Error;

pub use crate::credential::Caller;
use crate::credential::{Audience, Denial, TokenReview, sanitized};

/// Group of all authenticated users. Source: Kubernetes, `k8s.io/apiserver/pkg/authentication/user`.
pub const AUTHENTICATED_GROUP: &str = "system:authenticated";

/// Limits on a proxy's headers: bytes of the user name, bytes of all groups together, number of groups.
const MAX_USER_BYTES: usize = 1024;
const MAX_GROUP_BYTES: usize = 8 * 1024;
const MAX_GROUPS: usize = 512;

/// Reason why a proxy's headers are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ForwardedError {
    /// The user name is missing or empty.
    #[error("it contains no user name")]
    NoUser,
    /// The user name is too long.
    #[error("the user's name has more than {MAX_USER_BYTES} bytes")]
    UserTooLong,
    /// There are too many groups, or they are too long.
    #[error(
        "it has more than {MAX_GROUPS} groups, or more than {MAX_GROUP_BYTES} bytes of group names"
    )]
    TooManyGroups,
}

impl Caller {
    /// Parses the user and the comma-separated groups that a proxy forwards.
    pub fn from_forwarded(user: &str, groups: &[&str]) -> Result<Self, ForwardedError> {
        let user = user.trim();
        if user.is_empty() {
            return Err(ForwardedError::NoUser);
        }
        if user.len() > MAX_USER_BYTES {
            return Err(ForwardedError::UserTooLong);
        }
        let groups = groups.iter().flat_map(|line| line.split(','));
        let groups = groups.map(str::trim).filter(|group| !group.is_empty());
        let mut groups: Vec<String> = groups.map(ToOwned::to_owned).collect();
        let bytes: usize = groups.iter().map(String::len).sum();
        if groups.len() > MAX_GROUPS || bytes > MAX_GROUP_BYTES {
            return Err(ForwardedError::TooManyGroups);
        }
        // The API server adds this group to every authenticated user.
        groups.push(AUTHENTICATED_GROUP.to_owned());
        groups.sort();
        groups.dedup();
        Ok(Self { user: user.to_owned(), groups, ..Self::default() })
    }

    /// User name, sanitized for logs.
    pub fn shown(&self) -> String {
        sanitized(&self.user)
    }
}

impl TokenReview {
    /// Returns the user of the token if it is valid for `audience`.
    pub fn authenticate(self, audience: Option<&Audience>) -> Result<Caller, Denial> {
        self.check(audience)?;
        if self.caller.user.is_empty() {
            return Err(Denial::NotAuthenticated("it contains no user name".to_owned()));
        }
        Ok(self.caller)
    }
}
