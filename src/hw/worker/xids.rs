//! Xid errors reported by devices, stored until every reader has taken them.
//!
//! Devices report errors in bursts, a hundred equal ones within a second. Therefore only distinct errors are stored, up
//! to a limit; the least recently reported is dropped first.

use std::collections::BTreeMap;

use crate::domain::sharing::health::Xid;

/// Maximum number of distinct errors: sixteen devices with each Xid of NVIDIA's catalog that indicates a fault.
const KEPT: usize = 2048;

/// The stored Xid errors.
#[derive(Debug, Default)]
pub(super) struct Xids {
    /// Total number received; the next error gets the following sequence number.
    heard: u64,
    /// Sequence number of each error's latest occurrence.
    kept: BTreeMap<Xid, u64>,
    /// Errors by sequence number.
    order: BTreeMap<u64, Xid>,
}

impl Xids {
    pub(super) fn hear(&mut self, xids: &[Xid]) {
        for xid in xids {
            self.heard = self.heard.saturating_add(1);
            if let Some(last) = self.kept.insert(*xid, self.heard) {
                self.order.remove(&last);
            }
            self.order.insert(self.heard, *xid);
            if self.kept.len() > KEPT
                && let Some((_, oldest)) = self.order.pop_first()
            {
                self.kept.remove(&oldest);
            }
        }
    }

    pub(super) fn heard(&self) -> u64 {
        self.heard
    }

    /// Returns the errors after this sequence number.
    pub(super) fn since(&self, heard: u64) -> Vec<Xid> {
        let later = self.order.range(heard.saturating_add(1)..);
        later.map(|(_, xid)| *xid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::PciAddress;

    fn xid(number: u64) -> Xid {
        Xid {
            pci: PciAddress::new(0, 0x3b, 0, 0).unwrap(),
            gpu_instance: None,
            compute_instance: None,
            number,
        }
    }

    #[test]
    fn one_that_is_reported_again_is_new_again_and_told_once() {
        let mut xids = Xids::default();
        xids.hear(&[xid(79), xid(48), xid(79)]);
        assert_eq!(xids.since(0), [xid(48), xid(79)]);
        assert_eq!(xids.since(xids.heard()), []);
        let taken = xids.heard();
        xids.hear(&[xid(48), xid(48)]);
        assert_eq!(xids.since(taken), [xid(48)]);
    }

    #[test]
    fn a_storm_neither_loses_the_last_nor_is_kept_whole() {
        let mut xids = Xids::default();
        for number in 0..10_000 {
            xids.hear(&[xid(48), xid(number)]);
        }
        let told = xids.since(0);
        assert_eq!(told.len(), KEPT);
        assert_eq!(told.last(), Some(&xid(9_999)));
        assert!(told.contains(&xid(48)), "what goes on is not forgotten");
        assert_eq!((xids.kept.len(), xids.order.len()), (KEPT, KEPT));
    }
}
