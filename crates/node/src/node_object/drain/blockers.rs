//! Determines the blockers of each device, and which of them may be evicted.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::reason::Reason;
use octavo_planner::plan::messages::holders;
use octavo_planner::reconcile::{ApplyState, DeviceLayoutStatus, NodeLayoutStatus};

use super::pod::{EvictionExemption, HolderPod, Pod, PodId, find_pod};
use super::{Blocker, BlockerName, DrainInputs, EvictionResult, PodObservations};

/// Reasons why an evictable pod still exists.
const EVICTION_PENDING: &str = "will be evicted";
const TAINT_PENDING: &str = "will be evicted after the node is tainted";

/// The blockers of a node's devices.
#[derive(Debug, Default)]
pub(super) struct Blockers<'a> {
    /// Names of the devices that only evictable pods block.
    pub(super) devices: Vec<String>,
    /// PCI addresses of these devices.
    pub(super) addresses: BTreeSet<PciAddress>,
    /// The pods that block these devices and may be evicted or are terminating.
    pub(super) blocking_pods: BTreeMap<&'a PodId, &'a Pod>,
    /// Blockers of any device that stay.
    pub(super) obstacles: Vec<Blocker>,
    /// Pods that the API server does not list.
    pub(super) unlisted: Vec<Blocker>,
    /// True if a drain may start for at least one device.
    pub(super) may_begin: bool,
    /// True if an unblocked device is not done yet.
    pub(super) is_unfinished: bool,
    /// True if a device waits for its holders.
    is_held: bool,
    others: Vec<Blocker>,
}

/// Classification of a holder.
enum HolderClass<'a> {
    MayGo(&'a Pod),
    Stays(Blocker),
    Unlisted(Blocker),
    /// Released by another component, or about to be.
    Other(Blocker),
}

/// Returns true if the devices' status belongs to the current choice of a layout, and they would be changed without
/// blockers. If the node's state differs from its most severe device, the choice is about to change, does not apply to
/// this node, or another program manages the node.
pub(super) fn is_requested(status: &NodeLayoutStatus) -> bool {
    let reported = || status.devices.iter().map(|device| &device.state);
    let worst = reported().max_by_key(|state| state.known().and_then(ApplyState::severity));
    // A plan must be complete before its first step.
    let possible = !reported().any(|state| *state == Reason::Infeasible);
    status.layout.is_some() && possible && (status.state.as_ref() == worst || status.is_busy())
}

impl<'a> Blockers<'a> {
    pub(super) fn new(facts: &DrainInputs<'a>) -> Self {
        let mut blockers = Self::default();
        for device in &facts.status.devices {
            if is_held(device) {
                blockers.is_held = true;
                blockers.add_device(device, facts);
            } else {
                blockers.is_unfinished |= is_one_of(device, [Reason::Pending, Reason::NeedsReset]);
            }
        }
        for list in [&mut blockers.obstacles, &mut blockers.unlisted, &mut blockers.others] {
            list.sort();
            list.dedup();
        }
        blockers
    }

    fn add_device(&mut self, device: &DeviceLayoutStatus, facts: &DrainInputs<'a>) {
        let classify = |holder| {
            let is_paused = facts.pauses_operands && is_client(device, holder);
            classify(facts, holder, is_paused)
        };
        let stands: Vec<HolderClass<'a>> = device.holders.iter().map(classify).collect();
        let is_clear = !stands.iter().any(|one| matches!(one, HolderClass::Stays(_)));
        let is_known = !stands.iter().any(|one| matches!(one, HolderClass::Unlisted(_)));
        let mut goes = false;
        for stand in stands {
            match stand {
                // Evicting pods is useless if another blocker stays.
                HolderClass::MayGo(pod) if is_clear => {
                    goes = true;
                    self.blocking_pods.insert(&pod.id, pod);
                }
                HolderClass::MayGo(_) => {}
                HolderClass::Stays(waiting) => self.obstacles.push(waiting),
                HolderClass::Unlisted(waiting) => self.unlisted.push(waiting),
                HolderClass::Other(waiting) => self.others.push(waiting),
            }
        }
        if goes {
            self.devices.push(device.name.clone());
            self.addresses.insert(device.pci);
            self.may_begin |= is_known;
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Returns true if a device is blocked by an evictable pod, or by one not listed yet.
    pub(super) fn may_go(&self) -> bool {
        !self.blocking_pods.is_empty() || !self.unlisted.is_empty()
    }

    /// Returns true if a blocker is terminating, may be evicted, or is released by another component.
    pub(super) fn will_be_released(&self) -> bool {
        !self.blocking_pods.is_empty() || !self.others.is_empty()
    }

    /// Returns true if a process outside any pod blocks a device.
    pub(super) fn is_held_by_a_process(&self) -> bool {
        let mut obstacles = self.obstacles.iter();
        obstacles.any(|one| matches!(one.name, BlockerName::Process(_)))
    }

    /// Returns true if the agent lacks the permission to evict one of the blocking pods.
    pub(super) fn is_forbidden(&self, observations: &PodObservations) -> bool {
        let mut answers = observations.answers.iter();
        answers.any(|(id, result)| {
            *result == EvictionResult::Forbidden && self.blocking_pods.contains_key(id)
        })
    }

    /// Returns the blocking pods that are still to be evicted.
    pub(super) fn pods_to_evict(&self) -> Vec<PodId> {
        let pods = self.blocking_pods.values();
        pods.filter(|pod| must_be_evicted(pod)).map(|pod| pod.id.clone()).collect()
    }

    /// Returns all evictable pods of the node, the blocking ones first; empty if no evictable pod blocks a device.
    pub(super) fn all_pods_to_evict(&self, observations: &PodObservations) -> Vec<PodId> {
        let mut all = self.pods_to_evict();
        if self.blocking_pods.is_empty() {
            return all;
        }
        let first: BTreeSet<PodId> = all.iter().cloned().collect();
        let pods = observations.pods.iter().flatten().filter(|pod| must_be_evicted(pod));
        let rest: BTreeSet<&PodId> = pods.map(|pod| &pod.id).collect();
        all.extend(rest.into_iter().filter(|id| !first.contains(id)).cloned());
        all
    }

    /// Returns the blockers with reasons.
    pub(super) fn blockers(&self, facts: &DrainInputs<'_>) -> Vec<Blocker> {
        self.blockers_and(facts, &[])
    }

    /// Returns the blockers with reasons, and also these pods.
    pub(super) fn blockers_and(&self, facts: &DrainInputs<'_>, going: &[PodId]) -> Vec<Blocker> {
        let ending = self.blocking_pods.iter().filter(|(_, pod)| pod.is_ending);
        let ending: BTreeSet<&PodId> = ending.map(|(id, _)| *id).collect();
        let all: BTreeSet<&PodId> = self.blocking_pods.keys().copied().chain(going).collect();
        let pods = all.into_iter().filter_map(|id| {
            let reason = match facts.pod_observations.answers.get(id) {
                _ if ending.contains(id) => "is terminating",
                None if facts.is_tainted => EVICTION_PENDING,
                None => TAINT_PENDING,
                Some(EvictionResult::Ending) => "is terminating",
                Some(EvictionResult::Budget) => "its PodDisruptionBudget allows no eviction",
                Some(EvictionResult::Forbidden) => "the agent lacks the permission to evict it",
                Some(EvictionResult::Refused(why)) => why,
                Some(EvictionResult::Gone) => return None,
            };
            Some(pod(&id.name(), reason))
        });
        let rest = [&self.obstacles, &self.unlisted, &self.others];
        pods.chain(rest.into_iter().flatten().cloned()).collect()
    }
}

/// Returns true if the reason means that no eviction was requested yet.
pub(super) fn is_yet_to_be_evicted(waiting: &Blocker) -> bool {
    [EVICTION_PENDING, TAINT_PENDING].contains(&waiting.reason.as_str())
}

/// Returns true if the pod must be evicted.
fn must_be_evicted(pod: &Pod) -> bool {
    pod.eviction_exemption().is_none() && !pod.is_ending && !pod.is_finished
}

/// Returns true if the device waits only for its holders.
fn is_held(device: &DeviceLayoutStatus) -> bool {
    is_one_of(device, [Reason::Blocked, Reason::NeedsReset]) && device.waits_for_holders
}

fn is_one_of(device: &DeviceLayoutStatus, reasons: [Reason; 2]) -> bool {
    reasons.iter().any(|reason| device.state == *reason)
}

/// Returns true if the holder is a client that pausing operands stops, such as a monitor: kubelet allocated no device
/// to it.
fn is_client(device: &DeviceLayoutStatus, holder: &Holder) -> bool {
    device.is_held && !holder.is_kubelet_allocation()
}

fn classify<'a>(facts: &DrainInputs<'a>, holder: &Holder, is_paused: bool) -> HolderClass<'a> {
    let pods = facts.pod_observations.pods.as_deref();
    let known = match find_pod(pods.unwrap_or_default(), holder) {
        HolderPod::Pod(known) => known,
        HolderPod::Unlisted => return HolderClass::Unlisted(unlisted(holder, pods.is_some())),
        HolderPod::Process => {
            let name = BlockerName::Process(holders(std::slice::from_ref(holder)));
            return if holder.details.claim.is_some() {
                let reason = "the kubelet lists no pod of it: it was just created or deleted";
                HolderClass::Unlisted(Blocker { name, reason: reason.to_owned() })
            } else {
                let reason = "it does not belong to a pod".to_owned();
                HolderClass::Stays(Blocker { name, reason })
            };
        }
    };
    let name = known.id.name();
    match known.stay_reason() {
        _ if known.is_finished => {
            HolderClass::Other(pod(&name, "has ended, but the kubelet has not removed it yet"))
        }
        None if !known.is_ending && !may_be_evicted(facts, known) => HolderClass::Stays(pod(
            &name,
            "the change of the instances does not permit its eviction",
        )),
        None => HolderClass::MayGo(known),
        Some(EvictionExemption::DaemonSet) if is_paused => HolderClass::Other(pod(
            &name,
            "its DaemonSet is paused after the evicted pods have terminated",
        )),
        Some(exemption) => HolderClass::Stays(pod(&name, exemption.reason())),
    }
}

/// Returns true unless the inputs name other pods only.
fn may_be_evicted(facts: &DrainInputs<'_>, pod: &Pod) -> bool {
    facts.evictable.is_none_or(|uids| uids.contains(&pod.id.uid))
}

fn unlisted(holder: &Holder, is_listed: bool) -> Blocker {
    let known = holder.details.pod.clone().unwrap_or_default();
    let name = match (known.namespace, known.name, known.uid) {
        (Some(namespace), Some(name), _) => format!("{namespace}/{name}"),
        (_, _, Some(uid)) => format!("uid {uid}"),
        (_, name, None) => name.unwrap_or_default(),
    };
    let reason = if is_listed {
        "is not in the node's list of pods: it was just created or deleted"
    } else {
        "has not been looked up yet"
    };
    pod(&name, reason)
}

fn pod(name: &str, reason: &str) -> Blocker {
    Blocker { name: BlockerName::Pod(name.to_owned()), reason: reason.to_owned() }
}
