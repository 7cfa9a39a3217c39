//! Requests for an earlier revision.

use std::error::Error;
use std::fmt;

use crate::world::Policy;

/// Reason why a rollback cannot be requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RollbackError {
    /// The requested revision is not retained.
    Unknown(String),
    /// There is no revision before the current one.
    NoEarlier,
    /// The policy already has the revision.
    Current(String),
    /// The annotation already has the value, and the controller carries out a value once.
    Requested(String),
}

impl fmt::Display for RollbackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(revision) => write!(f, "it has no revision {revision}"),
            Self::NoEarlier => f.write_str("it has no earlier revision"),
            Self::Current(revision) => write!(f, "it already has revision {revision}"),
            Self::Requested(revision) => {
                write!(f, "the annotation octavo.dev/rollback-to already requests {revision}")
            }
        }
    }
}

impl Error for RollbackError {}

/// Returns the requested revision, or the one before the current one.
pub fn rollback_target<'a>(
    policy: &'a Policy,
    requested: Option<&str>,
) -> Result<&'a str, RollbackError> {
    let status = &policy.status;
    let mut known = status.revisions.iter().map(|one| one.revision.as_str());
    let revision = match requested {
        Some(requested) => known
            .find(|known| *known == requested)
            .ok_or_else(|| RollbackError::Unknown(requested.to_owned())),
        None => known
            .skip_while(|known| *known != status.revision)
            .nth(1)
            .ok_or(RollbackError::NoEarlier),
    }?;
    if revision == status.revision {
        return Err(RollbackError::Current(revision.to_owned()));
    }
    if policy.rollback_to.as_deref() == Some(revision) {
        return Err(RollbackError::Requested(revision.to_owned()));
    }
    Ok(revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Content, PolicyStatus, Revision};

    fn policy(revisions: &[&str], current: &str, requested: Option<&str>) -> Policy {
        let time = "2026-01-01T00:00:00Z".parse().unwrap();
        let revision = |name: &&str| Revision {
            revision: (*name).to_owned(),
            time,
            complete: false,
            content: Content::default(),
        };
        Policy {
            name: "a".to_owned(),
            uid: "u".to_owned(),
            version: "1".to_owned(),
            generation: 1,
            created: None,
            is_deleting: false,
            has_finalizer: true,
            rollback_to: requested.map(str::to_owned),
            approved: std::collections::BTreeSet::new(),
            spec: Err("not needed".to_owned()),
            status: PolicyStatus {
                revision: current.to_owned(),
                revisions: revisions.iter().map(revision).collect(),
                ..PolicyStatus::default()
            },
        }
    }

    #[test]
    fn p5_rollback_needs_a_retained_revision_that_is_not_the_current_one() {
        let all = ["c", "b", "a"];
        assert_eq!(rollback_target(&policy(&all, "c", None), None), Ok("b"));
        assert_eq!(rollback_target(&policy(&all, "b", None), None), Ok("a"));
        assert_eq!(rollback_target(&policy(&all, "c", None), Some("a")), Ok("a"));
        for (policy, requested, expected) in [
            (policy(&all, "a", None), None, RollbackError::NoEarlier),
            (policy(&all, "c", None), Some("x"), RollbackError::Unknown("x".to_owned())),
            (policy(&all, "c", None), Some("c"), RollbackError::Current("c".to_owned())),
            (policy(&all, "c", Some("b")), None, RollbackError::Requested("b".to_owned())),
        ] {
            assert_eq!(rollback_target(&policy, requested), Err(expected));
        }
    }
}
