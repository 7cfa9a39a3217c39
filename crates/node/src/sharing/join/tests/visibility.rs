//! Usage that is not visible is reported as unknown, never as zero.

use super::*;

#[test]
fn two_containers_of_one_pod_on_one_device_are_one_tenant() {
    let pods = [
        known("a", &replica(0)),
        Allocation { uid: Some("uid-a".to_owned()), ..allocation("a", "side", &replica(1)) },
        known("b", &replica(2)),
    ];
    let attribution = seen(&[(1, of("uid-a")), (2, of("uid-a")), (3, of("uid-b"))]);
    let reading = whole(160, &[process(1, 100), process(2, 50), process(3, 10)]);
    let usage = join_one(&reading, &pods, &attribution);
    are(&usage, 0, &[("a", 2, Some(150)), ("b", 1, Some(10))]);
    let tenants = &usage.devices[0].units[0].tenants;
    let names = tenants.iter().map(|one| one.container.as_deref());
    assert_eq!(names.collect::<Vec<_>>(), [None, Some("main")]);
}

#[test]
fn unreported_data_is_absent_and_listed_as_missing() {
    let mut reading = whole(500, &[]);
    reading.processes = None;
    let unknown = allocation("z", "main", "0");
    let usage = join_one(&reading, &[known("a", &replica(0)), unknown], &seen(&[]));
    are(&usage, 0, &[("a", 1, None)]);
    assert_eq!(rest(&usage, 0), Some(500));
    assert_eq!(
        usage.missing,
        [
            "pod n/z was allocated nvidia.com/gpu 0, which matches no device of this node",
            "GPU 0: the driver does not report its processes",
        ]
    );
}

#[test]
fn own_namespace_process_list_leaves_usage_unknown() {
    let pods = [known("a", &replica(0))];
    // Its list covers the PID namespace of this program, where process 1 is not process 1 of the host.
    for listed in [vec![], vec![process(1, 300)]] {
        let usage = join_one(&whole(500, &listed), &pods, &PodAttribution::OtherNamespace);
        are(&usage, 0, &[("a", 1, None)]);
        assert_eq!(rest(&usage, 0), Some(500));
        assert_eq!(usage.missing.len(), 1, "{:?}", usage.missing);
        assert!(usage.missing[0].starts_with("GPU 0: "), "{usage:?}");
        assert!(usage.missing[0].contains("needs hostPID"), "{usage:?}");
    }
    // On an unused device, the usage of every tenant is zero.
    let unused = join_one(&whole(0, &[]), &pods, &PodAttribution::OtherNamespace);
    are(&unused, 0, &[("a", 1, Some(0))]);
    assert_eq!(unused.missing, [""; 0]);
    let hidden = join_one(&whole(500, &[]), &[], &PodAttribution::OtherNamespace);
    assert_eq!(hidden.missing, [""; 0]);
}

#[test]
fn empty_process_list_in_container_leaves_usage_unknown() {
    let pods = [known("a", &replica(0))];
    let usage = join_one(&whole(500, &[]), &pods, &PodAttribution::Hidden);
    are(&usage, 0, &[("a", 1, None)]);
    assert!(usage.missing[0].contains("needs hostPID"), "{usage:?}");
}

#[test]
fn uninspected_process_is_of_unknown_origin() {
    let pods = [known("a", &replica(0)), known("b", &replica(1))];
    // 2 started after processes were last inspected, 3 could not be inspected.
    let attribution = seen(&[(1, of("uid-a")), (3, ProcessOrigin::Unknown)]);
    let reading = whole(600, &[process(1, 100), process(2, 200), process(3, 300)]);
    let usage = join_one(&reading, &pods, &attribution);
    are(&usage, 0, &[("a", 1, None), ("b", 1, None)]);
    assert_eq!(
        usage.missing,
        ["GPU 0: memory usage by pod is unknown: process 2 and 1 more could not be inspected"]
    );
    let ended = seen(&[(1, of("uid-a")), (2, ProcessOrigin::Gone), (3, ProcessOrigin::Gone)]);
    let usage = join_one(&reading, &pods, &ended);
    are(&usage, 0, &[("a", 1, Some(100)), ("b", 1, Some(0))]);
}

#[test]
fn process_without_allocation_is_separate_tenant() {
    let unallocated = [("uid-other", 0, Some(300)), ("a", 1, Some(0))];
    // The pod's own UID is known and differs.
    let reading = whole(300, &[process(1, 300)]);
    let attribution = seen(&[(1, of("uid-other"))]);
    are(&join_one(&reading, &[known("a", &replica(0))], &attribution), 0, &unallocated);
    // The pod's UID is not known, and the process also runs on a device that the pod does not hold.
    let other = Reading {
        pci: PciAddress::new(0, 8, 0, 0).unwrap(),
        uuid: Some("GPU-6fd4087b-86f3-7a43-b711-4771313afc51".parse().unwrap()),
        index: Some(1),
        ..whole(50, &[process(2, 50)])
    };
    let usage = join(&UsageInput {
        readings: &[reading, other],
        offers: &shared(2),
        allocations: &[allocation("a", "main", &replica(0))],
        is_current: true,
        attribution: &seen(&[(1, of("uid-other")), (2, of("uid-other"))]),
    });
    are(&usage, 0, &unallocated);
}

#[test]
fn outdated_allocations_assign_no_uid_by_elimination() {
    let reading = whole(300, &[process(1, 300)]);
    let pods = [allocation("a", "main", &replica(0))];
    let usage_if = |is_current| {
        join(&UsageInput {
            readings: std::slice::from_ref(&reading),
            offers: &shared(2),
            allocations: &pods,
            is_current,
            attribution: &seen(&[(1, of("x"))]),
        })
    };
    are(&usage_if(true), 0, &[("a", 1, Some(300))]);
    let before = usage_if(false);
    are(&before, 0, &[("x", 0, Some(300)), ("a", 1, None)]);
    assert_eq!(before.missing, ["it is unknown which of n/a has UID x"]);
}
