//! Allocations of ids: those reported by kubelet, and recent ones that kubelet does not report yet.
//!
//! Kubelet requests an id first and reports it a moment later, and a restarted kubelet reports no pod until it has
//! received its pods. In between an id must not appear free.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_model::holder::DeviceAllocation;
use octavo_model::resource::{ResourceName, ShareId};

/// Time after which an allocated id that kubelet does not report is free again: another component of kubelet has
/// rejected the pod, or it ended immediately. Kubelet records allocations within milliseconds, and reports nothing at
/// all while it is stalled.
pub const UNREPORTED_TIMEOUT: Duration = Duration::from_secs(15);
/// The same for an id allocated before a restart of kubelet, which must first receive its pods from the API server.
pub const RESTART_TIMEOUT: Duration = Duration::from_mins(1);
/// Placeholder for the pod of a new allocation.
const ADMISSION_PLACEHOLDER: &str = "(being admitted)";

/// All allocations.
#[derive(Debug, Clone, Default)]
pub struct AllocationLedger {
    /// True if kubelet has reported all allocations since it was last unavailable.
    is_complete: bool,
    entries: BTreeMap<(String, String), Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    by: DeviceAllocation,
    /// `None` if kubelet reports it.
    unseen: Option<Unreported>,
}

/// An allocation that kubelet does not report yet.
#[derive(Debug, Clone, Copy)]
struct Unreported {
    /// A report requested before this time is no evidence about it.
    since: Duration,
    /// A report requested after this time and without the id frees it.
    until: Duration,
    /// True if it was just allocated to a pod that is being admitted.
    is_admission: bool,
}

impl AllocationLedger {
    /// Records new allocations.
    pub fn record_allocation(&mut self, now: Duration, resource: &ResourceName, ids: &[ShareId]) {
        for id in ids {
            let key = (resource.to_string(), id.to_string());
            let by = DeviceAllocation {
                namespace: String::new(),
                pod: ADMISSION_PLACEHOLDER.to_owned(),
                container: String::new(),
                resource: key.0.clone(),
                device_id: key.1.clone(),
                claim: None,
            };
            let unseen = Some(Unreported {
                since: now,
                until: now.saturating_add(UNREPORTED_TIMEOUT),
                is_admission: true,
            });
            self.entries.insert(key, Entry { by, unseen });
        }
    }

    /// Records a restart of kubelet, which reports none of its pods for a while.
    pub fn kubelet_restarted(&mut self, now: Duration) {
        for entry in self.entries.values_mut() {
            let since = entry.unseen.map_or(now, |unseen| unseen.since);
            let is_admission = entry.unseen.is_some_and(|unseen| unseen.is_admission);
            entry.unseen = Some(Unreported {
                since,
                until: now.saturating_add(RESTART_TIMEOUT),
                is_admission,
            });
        }
    }

    /// Records kubelet's complete report `allocations`, requested at `asked`.
    pub fn record_report(&mut self, queried_at: Duration, reported: Vec<DeviceAllocation>) {
        let reported_ids: BTreeSet<(String, String)> =
            reported.iter().map(|one| (one.resource.clone(), one.device_id.clone())).collect();
        self.entries.retain(|key, entry| match entry.unseen {
            _ if reported_ids.contains(key) => true,
            Some(unseen) => queried_at < unseen.until,
            None => false,
        });
        for by in reported {
            let key = (by.resource.clone(), by.device_id.clone());
            // A report requested before an allocation is no evidence about it.
            let unseen = self.entries.get(&key).and_then(|entry| entry.unseen);
            let unseen = unseen.filter(|unseen| unseen.since > queried_at);
            self.entries.insert(key, Entry { by, unseen });
        }
        self.is_complete = true;
    }

    /// Frees an id.
    pub fn release(&mut self, resource: &ResourceName, id: &ShareId) {
        let key = (resource.to_string(), id.to_string());
        self.entries.remove(&key);
    }

    /// Records that kubelet does not report its allocations.
    pub fn mark_incomplete(&mut self) {
        self.is_complete = false;
    }

    /// Returns whether all allocations are known.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// All allocations.
    pub fn allocations(&self) -> Vec<DeviceAllocation> {
        let all = self.entries.values();
        all.map(|entry| entry.by.clone()).collect()
    }

    /// Returns whether this was just allocated to a pod, and kubelet has yet to report it.
    pub fn is_being_admitted(&self, resource: &ResourceName, id: &ShareId) -> bool {
        let entry = self.entries.get(&(resource.to_string(), id.to_string()));
        let unseen = entry.and_then(|entry| entry.unseen);
        unseen.is_some_and(|unseen| unseen.is_admission)
    }

    /// Allocations that kubelet does not report yet.
    pub fn unreported(&self) -> Vec<DeviceAllocation> {
        let all = self.entries.values();
        let unseen = all.filter(|entry| entry.unseen.is_some());
        unseen.map(|entry| entry.by.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn allocation_of(pod: &str) -> Vec<DeviceAllocation> {
        vec![DeviceAllocation {
            namespace: "team-a".to_owned(),
            pod: pod.to_owned(),
            container: "main".to_owned(),
            resource: "nvidia.com/gpu".to_owned(),
            device_id: GPU.to_owned(),
            claim: None,
        }]
    }

    fn with_allocation(now: u64) -> AllocationLedger {
        let mut ledger = AllocationLedger::default();
        ledger.record_report(at(0), Vec::new());
        ledger.record_allocation(at(now), &ResourceName::gpu(), &[ShareId::whole(GPU)]);
        ledger
    }

    #[test]
    fn new_allocation_is_held_until_report_timeout() {
        let mut ledger = with_allocation(10);
        for requested_at in [5, 10, 24] {
            ledger.record_report(at(requested_at), Vec::new());
            assert_eq!(ledger.allocations().len(), 1, "{requested_at}");
        }
        ledger.record_report(at(25), Vec::new());
        assert_eq!(ledger.allocations(), []);
    }

    #[test]
    fn reported_allocation_is_freed_when_kubelet_drops_it() {
        let mut ledger = with_allocation(10);
        ledger.record_report(at(11), allocation_of("train-0"));
        assert_eq!(ledger.allocations(), allocation_of("train-0"));
        assert_eq!(ledger.unreported(), []);
        ledger.record_report(at(12), Vec::new());
        assert_eq!(ledger.allocations(), []);
    }

    #[test]
    fn report_requested_before_allocation_does_not_confirm_it() {
        let mut ledger = with_allocation(10);
        ledger.record_report(at(9), allocation_of("the-one-before"));
        assert_eq!(ledger.unreported().len(), 1);
        ledger.record_report(at(11), Vec::new());
        assert_eq!(ledger.allocations().len(), 1);
    }

    #[test]
    fn only_new_allocations_are_being_admitted() {
        let (gpu, id) = (ResourceName::gpu(), ShareId::whole(GPU));
        let mut ledger = with_allocation(10);
        ledger.record_report(at(9), allocation_of("the-one-before"));
        assert!(ledger.is_being_admitted(&gpu, &id));
        ledger.record_report(at(11), allocation_of("train-0"));
        assert!(!ledger.is_being_admitted(&gpu, &id));
        ledger.kubelet_restarted(at(20));
        assert!(!ledger.is_being_admitted(&gpu, &id));
        assert_eq!(ledger.unreported().len(), 1);
    }

    #[test]
    fn allocations_survive_kubelet_restart() {
        let mut ledger = with_allocation(10);
        ledger.record_report(at(11), allocation_of("train-0"));
        ledger.kubelet_restarted(at(20));
        ledger.record_report(at(79), Vec::new());
        assert_eq!(ledger.allocations(), allocation_of("train-0"));
        ledger.record_report(at(80), allocation_of("train-0"));
        ledger.record_report(at(81), Vec::new());
        assert_eq!(ledger.allocations(), []);
    }
}
