//! Claims that share a device, and claims with administrative access.

use super::*;

/// A claim of a share of this device.
fn sharing(id: &str, device: &DraDevice) -> AllocatedClaim {
    let mut claim = claim(id, std::slice::from_ref(device));
    claim.devices[0].share = Some(format!("share-{id}"));
    claim
}

fn admin(id: &str, device: &DraDevice) -> AllocatedClaim {
    let mut claim = claim(id, std::slice::from_ref(device));
    claim.devices[0].is_admin = true;
    claim
}

#[test]
fn shared_instance_is_created_once_and_released_with_its_last_share() {
    let device = part(7, HALF, 0);
    let (one, other) = (sharing("a", &device), sharing("b", &device));
    let mut record = PreparedClaims::default();
    assert_eq!(prepared(&mut record, &one, &node([gpu(7, &[])])).create.len(), 1);
    let mut used = gpu(7, &[(HALF, 0)]);
    used.processes = vec![process(Some(1))];
    let exists = node([used]);
    // The process belongs to the first share.
    let second = prepared(&mut record, &other, &exists);
    assert_eq!(second.create, BTreeSet::new());
    assert_eq!(second.claim.devices[0].share.as_deref(), Some("share-b"));
    for refused in [&claim("c", std::slice::from_ref(&device)), &sharing("c", &part(7, SEVENTH, 1))]
    {
        let error = prepare(&record, refused, &exists).unwrap_err();
        assert!(matches!(error, PrepareError::Claimed { .. }), "{error}");
    }
    record.release(&uid("a")).unwrap();
    assert_eq!(record.released, BTreeSet::new());
    assert_eq!(record.holders(&exists.devices).len(), 1);
    record.release(&uid("b")).unwrap();
    assert_eq!(record.released, BTreeSet::from([device]));
}

#[test]
fn instance_that_one_share_creates_again_is_destroyed_after_the_last() {
    // The instance was created outside of claims, and lost at a reboot.
    let device = part(7, HALF, 0);
    let exists = node([gpu(7, &[(HALF, 0)])]);
    let mut record = PreparedClaims::default();
    for id in ["a", "b"] {
        assert!(!prepared(&mut record, &sharing(id, &device), &exists).claim.devices[0].created);
    }
    let again = prepared(&mut record, &sharing("a", &device), &node([gpu(7, &[])]));
    assert_eq!(again.create.len(), 1);
    record.release(&uid("a")).unwrap();
    record.release(&uid("b")).unwrap();
    assert_eq!(record.released, BTreeSet::from([device]));
}

#[test]
fn exclusive_device_has_no_share() {
    let whole = DraDevice { pci: whole_gpu(8).pci, what: DraDeviceKind::Gpu };
    let inventory = node([whole_gpu(8)]);
    let mut record = PreparedClaims::default();
    prepared(&mut record, &claim("a", std::slice::from_ref(&whole)), &inventory);
    let error = prepare(&record, &sharing("b", &whole), &inventory).unwrap_err();
    assert!(matches!(error, PrepareError::Claimed { .. }), "{error}");
    // Two requests of one claim can have two shares.
    let mut record = PreparedClaims::default();
    let mut both = sharing("c", &whole);
    both.devices.push(AllocatedDevice { share: Some("2".to_owned()), ..both.devices[0].clone() });
    let shares = prepared(&mut record, &both, &inventory).claim.devices;
    let shares: Vec<_> = shares.iter().filter_map(|one| one.share.as_deref()).collect();
    assert_eq!(shares, ["2", "share-c"]);
}

#[test]
fn i1_administrative_access_holds_and_creates_nothing() {
    let device = part(7, HALF, 0);
    let mut used = gpu(7, &[(HALF, 0)]);
    used.processes = vec![process(Some(1))];
    let exists = node([used, whole_gpu(8)]);
    let mut record = PreparedClaims::default();
    prepared(&mut record, &claim("a", std::slice::from_ref(&device)), &node([gpu(7, &[])]));
    let whole = DraDevice { pci: whole_gpu(8).pci, what: DraDeviceKind::Gpu };
    for (id, device) in [("b", &device), ("c", &whole)] {
        let monitor = prepared(&mut record, &admin(id, device), &exists);
        assert_eq!((monitor.create.len(), monitor.claim.devices[0].created), (0, false));
    }
    assert_eq!(record.holders(&exists.devices).len(), 1);
    assert_eq!(record.device_names(&[]), BTreeSet::from([device.name()]));
    // Nor do its pods, which the kubelet lists like those of other claims.
    let monitors = |claim: &AllocatedClaim, wanted| {
        record.only_monitors(&claim.key.reference(), |one| one == wanted)
    };
    assert!(monitors(&admin("b", &device), &device) && !monitors(&admin("b", &device), &whole));
    assert!(!monitors(&claim("a", std::slice::from_ref(&device)), &device));
    // It excludes no other claim, and its end releases nothing.
    prepared(&mut record, &claim("d", std::slice::from_ref(&whole)), &exists);
    record.release(&uid("b")).unwrap();
    assert_eq!(record.released, BTreeSet::new());
    let refused = prepare(&record, &admin("e", &part(7, HALF, 4)), &exists).unwrap_err();
    assert!(matches!(refused, PrepareError::Absent { .. }), "{refused}");
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<PreparedClaims>(&text).unwrap(), record);
}
