//! Selection of devices by rules.

use octavo_model::catalog::ProfileCatalog;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, Inventory, Mig, MigMode, PciIds};
use octavo_model::quantity::Mebibytes;
use octavo_model::source_position::SourcePosition;

use crate::layout::tests_support::*;
use crate::layout::{
    Criteria, DeviceFilter, Dialect, MigSpec, MigTarget, ResolvedLayout, Rule, RuleError, Selector,
    Share, TimeSlicing, resolve,
};

pub(super) fn off(devices: Selector) -> Rule {
    rule(devices, Some(MigSpec::Disabled))
}

pub(super) fn sliced(devices: Selector) -> Rule {
    Rule {
        time_slicing: Some(TimeSlicing {
            position: SourcePosition::default(),
            shares: vec![Share::everything(4)],
            slice: None,
        }),
        ..rule(devices, None)
    }
}

pub(super) fn matching(criteria: Criteria) -> Selector {
    Selector::Matching(criteria)
}

fn filter(device: u16, subsystem: Option<(u16, u16)>) -> Selector {
    matching(Criteria {
        device_filter: Some(vec![DeviceFilter { device, vendor: 0x10de, subsystem }]),
        ..Criteria::default()
    })
}

/// The PCI addresses of the devices that have a target.
pub(super) fn buses(resolved: &ResolvedLayout) -> Vec<PciAddress> {
    let devices = resolved.targets.devices.iter();
    devices.map(|device| device.pci).collect()
}

pub(super) fn bus(number: u8) -> PciAddress {
    PciAddress::new(0, number, 0, 0).unwrap()
}

#[track_caller]
fn selects(rules: impl IntoIterator<Item = Rule>, node: &Inventory, indices: &[u8]) {
    let resolved = resolve_octavo(rules, node).unwrap();
    let expected: Vec<PciAddress> = indices.iter().map(|index| bus(index + 1)).collect();
    assert_eq!(buses(&resolved), expected);
}

#[track_caller]
pub(super) fn check_errors(errors: Result<ResolvedLayout, Vec<RuleError>>, expected: &[&str]) {
    let errors: Vec<String> = errors.unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(errors, expected);
}

fn mig_parted(
    rules: impl IntoIterator<Item = Rule>,
    node: &Inventory,
) -> Result<ResolvedLayout, Vec<RuleError>> {
    resolve(&layout(rules), Dialect::MigParted, node)
}

/// Another vendor's accelerator, with no reported attributes.
fn amd(index: u8) -> Device {
    let ids = PciIds {
        vendor: 0x1002,
        device: 0x74a1,
        subsystem_vendor: 0,
        subsystem_device: 0,
        class: None,
    };
    Device::new(bus(index + 1), ids)
}

fn mixed() -> Inventory {
    node([A100_80.gpu(0), H100.gpu(1), t4(2), amd(3)])
}

#[test]
fn partitioning_all_skips_incapable_devices() {
    selects([partition(Selector::All, &[("1g.10gb", 1)])], &mixed(), &[0, 1]);
    selects([off(Selector::All)], &mixed(), &[0, 1]);
    selects([sliced(Selector::All)], &mixed(), &[0, 1, 2, 3]);
}

#[test]
fn rest_selects_unselected_devices_in_any_position() {
    let a100 = || partition(index(&[(0, 0)]), &[("1g.10gb", 1)]);
    selects([sliced(Selector::Rest), a100()], &mixed(), &[0, 1, 2, 3]);
    let resolved = resolve_octavo([off(Selector::Rest), a100()], &mixed()).unwrap();
    let found: Vec<_> = resolved.targets.devices.iter().map(|device| device.rule.line).collect();
    assert_eq!(found, [2, 1]);
    let resolved = resolve_octavo([sliced(Selector::All), off(Selector::Rest)], &mixed()).unwrap();
    assert_eq!(
        resolved.warnings[0].to_string(),
        "layout \"test\", rule 2: `rest` matches no device: other rules select every device"
    );
}

#[test]
fn all_criteria_must_be_met() {
    let by = |criteria| [sliced(matching(criteria))];
    let capable = |is| Criteria { mig_capable: Some(is), ..Criteria::default() };
    let least =
        |memory| Criteria { memory_at_least: Some(Mebibytes::new(memory)), ..Criteria::default() };
    selects(by(capable(true)), &mixed(), &[0, 1]);
    selects(by(capable(false)), &mixed(), &[2, 3]);
    selects(by(least(15_360)), &mixed(), &[0, 1, 2]);
    selects(by(least(81_560)), &mixed(), &[0]);
    let names = vec!["nvidia-t4-16gb".parse().unwrap(), "nvidia-h100-80gb".parse().unwrap()];
    let typed = Criteria { type_name: Some(names), ..Criteria::default() };
    selects(by(typed.clone()), &mixed(), &[1, 2]);
    selects(
        by(Criteria { memory_at_least: Some(Mebibytes::new(20_000)), ..typed }),
        &mixed(),
        &[1],
    );
    let pci = Criteria { pci: Some(vec![bus(4), bus(9)]), ..Criteria::default() };
    selects(by(pci), &mixed(), &[3]);
}

#[test]
fn index_is_nvml_index_and_must_exist() {
    selects([sliced(index(&[(1, 2), (0, 0)]))], &mixed(), &[0, 1, 2]);
    for dialect in [Dialect::Octavo, Dialect::MigParted] {
        let rules = layout([sliced(index(&[(0, 1), (2, u32::MAX)]))]);
        check_errors(
            resolve(&rules, dialect, &node([t4(0), A30.gpu(1)])),
            &[
                "layout \"test\", rule 1: no GPU has the index 2-4294967295; this node has GPU 0: nvidia-t4-16gb, 15 GiB, cannot be partitioned; \
               GPU 1: nvidia-a30-24gb, 24 GiB",
            ],
        );
    }
}

#[test]
fn empty_rule_error_lists_existing_devices() {
    let typed = Criteria {
        type_name: Some(vec!["nvidia-b200-180gb".parse().unwrap()]),
        ..Criteria::default()
    };
    check_errors(
        resolve_octavo([off(matching(typed)), sliced(Selector::All)], &node([A30.gpu(0)])),
        &[
            "layout \"test\", rule 1: it selects type nvidia-b200-180gb, which matches no device; this node has GPU 0: nvidia-a30-24gb, 24 GiB",
        ],
    );
    check_errors(
        resolve_octavo([partition(Selector::All, &[])], &node([])),
        &[
            "layout \"test\", rule 1: it selects all (of those that can be partitioned), which matches no device; this node has no accelerator",
        ],
    );
}

#[test]
fn explicit_incapable_device_is_an_error() {
    check_errors(
        resolve_octavo([partition(index(&[(0, 2)]), &[("1g.10gb", 1)])], &mixed()),
        &[
            "layout \"test\", rule 1: GPU 2 (0000:03:00.0): it cannot be partitioned; use `devices: all`, which skips such devices, or select other devices",
        ],
    );
    selects([off(index(&[(0, 2)]))], &mixed(), &[0, 1]);
}

#[test]
fn overlapping_rules_conflict_in_octavo_dialect() {
    check_errors(
        resolve_octavo([off(Selector::All), sliced(index(&[(1, 1)]))], &mixed()),
        &[
            "layout \"test\", rule 2: GPU 1 (0000:02:00.0): rule 1 (1:5) also selects it; each device must be selected by only one rule",
        ],
    );
}

#[test]
fn last_overlapping_rule_wins_in_mig_parted_dialect() {
    let rules = || [off(Selector::All), partition(index(&[(1, 1)]), &[("7g.80gb", 1)])];
    let resolved = mig_parted(rules(), &mixed()).unwrap();
    assert_eq!(resolved.targets.devices[0].mig, Some(MigTarget::Disabled));
    assert!(
        matches!(&resolved.targets.devices[1].mig, Some(MigTarget::Enabled(all)) if all.len() == 1)
    );
    let warnings: Vec<String> = resolved.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "layout \"test\", rule 2: GPU 1 (0000:02:00.0): overrides rule 1 (1:5), which also selects it: the last rule takes precedence"
        ]
    );
    let same = mig_parted([off(Selector::All), off(Selector::All)], &mixed()).unwrap();
    assert_eq!(same.warnings, []);
}

#[test]
fn device_filter_checks_subsystem_only_if_given() {
    let on = |selector| mig_parted([off(selector)], &mixed()).map(|resolved| buses(&resolved));
    assert_eq!(on(filter(0x20b2, None)), Ok(vec![bus(1)]));
    assert_eq!(on(filter(0x20b2, Some((0x1463, 0x10de)))), Ok(vec![bus(1)]));
    check_errors(
        mig_parted([off(filter(0x20b2, Some((0x1464, 0x10de))))], &node([A30.gpu(0)])),
        &[
            "layout \"test\": none of its rules selects a device of this node; this node has GPU 0: nvidia-a30-24gb, 24 GiB",
        ],
    );
}

#[test]
fn device_filter_for_other_models_is_skipped_in_mig_parted_dialect_only() {
    let rules = || {
        [
            partition(filter(0x20b0, None), &[("1g.5gb", 7)]),
            partition(filter(0x2330, None), &[("1g.10gb", 7)]),
        ]
    };
    assert_eq!(buses(&mig_parted(rules(), &mixed()).unwrap()), [bus(2)]);
    let errors = resolve_octavo(rules(), &mixed()).unwrap_err();
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0]
            .to_string()
            .contains("it selects device-filter 0x20B010DE (of those that can be partitioned)"),
        "{}",
        errors[0]
    );
}

#[test]
fn error_names_devices_that_offer_the_profile() {
    let node = node([A100_80.gpu(0), A30.gpu(1)]);
    check_errors(
        resolve_octavo([partition(Selector::All, &[("2g.12gb", 1)])], &node),
        &[
            "layout \"test\", rule 1: GPU 0 (0000:01:00.0): it does not offer 2g.12gb; it offers 2g.20gb, \
           1g.10gb, 1g.20gb, 3g.40gb, 1g.10gb+me, 4g.40gb, 7g.80gb (GPU 1 (0000:02:00.0) offers it; use a separate rule for this device)",
        ],
    );
}

#[test]
fn missing_profiles_are_an_error_only_if_requested() {
    let mut silent = A100_80.gpu(0);
    let Mig::Capable(state) = &mut silent.mig else { panic!() };
    state.catalog = ProfileCatalog::default();
    state.current = MigMode::Disabled;
    let node = node([silent]);
    selects([partition(Selector::All, &[])], &node, &[0]);
    check_errors(
        resolve_octavo([partition(Selector::All, &[("1g.10gb", 1), ("2g.20gb", 1)])], &node),
        &[
            "layout \"test\", rule 1: GPU 0 (0000:01:00.0): the driver does not report its profiles while MIG mode is off, as is the case for branch 535; enable MIG mode first with an empty `mig: {}`, or update the driver",
        ],
    );
}
