//! Which process is of which pod, and which pod a UID is.

use std::collections::{BTreeMap, BTreeSet};

use super::Scene;
use super::spot::{Spot, pod};

/// A pod by namespace and name.
pub(super) type PodName = (String, String);

/// Which process is of which pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kin {
    /// Nobody may look: this program sees its own container's processes alone.
    Hidden,
    /// The machine's processes are in sight, but the driver names to this program those of its own namespace alone: what it
    /// lists is not all there is, and its numbers mean other processes elsewhere.
    Elsewhere,
    /// Those that were looked at; one that is not among them has ended.
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
}

/// Which pod a UID is, as far as that is known.
#[derive(Debug, Default)]
pub(super) struct Names {
    by_uid: BTreeMap<String, PodName>,
    /// UIDs that may be several pods.
    open: BTreeMap<String, BTreeSet<PodName>>,
}

impl Kin {
    /// Whose it is; `None` where nobody may look.
    pub(super) fn of(&self, pid: u32) -> Option<&Origin> {
        match self {
            Self::Hidden => None,
            Self::Elsewhere => Some(&Origin::Gone),
            Self::Seen(all) => Some(all.get(&pid).unwrap_or(&Origin::Gone)),
        }
    }
}

impl Names {
    pub(super) fn of(&self, uid: &str) -> Option<&PodName> {
        self.by_uid.get(uid)
    }

    pub(super) fn uid(&self, name: &PodName) -> Option<String> {
        let mut all = self.by_uid.iter();
        all.find(|(_, known)| *known == name)
            .map(|(uid, _)| uid.clone())
    }

    /// Whether it is not known of this UID whether it is that pod.
    pub(super) fn may_be(&self, uid: &str, name: &PodName) -> bool {
        self.open.get(uid).is_some_and(|pods| pods.contains(name))
    }

    /// Says which UIDs stayed without a name although pods are there that they may be.
    pub(super) fn untold(&self) -> Vec<String> {
        let all = self.open.iter();
        all.map(|(uid, pods)| {
            let pods: Vec<String> = pods
                .iter()
                .map(|(namespace, pod)| format!("{namespace}/{pod}"))
                .collect();
            format!("which of {} has UID {uid} is not known", pods.join(", "))
        })
        .collect()
    }
}

/// Finds the pod of each UID. What kubelet itself says counts. Of the others, a pod that has processes on some units must be one
/// that was given something of each of them; where only one such is left, it is that one, and then it is none of the others.
/// A UID whose only choice another one has too stays unknown, as both do.
pub(super) fn identify<'a>(scene: &Scene<'_>, spots: impl Iterator<Item = &'a Spot<'a>>) -> Names {
    let mut names = Names::default();
    for one in scene.given {
        if let Some(uid) = &one.uid {
            names.by_uid.insert(uid.clone(), pod(&one.device));
        }
    }
    let settled: BTreeSet<PodName> = names.by_uid.values().cloned().collect();
    for spot in spots {
        let holders = spot.holders.iter().map(|holder| pod(holder.device));
        let holders: BTreeSet<PodName> = holders.filter(|name| !settled.contains(name)).collect();
        for pid in spot.processes.keys() {
            if let Some(Origin::Pod { uid, .. }) = scene.kin.of(*pid)
                && !names.by_uid.contains_key(uid)
            {
                let choices = names
                    .open
                    .entry(uid.clone())
                    .or_insert_with(|| holders.clone());
                choices.retain(|choice| holders.contains(choice));
            }
        }
    }
    while scene.is_current && narrow(&mut names) {}
    names.open.retain(|_, choices| !choices.is_empty());
    names
}

/// Names one UID that can be one pod only; whether there was one.
fn narrow(names: &mut Names) -> bool {
    let only = |choices: &BTreeSet<PodName>| match choices.len() {
        1 => choices.first().cloned(),
        _ => None,
    };
    let found = names.open.iter().find_map(|(uid, choices)| {
        let name = only(choices)?;
        let mut others = names.open.iter().filter(|(other, _)| *other != uid);
        let is_fought = others.any(|(_, choices)| only(choices).as_ref() == Some(&name));
        (!is_fought).then(|| (uid.clone(), name))
    });
    let Some((uid, name)) = found else {
        return false;
    };
    names.open.remove(&uid);
    for choices in names.open.values_mut() {
        choices.remove(&name);
    }
    names.by_uid.insert(uid, name);
    true
}
