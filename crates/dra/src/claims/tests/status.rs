//! Status of the devices of prepared claims.

use super::*;

#[test]
fn status_has_the_identity_of_the_device_and_why_it_is_not_ready() {
    let mut record = PreparedClaims::default();
    let device = part(7, HALF, 0);
    let key =
        prepared(&mut record, &claim("a", std::slice::from_ref(&device)), &node([gpu(7, &[])]));
    assert_eq!(key.claim.name, "claim-a");
    let status = |inventory: &Inventory, faults: &BTreeMap<DeviceName, String>| {
        let statuses = record.statuses(inventory, POOL, faults);
        let status = statuses.into_values().next().unwrap().remove(0);
        assert_eq!(status.device, device.name());
        status
    };
    let none = BTreeMap::new();
    assert_eq!(status(&node([gpu(7, &[])]), &none).problem, Some(DeviceProblem::Missing));
    let exists = node([gpu(7, &[(HALF, 0)])]);
    let ready = status(&exists, &none);
    let data = ready.data.unwrap();
    assert_eq!((ready.problem, data.gpu_instance, data.compute_instance), (None, Some(1), Some(0)));
    let faults = BTreeMap::from([(device.name(), "Xid 95".to_owned())]);
    let unhealthy = DeviceProblem::Unhealthy("Xid 95".to_owned());
    assert_eq!(status(&exists, &faults).problem, Some(unhealthy));
    let mut failing = gpu(7, &[(HALF, 0)]);
    failing.condition = Condition::Failing { reason: "lost".to_owned() };
    let unhealthy = DeviceProblem::Unhealthy("failing".to_owned());
    assert_eq!(status(&node([failing]), &faults).problem, Some(unhealthy));
    // A claim that is still being prepared has no status.
    let uid = &uid("b");
    let empty = node([gpu(7, &[])]);
    let claim = prepare(&record, &claim("b", &[part(7, SEVENTH, 5)]), &empty).unwrap().claim;
    let mut record = record.clone();
    record.record(uid, claim);
    assert_eq!(record.statuses(&exists, POOL, &none).len(), 1);
}
