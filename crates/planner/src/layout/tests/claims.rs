//! Rules that leave the partitions to resource claims.

use octavo_model::inventory::{Mig, MigMode};

use super::select::{bus, off, sliced};
use crate::layout::tests_support::*;
use crate::layout::{
    MigTarget, Rule, RuleWarningKind, Selector, Share, ShareTarget, TargetScope, compare,
};
use crate::plan::{DevicePlanResult, PlanInput, Policy, plan};

fn by_claims(rule: Rule) -> Rule {
    Rule { claims: true, ..rule }
}

#[test]
fn rule_of_claims_determines_the_mode_only() {
    let mut with_mode_off = A100_80.gpu(1);
    let Mig::Capable(state) = &mut with_mode_off.mig else { panic!() };
    (state.current, state.pending) = (MigMode::Disabled, MigMode::Disabled);
    let inventory = node([A100_80.with(0, &[(9, 0, &[3])]), with_mode_off, t4(2), failing(3)]);
    let rules = [by_claims(partition(Selector::All, &[]))];
    let targets = resolve_octavo(rules, &inventory).unwrap().targets;
    let scopes: Vec<_> = targets.devices.iter().map(|one| (one.pci, one.scope)).collect();
    assert_eq!(scopes, [(bus(1), TargetScope::Mode), (bus(2), TargetScope::Mode)]);
    assert_eq!(targets.unverified[0].scope, TargetScope::Mode);
    let differences: Vec<String> =
        compare(&targets, &inventory).iter().map(ToString::to_string).collect();
    assert_eq!(differences.len(), 2, "{differences:?}");
    assert!(differences[0].ends_with("MIG mode is off but must be on"), "{differences:?}");
    let planned = plan(&PlanInput {
        inventory: &inventory,
        targets: &targets,
        holders: &[],
        policy: &Policy::default(),
        refused: &std::collections::BTreeSet::new(),
    });
    assert_eq!(planned.devices[0].verdict, DevicePlanResult::Unchanged);
    assert!(matches!(planned.devices[1].verdict, DevicePlanResult::Change(_)), "{planned:?}");
}

#[test]
fn rule_of_claims_can_leave_the_mode_unchanged_or_share_every_profile() {
    let inventory = node([A100_80.gpu(0), t4(1)]);
    let [unchanged, disabled, mut shared] =
        [rule(Selector::All, None), off(Selector::All), sliced(Selector::All)].map(by_claims);
    let target = |rule: &Rule| {
        let resolved = resolve_octavo([rule.clone()], &inventory).unwrap();
        assert_eq!(resolved.warnings, [], "{rule:?}");
        assert_eq!(resolved.targets.devices.len(), 2, "{rule:?}");
        resolved.targets.devices[0].clone()
    };
    assert_eq!((target(&unchanged).mig, target(&disabled).mig), (None, Some(MigTarget::Disabled)));
    shared.mig = Some(mig_spec(&[]));
    let profile = ShareTarget::Profile("3g.40gb".parse().unwrap());
    let time_slicing = shared.time_slicing.as_mut().unwrap();
    time_slicing.shares = vec![Share { of: profile, ..Share::everything(2) }];
    let resolved = resolve_octavo([shared.clone()], &inventory).unwrap();
    assert_eq!(resolved.warnings, []);
    // Without claims, no such partition would exist.
    let resolved = resolve_octavo([Rule { claims: false, ..shared }], &inventory).unwrap();
    let kind = &resolved.warnings[0].kind;
    assert!(matches!(kind, RuleWarningKind::SharedProfileMissing { .. }), "{kind}");
}
