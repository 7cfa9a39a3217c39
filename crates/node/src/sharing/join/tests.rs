//! Attribution of processes to pods.

mod names;
mod sums;
mod visibility;

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Process, ProcessKind};
use octavo_model::reading::{DeviceMetrics, MemoryUse, PartitionReading, ProcessUtilization};
use octavo_model::resource::ResourceName;

use super::*;
use crate::sharing::offer::{Offer, Partition, Unit};

const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";
const PARTS: [&str; 3] = [
    "MIG-11111111-2222-3333-4444-555555555550",
    "MIG-11111111-2222-3333-4444-555555555551",
    "MIG-11111111-2222-3333-4444-555555555552",
];

fn memory(total: u64, used: u64) -> MemoryUse {
    MemoryUse {
        total: Mebibytes::new(total),
        used: Mebibytes::new(used),
        reserved: Mebibytes::new(500),
    }
}

fn process(pid: u32, memory: u64) -> Process {
    Process {
        pid,
        kind: ProcessKind::Compute,
        gpu_instance: None,
        compute_instance: None,
        memory: Some(Mebibytes::new(memory)),
    }
}

fn whole(used: u64, processes: &[Process]) -> Reading {
    Reading {
        pci: PciAddress::new(0, 7, 0, 0).unwrap(),
        uuid: Some(GPU.parse().unwrap()),
        index: Some(0),
        minor: Some(0),
        product_name: None,
        memory: Some(memory(81_920, used)),
        is_partitioned: false,
        partitions: Vec::new(),
        processes: Some(processes.to_vec()),
        process_utilization: Vec::new(),
        metrics: DeviceMetrics::default(),
    }
}

/// GPU instance 1 with two compute instances, and 2 with one.
fn divided(used: [u64; 2], processes: &[Process]) -> Reading {
    let part = |(uuid, (gi, ci)): (&&str, (u32, u32))| PartitionReading {
        gpu_instance: gi,
        compute_instance: ci,
        uuid: (*uuid).to_owned(),
        profile: Some("1g.10gb".to_owned()),
        memory: Some(memory(40_960, if gi == 1 { used[0] } else { used[1] })),
        compute: Some(Percent(if gi == 1 { 70 } else { 30 })),
    };
    Reading {
        is_partitioned: true,
        partitions: PARTS.iter().zip([(1, 0), (1, 1), (2, 0)]).map(part).collect(),
        ..whole(used[0] + used[1], processes)
    }
}

fn within(pid: u32, place: (u32, Option<u32>), memory: u64) -> Process {
    Process { gpu_instance: Some(place.0), compute_instance: place.1, ..process(pid, memory) }
}

fn allocation(pod: &str, container: &str, id: &str) -> Allocation {
    Allocation {
        device: DeviceAllocation {
            namespace: "n".to_owned(),
            pod: pod.to_owned(),
            container: container.to_owned(),
            resource: "nvidia.com/gpu".to_owned(),
            device_id: id.to_owned(),
            claim: None,
        },
        uid: None,
    }
}

fn known(pod: &str, id: &str) -> Allocation {
    Allocation { uid: Some(format!("uid-{pod}")), ..allocation(pod, "main", id) }
}

fn replica(number: u32) -> String {
    format!("{GPU}::{number}")
}

fn of(uid: &str) -> ProcessOrigin {
    ProcessOrigin::Pod { uid: uid.to_owned(), container: Some("c".to_owned()) }
}

fn seen(all: &[(u32, ProcessOrigin)]) -> PodAttribution {
    PodAttribution::Inspected(all.iter().cloned().collect())
}

fn shared(replicas: u32) -> Offers {
    let unit = |uuid: &str, partition: Option<Partition>| Unit {
        uuid: uuid.to_owned(),
        pci: PciAddress::new(0, 7, 0, 0).unwrap(),
        partition,
        replicas: Some(replicas),
        memory: Some(Mebibytes::new(81_920)),
        memory_per_replica: None,
        numa_node: None,
    };
    Offers {
        resources: vec![Offer {
            name: ResourceName::gpu(),
            fail_requests_greater_than_one: false,
            units: vec![unit(GPU, None)],
        }],
    }
}

fn join_one(reading: &Reading, allocations: &[Allocation], attribution: &PodAttribution) -> Usage {
    let offers = shared(3);
    join(&UsageInput {
        readings: std::slice::from_ref(reading),
        offers: &offers,
        allocations,
        is_current: true,
        attribution,
    })
}

/// Pod (or UID, or pid), number of ids, and memory of each tenant of a unit.
fn tenants(usage: &Usage, unit: usize) -> Vec<(String, usize, Option<u64>)> {
    let all = usage.devices[0].units[unit].tenants.iter();
    all.map(|tenant| {
        let who = tenant.pod.clone().or_else(|| tenant.uid.clone());
        let who = who.unwrap_or_else(|| format!("{:?}", tenant.processes));
        (who, tenant.ids.len(), tenant.memory.map(Mebibytes::get))
    })
    .collect()
}

fn rest(usage: &Usage, unit: usize) -> Option<u64> {
    usage.devices[0].units[unit].unattributed.map(Mebibytes::get)
}

#[track_caller]
fn are(usage: &Usage, unit: usize, expected: &[(&str, usize, Option<u64>)]) {
    let expected: Vec<_> =
        expected.iter().map(|(who, ids, memory)| ((*who).to_owned(), *ids, *memory)).collect();
    assert_eq!(tenants(usage, unit), expected, "{usage:#?}");
}

#[test]
fn power_and_temperature_are_those_of_the_driver() {
    let metrics =
        |power_mw, temperature| DeviceMetrics { power_mw, temperature, ..DeviceMetrics::default() };
    for (metrics, expected) in [
        (metrics(Some(69_499), Some(34)), (Some(69), Some(34))),
        (metrics(Some(69_500), Some(0)), (Some(70), Some(0))),
        (metrics(Some(u32::MAX), None), (Some(4_294_967), None)),
        (metrics(None, None), (None, None)),
    ] {
        let reading = Reading { metrics, ..whole(0, &[]) };
        let usage = join_one(&reading, &[], &PodAttribution::Hidden);
        let device = &usage.devices[0];
        assert_eq!((device.power_watts, device.temperature_celsius), expected);
    }
}

#[test]
fn replicas_are_attributed_by_uid_and_rest_is_unattributed() {
    let reading = whole(10_000, &[process(1, 3000), process(2, 5000), process(3, 1000)]);
    let pods = [known("a", &replica(0)), known("b", &replica(1)), known("b", &replica(2))];
    let attribution = seen(&[(1, of("uid-a")), (2, of("uid-b")), (3, of("uid-b"))]);
    let usage = join_one(&reading, &pods, &attribution);
    are(&usage, 0, &[("b", 2, Some(6000)), ("a", 1, Some(3000))]);
    assert_eq!(rest(&usage, 0), Some(1000));
    assert_eq!(usage.missing, [""; 0]);
    let unit = &usage.devices[0].units[0];
    assert_eq!(unit.fair_share, Some(Mebibytes::new(27_306)));
    assert_eq!(unit.tenants[0].processes, [2, 3]);
}

#[test]
fn process_with_compute_and_graphics_counts_once() {
    let mut drawing = process(1, 700);
    drawing.kind = ProcessKind::Graphics;
    let reading = whole(1000, &[process(1, 700), drawing]);
    let usage = join_one(&reading, &[known("a", &replica(0))], &seen(&[(1, of("uid-a"))]));
    are(&usage, 0, &[("a", 1, Some(700))]);
    assert_eq!(rest(&usage, 0), Some(300));
}

#[test]
fn hidden_processes_are_attributed_to_sole_holder_only() {
    let reading = whole(1000, &[process(1, 600), process(2, 300)]);
    let alone = join_one(&reading, &[allocation("a", "main", GPU)], &PodAttribution::Hidden);
    are(&alone, 0, &[("a", 1, Some(900))]);
    assert_eq!(rest(&alone, 0), Some(100));
    // On a shared unit, a process left by another pod is not attributed to the last one.
    let last = join_one(&reading, &[allocation("a", "main", &replica(0))], &PodAttribution::Hidden);
    are(&last, 0, &[("a", 1, None)]);
    let pods = [allocation("a", "main", &replica(0)), allocation("b", "main", &replica(1))];
    let both = join_one(&reading, &pods, &PodAttribution::Hidden);
    are(&both, 0, &[("a", 1, None), ("b", 1, None)]);
    assert_eq!(rest(&both, 0), Some(1000));
    assert_eq!(both.missing.len(), 1);
    assert!(both.missing[0].contains("hostPID"), "{:?}", both.missing);
}

#[test]
fn changes_between_sources_give_consistent_usage() {
    let reading = whole(1000, &[process(1, 100), process(2, 200), process(3, 300)]);
    // 1 has ended, b has no process yet, 2 belongs to a pod that is no longer listed, 3 to no pod.
    let pods = [known("b", &replica(0))];
    let attribution =
        seen(&[(1, ProcessOrigin::Gone), (2, of("uid-gone")), (3, ProcessOrigin::NoPod)]);
    let usage = join_one(&reading, &pods, &attribution);
    are(&usage, 0, &[("[3]", 0, Some(300)), ("uid-gone", 0, Some(200)), ("b", 1, Some(0))]);
    assert_eq!(rest(&usage, 0), Some(500));
}

#[test]
fn process_sum_overrides_lower_device_usage() {
    let usage = join_one(
        &whole(100, &[process(1, 700)]),
        &[known("a", &replica(0))],
        &seen(&[(1, of("uid-a"))]),
    );
    let device = &usage.devices[0];
    assert_eq!(device.memory.unwrap().used, Mebibytes::new(700));
    assert_eq!(device.units[0].memory.unwrap().used, Mebibytes::new(700));
    assert_eq!(device.unattributed(), Some(Mebibytes::new(0)));
}

#[test]
fn partitions_share_memory_of_gpu_instance() {
    let reading = divided(
        [2000, 700],
        &[
            within(1, (1, Some(0)), 1000),
            within(2, (1, Some(1)), 400),
            within(3, (1, None), 100),
            within(4, (2, None), 600),
        ],
    );
    let older = format!("MIG-{GPU}/1/1");
    let pods = [known("a", PARTS[0]), known("b", &older), known("c", PARTS[2])];
    let attribution =
        seen(&[(1, of("uid-a")), (2, of("uid-b")), (3, of("uid-b")), (4, of("uid-c"))]);
    let usage = join_one(&reading, &pods, &attribution);
    are(&usage, 0, &[("a", 1, Some(1000))]);
    are(&usage, 1, &[("b", 1, Some(400))]);
    are(&usage, 2, &[("c", 1, Some(600))]);
    // A process without a compute instance is not attributed to either of the two that share the instance.
    assert_eq!([0, 1, 2].map(|unit| rest(&usage, unit)), [600, 600, 100].map(Some));
    assert_eq!(usage.devices[0].unattributed(), Some(Mebibytes::new(700)));
}
