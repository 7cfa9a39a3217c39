//! Scenarios of pausing operands, and random tests.

use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn view(labels: &[(&str, &str)], allocatable: &[(&str, u64)]) -> ObservedNode {
    let text = |text: &str| text.to_owned();
    ObservedNode {
        labels: labels.iter().map(|(key, value)| (text(key), text(value))).collect(),
        allocatable: allocatable.iter().map(|(key, count)| (text(key), *count)).collect(),
        ..ObservedNode::default()
    }
}

fn facts(view: &ObservedNode) -> OperandInputs<'_> {
    OperandInputs {
        view,
        is_device_held: false,
        busy: false,
        changes: 0,
        choice: 0,
        partitions: None,
    }
}

const DCGM: &str = "nvidia.com/gpu.deploy.dcgm";

#[test]
fn clients_are_paused_while_blocking_and_restored_after_the_change() {
    let view = view(&[(PLUGIN_LABEL, RUNNING), (DCGM, RUNNING)], &[]);
    let blocked = OperandInputs { is_device_held: true, ..facts(&view) };
    let mut operands = OperandPauser::default();
    assert_eq!(operands.reconcile(at(0), &facts(&view)).paused, BTreeSet::new());
    let paused = operands.reconcile(at(1), &blocked);
    assert_eq!(paused.paused, [PLUGIN_LABEL.to_owned(), DCGM.to_owned()].into());
    assert_eq!(paused.event, Some(OperandEvent::Paused));
    let changing = OperandInputs { busy: true, ..facts(&view) };
    assert_eq!(operands.reconcile(at(5), &changing).paused.len(), 2);
    let done = OperandInputs { changes: 1, ..facts(&view) };
    let restored = operands.reconcile(at(6), &done);
    assert_eq!((restored.paused.len(), restored.event), (0, Some(OperandEvent::Restored)));
    // The plugin has restarted with the other operands, so it is not restarted again.
    let after = operands.reconcile(at(7), &done);
    assert_eq!((after.paused.len(), after.event), (0, None));
    assert_eq!(operands.reconcile(at(8), &done), OperandOutcome::default());
}

#[test]
fn operands_are_paused_once_per_choice() {
    let view = view(&[(DCGM, RUNNING)], &[]);
    let blocked = |choice| OperandInputs { is_device_held: true, choice, ..facts(&view) };
    let mut operands = OperandPauser::default();
    assert_eq!(operands.reconcile(at(0), &blocked(1)).paused.len(), 1);
    assert_eq!(operands.reconcile(at(119), &blocked(1)).paused.len(), 1);
    let ended = operands.reconcile(at(120), &blocked(1));
    assert_eq!((ended.paused.len(), ended.event), (0, Some(OperandEvent::StillBlocked)));
    for second in 121..1000 {
        assert_eq!(operands.reconcile(at(second), &blocked(1)).paused.len(), 0);
    }
    assert_eq!(operands.reconcile(at(1000), &blocked(2)).paused.len(), 1);
}

#[test]
fn nothing_is_paused_without_running_operands() {
    let view = view(&[(DCGM, "false"), (PLUGIN_LABEL, "paused-for-driver-upgrade")], &[]);
    let blocked = OperandInputs { is_device_held: true, changes: 3, ..facts(&view) };
    let mut operands = OperandPauser::default();
    for second in 0..10 {
        assert_eq!(operands.reconcile(at(second), &blocked), OperandOutcome::default());
    }
}

#[test]
fn new_partitions_restart_the_plugin() {
    let one = |key: &str| [(key.to_owned(), 2)].into();
    let (small, large): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (one("nvidia.com/mig-1g.5gb"), one("nvidia.com/mig-2g.10gb"));
    let mut operands = OperandPauser::default();
    let before = view(&[(PLUGIN_LABEL, RUNNING)], &[("nvidia.com/mig-1g.5gb", 2)]);
    let old = OperandInputs { partitions: Some(&small), ..facts(&before) };
    assert_eq!(operands.reconcile(at(0), &old), OperandOutcome::default());
    let new =
        |view, busy| OperandInputs { changes: 1, busy, partitions: Some(&large), ..facts(view) };
    assert_eq!(operands.reconcile(at(1), &new(&before, true)), OperandOutcome::default());
    assert_eq!(
        operands.reconcile(at(2), &new(&before, false)).paused,
        [PLUGIN_LABEL.to_owned()].into()
    );
    let off = view(&[(PLUGIN_LABEL, PAUSED)], &[("nvidia.com/mig-1g.5gb", 2)]);
    assert_eq!(operands.reconcile(at(3), &new(&off, false)).paused.len(), 1);
    let gone = view(&[(PLUGIN_LABEL, PAUSED)], &[("nvidia.com/mig-1g.5gb", 0)]);
    let on = operands.reconcile(at(4), &new(&gone, false));
    assert_eq!((on.paused.len(), on.event), (0, Some(OperandEvent::Refreshed)));
    assert_eq!(operands.reconcile(at(5), &new(&gone, false)).event, None);
    // Three replicas each.
    let offers = view(
        &[(PLUGIN_LABEL, RUNNING)],
        &[("nvidia.com/mig-2g.10gb", 6), ("nvidia.com/mig-1g.5gb", 0)],
    );
    assert_eq!(operands.reconcile(at(6), &new(&offers, false)).event, Some(OperandEvent::Offered));
    assert_eq!(operands.reconcile(at(7), &new(&offers, false)), OperandOutcome::default());
}

#[test]
fn i11_interrupted_pause_is_continued_after_restart() {
    let paused = view(&[(DCGM, PAUSED)], &[]);
    let mut operands = OperandPauser::default();
    let busy = OperandInputs { busy: true, ..facts(&paused) };
    assert_eq!(operands.reconcile(at(0), &busy).paused.len(), 1);
    assert_eq!(operands.reconcile(at(1), &facts(&paused)).paused.len(), 0);
    // Kubelet still offers partitions that no longer exist.
    let partitions: BTreeMap<_, _> = [("nvidia.com/mig-1g.5gb".to_owned(), 7)].into();
    let offers = view(&[(PLUGIN_LABEL, RUNNING)], &[("nvidia.com/mig-3g.20gb", 2)]);
    let mut operands = OperandPauser::default();
    let stale = OperandInputs { partitions: Some(&partitions), ..facts(&offers) };
    assert_eq!(operands.reconcile(at(0), &stale).paused, [PLUGIN_LABEL.to_owned()].into());
    // A partition that is not offered yet is waited for.
    let late = view(&[(PLUGIN_LABEL, RUNNING)], &[]);
    let mut operands = OperandPauser::default();
    let waiting = OperandInputs { partitions: Some(&partitions), ..facts(&late) };
    assert_eq!(operands.reconcile(at(0), &waiting), OperandOutcome::default());
}

#[test]
fn plugin_that_never_offers_partitions_is_reported_once() {
    let partitions: BTreeMap<_, _> = [("nvidia.com/mig-1g.5gb".to_owned(), 2)].into();
    let view = view(&[(PLUGIN_LABEL, PAUSED)], &[]);
    let mut operands = OperandPauser {
        phase: Phase::PluginOff { since: at(0) },
        seen: Some(1),
        ..OperandPauser::default()
    };
    let facts = OperandInputs { changes: 1, partitions: Some(&partitions), ..facts(&view) };
    let events: Vec<_> =
        (0..400).filter_map(|second| operands.reconcile(at(second), &facts).event).collect();
    let lacking = Mismatch { resource: "nvidia.com/mig-1g.5gb".to_owned(), actual: 2, offered: 0 };
    assert_eq!(events, [OperandEvent::Refreshed, OperandEvent::NotOffered(vec![lacking])]);
}

#[test]
fn config_manager_switches_configuration_instead_of_pausing() {
    let configs = Some(("a".to_owned(), "b".to_owned()));
    let mut operands = OperandPauser::new(configs);
    let view = view(&[(PLUGIN_LABEL, RUNNING), (PLUGIN_CONFIG_LABEL, "b")], &[]);
    operands.reconcile(at(0), &facts(&view));
    let new = operands.reconcile(at(1), &OperandInputs { changes: 1, ..facts(&view) });
    assert_eq!(new.paused.len(), 0);
    assert_eq!(new.plugin_config, Some(("b".to_owned(), "a".to_owned())));
    assert_eq!(new.event, Some(OperandEvent::Refreshed));
    // The switch is requested until it is done.
    let changed = OperandInputs { changes: 1, ..facts(&view) };
    assert_eq!(operands.reconcile(at(2), &changed).plugin_config, new.plugin_config);
    let mut written = view.clone();
    written.labels.insert(PLUGIN_CONFIG_LABEL.to_owned(), "a".to_owned());
    let there = OperandInputs { changes: 1, ..facts(&written) };
    assert_eq!(operands.reconcile(at(3), &there), OperandOutcome::default());
}

proptest! {
    /// I11: in any sequence, no operand stays paused for more than a few minutes after the last reason to pause.
    #[test]
    fn i11_no_operand_stays_paused(
        steps in prop::collection::vec((0_u64..90, any::<bool>(), any::<bool>(), 0_u64..3, 0_u64..3), 1..60),
        running in any::<bool>(),
    ) {
        let label = if running { RUNNING } else { "false" };
        let mut view = view(&[(PLUGIN_LABEL, label), (DCGM, label)], &[("nvidia.com/gpu", 8)]);
        let mut operands = OperandPauser::default();
        let (mut now, mut changes, mut choice) = (0, 0, 0);
        for (wait, blockers, busy, more, other) in steps {
            (now, changes, choice) = (now + wait, changes + more, choice + other);
            let outcome = operands.reconcile(at(now), &OperandInputs { is_device_held: blockers, busy, changes, choice, ..facts(&view) });
            prop_assert!(running || outcome.paused.is_empty());
            for key in [PLUGIN_LABEL, DCGM] {
                let value = if outcome.paused.contains(key) { PAUSED } else { label };
                view.labels.insert(key.to_owned(), value.to_owned());
            }
        }
        let mut paused = BTreeSet::new();
        for second in 0..600 {
            paused = operands.reconcile(at(now + second), &OperandInputs { changes, choice, ..facts(&view) }).paused;
        }
        prop_assert_eq!(paused, BTreeSet::new());
    }
}
