//! Who is in the way of which device, and who of them may go.

use std::collections::{BTreeMap, BTreeSet};

use super::pod::{Found, Kept, Pod, PodId, find};
use super::{Answer, Facts, Heard, Name, Waiting};
use crate::domain::holder::Holder;
use crate::domain::id::PciAddress;
use crate::domain::plan::words::holders;
use crate::domain::reason::Reason;
use crate::domain::reconcile::{DeviceStatus, State, Status};

/// Why a pod that may be evicted is still there.
const NEXT: &str = "is to be evicted";
const WHEN_TAINTED: &str = "is evicted when the node has the taint";

/// What is seen of the node.
#[derive(Debug, Default)]
pub(super) struct Sight<'a> {
    /// Names of the devices for which it is enough that pods go.
    pub(super) devices: Vec<String>,
    /// Their addresses.
    pub(super) addresses: BTreeSet<PciAddress>,
    /// The pods in the way of these that may be evicted or were told to end.
    pub(super) in_the_way: BTreeMap<&'a PodId, &'a Pod>,
    /// Who is in the way of any device and will not go.
    pub(super) obstacles: Vec<Waiting>,
    /// Pods that the API server does not list.
    pub(super) unlisted: Vec<Waiting>,
    /// Whether a device is such that a drain may begin for it.
    pub(super) may_begin: bool,
    /// Whether a device that nobody blocks is not done.
    pub(super) is_unfinished: bool,
    /// Whether some device waits for somebody to go.
    held: bool,
    others: Vec<Waiting>,
}

/// What is to be thought of one holder.
enum Stand<'a> {
    MayGo(&'a Pod),
    Stays(Waiting),
    Unlisted(Waiting),
    /// Made to let go by somebody else, or about to.
    Other(Waiting),
}

/// Whether the devices stand as they do for what is chosen now, and would be changed if nobody were in the way. A node that says
/// another word than its gravest device is about to have another choice, or has one that means nothing there, or is somebody else's.
pub(super) fn is_asked(status: &Status) -> bool {
    let gravity = |word: &str| State::WORDS.iter().position(|known| *known == word);
    let mut words: Vec<&str> = status.devices.iter().map(|device| device.state).collect();
    words.sort_by_key(|word| gravity(word));
    let worst = words.last().copied();
    // A plan is whole before its first step.
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
                // Where somebody stays it would be in vain.
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

    /// Whether some device waits for somebody to go.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// Whether a pod that may be evicted blocks a device, or one that is not listed yet.
    pub(super) fn may_go(&self) -> bool {
        !self.in_the_way.is_empty() || !self.unlisted.is_empty()
    }

    /// Whether a blocker was told to end, may be evicted, or is made to let go by another part of the agent or of the node.
    pub(super) fn goes_by_itself(&self) -> bool {
        !self.in_the_way.is_empty() || !self.others.is_empty()
    }

    /// Whether a process of no pod blocks a device.
    pub(super) fn is_held_by_a_process(&self) -> bool {
        let mut obstacles = self.obstacles.iter();
        obstacles.any(|one| matches!(one.who, Name::Process(_)))
    }

    /// Whether we may not evict one of the pods in the way.
    pub(super) fn is_forbidden(&self, heard: &Heard) -> bool {
        let mut answers = heard.answers.iter();
        answers.any(|(id, answer)| *answer == Answer::Forbidden && self.in_the_way.contains_key(id))
    }

    /// The pods in the way that are still to be told to end.
    pub(super) fn affected(&self) -> Vec<PodId> {
        let pods = self.in_the_way.values();
        pods.filter(|pod| goes(pod))
            .map(|pod| pod.id.clone())
            .collect()
    }

    /// All pods of the node that are still to be told to end, where one that may be evicted is in the way: that one first.
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

    /// Who is in the way, and why.
    pub(super) fn waits(&self, facts: &Facts<'_>) -> Vec<Waiting> {
        self.waits_for(facts, &[])
    }

    /// The same, and these pods.
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

/// Whether this is why a pod is still there that nobody was asked to evict yet.
pub(super) fn is_yet_to_be_evicted(waiting: &Waiting) -> bool {
    [NEXT, WHEN_TAINTED].contains(&waiting.reason.as_str())
}

/// Whether it is to be told to end.
fn goes(pod: &Pod) -> bool {
    pod.kept().is_none() && !pod.is_ending && !pod.is_finished
}

/// Whether it is enough that somebody goes.
fn is_held(device: &DeviceStatus) -> bool {
    is_one_of(device, [Reason::Blocked, Reason::NeedsReset]) && device.waits_for_holders
}

fn is_one_of(device: &DeviceStatus, reasons: [Reason; 2]) -> bool {
    reasons.iter().any(|reason| reason.is(device.state))
}

/// Whether it is one for whom operands are paused, such as a monitor: kubelet gave it no device.
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
