//! Alarms of the guard over successive readings.

use octavo_model::id::PciAddress;
use octavo_model::resource::ShareId;

use super::*;
use crate::node_object::rate_limit::{BURST, MAX_MESSAGE_BYTES};

const GIB: u64 = 1024;

fn tenant(pod: &str, mebibytes: u64) -> Tenant {
    Tenant {
        namespace: Some("n".to_owned()),
        pod: Some(pod.to_owned()),
        uid: Some(format!("uid-{pod}")),
        container: Some("main".to_owned()),
        ids: vec![ShareId::replica("GPU-a", 0)],
        memory: Some(Mebibytes::new(mebibytes)),
        ..Tenant::default()
    }
}

/// An 80 GiB GPU with three replicas.
fn usage(tenants: &[Tenant]) -> Usage {
    let mut tenants = tenants.to_vec();
    tenants.sort_by_key(|tenant| std::cmp::Reverse(tenant.memory));
    let used = tenants.iter().filter_map(|tenant| tenant.memory);
    let used = Mebibytes::new(used.map(Mebibytes::get).sum());
    let memory =
        Some(MemoryUse { total: Mebibytes::new(80 * GIB), used, reserved: Mebibytes::new(0) });
    Usage {
        devices: vec![DeviceUsage {
            pci: PciAddress::new(0, 7, 0, 0).unwrap(),
            name: "GPU 3".to_owned(),
            memory,
            utilization: None,
            power_watts: None,
            temperature_celsius: None,
            units: vec![UnitUsage {
                uuid: "GPU-a".to_owned(),
                replicas: Some(3),
                fair_share: Some(Mebibytes::new(80 * GIB / 3)),
                memory,
                tenants,
                unattributed: Some(Mebibytes::new(0)),
                ..UnitUsage::default()
            }],
        }],
        missing: Vec::new(),
        ..Usage::default()
    }
}

fn at(guard: &mut Guard, seconds: u64, tenants: &[Tenant]) -> (Vec<Alarm>, Usage) {
    let mut usage = usage(tenants);
    let alarms = guard.check(Duration::from_secs(seconds), &mut usage);
    (alarms, usage)
}

#[test]
fn tenant_over_share_is_reported_once_and_again_when_within() {
    let mut guard = Guard::default();
    let (alarms, usage) = at(&mut guard, 0, &[tenant("a", 31 * GIB), tenant("b", GIB)]);
    assert_eq!(alarms.len(), 1);
    assert_eq!(alarms[0].reason, Reason::MemoryOverShare);
    assert_eq!(
        alarms[0].message,
        "container main uses 31 GiB of an 80 GiB GPU shared by 3; fair share 26.6 GiB (GPU 3)"
    );
    assert_eq!(
        alarms[0].pods,
        [PodId { namespace: "n".to_owned(), name: "a".to_owned(), uid: "uid-a".to_owned() }]
    );
    let marks = |usage: &Usage| {
        let tenants = usage.devices[0].units[0].tenants.iter();
        tenants.map(|tenant| tenant.is_over_share).collect::<Vec<_>>()
    };
    assert_eq!(marks(&usage), [true, false]);
    // Slightly below the share is not within it yet.
    let (alarms, usage) = at(&mut guard, 10, &[tenant("a", 26 * GIB)]);
    assert_eq!((alarms.len(), marks(&usage)), (0, vec![true]));
    let (alarms, usage) = at(&mut guard, 20, &[tenant("a", 25 * GIB)]);
    assert_eq!(alarms[0].reason, Reason::MemoryWithinShare);
    assert_eq!(marks(&usage), [false]);
}

#[test]
fn share_scales_with_replicas_and_is_absent_without_allocation() {
    let mut guard = Guard::default();
    let mut both = tenant("a", 50 * GIB);
    both.ids.push(ShareId::replica("GPU-a", 1));
    let mut without_ids = tenant("b", 28 * GIB);
    without_ids.ids.clear();
    let (alarms, usage) = at(&mut guard, 0, &[both, without_ids]);
    assert!(alarms.is_empty(), "{alarms:?}");
    assert!(usage.devices[0].units[0].tenants.iter().all(|one| !one.is_over_share));
}

#[test]
fn identical_alarm_is_suppressed_for_five_minutes() {
    let mut guard = Guard::default();
    let mut alarms = Vec::new();
    for seconds in 0..600 {
        let size = if seconds % 2 == 0 { 31 } else { 20 };
        alarms.extend(at(&mut guard, seconds, &[tenant("a", size * GIB)]).0);
    }
    let over = |alarm: &&Alarm| alarm.reason == Reason::MemoryOverShare;
    assert_eq!(alarms.iter().filter(over).count(), 2);
    assert_eq!(alarms.len(), 4);
}

#[test]
fn simultaneous_alarms_are_limited_by_budget() {
    let mut guard = Guard::default();
    let all: Vec<Tenant> = (0..400).map(|number| tenant(&format!("p{number}"), 27 * GIB)).collect();
    let (alarms, usage) = at(&mut guard, 0, &all);
    assert_eq!(alarms.len(), usize::try_from(BURST).unwrap());
    let marked = usage.devices[0].units[0].tenants.iter();
    assert_eq!(marked.filter(|tenant| tenant.is_over_share).count(), 400);
    // The others are reported over time, because they are still over their share.
    let later = (1..=400).flat_map(|step| at(&mut guard, step * 30, &all).0);
    let later = later.filter(|alarm| alarm.reason == Reason::MemoryOverShare);
    assert_eq!(later.count(), 400 - usize::try_from(BURST).unwrap());
}

#[test]
fn exhaustion_is_reported_for_each_device() {
    let mut guard = Guard::default();
    let full = [tenant("a", 40 * GIB), tenant("b", 39 * GIB + 600)];
    let mut both = usage(&full);
    let mut second = usage(&[tenant("a", GIB)]).devices;
    second[0].name = "GPU 4".to_owned();
    second[0].units[0].uuid = "GPU-b".to_owned();
    both.devices.extend(second);
    let places = |alarms: Vec<Alarm>| -> Vec<String> {
        let rooms = alarms.into_iter();
        let rooms = rooms.filter(|alarm| alarm.reason == Reason::MemoryNearlyExhausted);
        rooms.map(|alarm| alarm.message[..40].to_owned()).collect::<Vec<_>>()
    };
    let first = places(guard.check(Duration::ZERO, &mut both.clone()));
    let on_first = both.devices[0].units[0].clone();
    let unit = &mut both.devices[1].units[0];
    (unit.memory, unit.tenants) = (on_first.memory, on_first.tenants);
    let next = places(guard.check(Duration::from_mins(1), &mut both));
    assert_eq!((first.len(), next.len()), (1, 1));
    assert!(first[0].contains("GPU 3") && next[0].contains("GPU 4"));
}

#[test]
fn unknown_usage_keeps_reported_state() {
    let mut guard = Guard::default();
    let greedy = tenant("a", 31 * GIB);
    let unseen = Tenant { memory: None, ..greedy.clone() };
    assert_eq!(at(&mut guard, 0, std::slice::from_ref(&greedy)).0.len(), 1);
    let (alarms, usage) = at(&mut guard, 10, &[unseen]);
    assert!(alarms.is_empty(), "{alarms:?}");
    assert!(usage.devices[0].units[0].tenants[0].is_over_share);
    let (alarms, _) = at(&mut guard, 400, &[greedy]);
    assert!(alarms.is_empty(), "{alarms:?}");
}

#[test]
fn nearly_exhausted_alarm_names_all_tenants_largest_first() {
    let mut guard = Guard::default();
    let most = [tenant("a", 20 * GIB), tenant("b", 59 * GIB + 100)];
    let (alarms, _) = at(&mut guard, 0, &most);
    let full: Vec<&Alarm> =
        alarms.iter().filter(|alarm| alarm.reason == Reason::MemoryNearlyExhausted).collect();
    assert_eq!(full.len(), 1);
    assert_eq!(
        full[0].message,
        "924 MiB of 80 GiB free on GPU 3, shared by 3: n/b (main) 59 GiB, n/a (main) 20 GiB"
    );
    assert_eq!(full[0].pods.len(), 2);
    // The condition ends only when twice as much is free; then it can be reported again.
    for (seconds, used, expected) in [(400, 59, 0), (800, 57, 0), (1200, 60, 1)] {
        let tenants = [tenant("a", 20 * GIB), tenant("b", used * GIB)];
        let (alarms, usage) = at(&mut guard, seconds, &tenants);
        let full = alarms.iter().filter(|alarm| alarm.reason == Reason::MemoryNearlyExhausted);
        assert_eq!(full.count(), expected, "{seconds}");
        // The mark is removed when the condition ends, not when usage crosses the limit.
        let is_marked = usage.devices[0].units[0].is_nearly_exhausted;
        assert_eq!(is_marked, used != 57, "{seconds}");
    }
}

#[test]
fn marks_persist_without_new_readings() {
    let mut guard = Guard::default();
    let tenants = [tenant("a", 20 * GIB), tenant("b", 59 * GIB + 100)];
    let (_, marked) = at(&mut guard, 0, &tenants);
    let mut again = usage(&tenants);
    guard.apply_marks(&mut again);
    assert_eq!(again, marked);
    assert!(again.devices[0].units[0].is_nearly_exhausted);
    assert!(again.devices[0].units[0].tenants[0].is_over_share);
}

#[test]
fn compute_instances_of_one_gpu_instance_raise_one_alarm() {
    let mut guard = Guard::default();
    let mut usage = usage(&[tenant("a", 50 * GIB), tenant("b", GIB)]);
    let device = &mut usage.devices[0];
    let mut second = device.units[0].clone();
    second.uuid = "GPU-b".to_owned();
    // The same pod holds both units, with different containers.
    second.tenants = vec![Tenant { container: Some("side".to_owned()), ..tenant("a", 28 * GIB) }];
    for (unit, ci) in [(&mut device.units[0], 0), (&mut second, 1)] {
        unit.gpu_instance = Some(1);
        unit.compute_instance = Some(ci);
        (unit.replicas, unit.fair_share) = (None, None);
        unit.memory =
            unit.memory.map(|memory| MemoryUse { used: Mebibytes::new(79 * GIB + 500), ..memory });
    }
    device.units.push(second);
    let alarms = guard.check(Duration::ZERO, &mut usage);
    assert_eq!(alarms.len(), 1, "{alarms:?}");
    assert_eq!(
        alarms[0].message,
        "524 MiB of 80 GiB free on GPU instance 1 of GPU 3, shared by 2: n/a (main) 50 GiB, n/a (side) 28 GiB, n/b \
         (main) 1 GiB"
    );
    let pods = alarms[0].pods.iter().map(|pod| pod.name.as_str());
    assert_eq!(pods.collect::<Vec<_>>(), ["a", "b"]);
    let units = &usage.devices[0].units;
    assert!(units.iter().all(|unit| unit.is_nearly_exhausted));
}

#[test]
fn unshared_unit_raises_no_exhaustion_alarm() {
    let mut guard = Guard::default();
    let mut usage = usage(&[tenant("a", 80 * GIB)]);
    usage.devices[0].units[0].replicas = None;
    usage.devices[0].units[0].fair_share = None;
    assert_eq!(guard.check(Duration::ZERO, &mut usage), []);
    assert!(!usage.devices[0].units[0].is_nearly_exhausted);
}

#[test]
fn small_partition_uses_five_percent_threshold() {
    let of = |total| {
        low_memory_threshold(MemoryUse { total: Mebibytes::new(total), ..MemoryUse::default() })
    };
    assert_eq!(of(4864), 243);
    assert_eq!(of(20 * GIB), 1024);
    assert_eq!(of(180 * GIB), 1024);
}

#[test]
fn exhaustion_is_estimated_for_steady_growth_within_an_hour() {
    let run = |readings: u64, step: u64, of: &dyn Fn(u64) -> u64| {
        let mut guard = Guard::default();
        let mut last = None;
        for reading in 0..readings {
            let (_, usage) = at(&mut guard, reading * step, &[tenant("a", of(reading))]);
            last = usage.devices[0].units[0].exhausted_in;
        }
        last
    };
    // 100 MiB/s: 79 GiB less 10000 MiB are free after the last reading.
    assert_eq!(run(11, 10, &|reading| GIB + reading * 1000), Some(708));
    assert_eq!(run(5, 10, &|reading| GIB + reading * 1000), None, "too few readings");
    assert_eq!(run(11, 1, &|reading| GIB + reading * 1000), None, "too short a time");
    assert_eq!(run(11, 10, &|reading| 40 * GIB - reading * 10), None, "usage decreases");
    assert_eq!(run(11, 10, &|_| GIB), None, "usage is constant");
    assert_eq!(run(11, 10, &|reading| GIB + reading), None, "more than an hour");
    assert_eq!(
        run(11, 10, &|reading| if reading < 5 { GIB } else { 60 * GIB }),
        None,
        "a single step"
    );
}

#[test]
fn absent_tenants_are_forgotten() {
    let mut guard = Guard::default();
    at(&mut guard, 0, &[tenant("a", 31 * GIB)]);
    guard.check(Duration::from_secs(301), &mut Usage::default());
    assert!(guard.over.is_empty() && guard.nearly_exhausted.is_empty() && guard.slopes.is_empty());
    assert!(guard.last_alarms.is_empty() && guard.reported.is_empty());
}

#[test]
fn messages_are_truncated_at_character_boundaries() {
    let mut long = "é".repeat(800);
    truncate_message(&mut long);
    assert!(long.len() <= MAX_MESSAGE_BYTES && long.ends_with('…'));
}
