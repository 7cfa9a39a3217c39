//! Log messages for the errors that devices report.
//!
//! A device can report the same error a hundred times a second for hours. Each error is therefore logged once per
//! interval, and the number of errors per interval is limited.

use std::collections::BTreeMap;
use std::time::Duration;

use octavo_hardware::DriverHandle;
use octavo_model::xid::Xid;
use octavo_node::sharing::health::XidTable;
use tokio::time::Instant;
use tracing::{info, warn};

/// Minimum interval between two messages about the same error.
const REPEAT_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum number of different errors logged in that interval.
const MAX_LOGGED_XIDS: usize = 64;

/// Logs errors of devices as they are reported.
#[derive(Debug)]
pub(super) struct XidLog {
    /// A handle of its own, so that errors read here still reach other subscribers.
    hardware: DriverHandle,
    table: XidTable,
    logged: RecentXids,
}

/// Recently logged errors.
#[derive(Debug, Default)]
struct RecentXids(BTreeMap<Xid, Instant>);

impl XidLog {
    /// Creates a reporter of the errors that `hardware` reports, classified by `table`.
    pub(super) fn new(hardware: &DriverHandle, table: XidTable) -> Self {
        Self { hardware: hardware.clone(), table, logged: RecentXids::default() }
    }

    /// Logs new errors, and returns all of them.
    pub(super) fn report(&mut self) -> Vec<Xid> {
        let xids = self.hardware.xids();
        for xid in self.logged.filter_new(Instant::now(), &xids) {
            let (device, number) = (xid.pci, xid.number);
            let (gi, ci) = (xid.gpu_instance, xid.compute_instance);
            let (class, what) = self.table.classify(number);
            if class.is_harmless() {
                info!(%device, gi, ci, xid = number, description = %what, "Xid error reported");
            } else {
                warn!(%device, gi, ci, xid = number, description = %what, "Xid error reported");
            }
        }
        xids
    }
}

impl RecentXids {
    /// Returns the errors to log now.
    fn filter_new(&mut self, now: Instant, xids: &[Xid]) -> Vec<Xid> {
        let logged = &mut self.0;
        logged.retain(|_, at| now.saturating_duration_since(*at) < REPEAT_INTERVAL);
        let mut new = Vec::new();
        for xid in xids {
            if logged.len() < MAX_LOGGED_XIDS && !logged.contains_key(xid) {
                logged.insert(*xid, now);
                new.push(*xid);
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use octavo_model::id::PciAddress;

    use super::*;

    #[test]
    fn xid_storm_is_logged_once_per_interval() {
        let xid = |number| Xid {
            pci: PciAddress::new(0, 7, 0, 0).unwrap(),
            gpu_instance: None,
            compute_instance: None,
            number,
        };
        let (mut recent, start) = (RecentXids::default(), Instant::now());
        let after = |time| start + time;
        assert_eq!(recent.filter_new(start, &[xid(79), xid(79)]), [xid(79)]);
        let later = recent.filter_new(after(REPEAT_INTERVAL / 2), &[xid(79), xid(48)]);
        assert_eq!(later, [xid(48)]);
        let limited = recent
            .filter_new(after(REPEAT_INTERVAL / 2), &(100..10_000).map(xid).collect::<Vec<_>>());
        assert_eq!(limited.len(), MAX_LOGGED_XIDS - 2);
        let again = recent.filter_new(after(2 * REPEAT_INTERVAL), &[xid(79), xid(48)]);
        assert_eq!(again, [xid(79), xid(48)]);
        assert_eq!(recent.0.len(), 2);
    }
}
