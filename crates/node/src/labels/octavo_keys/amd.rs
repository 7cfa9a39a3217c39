//! Labels for the partition modes that AMD's driver reports.

use std::collections::BTreeSet;

use octavo_model::inventory::{Device, PartitioningMode};

use crate::labels::labels_builder::LabelsBuilder;

/// Adds the compute and memory partition modes of the last scan. Devices that cannot be partitioned do not count.
pub(super) fn add(draft: &mut LabelsBuilder, devices: &[&Device]) {
    let reported = || devices.iter().filter_map(|device| device.amd.as_ref());
    put(
        draft,
        "octavo.dev/amd-compute-partition",
        reported().filter_map(|amd| amd.compute.as_ref()),
    );
    put(draft, "octavo.dev/amd-memory-partition", reported().filter_map(|amd| amd.memory.as_ref()));
}

/// Sets the label to the mode that all devices share, in lower case as all Octavo values; `mixed` if they differ.
fn put<'a>(
    draft: &mut LabelsBuilder,
    key: &str,
    modes: impl Iterator<Item = &'a PartitioningMode>,
) {
    let modes: BTreeSet<String> = modes.map(|mode| mode.current.to_ascii_lowercase()).collect();
    match modes.first() {
        Some(only) if modes.len() == 1 => draft.put(key, only),
        Some(_) => draft.put(key, "mixed"),
        None => {}
    }
}
