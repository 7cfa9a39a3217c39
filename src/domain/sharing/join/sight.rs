//! Visibility of processes: which usage is known, and which is not because processes are not visible.

use std::collections::BTreeSet;

use super::kin::{Kin, Names, Origin, PodName};
use super::name;
use super::spot::Spot;
use crate::domain::reading::Reading;

/// Returns whether the usage of an allocated unit is unknown because its processes are not visible.
fn is_dark(spot: &Spot<'_>, kin: &Kin) -> bool {
    let is_hidden = !matches!(kin, Kin::Seen(_));
    is_hidden && spot.is_listed && !spot.holders.is_empty() && !is_told(spot, kin)
}

/// Processes of the unit that were not inspected and may belong to any pod.
fn unknown<'a>(spot: &'a Spot<'_>, kin: &'a Kin) -> impl Iterator<Item = u32> + 'a {
    let all = spot.processes.keys().copied();
    all.filter(|pid| kin.of(*pid) == Some(&Origin::Unknown))
}

/// Returns whether the processes of the unit and their pods are known.
pub(super) fn is_told(spot: &Spot<'_>, kin: &Kin) -> bool {
    let is_unused = spot.memory.is_some_and(|memory| memory.used.get() == 0);
    if is_unused && spot.processes.is_empty() {
        return true;
    }
    spot.is_listed
        && match kin {
            Kin::Seen(_) => unknown(spot, kin).next().is_none(),
            Kin::Elsewhere => false,
            // An empty list may mean that the driver reports no process to this program.
            Kin::Hidden => spot.only().is_some() && !spot.processes.is_empty(),
        }
}

/// Pods that may own a process of the unit that is not attributed.
pub(super) fn may_have_more<'a>(
    spot: &Spot<'_>,
    kin: &Kin,
    names: &Names<'a>,
) -> BTreeSet<PodName<'a>> {
    let origins = spot.processes.keys().filter_map(|pid| kin.of(*pid));
    let uids = origins.filter_map(|origin| match origin {
        Origin::Pod { uid, .. } => Some(uid),
        Origin::NoPod | Origin::Gone | Origin::Unknown => None,
    });
    uids.flat_map(|uid| names.choices(uid)).collect()
}

/// Reports a device with processes that were not inspected.
pub(super) fn unasked(reading: &Reading, spots: &[Spot<'_>], kin: &Kin) -> Option<String> {
    let mut all = spots.iter().flat_map(|spot| unknown(spot, kin));
    let first = all.next()?;
    let more = match all.count() {
        0 => String::new(),
        surplus => format!(" and {surplus} more"),
    };
    Some(format!(
        "{}: how much memory which pod uses is not known: process {first}{more} could not be looked at",
        name(reading)
    ))
}

/// Reports devices whose usage by pod is unknown because processes are not visible.
pub(super) fn unseen<'a>(
    devices: impl Iterator<Item = (&'a Reading, &'a Vec<Spot<'a>>)>,
    kin: &Kin,
) -> Option<String> {
    let dark = devices.filter(|(_, spots)| spots.iter().any(|spot| is_dark(spot, kin)));
    let dark: Vec<String> = dark.map(|(reading, _)| name(reading)).collect();
    (!dark.is_empty()).then(|| {
        format!(
            "{}: how much memory which pod uses is not known: the driver or the kernel does not show this program the processes \
             of other pods (the agent's pod needs hostPID)",
            dark.join(", ")
        )
    })
}
