//! Transactions on a device that does what drivers do, the bad things too.

mod hardware;
mod node;
mod random;
mod record;
mod tables;

use crate::domain::layout::{InstanceTarget, MigTarget};

/// Instances that are not split, by profile id: their compute slices are known from the A100's table.
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
        .map(|id| InstanceTarget {
            profile_id: *id,
            compute: vec![slices(*id)],
            placement: None,
        })
        .collect();
    all.sort();
    MigTarget::Enabled(all)
}
