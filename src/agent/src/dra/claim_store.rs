//! Claims of this node, shared by the kubelet plugin and the node's loop: the durable record, the instances to create,
//! and the results of the engine's rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use octavo_dra::claims::{
    self, AllocatedClaim, ClaimState, ClaimStatuses, NodeState, PrepareError, PreparedClaim,
    PreparedClaims, ReleasePolicy,
};
use octavo_dra::{DeviceName, DraDevice};
use octavo_engine::durable::{self, DurableError};
use octavo_engine::usage::UsageProbe;
use octavo_kubelet::device_plugin::AllocationBlock;
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
use octavo_toolkit::files::{self, ReadError};
use thiserror::Error;
use tokio::sync::watch;
use tracing::{error, info};

use super::claim_problems::ClaimProblems;
use crate::usage::ClaimAllocations;

/// The record in the state directory.
const FILE_NAME: &str = "claims.json";
/// A draft of the record.
const DRAFT_FILE_NAME: &str = "claims.draft";
/// A record that could not be read, for an administrator.
const UNREADABLE_FILE_NAME: &str = "claims.unreadable";
/// The file names pods' claims, so it is private.
const MODE: u32 = 0o600;
/// Maximum size of the record; a claim has less than a kilobyte.
const MAX_RECORD_BYTES: u64 = 1 << 20;

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
    /// GPUs that the layout covers; `None` until a layout was resolved, or none is selected.
    covered: Option<BTreeSet<PciAddress>>,
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

    /// Reads the record in the state directory, which the caller owns. An invalid record is moved aside: its instances
    /// are then not Octavo's, and only a layout that covers their GPUs destroys them.
    pub fn open(&self, state_dir: &Path) -> Result<(), DurableError> {
        let path = state_dir.join(FILE_NAME);
        let record = match read(&path) {
            Ok(record) => record,
            // The next round tries again.
            Err(source) if !is_invalid(&source) => {
                return Err(DurableError { action: "read", path, source });
            }
            Err(reason) => {
                let aside = state_dir.join(UNREADABLE_FILE_NAME);
                error!(path = %aside.display(), error = %chain(&reason), "cannot read the record of claims; moved aside");
                std::fs::rename(&path, &aside).map_err(|source| DurableError {
                    action: "move aside",
                    path: path.clone(),
                    source,
                })?;
                PreparedClaims::default()
            }
        };
        if !record.claims.is_empty() {
            info!(claims = record.claims.len(), "claims of an earlier agent are known");
        }
        self.lock().record = Some((state_dir.to_owned(), record));
        self.notify();
        Ok(())
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

    /// Sets the errors that devices reported, and that their state does not show.
    pub fn set_faults(&self, faults: BTreeMap<DeviceName, String>) {
        self.lock().faults = faults;
    }

    /// Returns the recorded claims.
    pub fn claims(&self) -> Vec<ClaimKey> {
        let state = self.lock();
        let claims = state.record.iter().flat_map(|(_, record)| &record.claims);
        let keys = claims.map(|(uid, claim)| ClaimKey {
            uid: uid.clone(),
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
        });
        keys.collect()
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

    /// Returns the GPUs that the layout covers now; `None` until this is known.
    pub fn covered(&self) -> Option<BTreeSet<PciAddress>> {
        self.lock().covered.clone()
    }

    /// Returns the devices of claims, for the published devices.
    pub fn device_names(&self) -> BTreeSet<DeviceName> {
        let state = self.lock();
        state.record.as_ref().map(|(_, record)| record.device_names()).unwrap_or_default()
    }

    /// Returns the claims as users of `devices`.
    pub fn holders(&self, devices: &[Device]) -> Vec<Holder> {
        let state = self.lock();
        state.record.as_ref().map(|(_, record)| record.holders(devices)).unwrap_or_default()
    }

    /// Adds the targets of claims to those of the layout, whose GPUs claims do not change.
    pub fn with_targets(&self, inventory: &Inventory, layout: &Targets) -> Targets {
        let mut state = self.lock();
        let targets = layout.devices.iter().map(|device| device.pci);
        let covered: BTreeSet<PciAddress> =
            targets.chain(layout.unverified.iter().map(|one| one.pci)).collect();
        state.covered = Some(covered.clone());
        let mut targets = layout.clone();
        if let Some((_, record)) = &state.record {
            let creating = state.creating.values().flatten().cloned().collect();
            let own = record.targets(inventory, &creating, &covered, self.policy);
            targets.devices.extend(own.devices);
            targets.devices.sort_by_key(|target| target.pci);
        }
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
        if let Err(error) = forgotten {
            // The record lists too much, which a later round repairs.
            info!(error = %chain(&error), "the record of claims is outdated");
        }
        self.rounds.send_replace(ClaimRound {
            generation,
            is_owner: self.lock().record.is_some(),
            blocker,
            failures,
        });
        self.publish_health(inventory);
    }

    /// Publishes the health of all devices, and the status of the devices of claims.
    fn publish_health(&self, inventory: &Arc<Inventory>) {
        let mut state = self.lock();
        let scan = state.scan.take().filter(|(known, _)| Arc::ptr_eq(known, inventory));
        let (_, scanned_at) =
            state.scan.insert(scan.unwrap_or_else(|| (Arc::clone(inventory), Timestamp::now())));
        let scanned_at = scanned_at.as_second();
        let devices = NodeDevices { scanned_at, ..health(inventory, &self.pool, &state.faults) };
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
        let covered = state.covered.as_ref().ok_or(ClaimStoreError::LayoutUnknown)?;
        let node = NodeState { inventory, holders, holders_unknown, covered, pool: &self.pool };
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
        let mut state = self.lock();
        state.creating.remove(uid);
        if state.record.is_none() {
            return Err(ClaimStoreError::NotOwner);
        }
        let released = write(&mut state, |record| record.release(uid))?;
        drop(state);
        if released.is_some() {
            self.notify();
        }
        Ok(())
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

/// Changes the record and then its file. If the file cannot be written, the record does not change.
fn write<T>(
    state: &mut StoreState,
    change: impl FnOnce(&mut PreparedClaims) -> T,
) -> Result<T, ClaimStoreError> {
    let (dir, record) = state.record.as_mut().ok_or(ClaimStoreError::NotOwner)?;
    let mut changed = record.clone();
    let result = change(&mut changed);
    if changed != *record {
        // Serialization cannot fail: the type contains only numbers, strings, lists and maps with text keys.
        let mut text = serde_json::to_string_pretty(&changed).unwrap_or_default();
        text.push('\n');
        durable::replace(&dir.join(FILE_NAME), &dir.join(DRAFT_FILE_NAME), text.as_bytes(), MODE)?;
        *record = changed;
    }
    Ok(result)
}

/// Returns whether the record was read and is no record.
fn is_invalid(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, InvalidData, InvalidInput};
    matches!(error.kind(), InvalidData | FileTooLarge | InvalidInput)
}

fn read(path: &Path) -> Result<PreparedClaims, io::Error> {
    let text = match files::text(path, MAX_RECORD_BYTES) {
        Ok(text) => text,
        Err(ReadError::Missing(_)) => return Ok(PreparedClaims::default()),
        Err(error) => return Err(error.into()),
    };
    serde_json::from_str(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Returns the health of all devices that claims can be allocated, including those of GPUs that the layout covers.
fn health(inventory: &Inventory, pool: &str, faults: &BTreeMap<DeviceName, String>) -> NodeDevices {
    let devices = octavo_dra::devices(inventory, &BTreeSet::new());
    let devices = devices.iter().map(|device| DeviceHealth {
        device: device.name().to_string(),
        problem: claims::problem(device, inventory, faults),
    });
    NodeDevices {
        pool: pool.to_owned(),
        devices: devices.collect(),
        is_known: matches!(inventory.nvml, NvmlState::Ready(_)),
        scanned_at: 0,
    }
}

impl ClaimAllocations for ClaimStore {
    fn add_unlisted(&self, listed: &mut Vec<DeviceAllocation>) {
        let state = self.lock();
        let record = state.record.as_ref().map(|(_, record)| record);
        let unlisted = record.map(|record| record.unlisted_allocations(listed, &self.pool));
        listed.extend(unlisted.unwrap_or_default());
    }
}

/// Usage on a node with claims: a prepared claim uses its devices.
#[derive(Debug)]
pub struct ClaimProbe {
    inner: Arc<dyn UsageProbe>,
    store: Arc<ClaimStore>,
}

impl ClaimProbe {
    /// Combines the holders reported by `inner` with the claims in `store`.
    pub fn new(inner: Arc<dyn UsageProbe>, store: Arc<ClaimStore>) -> Self {
        Self { inner, store }
    }
}

impl UsageProbe for ClaimProbe {
    fn holders(&self, devices: &[Device]) -> Result<Vec<Holder>, String> {
        let claims = self.store.holders(devices);
        let mut all = self.inner.holders(devices)?;
        // A claim is listed without its pods only if the kubelet lists none of them yet.
        let unlisted =
            claims.into_iter().filter(|claim| !all.iter().any(|pod| pod.has_same_claim(claim)));
        let unlisted: Vec<Holder> = unlisted.collect();
        all.extend(unlisted);
        all.sort();
        Ok(all)
    }

    fn describe(&self, holders: &mut [Holder]) {
        self.inner.describe(holders);
    }

    fn block_allocation(&self, devices: &[PciAddress]) -> Option<AllocationBlock> {
        self.inner.block_allocation(devices)
    }
}

#[cfg(test)]
mod tests;
