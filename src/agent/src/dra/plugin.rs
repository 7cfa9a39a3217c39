//! The kubelet plugin: prepares and releases claims, and releases those that no longer exist.
//!
//! Prepare records the claim, lets the node's loop create the missing instances, marks the claim as prepared, and answers
//! after one more round. A change that began before the mark can then not destroy what the answer promises.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use octavo_dra::claims::{AllocatedClaim, PrepareError, PreparedClaim};
use octavo_dra::{DeviceName, DraDevice};
use octavo_engine::durable::DurableError;
use octavo_engine::usage::{self, UsageProbe};
use octavo_hardware::DriverHandle;
use octavo_kube::resource_claims::{ResourceClaimClient, ResourceClaimError};
use octavo_kubelet::dra::{ClaimHandler, DraServer, InjectedDevice, Settings};
use octavo_model::claim::{ClaimKey, ClaimUid};
use octavo_model::inventory::Inventory;
use octavo_model::text::join;
use octavo_toolkit::error::chain;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::claim_specs::{ClaimSpecError, ClaimSpecs};
use super::claim_store::{ClaimRound, ClaimStore, ClaimStoreError, PrepareAttempt};
use crate::metrics::claims::{ClaimMetrics, PREPARE, UNPREPARE};

/// Time limit of Prepare, so that the kubelet gets the reason: it drops the call after 45 s. Source: Kubernetes v1.36.3,
/// `pkg/kubelet/cm/dra/plugin`.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(40);
/// Interval at which the recorded claims are compared with the API server.
const SWEEP_INTERVAL: Duration = Duration::from_mins(10);
/// Delay after a failure, of the comparison and of the sockets.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The kubelet plugin of this node.
#[derive(Debug)]
pub struct ClaimPlugin {
    store: Arc<ClaimStore>,
    claims: ResourceClaimClient,
    hardware: DriverHandle,
    usage_probe: Arc<dyn UsageProbe>,
    specs: ClaimSpecs,
    metrics: ClaimMetrics,
}

/// Error while preparing or releasing a claim.
#[derive(Debug, Error)]
enum PluginError {
    #[error("the claim does not exist")]
    Missing,
    #[error("the claim was deleted and created again")]
    Replaced,
    #[error(transparent)]
    Read(#[from] ResourceClaimError),
    #[error(transparent)]
    Store(#[from] ClaimStoreError),
    #[error("no device can be changed now: {0}")]
    Blocked(String),
    #[error("cannot create {device}: {reason}")]
    NotCreated { device: DeviceName, reason: String },
    #[error("{} within {} s; it is tried again", unfinished(.0), PREPARE_TIMEOUT.as_secs())]
    TimedOut(BTreeSet<DraDevice>),
    #[error("cannot write the CDI specification of the claim")]
    Spec(#[from] ClaimSpecError),
    #[error("cannot remove the CDI specification of the claim")]
    RemoveSpec(#[source] DurableError),
    #[error("the agent is shutting down")]
    ShuttingDown,
}

fn unfinished(missing: &BTreeSet<DraDevice>) -> String {
    if missing.is_empty() {
        return "the devices of the claim were not compared with the hardware".to_owned();
    }
    format!("{} did not become ready", join(missing.iter().map(DraDevice::name), ", "))
}

/// Ends the creation of a claim's instances when Prepare ends or is dropped.
struct Creation<'a> {
    store: &'a ClaimStore,
    uid: &'a ClaimUid,
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        self.store.end_creation(self.uid);
    }
}

impl ClaimPlugin {
    /// Creates the plugin, and records the kubelet's calls in `metrics`.
    pub fn new(
        (store, metrics): (Arc<ClaimStore>, ClaimMetrics),
        claims: ResourceClaimClient,
        hardware: DriverHandle,
        usage_probe: Arc<dyn UsageProbe>,
        specs: ClaimSpecs,
    ) -> Self {
        Self { store, claims, hardware, usage_probe, specs, metrics }
    }

    /// Serves the kubelet as soon as this process owns the state directory, and releases claims that no longer exist.
    /// Never returns before the agent ends.
    pub async fn run(self, settings: Settings) {
        let mut rounds = self.store.rounds();
        if rounds.wait_for(|round| round.is_owner).await.is_err() {
            return;
        }
        self.metrics.set_claims(&self.store.states());
        let plugin = Arc::new(self);
        tokio::join!(plugin.serve(settings), plugin.sweep());
    }

    async fn serve(self: &Arc<Self>, settings: Settings) {
        loop {
            let served = match DraServer::listen(settings.clone()) {
                Ok(server) => {
                    let handler: Arc<dyn ClaimHandler> = Arc::clone(self) as _;
                    let devices = self.store.devices();
                    server.serve(handler, devices, std::future::pending()).await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                warn!(error = %chain(&error), "the kubelet cannot prepare resource claims; retrying");
                self.store.set_registration(Err(chain(&error)));
            }
            sleep(RETRY_DELAY).await;
        }
    }

    async fn sweep(&self) {
        loop {
            let mut delay = SWEEP_INTERVAL;
            for key in self.store.claims() {
                if let Err(error) = self.release_if_ended(&key).await {
                    let claim = format!("{}/{}", key.namespace, key.name);
                    warn!(%claim, error = %chain(&error), "cannot compare a prepared claim with the API server");
                    delay = RETRY_DELAY;
                }
            }
            self.forget_failures().await;
            sleep(delay).await;
        }
    }

    /// Forgets the errors of claims that ended. The kubelet does not release a claim that it never prepared.
    async fn forget_failures(&self) {
        let failures = self.store.problems().borrow().failures.clone();
        for key in failures.into_keys() {
            if matches!(self.is_current(&key).await, Ok(false)) {
                self.store.set_failure(&key, None);
            }
        }
    }

    /// Returns whether the claim exists and has devices of this node.
    async fn is_current(&self, key: &ClaimKey) -> Result<bool, ResourceClaimError> {
        let claim = self.claims.read(key).await?;
        let current = claim.filter(|claim| claim.key.uid == key.uid);
        let is_here = |claim: AllocatedClaim| {
            claim.devices.iter().any(|device| device.pool == self.store.pool())
        };
        Ok(current.is_some_and(is_here))
    }

    /// Releases a recorded claim that no longer exists or no longer has devices of this node. Returns whether it did.
    async fn release_if_ended(&self, key: &ClaimKey) -> Result<bool, PluginError> {
        if self.is_current(key).await? {
            return Ok(false);
        }
        info!(namespace = %key.namespace, claim = %key.name, "releasing a claim that ended");
        self.release(&key.uid)?;
        Ok(true)
    }

    fn release(&self, uid: &ClaimUid) -> Result<(), PluginError> {
        // The specification belongs to the next agent then.
        if !self.store.is_owner() {
            return Err(ClaimStoreError::NotOwner.into());
        }
        // First: a container that starts after this must not get the device.
        self.specs.remove(uid).map_err(PluginError::RemoveSpec)?;
        self.store.release(uid)?;
        self.metrics.set_claims(&self.store.states());
        Ok(())
    }

    async fn prepare_claim(&self, key: &ClaimKey) -> Result<Vec<InjectedDevice>, PluginError> {
        let _creation = Creation { store: &self.store, uid: &key.uid };
        let mut missing = BTreeSet::new();
        let ready = async {
            let claim = self.claims.read(key).await?.ok_or(PluginError::Missing)?;
            if claim.key.uid != key.uid {
                return Err(PluginError::Replaced);
            }
            self.ensure_devices(&claim, &mut missing).await
        };
        let ready = timeout(PREPARE_TIMEOUT, ready).await;
        let (prepared, inventory) = ready.unwrap_or_else(|_elapsed| {
            let blocker = self.store.rounds().borrow().blocker.clone();
            Err(match (self.store.rules(), blocker) {
                (Some(_), _) => PluginError::TimedOut(missing),
                (None, Some(reason)) => PluginError::Blocked(reason),
                (None, None) => ClaimStoreError::LayoutUnknown.into(),
            })
        })?;
        let devices: Vec<&DraDevice> = prepared.devices.iter().map(|one| &one.device).collect();
        let cdi_ids = self.specs.write(&key.uid, &devices, &inventory)?;
        let devices = prepared.devices.iter().zip(cdi_ids).map(|(one, cdi_id)| InjectedDevice {
            requests: one.requests.iter().cloned().collect(),
            pool: self.store.pool().to_owned(),
            device: one.device.name().to_string(),
            cdi_ids: vec![cdi_id],
            share: one.share.clone(),
        });
        Ok(devices.collect())
    }

    /// Waits until all devices of the claim exist and count as in use. Returns the recorded claim, and the hardware in which
    /// they exist. `missing` has the devices that did not exist last.
    async fn ensure_devices(
        &self,
        claim: &AllocatedClaim,
        missing: &mut BTreeSet<DraDevice>,
    ) -> Result<(PreparedClaim, Arc<Inventory>), PluginError> {
        let uid = &claim.key.uid;
        let is_new = !self.store.is_recorded(uid);
        let mut rounds = self.store.rounds();
        let (mut is_repeated, mut is_marked) = (false, false);
        loop {
            let inventory = self.hardware.observe().await;
            if is_repeated && !self.store.is_recorded(uid) {
                return Err(ClaimStoreError::Released.into());
            }
            let attempt = match self.attempt(claim, &inventory).await {
                Ok(attempt) => attempt,
                // At the start of the agent, the first rounds do not know the layout yet.
                Err(PluginError::Store(ClaimStoreError::LayoutUnknown)) => {
                    rounds.changed().await.map_err(|_closed| PluginError::ShuttingDown)?;
                    continue;
                }
                Err(error) => {
                    self.undo(is_new, uid)?;
                    return Err(error);
                }
            };
            missing.clone_from(&attempt.missing);
            let is_complete = is_repeated && attempt.missing.is_empty();
            if is_complete && is_marked {
                return Ok((attempt.claim, inventory));
            }
            is_marked = is_complete;
            let generation =
                if is_complete { self.store.mark_prepared(uid)? } else { attempt.generation };
            let round = wait_for_round(&mut rounds, generation).await?;
            if let Some(reason) = round.blocker {
                self.undo(is_new, uid)?;
                return Err(PluginError::Blocked(reason));
            }
            let failed = attempt.missing.iter();
            let mut failed = failed
                .filter_map(|device| Some((device, round.failures.get(&device.pci)?.clone())));
            if let Some((device, reason)) = failed.next() {
                self.undo(is_new, uid)?;
                return Err(PluginError::NotCreated { device: device.name(), reason });
            }
            is_repeated = true;
        }
    }

    /// Decides and records how to prepare the claim. If a claim that has ended blocks a device, that claim is
    /// released first.
    async fn attempt(
        &self,
        claim: &AllocatedClaim,
        inventory: &Inventory,
    ) -> Result<PrepareAttempt, PluginError> {
        let (holders, unknown) = usage::all_holders(&self.usage_probe, inventory).await;
        let users = (holders.as_slice(), unknown.as_deref());
        let refused = match self.store.prepare(claim, inventory, users) {
            Err(ClaimStoreError::Refused(refused)) => refused,
            attempt => return Ok(attempt?),
        };
        if let PrepareError::Claimed { namespace, name, uid, .. } = &refused {
            let other =
                ClaimKey { uid: uid.clone(), namespace: namespace.clone(), name: name.clone() };
            if self.release_if_ended(&other).await? {
                return Ok(self.store.prepare(claim, inventory, users)?);
            }
        }
        Err(ClaimStoreError::from(refused).into())
    }

    /// Removes a claim whose first preparation failed, so that its devices are not withheld from other claims. A claim that
    /// is prepared stays: another call, for another pod, may have returned its devices.
    fn undo(&self, is_new: bool, uid: &ClaimUid) -> Result<(), PluginError> {
        // A pod cannot run with the claim yet, so the order does not matter.
        if is_new && self.store.release_unprepared(uid)? {
            self.specs.remove(uid).map_err(PluginError::RemoveSpec)?;
        }
        Ok(())
    }
}

async fn wait_for_round(
    rounds: &mut watch::Receiver<ClaimRound>,
    generation: u64,
) -> Result<ClaimRound, PluginError> {
    let round = rounds.wait_for(|round| round.generation >= generation).await;
    round.map(|round| round.clone()).map_err(|_closed| PluginError::ShuttingDown)
}

#[tonic::async_trait]
impl ClaimHandler for ClaimPlugin {
    async fn prepare(&self, claim: &ClaimKey) -> Result<Vec<InjectedDevice>, String> {
        let began = Instant::now();
        let prepared = self.prepare_claim(claim).await;
        self.metrics.record(PREPARE, prepared.is_ok(), began.elapsed());
        self.metrics.set_claims(&self.store.states());
        let prepared = prepared.map_err(|error| chain(&error));
        self.store.set_failure(claim, prepared.as_ref().err().cloned());
        prepared
    }

    async fn unprepare(&self, claim: &ClaimKey) -> Result<(), String> {
        let began = Instant::now();
        let released = self.release(&claim.uid);
        self.metrics.record(UNPREPARE, released.is_ok(), began.elapsed());
        if released.is_ok() {
            self.store.set_failure(claim, None);
        }
        released.map_err(|error| chain(&error))
    }

    fn registered(&self, result: Result<(), String>) {
        self.store.set_registration(result);
    }
}
