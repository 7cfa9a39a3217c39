//! Which process is of which pod, and which pod a UID is.

use std::collections::{BTreeMap, BTreeSet};

use super::Scene;
use super::spot::{Spot, pod};

/// A pod by namespace and name.
pub(super) type PodName<'a> = (&'a str, &'a str);

/// More pods than these are not named in one line.
const MOST_NAMED: usize = 4;

/// Which process is of which pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kin {
    /// Nobody may look: this program sees its own container's processes alone.
    Hidden,
    /// The machine's processes are in sight, but the driver names to this program those of its own namespace alone: what it
    /// lists is not all there is, and its numbers mean other processes elsewhere.
    Elsewhere,
    /// Those that were looked at.
    Seen(BTreeMap<u32, Origin>),
}

/// Whose a process is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A pod's, by what its control group says.
    Pod {
        /// The pod's UID.
        uid: String,
        /// The container's id.
        container: Option<String>,
    },
    /// No pod's: the machine's own.
    NoPod,
    /// It ended before it was looked at.
    Gone,
    /// It was not looked at, or did not let itself be.
    Unknown,
}

/// Which pod a UID is, as far as that is known.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    by_uid: BTreeMap<&'a str, PodName<'a>>,
    /// The same, the other way round.
    by_name: BTreeMap<PodName<'a>, &'a str>,
    /// UIDs that may be several pods.
    open: BTreeMap<&'a str, BTreeSet<PodName<'a>>>,
}

impl Kin {
    /// Whose it is; `None` where nobody may look.
    pub(super) fn of(&self, pid: u32) -> Option<&Origin> {
        match self {
            Self::Hidden => None,
            Self::Elsewhere => Some(&Origin::Gone),
            Self::Seen(all) => Some(all.get(&pid).unwrap_or(&Origin::Unknown)),
        }
    }
}

impl<'a> Names<'a> {
    pub(super) fn of(&self, uid: &str) -> Option<PodName<'a>> {
        self.by_uid.get(uid).copied()
    }

    pub(super) fn uid(&self, name: PodName<'_>) -> Option<&'a str> {
        self.by_name.get(&name).copied()
    }

    /// Those that it is not known of this UID whether it is they.
    pub(super) fn choices(&self, uid: &str) -> impl Iterator<Item = PodName<'a>> {
        self.open.get(uid).into_iter().flatten().copied()
    }

    /// Says which UIDs stayed without a name although pods are there that they may be.
    pub(super) fn untold(&self) -> impl Iterator<Item = String> {
        self.open.iter().map(|(uid, pods)| {
            let named = pods.iter().take(MOST_NAMED);
            let mut said: Vec<String> = named
                .map(|(namespace, pod)| format!("{namespace}/{pod}"))
                .collect();
            if let Some(surplus) = pods.len().checked_sub(MOST_NAMED).filter(|n| *n > 0) {
                said.push(format!("and {surplus} more"));
            }
            format!("which of {} has UID {uid} is not known", said.join(", "))
        })
    }

    fn know(&mut self, uid: &'a str, name: PodName<'a>) {
        self.by_uid.insert(uid, name);
        self.by_name.entry(name).or_insert(uid);
    }
}

/// Finds the pod of each UID. What kubelet itself says counts. Of the others, a pod that has processes on some units must be one
/// that was given something of each of them; where only one such is left, it is that one, and then it is none of the others.
/// A UID whose only choice another one has too stays unknown, as both do.
pub(super) fn identify<'a>(scene: &Scene<'a>, spots: &[Vec<Spot<'a>>]) -> Names<'a> {
    let mut names = Names::default();
    for one in scene.given {
        if let Some(uid) = &one.uid {
            names.know(uid, pod(&one.device));
        }
    }
    for spot in spots.iter().flatten() {
        let all = spot.places.keys().copied();
        let unknown = all.filter(|name| !names.by_name.contains_key(name));
        let holders: BTreeSet<PodName<'_>> = unknown.collect();
        for pid in spot.processes.keys() {
            if let Some(Origin::Pod { uid, .. }) = scene.kin.of(*pid)
                && !names.by_uid.contains_key(uid.as_str())
            {
                let open = names.open.entry(uid);
                let choices = open.or_insert_with(|| holders.clone());
                choices.retain(|choice| holders.contains(choice));
            }
        }
    }
    while scene.is_current && narrow(&mut names) {}
    names.open.retain(|_, choices| !choices.is_empty());
    names
}

/// Names the UIDs that can be one pod only, which none of the others must be; whether there was one.
fn narrow(names: &mut Names<'_>) -> bool {
    let mut only: BTreeMap<PodName<'_>, Vec<&str>> = BTreeMap::new();
    for (uid, choices) in &names.open {
        if choices.len() == 1 {
            for name in choices {
                only.entry(*name).or_default().push(uid);
            }
        }
    }
    only.retain(|_, uids| uids.len() == 1);
    for (name, uids) in &only {
        for uid in uids {
            names.open.remove(uid);
            names.know(uid, *name);
        }
    }
    for choices in names.open.values_mut() {
        choices.retain(|choice| !only.contains_key(choice));
    }
    !only.is_empty()
}
