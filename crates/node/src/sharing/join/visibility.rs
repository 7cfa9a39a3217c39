//! Visibility of processes: which usage is known, and which is not because processes are not visible.

use std::collections::BTreeSet;

use octavo_model::process_origin::ProcessOrigin;
use octavo_model::reading::Reading;

use super::attribution::{PodAttribution, PodNames};
use super::name;
use super::site::{AllocationSite, PodName};

/// Returns whether the usage of an allocated unit is unknown because its processes are not visible.
fn is_usage_hidden(site: &AllocationSite<'_>, attribution: &PodAttribution) -> bool {
    let is_hidden = !matches!(attribution, PodAttribution::Inspected(_));
    is_hidden
        && site.has_process_list
        && !site.holders.is_empty()
        && !is_usage_known(site, attribution)
}

/// Processes of the unit that were not inspected and may belong to any pod.
fn uninspected<'a>(
    site: &'a AllocationSite<'_>,
    attribution: &'a PodAttribution,
) -> impl Iterator<Item = u32> + 'a {
    let all = site.processes.keys().copied();
    all.filter(|pid| attribution.origin(*pid) == Some(&ProcessOrigin::Unknown))
}

/// Returns whether the processes of the unit and their pods are known.
pub(super) fn is_usage_known(site: &AllocationSite<'_>, attribution: &PodAttribution) -> bool {
    let is_unused = site.memory.is_some_and(|memory| memory.used.get() == 0);
    if is_unused && site.processes.is_empty() {
        return true;
    }
    site.has_process_list
        && match attribution {
            PodAttribution::Inspected(_) => uninspected(site, attribution).next().is_none(),
            PodAttribution::OtherNamespace => false,
            // An empty list may mean that the driver reports no process to this program.
            PodAttribution::Hidden => site.sole_holder().is_some() && !site.processes.is_empty(),
        }
}

/// Pods that may own a process of the unit that is not attributed.
pub(super) fn pods_with_unattributed<'a>(
    site: &AllocationSite<'_>,
    attribution: &PodAttribution,
    names: &PodNames<'a>,
) -> BTreeSet<PodName<'a>> {
    let origins = site.processes.keys().filter_map(|pid| attribution.origin(*pid));
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
    attribution: &PodAttribution,
) -> Option<String> {
    let mut all = spots.iter().flat_map(|site| uninspected(site, attribution));
    let first = all.next()?;
    let more = match all.count() {
        0 => String::new(),
        surplus => format!(" and {surplus} more"),
    };
    Some(format!(
        "{}: memory usage by pod is unknown: process {first}{more} could not be inspected",
        name(reading)
    ))
}

/// Reports devices whose usage by pod is unknown because processes are not visible.
pub(super) fn report_hidden<'a>(
    devices: impl Iterator<Item = (&'a Reading, &'a Vec<AllocationSite<'a>>)>,
    attribution: &PodAttribution,
) -> Option<String> {
    let dark =
        devices.filter(|(_, spots)| spots.iter().any(|site| is_usage_hidden(site, attribution)));
    let dark: Vec<String> = dark.map(|(reading, _)| name(reading)).collect();
    (!dark.is_empty()).then(|| {
        format!(
            "{}: memory usage by pod is unknown: the driver or the kernel hides the processes of other pods from \
             this program (the agent's pod needs hostPID)",
            dark.join(", ")
        )
    })
}
