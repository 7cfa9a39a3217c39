//! Usage that is not visible is reported as unknown, never as zero.

use super::*;

#[test]
fn two_containers_of_one_pod_on_one_device_are_one_tenant_with_what_both_were_given() {
    let pods = [
        known("a", &replica(0)),
        Given {
            uid: Some("uid-a".to_owned()),
            ..given("a", "side", &replica(1))
        },
        known("b", &replica(2)),
    ];
    let kin = seen(&[(1, of("uid-a")), (2, of("uid-a")), (3, of("uid-b"))]);
    let reading = whole(160, &[process(1, 100), process(2, 50), process(3, 10)]);
    let usage = look(&reading, &pods, &kin);
    are(&usage, 0, &[("a", 2, Some(150)), ("b", 1, Some(10))]);
    let tenants = &usage.devices[0].units[0].tenants;
    let names = tenants.iter().map(|one| one.container.as_deref());
    assert_eq!(names.collect::<Vec<_>>(), [None, Some("main")]);
}

#[test]
fn what_the_driver_does_not_tell_is_absent_and_said() {
    let mut reading = whole(500, &[]);
    reading.processes = None;
    let unknown = given("z", "main", "0");
    let usage = look(&reading, &[known("a", &replica(0)), unknown], &seen(&[]));
    are(&usage, 0, &[("a", 1, None)]);
    assert_eq!(rest(&usage, 0), Some(500));
    assert_eq!(
        usage.missing,
        [
            "pod n/z was given nvidia.com/gpu 0, and nobody knows what of this node that is",
            "GPU 0: the driver does not tell its processes",
        ]
    );
}

#[test]
fn where_the_driver_names_processes_of_this_container_alone_nobody_is_said_to_use_nothing() {
    let pods = [known("a", &replica(0))];
    // Its list covers the PID namespace of this program, where process 1 is not process 1 of the host.
    for listed in [vec![], vec![process(1, 300)]] {
        let usage = look(&whole(500, &listed), &pods, &Kin::Elsewhere);
        are(&usage, 0, &[("a", 1, None)]);
        assert_eq!(rest(&usage, 0), Some(500));
        assert_eq!(usage.missing.len(), 1, "{:?}", usage.missing);
        assert!(usage.missing[0].starts_with("GPU 0: "), "{usage:?}");
        assert!(usage.missing[0].contains("needs hostPID"), "{usage:?}");
    }
    // On an unused device, the usage of every tenant is zero.
    let unused = look(&whole(0, &[]), &pods, &Kin::Elsewhere);
    are(&unused, 0, &[("a", 1, Some(0))]);
    assert_eq!(unused.missing, [""; 0]);
    let nobody = look(&whole(500, &[]), &[], &Kin::Elsewhere);
    assert_eq!(nobody.missing, [""; 0]);
}

#[test]
fn a_driver_that_names_nobody_to_who_is_in_a_container_leaves_unknown_what_its_only_pod_uses() {
    let pods = [known("a", &replica(0))];
    let usage = look(&whole(500, &[]), &pods, &Kin::Hidden);
    are(&usage, 0, &[("a", 1, None)]);
    assert!(usage.missing[0].contains("needs hostPID"), "{usage:?}");
}

#[test]
fn a_process_that_was_not_looked_at_may_be_anybodys_and_has_not_ended() {
    let pods = [known("a", &replica(0)), known("b", &replica(1))];
    // 2 started after processes were last inspected, 3 could not be inspected.
    let kin = seen(&[(1, of("uid-a")), (3, Origin::Unknown)]);
    let reading = whole(600, &[process(1, 100), process(2, 200), process(3, 300)]);
    let usage = look(&reading, &pods, &kin);
    are(&usage, 0, &[("a", 1, None), ("b", 1, None)]);
    assert_eq!(
        usage.missing,
        [
            "GPU 0: how much memory which pod uses is not known: process 2 and 1 more could not be looked at"
        ]
    );
    let ended = seen(&[(1, of("uid-a")), (2, Origin::Gone), (3, Origin::Gone)]);
    let usage = look(&reading, &pods, &ended);
    are(&usage, 0, &[("a", 1, Some(100)), ("b", 1, Some(0))]);
}

#[test]
fn who_was_given_nothing_is_a_stranger_and_the_idle_pod_is_not_blamed() {
    let stranger = [("uid-other", 0, Some(300)), ("a", 1, Some(0))];
    // The pod's own UID is known and differs.
    let reading = whole(300, &[process(1, 300)]);
    let kin = seen(&[(1, of("uid-other"))]);
    are(
        &look(&reading, &[known("a", &replica(0))], &kin),
        0,
        &stranger,
    );
    // The pod's UID is not known, and the process also runs on a device that the pod does not hold.
    let other = Reading {
        pci: PciAddress::new(0, 8, 0, 0).unwrap(),
        uuid: Some("GPU-6fd4087b-86f3-7a43-b711-4771313afc51".parse().unwrap()),
        index: Some(1),
        ..whole(50, &[process(2, 50)])
    };
    let usage = join(&Scene {
        readings: &[reading, other],
        offers: &shared(2),
        given: &[given("a", "main", &replica(0))],
        is_current: true,
        kin: &seen(&[(1, of("uid-other")), (2, of("uid-other"))]),
    });
    are(&usage, 0, &stranger);
}

#[test]
fn by_a_list_of_before_nobody_is_who_he_only_can_be() {
    let reading = whole(300, &[process(1, 300)]);
    let pods = [given("a", "main", &replica(0))];
    let scene = |is_current| {
        join(&Scene {
            readings: std::slice::from_ref(&reading),
            offers: &shared(2),
            given: &pods,
            is_current,
            kin: &seen(&[(1, of("x"))]),
        })
    };
    are(&scene(true), 0, &[("a", 1, Some(300))]);
    let before = scene(false);
    are(&before, 0, &[("x", 0, Some(300)), ("a", 1, None)]);
    assert_eq!(before.missing, ["which of n/a has UID x is not known"]);
}
