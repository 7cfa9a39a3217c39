//! Claims of this node, shared by the kubelet plugin and the node's loop: the durable record, the instances to create,
//! and the results of the engine's rounds.

mod record_file;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use octavo_dra::claims::{
    self, AllocatedClaim, ClaimState, ClaimStatuses, NodeState, PrepareError, PreparedClaim,
    PreparedClaims, ReleasePolicy,
};
use octavo_dra::{ClaimRules, DeviceName, DraDevice};
use octavo_engine::claims::{COPY_FILE_NAME, ClaimRecord, FILE_NAME};
use octavo_engine::durable::DurableError;
use octavo_kubelet::dra::{DeviceHealth, NodeDevices};
use octavo_model::claim::{ClaimKey, ClaimUid};
use octavo_model::holder::{DeviceAllocation, Holder};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, Inventory, NvmlState};
use octavo_model::reason::Reason;
use octavo_planner::layout::Targets;
use octavo_planner::reconcile::NodeLayoutStatus;
use octavo_toolkit::desired::{send_if_changed, update};
use octavo_toolkit::error::chain;
use thiserror::Error;
use tokio::sync::watch;
use tracing::info;

use self::record_file::{read, save};
use super::claim_problems::ClaimProblems;
use crate::usage::ClaimAllocations;

/// The claims of this node.
#[derive(Debug)]
pub struct ClaimStore {
    pool: String,
    policy: ReleasePolicy,
    state: Mutex<StoreState>,
    /// Number of changes that the node's loop must handle.
    changes: watch::Sender<u64>,
    rounds: watch::Sender<ClaimRound>,
    devices: watch::Sender<Arc<NodeDevices>>,
    statuses: watch::Sender<Arc<ClaimStatuses>>,
    problems: watch::Sender<ClaimProblems>,
}

#[derive(Debug, Default)]
struct StoreState {
    /// The record and its directory; `None` until this process owns the state directory.
    record: Option<(PathBuf, PreparedClaims)>,
    /// Instances that the Prepare calls in progress need.
    creating: BTreeMap<ClaimUid, BTreeSet<DraDevice>>,
    /// The rules of the layout; `None` until a layout was resolved, or none is selected.
    rules: Option<ClaimRules>,
    /// Errors that devices reported, and that their state does not show.
    faults: BTreeMap<DeviceName, String>,
    /// The last scan of the hardware, and its time.
    scan: Option<(Arc<Inventory>, Timestamp)>,
}

/// Result of a round of the node's loop.
#[derive(Debug, Clone, Default)]
pub struct ClaimRound {
    /// Changes that the round handled.
    pub generation: u64,
    /// True if this process owns the state directory.
    pub is_owner: bool,
    /// Reason why no claim can change devices now.
    pub blocker: Option<String>,
    /// Reasons why devices could not be changed.
    pub failures: BTreeMap<PciAddress, String>,
}

/// An attempt to prepare a claim.
#[derive(Debug)]
pub struct PrepareAttempt {
    /// The recorded claim.
    pub claim: PreparedClaim,
    /// Instances that do not exist yet.
    pub missing: BTreeSet<DraDevice>,
    /// The change that a round of the node's loop must handle.
    pub generation: u64,
}

/// Error while changing the record.
#[derive(Debug, Error)]
pub enum ClaimStoreError {
    /// Another process owns the state directory.
    #[error(
        "this agent does not own the state directory, so another agent or command changes this node"
    )]
    NotOwner,
    /// The GPUs that the layout covers are not known.
    #[error(
        "the layout of this node is not known yet or cannot be used, so claims cannot use its GPUs"
    )]
    LayoutUnknown,
    /// The claim cannot be prepared.
    #[error(transparent)]
    Refused(#[from] PrepareError),
    /// The claim was released while it was being prepared.
    #[error("the claim was released while it was being prepared")]
    Released,
    /// The record cannot be written.
    #[error("cannot record the claim")]
    Write(#[from] DurableError),
}

impl ClaimStore {
    /// Creates a store for the claims of `pool`. It refuses every claim before [`Self::open`].
    pub fn new(pool: String, policy: ReleasePolicy) -> Self {
        let devices = NodeDevices { pool: pool.clone(), ..NodeDevices::default() };
        Self {
            pool,
            policy,
            state: Mutex::default(),
            changes: watch::Sender::new(0),
            rounds: watch::Sender::new(ClaimRound::default()),
            devices: watch::Sender::new(Arc::new(devices)),
            statuses: watch::Sender::default(),
            problems: watch::Sender::default(),
        }
    }

    /// Reads the record in the state directory, which the caller owns, or its copy. An invalid record is moved aside.
    /// Without a valid copy, its instances are then not Octavo's, and only a layout that covers their GPUs destroys them.
    pub fn open(&self, state_dir: &Path) -> Result<(), DurableError> {
        let (file, copy) = (read(state_dir, FILE_NAME)?, read(state_dir, COPY_FILE_NAME)?);
        let record = file.as_ref().or(copy.as_ref()).cloned().unwrap_or_default();
        if file != copy {
            save(state_dir, &record)?;
        }
        if !record.claims.is_empty() {
            info!(claims = record.claims.len(), "claims of an earlier agent are known");
        }
        self.lock().record = Some((state_dir.to_owned(), record));
        self.notify();
        Ok(())
    }

    /// Stops all changes of the record, before another agent can own the state directory.
    pub fn close(&self) {
        self.lock().record = None;
    }

    /// Returns whether the record is open: this process owns the state directory.
    pub fn is_owner(&self) -> bool {
        self.lock().record.is_some()
    }

    /// Name of the pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// The number of changes so far, for [`Self::finish_round`].
    pub fn generation(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Subscribes to changes that need a round of the node's loop.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Subscribes to the results of rounds.
    pub fn rounds(&self) -> watch::Receiver<ClaimRound> {
        self.rounds.subscribe()
    }

    /// Subscribes to the health of the devices.
    pub fn devices(&self) -> watch::Receiver<Arc<NodeDevices>> {
        self.devices.subscribe()
    }

    /// Subscribes to the status of the devices of prepared claims.
    pub fn statuses(&self) -> watch::Receiver<Arc<ClaimStatuses>> {
        self.statuses.subscribe()
    }

    /// Subscribes to the reasons why the kubelet cannot prepare claims.
    pub fn problems(&self) -> watch::Receiver<ClaimProblems> {
        self.problems.subscribe()
    }

    /// Sets the result of a registration with the kubelet.
    pub fn set_registration(&self, result: Result<(), String>) {
        update(&self.problems, |problems| problems.registration = Some(result));
    }

    /// Sets why a claim could not be prepared; `None` if it was prepared, or ended.
    pub fn set_failure(&self, claim: &ClaimKey, error: Option<String>) {
        update(&self.problems, |problems| problems.set_failure(claim, error));
    }

    /// Returns the devices that reported an error which their state does not show.
    pub fn faulty(&self) -> BTreeSet<DeviceName> {
        self.lock().faults.keys().cloned().collect()
    }

    /// Sets the errors that devices reported, and that their state does not show.
    pub fn set_faults(&self, faults: BTreeMap<DeviceName, String>) {
        self.lock().faults = faults;
    }

    /// Returns the recorded claims.
    pub fn claims(&self) -> Vec<ClaimKey> {
        let state = self.lock();
        let claims = state.record.iter().flat_map(|(_, record)| &record.claims);
        claims.map(|(uid, claim)| claim.key(uid)).collect()
    }

    /// Returns the states of the recorded claims.
    pub fn states(&self) -> Vec<ClaimState> {
        let state = self.lock();
        let claims = state.record.iter().flat_map(|(_, record)| record.claims.values());
        claims.map(|claim| claim.state).collect()
    }

    /// Returns whether the claim is recorded.
    pub fn is_recorded(&self, uid: &ClaimUid) -> bool {
        self.lock().record.as_ref().is_some_and(|(_, record)| record.claims.contains_key(uid))
    }

    /// Returns the rules of the layout; `None` until they are known.
    pub fn rules(&self) -> Option<ClaimRules> {
        self.lock().rules.clone()
    }

    /// Returns the devices of claims, for the published devices of these GPUs.
    pub fn device_names(&self, devices: &[Device]) -> BTreeSet<DeviceName> {
        let state = self.lock();
        state.record.as_ref().map(|(_, record)| record.device_names(devices)).unwrap_or_default()
    }

    /// Adds the targets of claims to those of the layout. Claims do not change GPUs that the layout covers.
    pub fn with_targets(&self, inventory: &Inventory, layout: &Targets) -> Targets {
        let mut state = self.lock();
        let rules = ClaimRules::new(inventory, layout);
        let mut targets = layout.clone();
        if let Some((_, record)) = &state.record {
            let creating = state.creating.values().flatten().cloned().collect();
            let own = record.targets(inventory, &creating, &rules.covered, self.policy);
            targets.devices.retain(|target| own.devices.iter().all(|one| one.pci != target.pci));
            targets.devices.extend(own.devices);
            targets.devices.sort_by_key(|target| target.pci);
        }
        state.rules = Some(rules);
        targets
    }

    /// Publishes the result of a round that began at `generation`.
    pub fn finish_round(
        &self,
        generation: u64,
        inventory: &Arc<Inventory>,
        status: &NodeLayoutStatus,
        blocker: Option<String>,
    ) {
        let unsettled = status.devices.iter().filter(|device| {
            !matches!(device.state.known(), Some(Reason::Applied | Reason::Applying))
        });
        let failures: BTreeMap<PciAddress, String> =
            unsettled.map(|device| (device.pci, device.message.clone())).collect();
        // An interrupted change may still create an instance that does not exist now.
        let unsettled: BTreeSet<PciAddress> = failures.keys().copied().collect();
        let forgotten = self.update(|record| {
            record.forget_absent(inventory, &unsettled);
        });
        if let Err(error) = forgotten
            && !matches!(error, ClaimStoreError::NotOwner)
        {
            // The record lists too much, which a later round repairs.
            info!(error = %chain(&error), "the record of claims is outdated");
        }
        self.rounds.send_replace(ClaimRound {
            generation,
            is_owner: self.is_owner(),
            blocker,
            failures,
        });
        self.publish_health(inventory);
    }

    /// Publishes the health of all devices, and the status of the devices of claims.
    fn publish_health(&self, inventory: &Arc<Inventory>) {
        let mut state = self.lock();
        let known = state.scan.take().filter(|(known, _)| Arc::ptr_eq(known, inventory));
        let scan = known.unwrap_or_else(|| (Arc::clone(inventory), Timestamp::now()));
        let scanned_at = state.scan.insert(scan).1.as_second();
        let devices = health(inventory, &state, &self.pool, scanned_at);
        let is_scanned = inventory.nvml != NvmlState::Loading;
        let record = state.record.as_ref().filter(|_| is_scanned);
        let statuses =
            record.map(|(_, record)| record.statuses(inventory, &self.pool, &state.faults));
        drop(state);
        send_if_changed(&self.devices, Arc::new(devices));
        if let Some(statuses) = statuses {
            send_if_changed(&self.statuses, Arc::new(statuses));
        }
    }

    /// Decides how to prepare a claim, records it and requests its missing instances.
    pub fn prepare(
        &self,
        claim: &AllocatedClaim,
        inventory: &Inventory,
        (holders, holders_unknown): (&[Holder], Option<&str>),
    ) -> Result<PrepareAttempt, ClaimStoreError> {
        let mut state = self.lock();
        let (_, record) = state.record.as_ref().ok_or(ClaimStoreError::NotOwner)?;
        let rules = state.rules.as_ref().ok_or(ClaimStoreError::LayoutUnknown)?;
        let (covered, pool) = (&rules.covered, self.pool.as_str());
        let node = NodeState { inventory, holders, holders_unknown, covered, pool };
        let preparation = record.prepare(claim, node)?;
        let uid = &claim.key.uid;
        let prepared = preparation.claim.clone();
        write(&mut state, |record| record.record(uid, prepared))?;
        state.creating.insert(uid.clone(), preparation.create.clone());
        drop(state);
        let generation = self.notify();
        Ok(PrepareAttempt { claim: preparation.claim, missing: preparation.create, generation })
    }

    /// Ends the creation of the instances of a claim, whether it succeeded or not.
    pub fn end_creation(&self, uid: &ClaimUid) {
        self.lock().creating.remove(uid);
    }

    /// Marks a claim as prepared: from now on, its devices count as in use. Returns the change that a round of the node's
    /// loop must handle.
    pub fn mark_prepared(&self, uid: &ClaimUid) -> Result<u64, ClaimStoreError> {
        let known = self.update(|record| {
            record.mark_prepared(uid);
            record.claims.contains_key(uid)
        })?;
        if known { Ok(self.notify()) } else { Err(ClaimStoreError::Released) }
    }

    /// Releases a claim. An unknown claim is released already.
    pub fn release(&self, uid: &ClaimUid) -> Result<(), ClaimStoreError> {
        self.release_if(uid, |_| true)?;
        Ok(())
    }

    /// Releases a claim that is not prepared. Returns whether it did: another call may have prepared it.
    pub fn release_unprepared(&self, uid: &ClaimUid) -> Result<bool, ClaimStoreError> {
        self.release_if(uid, |claim| claim.state != ClaimState::Prepared)
    }

    fn release_if(
        &self,
        uid: &ClaimUid,
        which: impl FnOnce(&PreparedClaim) -> bool,
    ) -> Result<bool, ClaimStoreError> {
        let mut state = self.lock();
        let (_, record) = state.record.as_ref().ok_or(ClaimStoreError::NotOwner)?;
        let is_released = record.claims.get(uid).is_some_and(which);
        if is_released {
            state.creating.remove(uid);
            write(&mut state, |record| record.release(uid))?;
        }
        drop(state);
        if is_released {
            self.notify();
        }
        Ok(is_released)
    }

    fn update<T>(
        &self,
        change: impl FnOnce(&mut PreparedClaims) -> T,
    ) -> Result<T, ClaimStoreError> {
        write(&mut self.lock(), change)
    }

    fn notify(&self) -> u64 {
        self.changes.send_modify(|count| *count = count.saturating_add(1));
        self.generation()
    }

    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes the record and then its files. If they cannot be written, the record does not change.
fn write<T>(
    state: &mut StoreState,
    change: impl FnOnce(&mut PreparedClaims) -> T,
) -> Result<T, ClaimStoreError> {
    let (dir, record) = state.record.as_mut().ok_or(ClaimStoreError::NotOwner)?;
    let mut changed = record.clone();
    let result = change(&mut changed);
    if changed != *record {
        save(dir, &changed)?;
        *record = changed;
    }
    Ok(result)
}

/// Returns the health of all devices that claims can be allocated, including those of GPUs that the layout covers, and of
/// the devices of claims: the driver reports no partitions of a lost GPU.
fn health(inventory: &Inventory, state: &StoreState, pool: &str, scanned_at: i64) -> NodeDevices {
    let claims = state.record.iter().flat_map(|(_, record)| record.claims.values());
    let claimed = claims.flat_map(|claim| &claim.devices).map(|one| one.device.clone());
    let mut devices: BTreeSet<DraDevice> = claimed.collect();
    devices.extend(octavo_dra::devices(inventory, &BTreeSet::new()));
    let devices = devices.iter().map(|device| DeviceHealth {
        device: device.name().to_string(),
        problem: claims::problem(device, inventory, &state.faults),
    });
    NodeDevices {
        pool: pool.to_owned(),
        devices: devices.collect(),
        is_known: matches!(inventory.nvml, NvmlState::Ready(_)),
        scanned_at,
    }
}

/// The claims are unknown unless this process owns the state directory.
impl ClaimRecord for ClaimStore {
    fn current(&self) -> Result<PreparedClaims, String> {
        let state = self.lock();
        let record = state.record.as_ref().map(|(_, record)| record.clone());
        record.ok_or_else(|| ClaimStoreError::NotOwner.to_string())
    }
}

impl ClaimAllocations for ClaimStore {
    fn add_unlisted(&self, listed: &mut Vec<DeviceAllocation>) {
        let state = self.lock();
        let Some((_, record)) = &state.record else {
            return;
        };
        let unlisted = record.unlisted_allocations(listed, &self.pool);
        listed.retain(|one| {
            let is_device =
                |device: &DraDevice| one.device_id == format!("{}/{}", self.pool, device.name());
            one.claim.as_ref().is_none_or(|claim| !record.only_monitors(claim, is_device))
        });
        listed.extend(unlisted);
    }
}

#[cfg(test)]
mod tests;
