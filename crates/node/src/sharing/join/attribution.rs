//! Mapping of processes to pod UIDs, and of UIDs to pod names.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::process_origin::ProcessOrigin;

use super::UsageInput;
use super::site::{AllocationSite, PodName, pod};

/// Maximum number of pods named in one line.
const MAX_NAMED_PODS: usize = 4;

/// The pod of each process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodAttribution {
    /// Processes cannot be inspected: this program sees only those of its own container.
    Hidden,
    /// The machine's processes are visible, but the driver reports only those of its own PID namespace to this
    /// program: its list is incomplete, and its process ids refer to other processes on the host.
    OtherNamespace,
    /// The inspected processes.
    Inspected(BTreeMap<u32, ProcessOrigin>),
}

/// Known assignments of UIDs to pods.
#[derive(Debug, Default)]
pub(super) struct PodNames<'a> {
    by_uid: BTreeMap<&'a str, PodName<'a>>,
    /// The inverse mapping.
    by_name: BTreeMap<PodName<'a>, &'a str>,
    /// UIDs with several possible pods.
    open: BTreeMap<&'a str, BTreeSet<PodName<'a>>>,
}

impl PodAttribution {
    /// The origin of a process; `None` if processes cannot be inspected.
    pub(super) fn origin(&self, pid: u32) -> Option<&ProcessOrigin> {
        match self {
            Self::Hidden => None,
            Self::OtherNamespace => Some(&ProcessOrigin::Gone),
            Self::Inspected(all) => Some(all.get(&pid).unwrap_or(&ProcessOrigin::Unknown)),
        }
    }
}

impl<'a> PodNames<'a> {
    pub(super) fn name(&self, uid: &str) -> Option<PodName<'a>> {
        self.by_uid.get(uid).copied()
    }

    pub(super) fn uid(&self, name: PodName<'_>) -> Option<&'a str> {
        self.by_name.get(&name).copied()
    }

    /// The possible pods of this UID.
    pub(super) fn possible_pods(&self, uid: &str) -> impl Iterator<Item = PodName<'a>> {
        self.open.get(uid).into_iter().flatten().copied()
    }

    /// Reports UIDs that could not be assigned although possible pods exist.
    pub(super) fn unresolved(&self) -> impl Iterator<Item = String> {
        self.open.iter().map(|(uid, pods)| {
            let first = pods.iter().take(MAX_NAMED_PODS);
            let mut names: Vec<String> =
                first.map(|(namespace, pod)| format!("{namespace}/{pod}")).collect();
            if let Some(surplus) = pods.len().checked_sub(MAX_NAMED_PODS).filter(|n| *n > 0) {
                names.push(format!("and {surplus} more"));
            }
            format!("it is unknown which of {} has UID {uid}", names.join(", "))
        })
    }

    fn assign(&mut self, uid: &'a str, name: PodName<'a>) {
        self.by_uid.insert(uid, name);
        self.by_name.entry(name).or_insert(uid);
    }
}

/// Finds the pod of each UID. Kubelet's own data takes precedence. Otherwise, a pod that has processes on some units
/// must hold an allocation on each of them; if only one such pod is left, it is assigned, and excluded for the other
/// UIDs. A UID whose only possible pod is also the only one of another UID stays unknown, as does the other.
pub(super) fn identify<'a>(
    input: &UsageInput<'a>,
    spots: &[Vec<AllocationSite<'a>>],
) -> PodNames<'a> {
    let mut names = PodNames::default();
    for one in input.allocations {
        if let Some(uid) = &one.uid {
            names.assign(uid, pod(&one.device));
        }
    }
    for site in spots.iter().flatten() {
        let all = site.places.keys().copied();
        let unknown = all.filter(|name| !names.by_name.contains_key(name));
        let holders: BTreeSet<PodName<'_>> = unknown.collect();
        for pid in site.processes.keys() {
            if let Some(ProcessOrigin::Pod { uid, .. }) = input.attribution.origin(*pid)
                && !names.by_uid.contains_key(uid.as_str())
            {
                let open = names.open.entry(uid);
                let choices = open.or_insert_with(|| holders.clone());
                choices.retain(|choice| holders.contains(choice));
            }
        }
    }
    while input.is_current && narrow(&mut names) {}
    names.open.retain(|_, choices| !choices.is_empty());
    names
}

/// Assigns the UIDs that have a single possible pod which is not the only one of another UID; returns whether there
/// was any.
fn narrow(names: &mut PodNames<'_>) -> bool {
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
            names.assign(uid, *name);
        }
    }
    for choices in names.open.values_mut() {
        choices.retain(|choice| !only.contains_key(choice));
    }
    !only.is_empty()
}
