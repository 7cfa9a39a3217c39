//! Devices withheld and offered again, in given and random cases.

use std::sync::Arc;

use octavo_model::reported::Reported;
use octavo_planner::layout::{DeviceTarget, TargetScope, Targets};
use proptest::prelude::*;

use super::*;

const AFTER: u64 = 300;

fn pci(bus: u8) -> PciAddress {
    PciAddress::new(0, bus, 0, 0).unwrap()
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn withholding() -> WithholdingController {
    WithholdingController::new(Some(at(AFTER)))
}

/// Two different partitionings.
fn mig(number: u8) -> MigTarget {
    match number {
        0 => MigTarget::Disabled,
        _ => MigTarget::Enabled(Vec::new()),
    }
}

fn device(bus: u8, state: &'static str, waits_for_holders: bool) -> DeviceLayoutStatus {
    DeviceLayoutStatus {
        waits_for_holders,
        ..DeviceLayoutStatus::new(pci(bus), format!("GPU {bus}"), Reported::parse(state))
    }
}

/// Each device with its target.
fn status(devices: Vec<(DeviceLayoutStatus, MigTarget)>) -> NodeLayoutStatus {
    let target = |(device, mig): &(DeviceLayoutStatus, MigTarget)| {
        DeviceTarget::generated(device.pci, mig.clone(), TargetScope::Layout)
    };
    let targets = Targets { devices: devices.iter().map(target).collect(), unverified: Vec::new() };
    NodeLayoutStatus {
        layout: Some("night".to_owned()),
        targets: Some(Arc::new(targets)),
        devices: devices.into_iter().map(|(device, _)| device).collect(),
        ..NodeLayoutStatus::default()
    }
}

fn blocked() -> NodeLayoutStatus {
    status(vec![(device(1, "blocked", true), mig(1))])
}

fn update(withholding: &mut WithholdingController, now: u64, status: &NodeLayoutStatus) -> bool {
    withholding.update(at(now), Some(status), &BTreeSet::new());
    !withholding.devices().is_empty()
}

#[test]
fn blocked_device_is_withheld_after_timeout_until_layout_is_applied() {
    let mut all = withholding();
    assert!(!update(&mut all, 10, &blocked()));
    assert_eq!(all.again(at(10)), Some(at(10 + AFTER)));
    assert!(!update(&mut all, 9 + AFTER, &blocked()));
    assert!(update(&mut all, 10 + AFTER, &blocked()));
    assert_eq!(all.again(at(10 + AFTER)), None);
    // It stays withheld while it is being changed.
    let applying = status(vec![(device(1, "applying", false), mig(1))]);
    assert!(update(&mut all, 11 + AFTER, &applying));
    let applied = status(vec![(device(1, "applied", false), mig(1))]);
    assert!(!update(&mut all, 12 + AFTER, &applied));
}

#[test]
fn briefly_free_device_is_still_withheld() {
    let mut all = withholding();
    for second in 0..AFTER {
        let state =
            ["blocked", "applying", "blocked", "pending"][usize::try_from(second % 4).unwrap()];
        let now = status(vec![(device(1, state, state == "blocked"), mig(1))]);
        assert!(!update(&mut all, second, &now));
    }
    assert!(update(&mut all, AFTER, &blocked()));
}

#[test]
fn overdue_device_schedules_no_past_check() {
    let mut all = withholding();
    update(&mut all, 0, &blocked());
    let applying = status(vec![(device(1, "applying", false), mig(1))]);
    assert!(!update(&mut all, AFTER + 1, &applying));
    assert_eq!(all.again(at(AFTER + 1)), None);
    assert!(update(&mut all, AFTER + 2, &blocked()));
}

#[test]
fn drained_device_is_withheld_immediately_and_after_failed_drain() {
    for after in [None, Some(at(AFTER))] {
        let mut all = WithholdingController::new(after);
        all.update(at(1), Some(&blocked()), &BTreeSet::from([pci(1)]));
        assert_eq!(all.devices(), BTreeSet::from([pci(1)]));
        assert!(update(&mut all, 2, &blocked()));
    }
}

#[test]
fn changed_selection_ends_withholding() {
    let other = status(vec![(device(1, "blocked", true), mig(0))]);
    let applied = status(vec![(device(1, "applied", false), mig(0))]);
    for next in [&other, &applied, &NodeLayoutStatus::default()] {
        let mut all = withholding();
        update(&mut all, 0, &blocked());
        assert!(update(&mut all, AFTER, &blocked()));
        assert!(!update(&mut all, AFTER + 1, next), "{next:?}");
    }
}

#[test]
fn device_blocked_for_other_reasons_is_not_withheld() {
    for (state, waits) in [
        ("blocked", false),
        ("needs-reset", false),
        ("failed", false),
        ("rolled-back", false),
        ("drifted", false),
    ] {
        let mut all = withholding();
        let now = status(vec![(device(1, state, waits), mig(1))]);
        update(&mut all, 0, &now);
        assert!(!update(&mut all, 10 * AFTER, &now), "{state}");
    }
    let mut all = withholding();
    let now = status(vec![
        (device(1, "blocked", true), mig(1)),
        (device(2, "infeasible", false), mig(1)),
    ]);
    update(&mut all, 0, &now);
    assert!(!update(&mut all, 10 * AFTER, &now));
}

#[test]
fn withholding_is_disabled_without_timeout() {
    let mut all = WithholdingController::new(None);
    update(&mut all, 0, &blocked());
    assert!(!update(&mut all, 1_000_000, &blocked()));
    assert_eq!(all.again(at(1_000_000)), None);
}

/// State, target and eviction of two devices.
type DeviceStates = [(usize, u8, bool); 2];

const STATES: [(&str, bool); 8] = [
    ("blocked", true),
    ("blocked", false),
    ("pending", false),
    ("applying", false),
    ("applied", false),
    ("needs-reset", true),
    ("failed", false),
    ("infeasible", false),
];

fn found() -> impl Strategy<Value = (u64, DeviceStates)> {
    // Mostly blocked, or no device would ever be due.
    let state = prop_oneof![8 => 0_usize..4, 1 => 4_usize..8];
    let one = || (state.clone(), prop::bool::weighted(0.1), prop::bool::weighted(0.05));
    let one = move || one().prop_map(|(state, other, drained)| (state, u8::from(other), drained));
    (0_u64..120, [one(), one()])
}

proptest! {
    #[test]
    fn only_blocked_devices_are_withheld_on_time(
        looks in prop::collection::vec(found(), 1..60)
    ) {
        let mut all = withholding();
        let mut now = 0;
        // For each device: its target, since when it is blocked, and whether pods were evicted for it.
        let mut model: [Option<(u8, u64, bool)>; 2] = [None; 2];
        for (later, found) in looks {
            now += later;
            let devices = (1_u8..).zip(found).map(|(bus, (state, target, _))| {
                let (state, waits) = STATES[state];
                (device(bus, state, waits), mig(target))
            });
            let layout = status(devices.collect());
            let drained = (1_u8..).zip(found).filter(|(_, (_, _, drained))| *drained);
            let drained: BTreeSet<PciAddress> = drained.map(|(bus, _)| pci(bus)).collect();
            all.update(at(now), Some(&layout), &drained);
            prop_assert!(all.again(at(now)).is_none_or(|next| next > at(now)));
            let is_possible = found.iter().all(|(state, _, _)| STATES[*state].0 != "infeasible");
            for (index, (state, target, drained)) in found.into_iter().enumerate() {
                let (word, waits) = STATES[state];
                let pending = matches!(word, "blocked" | "pending" | "applying") || waits;
                let known = model[index].filter(|(of, _, _)| *of == target && pending && is_possible);
                model[index] = match known {
                    _ if !is_possible => None,
                    Some((of, since, was)) => Some((of, since, was || (waits && (drained || now - since >= AFTER)))),
                    None if waits => Some((target, now, drained)),
                    None => None,
                };
                let expected = model[index].is_some_and(|(_, _, withheld)| withheld);
                let bus = u8::try_from(index).unwrap() + 1;
                prop_assert_eq!(all.devices().contains(&pci(bus)), expected, "{} at {}", bus, now);
            }
        }
        // Once the layout is applied or withdrawn, no device is withheld.
        let mut applied = all.clone();
        let devices = (1..3).map(|bus| (device(bus, "applied", false), mig(1)));
        applied.update(at(now), Some(&status(devices.collect())), &BTreeSet::from([pci(1)]));
        prop_assert!(applied.devices().is_empty());
        all.update(at(now), Some(&NodeLayoutStatus::default()), &BTreeSet::from([pci(1)]));
        prop_assert!(all.devices().is_empty());
    }
}
