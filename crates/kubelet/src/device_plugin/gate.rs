//! Serializes allocations, changes of the device list and destructive changes.
//!
//! The kubelet allocates IDs, the layout changes the list, and the engine destroys partitions. All three take the same
//! lock, so that a partition is never destroyed after it was allocated or allocated while it is being destroyed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use octavo_model::holder::DeviceAllocation;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_model::resource::{ResourceName, ShareId};
use octavo_model::sharing_status::Health;
use octavo_node::sharing::ledger::AllocationLedger;
use octavo_node::sharing::listing::{ListedId, ListedResource, Listing};
use octavo_toolkit::desired::send_if_changed;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

/// Reason for refusing an allocation. The pod fails, and its controller may create another one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AllocationError {
    /// The ID is not or no longer listed.
    #[error("{id:?} is not an ID of {resource}")]
    Unknown {
        /// The requested ID.
        id: String,
        /// The requested resource.
        resource: ResourceName,
    },
    /// The device is unhealthy.
    #[error("{id} is not healthy: {reason}")]
    Unhealthy {
        /// The requested ID.
        id: ShareId,
        /// The reason.
        reason: String,
    },
    /// The device is being changed.
    #[error("{id} belongs to {pci}, which is being changed")]
    Changing {
        /// The requested ID.
        id: ShareId,
        /// The device.
        pci: PciAddress,
    },
    /// The device waits for its layout. The kubelet chose it before it received the updated list.
    #[error("{id} belongs to {pci}, which is withheld from allocation until its layout is applied")]
    Withheld {
        /// The requested ID.
        id: ShareId,
        /// The device.
        pci: PciAddress,
    },
    /// The layout permits only one replica per container.
    #[error(
        "{count} of {resource} requested, but the layout sets failRequestsGreaterThanOne: more replicas give no larger share of a GPU"
    )]
    MoreThanOne {
        /// The requested number.
        count: usize,
        /// The requested resource.
        resource: ResourceName,
    },
}

/// Serializes allocations, changes of the device list and destructive changes.
#[derive(Debug)]
pub struct AllocationGate {
    began: Instant,
    state: Mutex<State>,
    /// Modified only while the state is locked.
    listing: watch::Sender<Arc<Listing>>,
    /// Incremented by every allocation.
    allocations: watch::Sender<u64>,
    /// Whether no other agent serves this node.
    is_open: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    ledger: AllocationLedger,
    inventory: Option<Arc<Inventory>>,
    /// Number of ongoing changes by device.
    blocked: BTreeMap<PciAddress, usize>,
    /// Devices that were changed after the list was last updated.
    stale: BTreeSet<PciAddress>,
}

/// Input for updating the device list.
#[derive(Debug)]
pub struct ListingInput<'a> {
    /// Allocations to pods.
    pub allocations: Vec<DeviceAllocation>,
    /// Whether `allocations` is complete.
    pub is_complete: bool,
    /// Devices that are being changed.
    pub changing: BTreeSet<PciAddress>,
    /// The current list.
    pub before: &'a Listing,
}

/// Blocks allocations of these devices. After it is dropped, they stay blocked until the list is updated.
#[derive(Debug)]
pub struct AllocationBlock {
    gate: Arc<AllocationGate>,
    devices: Vec<PciAddress>,
}

impl Default for AllocationGate {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            state: Mutex::new(State {
                ledger: AllocationLedger::default(),
                inventory: None,
                blocked: BTreeMap::new(),
                stale: BTreeSet::new(),
            }),
            listing: watch::Sender::new(Arc::default()),
            allocations: watch::Sender::new(0),
            is_open: watch::Sender::new(false),
        }
    }
}

impl AllocationGate {
    /// Subscribes to the device list.
    pub fn listing(&self) -> watch::Receiver<Arc<Listing>> {
        self.listing.subscribe()
    }

    /// Subscribes to the allocation counter.
    pub fn allocation_count(&self) -> watch::Receiver<u64> {
        self.allocations.subscribe()
    }

    /// Updates the device list for the devices in `inventory`.
    pub fn list(&self, inventory: &Inventory, decide: impl FnOnce(&ListingInput<'_>) -> Listing) {
        let mut guard = self.state();
        let state = &mut *guard;
        let closed = &state.blocked;
        state.stale.retain(|pci| closed.contains_key(pci));
        if state.inventory.as_deref() != Some(inventory) {
            state.inventory = Some(Arc::new(inventory.clone()));
        }
        let before = Arc::clone(&self.listing.borrow());
        let view = ListingInput {
            allocations: state.ledger.allocations(),
            is_complete: state.ledger.is_complete(),
            changing: closed.keys().copied().collect(),
            before: &before,
        };
        let now = decide(&view);
        send_if_changed(&self.listing, Arc::new(now));
    }

    /// Allocates `requests`, all or none. Each request consists of the IDs for one container.
    pub fn allocate(
        &self,
        resource: &ResourceName,
        requests: &[Vec<String>],
    ) -> Result<Vec<Vec<ShareId>>, AllocationError> {
        let allocation = self.try_allocate(resource, requests);
        match &allocation {
            Ok(_) => self.allocations.send_modify(|count| *count = count.saturating_add(1)),
            Err(AllocationError::Withheld { id, .. }) => {
                self.withhold(resource, id);
                self.request_refresh();
            }
            Err(_) => {}
        }
        allocation
    }

    /// Releases and withholds a refused ID. The kubelet only requests IDs that no pod has, and would otherwise choose
    /// it again for the next pod.
    fn withhold(&self, resource: &ResourceName, id: &ShareId) {
        let mut state = self.state();
        state.ledger.release(resource, id);
        let mut listing = Listing::clone(&self.listing.borrow());
        let listed = listing.resources.get_mut(resource);
        let items = listed.into_iter().flat_map(|listed| &mut listed.items);
        for item in items.filter(|item| item.id == *id) {
            item.is_withheld = true;
        }
        send_if_changed(&self.listing, Arc::new(listing));
    }

    fn try_allocate(
        &self,
        resource: &ResourceName,
        requests: &[Vec<String>],
    ) -> Result<Vec<Vec<ShareId>>, AllocationError> {
        let mut state = self.state();
        let listing = Arc::clone(&self.listing.borrow());
        let listed = listing.resources.get(resource);
        let mut all = Vec::new();
        for ids in requests {
            let ids: Result<Vec<ShareId>, AllocationError> =
                ids.iter().map(|id| state.check(resource, (&listing, listed), id)).collect();
            let ids = ids?;
            let only_one = listed.is_some_and(|listed| listed.offer.fail_requests_greater_than_one);
            if only_one && ids.len() > 1 {
                return Err(AllocationError::MoreThanOne {
                    count: ids.len(),
                    resource: resource.clone(),
                });
            }
            all.push(ids);
        }
        let now = self.began.elapsed();
        for ids in &all {
            state.ledger.record_allocation(now, resource, ids);
        }
        Ok(all)
    }

    /// Blocks allocations of these devices.
    pub fn block(self: &Arc<Self>, devices: &[PciAddress]) -> AllocationBlock {
        let mut state = self.state();
        for pci in devices {
            let count = state.blocked.entry(*pci).or_default();
            *count = count.saturating_add(1);
        }
        AllocationBlock { gate: Arc::clone(self), devices: devices.to_vec() }
    }

    /// Returns allocations that the kubelet does not report yet.
    pub(super) fn unreported(&self) -> Vec<DeviceAllocation> {
        self.state().ledger.unreported()
    }

    /// Returns the known allocations to pods. Call it before querying the kubelet: an allocation that the kubelet
    /// starts to report in between is then listed twice instead of missed.
    pub fn held(&self) -> Vec<DeviceAllocation> {
        self.state().ledger.allocations()
    }

    /// Requests an early kubelet query, because a caller waits for an allocation to be released.
    pub fn request_refresh(&self) {
        self.allocations.send_modify(|_| {});
    }

    /// Permits serving the list, because no other agent serves this node.
    pub fn open(&self) {
        self.is_open.send_replace(true);
    }

    /// Returns whether the list may be served.
    pub fn is_serving(&self) -> bool {
        *self.is_open.borrow()
    }

    /// Waits until the list may be served.
    pub(super) async fn wait_until_serving(&self) {
        let mut is_open = self.is_open.subscribe();
        // The sender lives in `self`, so it cannot be dropped during the wait.
        let _open = is_open.wait_for(|is_open| *is_open).await;
    }

    /// Returns the time on the clock of [`Self::record_report`].
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Records the allocations that the kubelet reported in a query started at `queried_at`, possibly after a restart.
    /// Returns whether anything changed.
    pub(super) fn record_report(
        &self,
        queried_at: Duration,
        allocations: Vec<DeviceAllocation>,
        restarted: bool,
    ) -> bool {
        let mut state = self.state();
        let before = (state.ledger.is_complete(), state.ledger.allocations());
        if restarted {
            state.ledger.kubelet_restarted(queried_at);
        }
        state.ledger.record_report(queried_at, allocations);
        before != (state.ledger.is_complete(), state.ledger.allocations())
    }

    /// Records that the kubelet does not report allocations. Returns whether that changed.
    pub(super) fn record_unavailable(&self) -> bool {
        let mut state = self.state();
        let before = state.ledger.is_complete();
        state.ledger.mark_incomplete();
        before
    }

    /// Returns the inventory of the last list update.
    pub(super) fn inventory(&self) -> Option<Arc<Inventory>> {
        self.state().inventory.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check(
        &self,
        resource: &ResourceName,
        (listing, listed): (&Listing, Option<&ListedResource>),
        text: &str,
    ) -> Result<ShareId, AllocationError> {
        let unknown =
            || AllocationError::Unknown { id: text.to_owned(), resource: resource.clone() };
        let id: ShareId = text.parse().map_err(|_| unknown())?;
        let listed = listed.ok_or_else(unknown)?;
        let ListedId { health, .. } = listed.item(&id).ok_or_else(unknown)?;
        let pci = listed.unit(&id).ok_or_else(unknown)?.pci;
        if self.blocked.contains_key(&pci) || self.stale.contains(&pci) {
            return Err(AllocationError::Changing { id, pci });
        }
        // The kubelet requests the containers of a pod one after the other, and several may use the same ID, so an ID
        // stays available to the pod being admitted.
        if listing.withheld.contains(&pci) && !self.ledger.is_being_admitted(resource, &id) {
            return Err(AllocationError::Withheld { id, pci });
        }
        match health {
            Health::Healthy => Ok(id),
            Health::Unhealthy { reason } => {
                Err(AllocationError::Unhealthy { id, reason: reason.clone() })
            }
        }
    }
}

impl Drop for AllocationBlock {
    fn drop(&mut self) {
        let mut guard = self.gate.state();
        let state = &mut *guard;
        for pci in &self.devices {
            if let Some(count) = state.blocked.get_mut(pci) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    state.blocked.remove(pci);
                    state.stale.insert(*pci);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
