//! Reasons why the kubelet cannot prepare claims.

use std::collections::BTreeMap;

use octavo_model::claim::ClaimKey;

/// Maximum number of claims whose last error is known.
const MAX_FAILURES: usize = 64;

/// Reasons why the kubelet cannot prepare claims.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimProblems {
    /// Result of the last registration with the kubelet; `None` before.
    pub registration: Option<Result<(), String>>,
    /// Last error of each claim that could not be prepared.
    pub failures: BTreeMap<ClaimKey, String>,
}

impl ClaimProblems {
    /// Sets why a claim could not be prepared; `None` if it was prepared, or ended.
    pub(super) fn set_failure(&mut self, claim: &ClaimKey, error: Option<String>) {
        let failures = &mut self.failures;
        match error {
            Some(error) if failures.len() < MAX_FAILURES || failures.contains_key(claim) => {
                failures.insert(claim.clone(), error);
            }
            Some(_) => {}
            None => drop(failures.remove(claim)),
        }
    }
}
