//! Usage of devices on a node with claims.

use std::sync::Arc;

use octavo_engine::usage::UsageProbe;
use octavo_kubelet::device_plugin::AllocationBlock;
use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Device;
use octavo_toolkit::error::chain;

use super::claim_store::ClaimStore;

/// Usage on a node with claims: a prepared claim uses its devices.
#[derive(Debug)]
pub(crate) struct ClaimProbe {
    inner: Arc<dyn UsageProbe>,
    store: Arc<ClaimStore>,
}

impl ClaimProbe {
    /// Combines the holders reported by `inner` with the claims in `store`.
    pub(crate) fn new(inner: Arc<dyn UsageProbe>, store: Arc<ClaimStore>) -> Self {
        Self { inner, store }
    }
}

impl UsageProbe for ClaimProbe {
    fn holders(&self, devices: &[Device]) -> Result<Vec<Holder>, String> {
        let claims = self.store.holders(devices).map_err(|error| chain(&error))?;
        let mut all = self.inner.holders(devices)?;
        all.retain(|holder| !self.store.is_monitor(holder));
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
