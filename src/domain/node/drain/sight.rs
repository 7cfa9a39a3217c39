//! Determines the blockers of each device, and which of them may be evicted.

use std::collections::{BTreeMap, BTreeSet};

use super::pod::{Found, Kept, Pod, PodId, find};
use super::{Answer, Facts, Heard, Name, Waiting};
use crate::domain::holder::Holder;
use crate::domain::id::PciAddress;
use crate::domain::plan::words::holders;
use crate::domain::reason::Reason;
use crate::domain::reconcile::{DeviceStatus, State, Status};

/// Reasons why an evictable pod still exists.
const NEXT: &str = "is to be evicted";
const WHEN_TAINTED: &str = "is evicted when the node has the taint";

/// The blockers of a node's devices.
#[derive(Debug, Default)]
pub(super) struct Sight<'a> {
    /// Names of the devices that only evictable pods block.
    pub(super) devices: Vec<String>,
    /// PCI addresses of these devices.
    pub(super) addresses: BTreeSet<PciAddress>,
    /// The pods that block these devices and may be evicted or are terminating.
    pub(super) in_the_way: BTreeMap<&'a PodId, &'a Pod>,
    /// Blockers of any device that stay.
    pub(super) obstacles: Vec<Waiting>,
    /// Pods that the API server does not list.
    pub(super) unlisted: Vec<Waiting>,
    /// True if a drain may start for at least one device.
    pub(super) may_begin: bool,
    /// True if an unblocked device is not done yet.
    pub(super) is_unfinished: bool,
    /// True if a device waits for its holders.
    held: bool,
    others: Vec<Waiting>,
}

/// Classification of a holder.
enum Stand<'a> {
    MayGo(&'a Pod),
    Stays(Waiting),
    Unlisted(Waiting),
    /// Released by another component, or about to be.
    Other(Waiting),
}

/// Returns true if the devices' status belongs to the current choice of a layout, and they would be changed without
/// blockers. If the node's state differs from its most severe device, the choice is about to change, does not apply to
/// this node, or another program manages the node.
pub(super) fn is_asked(status: &Status) -> bool {
    let gravity = |word: &str| State::WORDS.iter().position(|known| *known == word);
    let mut words: Vec<&str> = status.devices.iter().map(|device| device.state).collect();
    words.sort_by_key(|word| gravity(word));
    let worst = words.last().copied();
    // A plan must be complete before its first step.
    let possible = !words.contains(&Reason::Infeasible.word());
    status.layout.is_some() && possible && (status.state == worst || status.is_busy())
}

impl<'a> Sight<'a> {
    pub(super) fn new(facts: &Facts<'a>) -> Self {
        let mut sight = Self::default();
        let pods = facts.heard.pods.as_deref();
        for device in &facts.status.devices {
            if is_held(device) {
                sight.held = true;
                sight.take(device, pods, facts.pauses_operands);
            } else {
                sight.is_unfinished |= is_one_of(device, [Reason::Pending, Reason::NeedsReset]);
            }
        }
        for list in [&mut sight.obstacles, &mut sight.unlisted, &mut sight.others] {
            list.sort();
            list.dedup();
        }
        sight
    }

    fn take(&mut self, device: &DeviceStatus, pods: Option<&'a [Pod]>, pauses_operands: bool) {
        let stands: Vec<Stand<'a>> = device
            .holders
            .iter()
            .map(|holder| stand(pods, holder, pauses_operands && is_client(device, holder)))
            .collect();
        let is_clear = !stands.iter().any(|one| matches!(one, Stand::Stays(_)));
        let is_known = !stands.iter().any(|one| matches!(one, Stand::Unlisted(_)));
        let mut goes = false;
        for stand in stands {
            match stand {
                // Evicting pods is useless if another blocker stays.
                Stand::MayGo(pod) if is_clear => {
                    goes = true;
                    self.in_the_way.insert(&pod.id, pod);
                }
                Stand::MayGo(_) => {}
                Stand::Stays(waiting) => self.obstacles.push(waiting),
                Stand::Unlisted(waiting) => self.unlisted.push(waiting),
                Stand::Other(waiting) => self.others.push(waiting),
            }
        }
        if goes {
            self.devices.push(device.name.clone());
            self.addresses.insert(device.pci);
            self.may_begin |= is_known;
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// Returns true if a device is blocked by an evictable pod, or by one not listed yet.
    pub(super) fn may_go(&self) -> bool {
        !self.in_the_way.is_empty() || !self.unlisted.is_empty()
    }

    /// Returns true if a blocker is terminating, may be evicted, or is released by another component.
    pub(super) fn goes_by_itself(&self) -> bool {
        !self.in_the_way.is_empty() || !self.others.is_empty()
    }

    /// Returns true if a process outside any pod blocks a device.
    pub(super) fn is_held_by_a_process(&self) -> bool {
        let mut obstacles = self.obstacles.iter();
        obstacles.any(|one| matches!(one.who, Name::Process(_)))
    }

    /// Returns true if the agent lacks the permission to evict one of the blocking pods.
    pub(super) fn is_forbidden(&self, heard: &Heard) -> bool {
        let mut answers = heard.answers.iter();
        answers.any(|(id, answer)| *answer == Answer::Forbidden && self.in_the_way.contains_key(id))
    }

    /// Returns the blocking pods that are still to be evicted.
    pub(super) fn affected(&self) -> Vec<PodId> {
        let pods = self.in_the_way.values();
        pods.filter(|pod| goes(pod))
            .map(|pod| pod.id.clone())
            .collect()
    }

    /// Returns all evictable pods of the node, the blocking ones first; empty if no evictable pod blocks a device.
    pub(super) fn everybody(&self, heard: &Heard) -> Vec<PodId> {
        let mut all = self.affected();
        if self.in_the_way.is_empty() {
            return all;
        }
        let first: BTreeSet<PodId> = all.iter().cloned().collect();
        let pods = heard.pods.iter().flatten().filter(|pod| goes(pod));
        let rest: BTreeSet<&PodId> = pods.map(|pod| &pod.id).collect();
        all.extend(rest.into_iter().filter(|id| !first.contains(id)).cloned());
        all
    }

    /// Returns the blockers with reasons.
    pub(super) fn waits(&self, facts: &Facts<'_>) -> Vec<Waiting> {
        self.waits_for(facts, &[])
    }

    /// Returns the blockers with reasons, and also these pods.
    pub(super) fn waits_for(&self, facts: &Facts<'_>, going: &[PodId]) -> Vec<Waiting> {
        let ending = self.in_the_way.iter().filter(|(_, pod)| pod.is_ending);
        let ending: BTreeSet<&PodId> = ending.map(|(id, _)| *id).collect();
        let all: BTreeSet<&PodId> = self.in_the_way.keys().copied().chain(going).collect();
        let pods = all.into_iter().filter_map(|id| {
            let reason = match facts.heard.answers.get(id) {
                _ if ending.contains(id) => "is ending",
                None if facts.is_tainted => NEXT,
                None => WHEN_TAINTED,
                Some(Answer::Ending) => "is ending",
                Some(Answer::Budget) => "its disruption budget allows no eviction",
                Some(Answer::Forbidden) => "the agent may not evict it",
                Some(Answer::Refused(why)) => why,
                Some(Answer::Gone) => return None,
            };
            Some(pod(&id.name(), reason))
        });
        let rest = [&self.obstacles, &self.unlisted, &self.others];
        pods.chain(rest.into_iter().flatten().cloned()).collect()
    }
}

/// Returns true if the reason means that no eviction was requested yet.
pub(super) fn is_yet_to_be_evicted(waiting: &Waiting) -> bool {
    [NEXT, WHEN_TAINTED].contains(&waiting.reason.as_str())
}

/// Returns true if the pod must be evicted.
fn goes(pod: &Pod) -> bool {
    pod.kept().is_none() && !pod.is_ending && !pod.is_finished
}

/// Returns true if the device waits only for its holders.
fn is_held(device: &DeviceStatus) -> bool {
    is_one_of(device, [Reason::Blocked, Reason::NeedsReset]) && device.waits_for_holders
}

fn is_one_of(device: &DeviceStatus, reasons: [Reason; 2]) -> bool {
    reasons.iter().any(|reason| reason.is(device.state))
}

/// Returns true if the holder is a client that pausing operands stops, such as a monitor: kubelet allocated no device
/// to it.
fn is_client(device: &DeviceStatus, holder: &Holder) -> bool {
    device.is_held && !holder.is_given()
}

fn stand<'a>(pods: Option<&'a [Pod]>, holder: &Holder, is_paused: bool) -> Stand<'a> {
    let known = match find(pods.unwrap_or_default(), holder) {
        Found::Pod(known) => known,
        Found::Unlisted => return Stand::Unlisted(unlisted(holder, pods.is_some())),
        Found::Process => {
            return Stand::Stays(Waiting {
                who: Name::Process(holders(std::slice::from_ref(holder))),
                reason: "it is no pod's process".to_owned(),
            });
        }
    };
    let name = known.id.name();
    match known.stays() {
        _ if known.is_finished => Stand::Other(pod(&name, "has ended, and kubelet still has it")),
        None => Stand::MayGo(known),
        Some(Kept::DaemonSet) if is_paused => {
            Stand::Other(pod(&name, "its DaemonSet is paused when the pods are gone"))
        }
        Some(kept) => Stand::Stays(pod(&name, kept.reason())),
    }
}

fn unlisted(holder: &Holder, is_listed: bool) -> Waiting {
    let known = holder.who.pod.clone().unwrap_or_default();
    let name = match (known.namespace, known.name, known.uid) {
        (Some(namespace), Some(name), _) => format!("{namespace}/{name}"),
        (_, _, Some(uid)) => format!("uid {uid}"),
        (_, name, None) => name.unwrap_or_default(),
    };
    let reason = if is_listed {
        "is not among the node's pods any more, or not yet"
    } else {
        "is yet to be looked up"
    };
    pod(&name, reason)
}

fn pod(name: &str, reason: &str) -> Waiting {
    Waiting {
        who: Name::Pod(name.to_owned()),
        reason: reason.to_owned(),
    }
}
