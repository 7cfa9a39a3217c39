//! The changes of a round and its journal.

use std::sync::Arc;

use octavo_model::id::PciAddress;

use super::{interrupted, wants};
use crate::layout::tests_support::{A100_40, node};
use crate::layout::{DeviceTarget, TargetScope, Targets, current_target};
use crate::plan::Policy;
use crate::reconcile::{ApplyRecord, ChangeRound, Decision, Limits};

#[test]
fn i3_interrupted_changes_retain_their_layout_and_previous_state() {
    let devices: Vec<_> = (0..5).map(|number| A100_40.with(number, &[(19, 0, &[1])])).collect();
    let at: Vec<PciAddress> = devices.iter().map(|device| device.pci).collect();
    let [new, another_target, infeasible, unselected, waiting] = at[..] else { panic!("{at:?}") };
    let inventory = Arc::new(node(devices));
    let selected = [new, another_target, infeasible];
    let targets = Targets {
        devices: selected
            .map(|pci| DeviceTarget::generated(pci, wants(&[9]), TargetScope::Layout))
            .to_vec(),
        ..Targets::default()
    };
    let begun = [another_target, infeasible, unselected, waiting];
    let record = ApplyRecord {
        plan: "p".to_owned(),
        layout: "l".to_owned(),
        devices: begun.iter().flat_map(|pci| interrupted(*pci, wants(&[5])).devices).collect(),
    };
    let decision = Decision {
        change: vec![new, another_target, infeasible, unselected],
        finish: vec![infeasible],
        ..Decision::default()
    };
    let round = ChangeRound {
        inventory: &inventory,
        layout: "wanted",
        targets: &targets,
        plan: "plan",
        record: Some(&record),
        decision: &decision,
        holders: &[],
        policy: Policy::default(),
        limits: Limits::default(),
    };
    let requests = round.requests();
    let current = current_target(inventory.devices[0].mig.state().unwrap());
    let changes: Vec<_> = requests
        .iter()
        .map(|one| (one.target.pci, one.target.mig.clone(), one.previous.clone(), one.resumed))
        .collect();
    let (wanted, earlier) = (Some(wants(&[9])), Some(wants(&[5])));
    assert_eq!(
        changes,
        [
            (new, wanted.clone(), current, false),
            (another_target, wanted, None, true),
            (infeasible, earlier.clone(), None, true),
            (unselected, earlier, None, true),
        ]
    );
    let journal = round.journal(&requests);
    let entries = journal.devices.iter();
    let entries: Vec<_> =
        entries.map(|one| (one.pci, one.layout.as_str(), one.plan.as_str())).collect();
    assert_eq!(
        entries,
        [
            (new, "wanted", "plan"),
            (another_target, "wanted", "plan"),
            (infeasible, "l", "plan"),
            (unselected, "l", "plan"),
            (waiting, "l", "p"),
        ]
    );
    let other = [infeasible, unselected].map(|pci| (pci, "l".to_owned()));
    assert_eq!(round.interrupted_layouts(), other.into());
}
