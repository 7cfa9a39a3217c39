//! Transactions on a simulated device that behaves as drivers do, including their faults.

mod hardware;
mod node;
mod random;
mod record;
mod round;
mod tables;

use octavo_model::id::PciAddress;

use crate::layout::{InstanceTarget, MigTarget};
use crate::reconcile::{ApplyRecord, ApplyRecordEntry};

/// A journal with an interrupted change of this device toward this target.
fn interrupted(pci: PciAddress, target: MigTarget) -> ApplyRecord {
    let (plan, layout) = ("p".to_owned(), "l".to_owned());
    let entry = ApplyRecordEntry {
        pci,
        uuid: None,
        plan: plan.clone(),
        layout: layout.clone(),
        previous: None,
        target,
    };
    ApplyRecord { plan, layout, devices: vec![entry] }
}

/// Unsplit instances by profile id; the A100's table provides their compute slices.
fn wants(ids: &[u32]) -> MigTarget {
    let slices = |id: u32| match id {
        19 | 20 | 15 => 1,
        14 => 2,
        9 => 3,
        5 => 4,
        _ => 7,
    };
    let mut all: Vec<InstanceTarget> = ids
        .iter()
        .map(|id| InstanceTarget { profile_id: *id, compute: vec![slices(*id)], placement: None })
        .collect();
    all.sort();
    MigTarget::Enabled(all)
}
