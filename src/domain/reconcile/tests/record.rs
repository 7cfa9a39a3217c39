//! Whether a device still has what it had before its change was interrupted.

use crate::domain::inventory::{Completeness, Condition, Driver, Inventory, MigMode, NvmlState};
use crate::domain::layout::standing;
use crate::domain::layout::tests_support::node;
use crate::domain::reconcile::Entry;
use crate::domain::reconcile::tests::hardware::Hardware;
use crate::domain::reconcile::tests::wants;

fn inventory(hardware: &Hardware) -> Inventory {
    Inventory {
        nvml: NvmlState::Ready(Driver {
            version: "570.133.20".parse().unwrap(),
            cuda: None,
        }),
        ..node(vec![hardware.device.clone()])
    }
}

fn entry(hardware: &mut Hardware) -> Entry {
    Entry {
        pci: hardware.device.pci,
        uuid: None,
        plan: "p".to_owned(),
        layout: "l".to_owned(),
        previous: standing(hardware.state()),
        target: wants(&[5]),
    }
}

#[test]
fn a_device_that_was_never_touched_is_at_its_previous_geometry() {
    let mut hardware = Hardware::new(&[(19, 0, &[1]), (19, 2, &[1])]);
    let entry = entry(&mut hardware);
    assert!(entry.is_at_previous(&inventory(&hardware)));
    let fewer = Hardware::new(&[(19, 0, &[1])]);
    assert!(!entry.is_at_previous(&inventory(&fewer)));
    let elsewhere = Hardware::new(&[(19, 0, &[1]), (19, 3, &[1])]);
    assert!(!entry.is_at_previous(&inventory(&elsewhere)));
}

#[test]
fn i3_traces_of_a_change_and_doubts_keep_the_entry() {
    let mut hardware = Hardware::new(&[(19, 0, &[1])]);
    let entry = entry(&mut hardware);
    let half_created = Hardware::new(&[(19, 0, &[1]), (19, 1, &[])]);
    assert!(!entry.is_at_previous(&inventory(&half_created)));
    let mut pending = Hardware::new(&[(19, 0, &[1])]);
    pending.state().pending = MigMode::Disabled;
    assert!(!entry.is_at_previous(&inventory(&pending)));
    let mut partial = Hardware::new(&[(19, 0, &[1])]);
    partial.state().geometry = Completeness::Partial;
    assert!(!entry.is_at_previous(&inventory(&partial)));
    let mut failing = Hardware::new(&[(19, 0, &[1])]);
    failing.device.condition = Condition::Failing {
        reason: "GPU is lost".to_owned(),
    };
    assert!(!entry.is_at_previous(&inventory(&failing)));
    let lost = Inventory {
        nvml: NvmlState::Lost {
            reason: "unloaded".to_owned(),
        },
        ..inventory(&hardware)
    };
    assert!(!entry.is_at_previous(&lost));
    let unknown = Entry {
        previous: None,
        ..entry
    };
    assert!(!unknown.is_at_previous(&inventory(&hardware)));
}
