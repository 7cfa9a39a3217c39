//! Xid errors reported by devices, stored until every reader has taken them.
//!
//! Devices report errors in bursts, a hundred equal ones within a second. Therefore only distinct errors are stored, up
//! to a limit; the least recently reported is dropped first.

use std::collections::BTreeMap;

use octavo_model::xid::Xid;

/// Maximum number of distinct errors: sixteen devices with each Xid of NVIDIA's catalog that indicates a fault.
const MAX_XIDS: usize = 2048;

/// The stored Xid errors.
#[derive(Debug, Default)]
pub(super) struct XidBuffer {
    /// Total number received; the next error gets the following sequence number.
    total: u64,
    /// Sequence number of each error's latest occurrence.
    last_seen: BTreeMap<Xid, u64>,
    /// Errors by sequence number.
    order: BTreeMap<u64, Xid>,
}

impl XidBuffer {
    pub(super) fn record(&mut self, xids: &[Xid]) {
        for xid in xids {
            self.total = self.total.saturating_add(1);
            if let Some(last) = self.last_seen.insert(*xid, self.total) {
                self.order.remove(&last);
            }
            self.order.insert(self.total, *xid);
            if self.last_seen.len() > MAX_XIDS
                && let Some((_, oldest)) = self.order.pop_first()
            {
                self.last_seen.remove(&oldest);
            }
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the errors after this sequence number.
    pub(super) fn since(&self, after: u64) -> Vec<Xid> {
        let later = self.order.range(after.saturating_add(1)..);
        later.map(|(_, xid)| *xid).collect()
    }
}

#[cfg(test)]
mod tests {
    use octavo_model::id::PciAddress;

    use super::*;

    fn xid(number: u64) -> Xid {
        Xid {
            pci: PciAddress::new(0, 0x3b, 0, 0).unwrap(),
            gpu_instance: None,
            compute_instance: None,
            number,
        }
    }

    #[test]
    fn repeated_xid_is_returned_once() {
        let mut xids = XidBuffer::default();
        xids.record(&[xid(79), xid(48), xid(79)]);
        assert_eq!(xids.since(0), [xid(48), xid(79)]);
        assert_eq!(xids.since(xids.total()), []);
        let taken = xids.total();
        xids.record(&[xid(48), xid(48)]);
        assert_eq!(xids.since(taken), [xid(48)]);
    }

    #[test]
    fn burst_keeps_the_latest_xids_within_the_limit() {
        let mut xids = XidBuffer::default();
        for number in 0..10_000 {
            xids.record(&[xid(48), xid(number)]);
        }
        let stored = xids.since(0);
        assert_eq!(stored.len(), MAX_XIDS);
        assert_eq!(stored.last(), Some(&xid(9_999)));
        assert!(stored.contains(&xid(48)), "a recurring Xid is dropped");
        assert_eq!((xids.last_seen.len(), xids.order.len()), (MAX_XIDS, MAX_XIDS));
    }
}
