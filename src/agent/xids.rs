//! Log messages for the errors that devices report.
//!
//! A device can report the same error a hundred times a second for hours. Each error is therefore logged once per
//! interval, and the number of errors per interval is limited.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use crate::domain::sharing::health::{Table, Xid};
use crate::hw::Handle;

/// Minimum interval between two messages about the same error.
const WHILE: Duration = Duration::from_mins(1);
/// Maximum number of different errors logged in that interval.
const MOST: usize = 64;

/// Logs errors of devices as they are reported.
#[derive(Debug)]
pub(super) struct Reporter {
    /// A handle of its own, so that errors read here still reach other subscribers.
    hardware: Handle,
    table: Table,
    said: Said,
}

/// Recently logged errors.
#[derive(Debug, Default)]
struct Said(BTreeMap<Xid, Instant>);

impl Reporter {
    /// Creates a reporter of the errors that `hardware` reports, classified by `table`.
    pub(super) fn new(hardware: &Handle, table: Table) -> Self {
        Self {
            hardware: hardware.clone(),
            table,
            said: Said::default(),
        }
    }

    /// Logs new errors, and returns all of them.
    pub(super) fn report(&mut self) -> Vec<Xid> {
        let xids = self.hardware.xids();
        for xid in self.said.of_these(Instant::now(), &xids) {
            let (device, number) = (xid.pci, xid.number);
            let (gi, ci) = (xid.gpu_instance, xid.compute_instance);
            let (class, what) = self.table.look_up(number);
            if class.is_harmless() {
                info!(%device, gi, ci, "the device reports Xid {number}: {what}");
            } else {
                warn!(%device, gi, ci, "the device reports Xid {number}: {what}");
            }
        }
        xids
    }
}

impl Said {
    /// Returns the errors to log now.
    fn of_these(&mut self, now: Instant, xids: &[Xid]) -> Vec<Xid> {
        let said = &mut self.0;
        said.retain(|_, at| now.saturating_duration_since(*at) < WHILE);
        let mut news = Vec::new();
        for xid in xids {
            if said.len() < MOST && !said.contains_key(xid) {
                said.insert(*xid, now);
                news.push(*xid);
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::PciAddress;

    #[test]
    fn a_storm_is_said_once_in_a_while() {
        let xid = |number| Xid {
            pci: PciAddress::new(0, 7, 0, 0).unwrap(),
            gpu_instance: None,
            compute_instance: None,
            number,
        };
        let (mut said, start) = (Said::default(), Instant::now());
        let after = |time| start + time;
        assert_eq!(said.of_these(start, &[xid(79), xid(79)]), [xid(79)]);
        let later = said.of_these(after(WHILE / 2), &[xid(79), xid(48)]);
        assert_eq!(later, [xid(48)]);
        let much = said.of_these(
            after(WHILE / 2),
            &(100..10_000).map(xid).collect::<Vec<_>>(),
        );
        assert_eq!(much.len(), MOST - 2);
        let again = said.of_these(after(2 * WHILE), &[xid(79), xid(48)]);
        assert_eq!(again, [xid(79), xid(48)]);
        assert_eq!(said.0.len(), 2);
    }
}
