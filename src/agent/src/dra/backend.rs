//! Status of the allocation of devices to resource claims: the part of a [`SharingBackend`] that the scheduler and the
//! kubelet leave to the agent.

use std::sync::Arc;

use octavo_dra::{ClaimRules, DRIVER};
use octavo_kube::resource_slices::ResourceSlicesHandle;
use octavo_model::inventory::Device;
use octavo_model::reason::Reason;
use octavo_model::sharing_status::{DeviceProvider, Health, SharingStatus, UnitStatus};
use tokio::sync::watch;

use super::claim_problems::ClaimProblems;
use super::claim_store::ClaimStore;
use crate::sharing::{Observation, SharingBackend, SharingOutcome};

/// Allocation to resource claims.
#[derive(Debug)]
pub struct ClaimBackend {
    slices: Arc<ResourceSlicesHandle>,
    store: Arc<ClaimStore>,
    problems: watch::Receiver<ClaimProblems>,
}

impl ClaimBackend {
    /// Creates the backend of the claims in `store` and of the published devices.
    pub fn new(slices: Arc<ResourceSlicesHandle>, store: Arc<ClaimStore>) -> Self {
        Self { slices, problems: store.problems(), store }
    }
}

#[tonic::async_trait]
impl SharingBackend for ClaimBackend {
    fn reconcile(&mut self, observation: Observation<'_>) -> SharingOutcome {
        let status = status(&self.problems.borrow_and_update(), self.slices.error());
        let devices = &observation.inventory.devices;
        // As long as the layout is unknown, claims can use no GPU.
        let rules = self.store.rules().unwrap_or_else(|| ClaimRules::closed(devices));
        let status = with_rules(status, &rules, devices);
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

/// Adds the GPUs that claims cannot use, and the devices that they share.
fn with_rules(status: SharingStatus, rules: &ClaimRules, devices: &[Device]) -> SharingStatus {
    let shares = rules.shares(devices).into_iter().map(|(uuid, replicas)| UnitStatus {
        uuid,
        replicas: Some(replicas),
        health: Health::Healthy,
    });
    SharingStatus {
        covered: rules.covered.iter().copied().collect(),
        claim_shares: shares.collect(),
        ..status
    }
}

#[cfg(test)]
mod tests {
    use octavo_model::claim::ClaimKey;
    use octavo_model::examples::gpu;
    use octavo_model::inventory::{Inventory, Mig};
    use octavo_model::source_position::SourcePosition;
    use octavo_planner::layout::{
        DeviceTarget, MigTarget, Share, TargetScope, Targets, TimeSlicing,
    };

    use super::*;

    #[test]
    fn rules_of_the_layout_are_reported_with_the_existing_devices() {
        let device = |number: u8| Device {
            pci: format!("0000:{number:02x}:00.0").parse().unwrap(),
            mig: Mig::NotCapable,
            uuid: Some(
                format!("GPU-5fd4087b-86f3-7a43-b711-4771313afc{number:02}").parse().unwrap(),
            ),
            ..gpu()
        };
        let inventory = Inventory { devices: vec![device(1), device(2)], ..Inventory::default() };
        let [one, two] = [0, 1].map(|place: usize| inventory.devices[place].pci);
        let shared = TimeSlicing {
            position: SourcePosition::default(),
            shares: vec![Share::everything(4)],
            slice: None,
        };
        let target = |pci, scope| DeviceTarget::generated(pci, MigTarget::Disabled, scope);
        let targets = Targets {
            devices: vec![
                target(one, TargetScope::Layout),
                DeviceTarget {
                    mig: None,
                    time_slicing: Some(shared),
                    ..target(two, TargetScope::Mode)
                },
            ],
            ..Targets::default()
        };
        let rules = ClaimRules::new(&inventory, &targets);
        let reported = with_rules(SharingStatus::default(), &rules, &inventory.devices);
        assert_eq!(reported.covered, [one]);
        let [unit] = reported.claim_shares.as_slice() else { panic!("{reported:?}") };
        let uuid = inventory.devices[1].uuid.as_ref().unwrap().as_str();
        assert_eq!((unit.uuid.as_str(), unit.replicas), (uuid, Some(4)));
        // A GPU that is gone is not shared.
        assert_eq!(with_rules(SharingStatus::default(), &rules, &[]).claim_shares, []);
    }

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
