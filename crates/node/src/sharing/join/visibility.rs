//! Visibility of processes: which usage is known, and which is not because processes are not visible.

use std::collections::BTreeSet;

use octavo_model::process_origin::ProcessOrigin;
use octavo_model::reading::Reading;

use super::attribution::{PodAttribution, PodNames};
use super::name;
use super::site::{AllocationSite, PodName};

/// Returns whether the usage of an allocated unit is unknown because its processes are not visible.
fn is_usage_hidden(spot: &AllocationSite<'_>, kin: &PodAttribution) -> bool {
    let is_hidden = !matches!(kin, PodAttribution::Inspected(_));
    is_hidden && spot.has_process_list && !spot.holders.is_empty() && !is_usage_known(spot, kin)
}

/// Processes of the unit that were not inspected and may belong to any pod.
fn uninspected<'a>(
    spot: &'a AllocationSite<'_>,
    kin: &'a PodAttribution,
) -> impl Iterator<Item = u32> + 'a {
    let all = spot.processes.keys().copied();
    all.filter(|pid| kin.origin(*pid) == Some(&ProcessOrigin::Unknown))
}

/// Returns whether the processes of the unit and their pods are known.
pub(super) fn is_usage_known(spot: &AllocationSite<'_>, kin: &PodAttribution) -> bool {
    let is_unused = spot.memory.is_some_and(|memory| memory.used.get() == 0);
    if is_unused && spot.processes.is_empty() {
        return true;
    }
    spot.has_process_list
        && match kin {
            PodAttribution::Inspected(_) => uninspected(spot, kin).next().is_none(),
            PodAttribution::OtherNamespace => false,
            // An empty list may mean that the driver reports no process to this program.
            PodAttribution::Hidden => spot.sole_holder().is_some() && !spot.processes.is_empty(),
        }
}

/// Pods that may own a process of the unit that is not attributed.
pub(super) fn pods_with_unattributed<'a>(
    spot: &AllocationSite<'_>,
    kin: &PodAttribution,
    names: &PodNames<'a>,
) -> BTreeSet<PodName<'a>> {
    let origins = spot.processes.keys().filter_map(|pid| kin.origin(*pid));
    let uids = origins.filter_map(|origin| match origin {
        ProcessOrigin::Pod { uid, .. } => Some(uid),
        ProcessOrigin::NoPod | ProcessOrigin::Gone | ProcessOrigin::Unknown => None,
    });
    uids.flat_map(|uid| names.possible_pods(uid)).collect()
}

/// Reports a device with processes that were not inspected.
pub(super) fn report_uninspected(
    reading: &Reading,
    spots: &[AllocationSite<'_>],
    kin: &PodAttribution,
) -> Option<String> {
    let mut all = spots.iter().flat_map(|spot| uninspected(spot, kin));
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
pub(super) fn report_hidden<'a>(
    devices: impl Iterator<Item = (&'a Reading, &'a Vec<AllocationSite<'a>>)>,
    kin: &PodAttribution,
) -> Option<String> {
    let dark = devices.filter(|(_, spots)| spots.iter().any(|spot| is_usage_hidden(spot, kin)));
    let dark: Vec<String> = dark.map(|(reading, _)| name(reading)).collect();
    (!dark.is_empty()).then(|| {
        format!(
            "{}: how much memory which pod uses is not known: the driver or the kernel does not show this program the processes \
             of other pods (the agent's pod needs hostPID)",
            dark.join(", ")
        )
    })
}
