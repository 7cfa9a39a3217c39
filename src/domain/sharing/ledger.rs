//! Who has which ids: what kubelet tells, and what was given out since and kubelet does not tell yet.
//!
//! Kubelet asks for an id first and tells of it a moment later; and a kubelet that was just started again tells of no pod until it
//! has heard of them. In between an id must not look free.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::resource::{ResourceName, ShareId};
use crate::domain::holder::PodDevice;

/// After this time an id that was given out and that kubelet does not tell of is nobody's: another part of kubelet has refused the
/// pod, or it ended at once. Kubelet notes what it was given in milliseconds, and while it is held up it tells nothing at all.
pub const UNSEEN: Duration = Duration::from_secs(15);
/// The same of an id that somebody had before kubelet was started again: it has to hear of its pods from the API server first.
pub const UNHEARD: Duration = Duration::from_mins(1);
/// Who has an id that was just given out.
const BEING_ADMITTED: &str = "(being admitted)";

/// Who has which ids.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// Whether kubelet has told of all since it was last found away.
    is_all: bool,
    entries: BTreeMap<(String, String), Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    by: PodDevice,
    /// `None` where kubelet tells of it.
    unseen: Option<Unseen>,
}

/// What kubelet is yet to tell of.
#[derive(Debug, Clone, Copy)]
struct Unseen {
    /// An answer that was begun before says nothing of it.
    since: Duration,
    /// An answer that was begun later, and does not have it, means that nobody has it.
    until: Duration,
    /// Whether a pod that is being admitted was just given it.
    is_admission: bool,
}

impl Ledger {
    /// These were just given out.
    pub fn give(&mut self, now: Duration, resource: &ResourceName, ids: &[ShareId]) {
        for id in ids {
            let key = (resource.to_string(), id.to_string());
            let by = PodDevice {
                namespace: String::new(),
                pod: BEING_ADMITTED.to_owned(),
                container: String::new(),
                resource: key.0.clone(),
                device_id: key.1.clone(),
            };
            let unseen = Some(Unseen {
                since: now,
                until: now.saturating_add(UNSEEN),
                is_admission: true,
            });
            self.entries.insert(key, Entry { by, unseen });
        }
    }

    /// Kubelet was started again: for a while it knows of none of its pods.
    pub fn restarted(&mut self, now: Duration) {
        for entry in self.entries.values_mut() {
            let since = entry.unseen.map_or(now, |unseen| unseen.since);
            let is_admission = entry.unseen.is_some_and(|unseen| unseen.is_admission);
            entry.unseen = Some(Unseen {
                since,
                until: now.saturating_add(UNHEARD),
                is_admission,
            });
        }
    }

    /// Kubelet, asked at `asked`, tells of `given` and nothing else.
    pub fn told(&mut self, asked: Duration, given: Vec<PodDevice>) {
        let told: BTreeSet<(String, String)> = given
            .iter()
            .map(|one| (one.resource.clone(), one.device_id.clone()))
            .collect();
        self.entries.retain(|key, entry| match entry.unseen {
            _ if told.contains(key) => true,
            Some(unseen) => asked < unseen.until,
            None => false,
        });
        for by in given {
            let key = (by.resource.clone(), by.device_id.clone());
            // An answer that was begun before says nothing of what was given after.
            let unseen = self.entries.get(&key).and_then(|entry| entry.unseen);
            let unseen = unseen.filter(|unseen| unseen.since > asked);
            self.entries.insert(key, Entry { by, unseen });
        }
        self.is_all = true;
    }

    /// Nobody has this any more.
    pub fn release(&mut self, resource: &ResourceName, id: &ShareId) {
        let key = (resource.to_string(), id.to_string());
        self.entries.remove(&key);
    }

    /// Kubelet does not tell.
    pub fn untold(&mut self) {
        self.is_all = false;
    }

    /// Whether all is known.
    pub fn is_all(&self) -> bool {
        self.is_all
    }

    /// All that somebody has.
    pub fn given(&self) -> Vec<PodDevice> {
        let all = self.entries.values();
        all.map(|entry| entry.by.clone()).collect()
    }

    /// Whether this was just allocated to a pod, and kubelet has yet to report it.
    pub fn is_being_admitted(&self, resource: &ResourceName, id: &ShareId) -> bool {
        let entry = self.entries.get(&(resource.to_string(), id.to_string()));
        let unseen = entry.and_then(|entry| entry.unseen);
        unseen.is_some_and(|unseen| unseen.is_admission)
    }

    /// What kubelet has yet to tell of.
    pub fn unseen(&self) -> Vec<PodDevice> {
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

    fn told(pod: &str) -> Vec<PodDevice> {
        vec![PodDevice {
            namespace: "team-a".to_owned(),
            pod: pod.to_owned(),
            container: "main".to_owned(),
            resource: "nvidia.com/gpu".to_owned(),
            device_id: GPU.to_owned(),
        }]
    }

    fn given(now: u64) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.told(at(0), Vec::new());
        ledger.give(at(now), &ResourceName::gpu(), &[ShareId::whole(GPU)]);
        ledger
    }

    #[test]
    fn what_was_given_is_somebodys_until_kubelet_has_had_time_to_tell_of_it() {
        let mut ledger = given(10);
        for asked in [5, 10, 24] {
            ledger.told(at(asked), Vec::new());
            assert_eq!(ledger.given().len(), 1, "{asked}");
        }
        ledger.told(at(25), Vec::new());
        assert_eq!(ledger.given(), []);
    }

    #[test]
    fn once_told_it_is_the_pods_and_nobodys_as_soon_as_kubelet_says_so() {
        let mut ledger = given(10);
        ledger.told(at(11), told("train-0"));
        assert_eq!(ledger.given(), told("train-0"));
        assert_eq!(ledger.unseen(), []);
        ledger.told(at(12), Vec::new());
        assert_eq!(ledger.given(), []);
    }

    #[test]
    fn an_answer_begun_before_it_was_given_again_does_not_confirm_it() {
        let mut ledger = given(10);
        ledger.told(at(9), told("the-one-before"));
        assert_eq!(ledger.unseen().len(), 1);
        ledger.told(at(11), Vec::new());
        assert_eq!(ledger.given().len(), 1);
    }

    #[test]
    fn only_what_was_just_allocated_is_being_admitted_and_not_all_after_a_restart_of_kubelet() {
        let (gpu, id) = (ResourceName::gpu(), ShareId::whole(GPU));
        let mut ledger = given(10);
        ledger.told(at(9), told("the-one-before"));
        assert!(ledger.is_being_admitted(&gpu, &id));
        ledger.told(at(11), told("train-0"));
        assert!(!ledger.is_being_admitted(&gpu, &id));
        ledger.restarted(at(20));
        assert!(!ledger.is_being_admitted(&gpu, &id));
        assert_eq!(ledger.unseen().len(), 1);
    }

    #[test]
    fn a_kubelet_that_was_started_again_may_know_of_nobody_for_a_while() {
        let mut ledger = given(10);
        ledger.told(at(11), told("train-0"));
        ledger.restarted(at(20));
        ledger.told(at(79), Vec::new());
        assert_eq!(ledger.given(), told("train-0"));
        ledger.told(at(80), told("train-0"));
        ledger.told(at(81), Vec::new());
        assert_eq!(ledger.given(), []);
    }
}
