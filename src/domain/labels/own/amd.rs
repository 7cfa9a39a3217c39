//! What AMD's driver says, as labels: how devices are partitioned now.

use std::collections::BTreeSet;

use crate::domain::inventory::{Device, Mode};
use crate::domain::labels::draft::Draft;

/// Adds how compute and memory are partitioned, as of the last look. Devices that cannot be partitioned do not count.
pub(super) fn add(draft: &mut Draft, devices: &[&Device]) {
    let told = || devices.iter().filter_map(|device| device.amd.as_ref());
    put(
        draft,
        "octavo.dev/amd-compute-partition",
        told().filter_map(|amd| amd.compute.as_ref()),
    );
    put(
        draft,
        "octavo.dev/amd-memory-partition",
        told().filter_map(|amd| amd.memory.as_ref()),
    );
}

/// The mode that all are in, in lower case as all our words; `mixed` where they differ.
fn put<'a>(draft: &mut Draft, key: &str, modes: impl Iterator<Item = &'a Mode>) {
    let modes: BTreeSet<String> = modes
        .map(|mode| mode.current.to_ascii_lowercase())
        .collect();
    match modes.first() {
        Some(only) if modes.len() == 1 => draft.put(key, only),
        Some(_) => draft.put(key, "mixed"),
        None => {}
    }
}
