//! Which devices are changed, and when.

use std::collections::BTreeSet;
use std::time::Duration;

use super::hardware::{Hardware, wants};
use crate::domain::layout::Targets;
use crate::domain::plan::Policy;
use crate::domain::reconcile::{Drift, Ending, Node, State, View};

#[test]
fn i3_what_was_begun_and_is_blocked_now_is_taken_up_to_be_brought_back() {
    let hardware = Hardware::new(&[(19, 0, &[1]), (19, 1, &[])]).used_by(1, 0);
    let job = hardware.job(wants(&[5, 14]));
    let targets = Targets {
        devices: vec![job.target.clone()],
    };
    let policy = Policy::default();
    let (nothing, begun) = (BTreeSet::new(), BTreeSet::from([job.target.pci]));
    let view = |unfinished| View {
        inventory: &job.inventory,
        targets: &targets,
        holders: &[],
        policy: &policy,
        drift: Drift::Repair,
        unfinished,
    };
    let mut node = Node::default();
    let decision = node.look(Duration::ZERO, &view(&nothing));
    assert!(decision.change.is_empty(), "it has what it had");
    let blocked = node.worst().cloned();
    assert!(
        matches!(blocked, Some(State::Blocked { .. })),
        "{blocked:?}"
    );
    let decision = node.look(Duration::ZERO, &view(&begun));
    assert_eq!(decision.change, [job.target.pci]);
    assert_eq!(
        decision.finish,
        [job.target.pci],
        "as it was begun, or back"
    );
    // One that could not be brought back either is tried again, and not at once.
    let failed = Ending::Failed {
        reason: "it is in use".to_owned(),
        rollback: Some("and it is stuck".to_owned()),
    };
    node.ended(Duration::ZERO, &view(&begun), job.target.pci, failed);
    let decision = node.look(Duration::ZERO, &view(&begun));
    assert!(decision.change.is_empty());
    let again = decision.again.unwrap();
    assert!(again > Duration::ZERO);
    assert_eq!(node.worst().map(State::as_str), Some("failed"));
    let decision = node.look(again, &view(&begun));
    assert_eq!(decision.change, [job.target.pci]);
}
