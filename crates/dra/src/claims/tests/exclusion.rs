//! Partitions that exclude each other by their engines, and released partitions that are still in use.

use super::*;

/// A GPU whose media engines a partition at slice 6 has.
fn with_media(processes: Vec<Process>) -> Inventory {
    let mut device = gpu(7, &[(MEDIA, 6)]);
    device.processes = processes;
    node([device])
}

#[test]
fn claim_that_needs_engines_of_another_claim_is_refused_with_its_name() {
    let mut record = PreparedClaims::default();
    prepared(&mut record, &claim("a", &[part(7, MEDIA, 6)]), &node([gpu(7, &[])]));
    let second = claim("b", &[part(7, MEDIA, 2)]);
    // Also before the partition of the other claim exists.
    for inventory in [with_media(Vec::new()), node([gpu(7, &[])])] {
        let error = prepare(&record, &second, &inventory).unwrap_err();
        assert!(
            matches!(&error, PrepareError::Claimed { name, .. } if name == "claim-a"),
            "{error}"
        );
    }
    // The slices beside it are free.
    let beside = claim("b", &[part(7, SEVENTH, 2)]);
    assert!(prepare(&record, &beside, &with_media(Vec::new())).is_ok());
}

#[test]
fn partition_in_use_outside_of_claims_is_refused_with_its_users() {
    let record = PreparedClaims::default();
    let idle = with_media(Vec::new());
    let second = claim("b", &[part(7, MEDIA, 2)]);
    let refusal = |inventory: &Inventory| prepare(&record, &second, inventory).unwrap_err();
    let error = refusal(&idle).to_string();
    let beside = "cannot exist beside 1g.5gb+me at slice 6, which ";
    assert!(error.contains(&format!("{beside}was created outside of claims")), "{error}");
    let error = refusal(&with_media(vec![process(Some(1))])).to_string();
    assert!(error.contains(&format!("{beside}is used by pid 4711, compute")), "{error}");
    // A partition that shares slices is reported in the same way.
    let overlapping = claim("c", &[part(7, SEVENTH, 6)]);
    let used = with_media(vec![process(Some(1))]);
    let error = prepare(&record, &overlapping, &used).unwrap_err();
    assert!(matches!(error, PrepareError::Excluded { .. }), "{error}");
}

#[test]
fn released_partition_yields_only_while_it_is_idle() {
    let mut record = PreparedClaims::default();
    let first = claim("a", &[part(7, MEDIA, 6)]);
    prepared(&mut record, &first, &node([gpu(7, &[])]));
    record.release(&first.key.uid).unwrap();
    let (idle, used) = (with_media(Vec::new()), with_media(vec![process(Some(1))]));
    let second = claim("b", &[part(7, MEDIA, 2)]);
    assert_eq!(prepare(&record, &second, &idle).unwrap().create.len(), 1);
    let error = prepare(&record, &second, &used).unwrap_err().to_string();
    assert!(error.contains("is used by pid 4711, compute"), "{error}");
    // It is published like any other partition that something outside of claims uses.
    let own = BTreeSet::from([part(7, MEDIA, 6).name()]);
    assert_eq!(record.device_names(&idle.devices), own);
    assert_eq!(record.device_names(&used.devices), BTreeSet::new());
    // A claim that has the partition keeps it.
    prepared(&mut record, &claim("c", &[part(7, MEDIA, 6)]), &idle);
    assert_eq!(record.device_names(&used.devices), own);
}
