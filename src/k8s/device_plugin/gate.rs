//! Where giving out meets taking away.
//!
//! Kubelet asks for ids, the layout changes what is listed, and the engine destroys partitions: all three pass through one lock, so
//! that nothing is destroyed that was just given out, and nothing given out that is being destroyed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::domain::holder::PodDevice;
use crate::domain::id::PciAddress;
use crate::domain::inventory::Inventory;
use crate::domain::sharing::health::Health;
use crate::domain::sharing::hold::{Item, Listed, Listing};
use crate::domain::sharing::ledger::Ledger;
use crate::domain::sharing::{ResourceName, ShareId};

/// Why kubelet is not given what it asked for; the pod fails, and whoever made it may try again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It is not listed, or not any more.
    #[error("{id:?} is not one of {resource}")]
    Unknown {
        /// What was asked for.
        id: String,
        /// Under which name.
        resource: ResourceName,
    },
    /// It is not fit.
    #[error("{id} is not fit to be given out: {reason}")]
    Unhealthy {
        /// What was asked for.
        id: ShareId,
        /// Why not.
        reason: String,
    },
    /// Its device is being changed.
    #[error("{id} is of {pci}, which is being changed")]
    Changing {
        /// What was asked for.
        id: ShareId,
        /// The device.
        pci: PciAddress,
    },
    /// Its device waits for its layout. Kubelet chose it before it received the list without it.
    #[error("{id} is of {pci}, of which nothing is allocated until its layout is applied")]
    Withheld {
        /// What was asked for.
        id: ShareId,
        /// The device.
        pci: PciAddress,
    },
    /// The layout lets a container have one.
    #[error(
        "{count} of {resource} were asked for: the layout says failRequestsGreaterThanOne, as more replicas are no more of a GPU"
    )]
    MoreThanOne {
        /// How many.
        count: usize,
        /// Of what.
        resource: ResourceName,
    },
}

/// Where giving out meets taking away.
#[derive(Debug)]
pub struct Gate {
    began: Instant,
    state: Mutex<State>,
    /// Changed under the lock of the state only.
    listing: watch::Sender<Arc<Listing>>,
    /// Counts what was given out.
    given: watch::Sender<u64>,
    /// Whether no other agent has this node.
    is_open: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    ledger: Ledger,
    inventory: Option<Arc<Inventory>>,
    /// How many are changing each device.
    closed: BTreeMap<PciAddress, usize>,
    /// Devices that were changed since what is listed was last decided.
    stale: BTreeSet<PciAddress>,
}

/// What is to be known for deciding what is listed.
#[derive(Debug)]
pub struct View<'a> {
    /// What pods have.
    pub given: Vec<PodDevice>,
    /// Whether that is all.
    pub is_all: bool,
    /// Devices that are being changed.
    pub changing: BTreeSet<PciAddress>,
    /// What is listed so far.
    pub before: &'a Listing,
}

/// Nothing of these devices is given out until this is dropped, and until it was decided anew what is listed.
#[derive(Debug)]
pub struct Closed {
    gate: Arc<Gate>,
    devices: Vec<PciAddress>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            state: Mutex::new(State {
                ledger: Ledger::default(),
                inventory: None,
                closed: BTreeMap::new(),
                stale: BTreeSet::new(),
            }),
            listing: watch::Sender::new(Arc::default()),
            given: watch::Sender::new(0),
            is_open: watch::Sender::new(false),
        }
    }
}

impl Gate {
    /// What is listed.
    pub fn listing(&self) -> watch::Receiver<Arc<Listing>> {
        self.listing.subscribe()
    }

    /// Counts what was given out.
    pub fn given(&self) -> watch::Receiver<u64> {
        self.given.subscribe()
    }

    /// Decides what is listed, of devices as they are in `inventory`.
    pub fn list(&self, inventory: &Inventory, decide: impl FnOnce(&View<'_>) -> Listing) {
        let mut guard = self.state();
        let state = &mut *guard;
        let closed = &state.closed;
        state.stale.retain(|pci| closed.contains_key(pci));
        if state.inventory.as_deref() != Some(inventory) {
            state.inventory = Some(Arc::new(inventory.clone()));
        }
        let before = Arc::clone(&self.listing.borrow());
        let view = View {
            given: state.ledger.given(),
            is_all: state.ledger.is_all(),
            changing: closed.keys().copied().collect(),
            before: &before,
        };
        let now = decide(&view);
        self.listing.send_if_modified(|listing| {
            let differs = **listing != now;
            if differs {
                *listing = Arc::new(now);
            }
            differs
        });
    }

    /// Gives `requests` out, all or none: the ids of each container.
    pub fn allocate(
        &self,
        resource: &ResourceName,
        requests: &[Vec<String>],
    ) -> Result<Vec<Vec<ShareId>>, Refusal> {
        let given = self.give(resource, requests);
        match &given {
            Ok(_) => self
                .given
                .send_modify(|count| *count = count.saturating_add(1)),
            Err(Refusal::Withheld { id, .. }) => {
                self.release(resource, id);
                self.doubt();
            }
            Err(_) => {}
        }
        given
    }

    /// Kubelet asks only for what no pod has: what it was refused is idle and withheld from now on, or it would choose it again
    /// for the next pod.
    fn release(&self, resource: &ResourceName, id: &ShareId) {
        let mut state = self.state();
        state.ledger.release(resource, id);
        self.listing.send_if_modified(|listing| {
            let mut now = Listing::clone(listing);
            let listed = now.resources.get_mut(resource);
            let items = listed.into_iter().flat_map(|listed| &mut listed.items);
            for item in items.filter(|item| item.id == *id) {
                item.is_withheld = true;
            }
            let differs = **listing != now;
            if differs {
                *listing = Arc::new(now);
            }
            differs
        });
    }

    fn give(
        &self,
        resource: &ResourceName,
        requests: &[Vec<String>],
    ) -> Result<Vec<Vec<ShareId>>, Refusal> {
        let mut state = self.state();
        let listing = Arc::clone(&self.listing.borrow());
        let listed = listing.resources.get(resource);
        let mut all = Vec::new();
        for ids in requests {
            let ids: Result<Vec<ShareId>, Refusal> = ids
                .iter()
                .map(|id| state.check(resource, (&listing, listed), id))
                .collect();
            let ids = ids?;
            let only_one = listed.is_some_and(|listed| listed.offer.fail_requests_greater_than_one);
            if only_one && ids.len() > 1 {
                return Err(Refusal::MoreThanOne {
                    count: ids.len(),
                    resource: resource.clone(),
                });
            }
            all.push(ids);
        }
        let now = self.began.elapsed();
        for ids in &all {
            state.ledger.give(now, resource, ids);
        }
        Ok(all)
    }

    /// From now on nothing of these devices is given out.
    pub fn close(self: &Arc<Self>, devices: &[PciAddress]) -> Closed {
        let mut state = self.state();
        for pci in devices {
            let count = state.closed.entry(*pci).or_default();
            *count = count.saturating_add(1);
        }
        Closed {
            gate: Arc::clone(self),
            devices: devices.to_vec(),
        }
    }

    /// What was given out and kubelet does not tell of yet.
    pub(super) fn unseen(&self) -> Vec<PodDevice> {
        self.state().ledger.unseen()
    }

    /// What pods have, as far as it is known. Whoever asks kubelet too asks here first: what kubelet tells of in between is then
    /// known twice, and not missed.
    pub fn held(&self) -> Vec<PodDevice> {
        self.state().ledger.given()
    }

    /// Somebody waits for what is held to be released: kubelet is to be asked soon.
    pub fn doubt(&self) {
        self.given.send_modify(|_| {});
    }

    /// From now on what is listed may be served: no other agent has this node.
    pub fn open(&self) {
        self.is_open.send_replace(true);
    }

    /// Whether what is listed may be served.
    pub fn is_open(&self) -> bool {
        *self.is_open.borrow()
    }

    /// Waits until it may.
    pub(super) async fn opened(&self) {
        let mut is_open = self.is_open.subscribe();
        // It cannot go while it is waited for.
        let _open = is_open.wait_for(|is_open| *is_open).await;
    }

    /// The time by which [`Self::told`] knows when kubelet was asked.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Kubelet, asked at `asked`, tells of these; it may be another process than before. Whether that is news.
    pub(super) fn told(&self, asked: Duration, given: Vec<PodDevice>, restarted: bool) -> bool {
        let mut state = self.state();
        let before = (state.ledger.is_all(), state.ledger.given());
        if restarted {
            state.ledger.restarted(asked);
        }
        state.ledger.told(asked, given);
        before != (state.ledger.is_all(), state.ledger.given())
    }

    /// Kubelet does not tell. Whether that is news.
    pub(super) fn untold(&self) -> bool {
        let mut state = self.state();
        let before = state.ledger.is_all();
        state.ledger.untold();
        before
    }

    /// The devices, as they were when it was last decided what is listed.
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
        (listing, listed): (&Listing, Option<&Listed>),
        text: &str,
    ) -> Result<ShareId, Refusal> {
        let unknown = || Refusal::Unknown {
            id: text.to_owned(),
            resource: resource.clone(),
        };
        let id: ShareId = text.parse().map_err(|_| unknown())?;
        let listed = listed.ok_or_else(unknown)?;
        let Item { health, .. } = listed.item(&id).ok_or_else(unknown)?;
        let pci = listed.unit(&id).ok_or_else(unknown)?.pci;
        if self.closed.contains_key(&pci) || self.stale.contains(&pci) {
            return Err(Refusal::Changing { id, pci });
        }
        // A pod's containers are asked for one after the other, and may have the same: what it was just given stays its own.
        if listing.withheld.contains(&pci) && !self.ledger.is_being_admitted(resource, &id) {
            return Err(Refusal::Withheld { id, pci });
        }
        match health {
            Health::Healthy => Ok(id),
            Health::Unhealthy { reason } => Err(Refusal::Unhealthy {
                id,
                reason: reason.clone(),
            }),
        }
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let mut guard = self.gate.state();
        let state = &mut *guard;
        for pci in &self.devices {
            if let Some(count) = state.closed.get_mut(pci) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    state.closed.remove(pci);
                    state.stale.insert(*pci);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
