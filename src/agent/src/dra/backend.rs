//! Status of the allocation of devices to resource claims: the part of a [`SharingBackend`] that the scheduler and the
//! kubelet leave to the agent.

use std::sync::Arc;

use octavo_dra::DRIVER;
use octavo_kube::resource_slices::ResourceSlicesHandle;
use octavo_model::reason::Reason;
use octavo_model::sharing_status::{DeviceProvider, SharingStatus};
use tokio::sync::watch;

use super::claim_problems::ClaimProblems;
use super::claim_store::ClaimStore;
use crate::sharing::{Observation, SharingBackend, SharingOutcome};

/// Allocation to resource claims.
#[derive(Debug)]
pub struct ClaimBackend {
    slices: Arc<ResourceSlicesHandle>,
    problems: watch::Receiver<ClaimProblems>,
}

impl ClaimBackend {
    /// Creates the backend of the claims in `store` and of the published devices.
    pub fn new(slices: Arc<ResourceSlicesHandle>, store: &ClaimStore) -> Self {
        Self { slices, problems: store.problems() }
    }
}

#[tonic::async_trait]
impl SharingBackend for ClaimBackend {
    fn reconcile(&mut self, _: Observation<'_>) -> SharingOutcome {
        let status = status(&self.problems.borrow_and_update(), self.slices.error());
        SharingOutcome { status: Some(status), ..SharingOutcome::default() }
    }

    async fn changed(&mut self) {
        if self.problems.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Returns the status; `unpublished` is the reason why the devices are not published.
fn status(problems: &ClaimProblems, unpublished: Option<String>) -> SharingStatus {
    let registration = match &problems.registration {
        None => Some(format!("the kubelet has not registered the driver {DRIVER} yet")),
        Some(Err(error)) => {
            Some(format!("the kubelet did not register the driver {DRIVER}: {error}"))
        }
        Some(Ok(())) => None,
    };
    let unpublished = unpublished.map(|error| format!("devices are not published: {error}"));
    let failures = problems.failures.iter().map(|(claim, error)| {
        let claim = claim.reference();
        format!("resource claim {claim} is not prepared: {error}")
    });
    let texts: Vec<String> = registration.into_iter().chain(unpublished).chain(failures).collect();
    let message = (!texts.is_empty()).then(|| texts.join("; "));
    let reason = if message.is_some() { Reason::ClaimsNotServed } else { Reason::ClaimsServed };
    SharingStatus {
        mode: DeviceProvider::Dra.into(),
        state: reason.into(),
        message,
        ..SharingStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use octavo_model::claim::ClaimKey;

    use super::*;

    fn check(problems: &ClaimProblems, unpublished: Option<&str>, message: Option<&str>) {
        let shown = status(problems, unpublished.map(ToOwned::to_owned));
        assert_eq!(shown.message.as_deref(), message);
        let expected =
            if message.is_some() { Reason::ClaimsNotServed } else { Reason::ClaimsServed };
        assert_eq!(shown.state, expected);
    }

    #[test]
    fn every_cause_is_in_the_message() {
        let mut problems = ClaimProblems::default();
        check(
            &problems,
            Some("cannot read the Node"),
            Some(
                "the kubelet has not registered the driver gpu.octavo.dev yet; devices are not published: cannot read \
                 the Node",
            ),
        );
        problems.registration = Some(Ok(()));
        check(&problems, None, None);
        let claim = ClaimKey {
            uid: "uid-1".parse().unwrap(),
            namespace: "team".to_owned(),
            name: "train".to_owned(),
        };
        problems.failures.insert(claim, "NVML is not ready".to_owned());
        check(
            &problems,
            None,
            Some("resource claim team/train is not prepared: NVML is not ready"),
        );
    }
}
