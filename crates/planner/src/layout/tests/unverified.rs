//! Selected devices whose state cannot be read.

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, Device};
use octavo_model::quantity::Mebibytes;

use super::select::{bus, buses, check_errors, matching, off, sliced};
use crate::layout::tests_support::*;
use crate::layout::{Criteria, Dialect, ResolvedLayout, Selector, resolve};

/// The PCI addresses of selected devices whose state cannot be read.
fn unverified(resolved: &ResolvedLayout) -> Vec<PciAddress> {
    let devices = resolved.targets.unverified.iter();
    devices.map(|device| device.pci).collect()
}

/// A GPU that NVML counts but cannot identify, as after a restart of the agent.
fn unnamed(number: u8) -> Device {
    let mut device = failing(number);
    device.index = None;
    device.uuid = None;
    device.memory = None;
    device
}

#[test]
fn unreadable_device_is_unchanged_and_reported_with_its_rule() {
    let node = node([A100_80.gpu(0), failing(1)]);
    for dialect in [Dialect::Octavo, Dialect::MigParted] {
        let rules = layout([partition(Selector::All, &[("3g.40gb", 2)])]);
        let resolved = resolve(&rules, dialect, &node).unwrap();
        assert_eq!(buses(&resolved), [bus(1)]);
        assert_eq!(unverified(&resolved), [bus(2)]);
        assert_eq!(resolved.covered, [bus(1), bus(2)]);
        let warnings: Vec<String> = resolved.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "layout \"test\", rule 1: GPU 1 (0000:02:00.0): its state cannot be read: failing: GPU is lost"
            ]
        );
    }
    for rules in [
        vec![off(index(&[(0, 1)]))],
        vec![sliced(Selector::All)],
        vec![off(index(&[(0, 0)])), sliced(Selector::Rest)],
        vec![off(index(&[(0, 0)])), off(index(&[(1, 1)]))],
    ] {
        let resolved = resolve_octavo(rules.clone(), &node).unwrap();
        assert_eq!(
            (buses(&resolved), unverified(&resolved)),
            (vec![bus(1)], vec![bus(2)]),
            "{rules:?}"
        );
    }
    let resolved = resolve_octavo([off(index(&[(0, 0)]))], &node).unwrap();
    assert_eq!(unverified(&resolved), [], "no rule selects it");
}

#[test]
fn unidentified_device_does_not_affect_other_rules() {
    let node = node([unnamed(0), A100_80.gpu(1), unnamed(2), A30.gpu(3)]);
    let uuids = |uuids: &[&str]| {
        matching(Criteria {
            uuid: Some(uuids.iter().map(|uuid| uuid.parse().unwrap()).collect()),
            ..Criteria::default()
        })
    };
    let lost = "GPU-0a0a0a0a-0000-0000-0000-000000000001";
    let least =
        matching(Criteria { memory_at_least: Some(Mebibytes::new(40_000)), ..Criteria::default() });
    for (rules, covered, unread) in [
        (vec![off(index(&[(0, 0)])), off(index(&[(1, 1)]))], vec![2], vec![1]),
        (vec![off(index(&[(0, 3)]))], vec![2, 4], vec![1, 3]),
        (vec![off(index(&[(2, 3)]))], vec![4], vec![3]),
        (vec![off(index(&[(1, 1)]))], vec![2], vec![]),
        (vec![off(uuids(&[lost]))], vec![], vec![1, 3]),
        (vec![off(least)], vec![2], vec![1, 3]),
    ] {
        let resolved = resolve_octavo(rules.clone(), &node).unwrap();
        let of = |numbers: Vec<u8>| -> Vec<PciAddress> { numbers.into_iter().map(bus).collect() };
        assert_eq!(
            (buses(&resolved), unverified(&resolved)),
            (of(covered), of(unread)),
            "{rules:?}"
        );
    }
    check_errors(
        resolve_octavo([off(index(&[(4, 4)]))], &node),
        &[
            "layout \"test\", rule 1: no GPU has the index 4; this node has GPU 0000:01:00.0,0000:03:00.0: \
           nvidia-a100-80gb, state cannot be read; GPU 1: nvidia-a100-80gb, 80 GiB; GPU 3: nvidia-a30-24gb, 24 GiB",
        ],
    );
}

#[test]
fn capability_rules_do_not_conflict_on_unreadable_device() {
    let by = |capable| matching(Criteria { mig_capable: Some(capable), ..Criteria::default() });
    let rules = || [off(by(true)), sliced(by(false))];
    let resolved = resolve_octavo(rules(), &node([A100_80.gpu(0), failing(1), t4(2)])).unwrap();
    assert_eq!(buses(&resolved), [bus(1), bus(3)]);
    assert_eq!(unverified(&resolved), [bus(2)]);
}

#[test]
fn passthrough_device_is_skipped() {
    let mut passed = failing(1);
    passed.condition = Condition::PciOnly { kernel_driver: Some("vfio-pci".to_owned()) };
    let node = node([A100_80.gpu(0), passed]);
    let resolved = resolve_octavo([off(Selector::All)], &node).unwrap();
    assert_eq!((buses(&resolved), unverified(&resolved)), (vec![bus(1)], vec![]));
    assert_eq!(
        resolved.warnings[0].to_string(),
        "layout \"test\", rule 1: GPU 1 (0000:02:00.0): not selected: it is passed through to virtual machines"
    );
}
