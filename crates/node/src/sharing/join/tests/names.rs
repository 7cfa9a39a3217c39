//! Assignment of UIDs to pods without kubelet's checkpoint.

use super::*;

#[test]
fn uid_with_single_possible_pod_is_assigned() {
    // Pod a holds both devices, so the UID with processes on both is a; only b is then left for the first device.
    let other = "GPU-6fd4087b-86f3-7a43-b711-4771313afc51";
    let first = whole(300, &[process(1, 100), process(2, 200)]);
    let second = Reading {
        pci: PciAddress::new(0, 8, 0, 0).unwrap(),
        uuid: Some(other.parse().unwrap()),
        index: Some(1),
        ..whole(50, &[process(3, 50)])
    };
    let pods = [
        allocation("a", "main", &replica(0)),
        allocation("b", "main", &replica(1)),
        allocation("a", "main", other),
    ];
    let attribution = seen(&[(1, of("x")), (2, of("y")), (3, of("x"))]);
    let usage = join(&UsageInput {
        readings: &[first, second],
        offers: &shared(2),
        allocations: &pods,
        is_current: true,
        attribution: &attribution,
    });
    are(&usage, 0, &[("b", 1, Some(200)), ("a", 1, Some(100))]);
    assert_eq!(usage.devices[0].units[0].tenants[1].uid.as_deref(), Some("x"));
    assert_eq!(usage.missing, [""; 0]);
}

#[test]
fn uids_are_assigned_by_elimination_in_any_order() {
    // Each GPU except the last is shared with the next pod, so each assigned UID determines its neighbor.
    let gpus: Vec<String> =
        (0..6).map(|number| format!("GPU-5fd4087b-86f3-7a43-b711-4771313afc{number:02}")).collect();
    for uids in [["u", "v", "w", "x", "y", "z"], ["z", "y", "x", "w", "v", "u"]] {
        let mut pods = Vec::new();
        let mut origins = Vec::new();
        let mut readings = Vec::new();
        for (number, gpu) in gpus.iter().enumerate() {
            let name = ["a", "b", "c", "d", "e", "f"][number];
            let next = ["b", "c", "d", "e", "f", "a"][number];
            pods.push(allocation(name, "main", &format!("{gpu}::0")));
            if number < 5 {
                pods.push(allocation(next, "main", &format!("{gpu}::1")));
            }
            let pid = u32::try_from(number).unwrap();
            origins.push((pid, of(uids[number])));
            readings.push(Reading {
                pci: PciAddress::new(0, u8::try_from(number).unwrap(), 0, 0).unwrap(),
                uuid: Some(gpu.parse().unwrap()),
                ..whole(100, &[process(pid, 100)])
            });
        }
        let usage = join(&UsageInput {
            readings: &readings,
            offers: &Offers::default(),
            allocations: &pods,
            is_current: true,
            attribution: &seen(&origins),
        });
        assert_eq!(usage.missing, [""; 0]);
        let users = usage.devices.iter().map(|device| {
            let mut users = device.units[0].tenants.iter();
            let user = users.find(|tenant| tenant.memory == Some(Mebibytes::new(100)));
            user.and_then(|user| user.pod.as_deref().zip(user.uid.as_deref()))
        });
        let expected = ["a", "b", "c", "d", "e", "f"].into_iter().zip(uids);
        assert!(users.eq(expected.map(Some)), "{uids:?}: {usage:?}");
    }
}

#[test]
fn ambiguous_uids_are_reported_in_bounded_lines() {
    let processes: Vec<Process> = (0..1000).map(|pid| process(pid, 1)).collect();
    let pods: Vec<Allocation> = (0..1000)
        .map(|number| allocation(&format!("pod-{number}"), "main", &replica(number)))
        .collect();
    let origins: Vec<(u32, ProcessOrigin)> =
        (0..1000).map(|pid| (pid, of(&format!("uid-{pid:04}")))).collect();
    let usage = join_one(&whole(1000, &processes), &pods, &seen(&origins));
    assert_eq!(
        usage.missing.first().map(String::as_str),
        Some(
            "it is unknown which of n/pod-0, n/pod-1, n/pod-10, n/pod-100, and 996 more has UID uid-0000"
        )
    );
    assert_eq!(usage.missing.last().map(String::as_str), Some("and 984 more"));
    assert!(
        usage.devices[0].units[0]
            .tenants
            .iter()
            .all(|tenant| { tenant.memory == tenant.pod.is_none().then(|| Mebibytes::new(1)) })
    );
}

#[test]
fn ambiguous_pods_have_unknown_usage() {
    let reading = whole(300, &[process(1, 100), process(2, 200)]);
    let pods = [allocation("a", "main", &replica(0)), allocation("b", "main", &replica(1))];
    let usage = join_one(&reading, &pods, &seen(&[(1, of("x")), (2, of("y"))]));
    are(&usage, 0, &[("y", 0, Some(200)), ("x", 0, Some(100)), ("a", 1, None), ("b", 1, None)]);
    assert_eq!(rest(&usage, 0), Some(0));
    assert_eq!(
        usage.missing,
        ["it is unknown which of n/a, n/b has UID x", "it is unknown which of n/a, n/b has UID y",]
    );
}
