//! Rules, one by one.

use octavo_model::id::NodeName;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent};
use octavo_model::resource::ShareId;
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage};

use crate::{
    Activity, Container, Device, DeviceState, Holder, MeasuredPart, Method, PPM, Part, Recorder,
    parts,
};

const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

fn memory(total: u64) -> MemoryUse {
    let none = Mebibytes::default();
    MemoryUse { total: Mebibytes::new(total), used: none, reserved: none }
}

fn tenant(pod: &str, replicas: &[u32], processes: &[u32]) -> Tenant {
    let whole = || vec![ShareId::whole(GPU)];
    let ids: Vec<_> = replicas.iter().map(|number| ShareId::replica(GPU, *number)).collect();
    Tenant {
        namespace: Some("team".to_owned()),
        pod: Some(pod.to_owned()),
        ids: if ids.is_empty() { whole() } else { ids },
        memory: Some(Mebibytes::default()),
        processes: processes.to_vec(),
        ..Tenant::default()
    }
}

fn unit(place: Option<(u32, u32)>, profile: &str, total: u64, tenants: Vec<Tenant>) -> UnitUsage {
    UnitUsage {
        uuid: place.map_or_else(|| GPU.to_owned(), |(gi, ci)| format!("MIG-{gi}-{ci}")),
        gpu_instance: place.map(|(gi, _)| gi),
        compute_instance: place.map(|(_, ci)| ci),
        profile: place.map(|_| profile.to_owned()),
        memory: Some(memory(total)),
        tenants,
        ..UnitUsage::default()
    }
}

fn device(units: Vec<UnitUsage>) -> DeviceUsage {
    DeviceUsage {
        pci: "0000:07:00.0".parse().unwrap(),
        name: "GPU 0".to_owned(),
        memory: Some(memory(81_559)),
        utilization: Some(Percent(70)),
        power_watts: None,
        temperature_celsius: None,
        units,
    }
}

/// Holder, method, share, activity and utilization of each part.
fn shown(device: &DeviceUsage) -> Vec<(String, Method, u32, Activity, Option<u8>)> {
    let parts = parts(Some(device), |tenant| Container {
        pod: tenant.pod.clone().unwrap_or_default(),
        ..Container::default()
    });
    assert_eq!(parts.iter().map(|one| one.part.ppm).sum::<u32>(), PPM);
    let parts = parts.into_iter().map(|one| {
        let holder = match one.part.holder {
            Holder::Container(container) => container.pod.clone(),
            Holder::Unallocated => "-".to_owned(),
            Holder::Unknown => "?".to_owned(),
        };
        (holder, one.part.method, one.part.ppm, one.part.activity, one.percent)
    });
    parts.collect()
}

fn row(
    pod: &str,
    method: Method,
    ppm: u32,
    activity: Activity,
) -> (String, Method, u32, Activity, Option<u8>) {
    (pod.to_owned(), method, ppm, activity, None)
}

use Activity::{Active, Idle, Unknown};
use Method::{MigMemorySlices, TimeSlicingReplicas, WholeDevice};

#[test]
fn whole_device_belongs_to_its_pod() {
    let train = shown(&device(vec![unit(None, "", 81_559, vec![tenant("train", &[], &[7])])]));
    assert_eq!(train, [("train".to_owned(), WholeDevice, PPM, Active, Some(70))]);
    let free = shown(&device(vec![unit(None, "", 81_559, Vec::new())]));
    assert_eq!(free, [row("-", WholeDevice, PPM, Unknown)]);
    assert_eq!(shown(&device(Vec::new())), [row("-", WholeDevice, PPM, Unknown)]);
    // Containers share a device through a resource claim.
    let tenants = vec![tenant("a", &[], &[]), tenant("b", &[], &[]), tenant("c", &[], &[])];
    let shared = shown(&device(vec![unit(None, "", 81_559, tenants)]));
    let ppm: Vec<u32> = shared.iter().map(|one| one.2).collect();
    assert_eq!(ppm, [333_334, 333_333, 333_333]);
}

#[test]
fn partitions_have_the_share_of_their_memory_slices() {
    let units = vec![
        unit(Some((1, 0)), "3g.40gb", 40_448, vec![tenant("train", &[], &[7])]),
        unit(Some((9, 0)), "1g.10gb", 9_984, vec![tenant("notebook", &[], &[])]),
        unit(Some((10, 0)), "1g.10gb", 9_984, Vec::new()),
    ];
    let mut rows = shown(&device(units));
    rows.sort();
    let expected = [
        row("-", MigMemorySlices, 125_000, Unknown),
        row("-", MigMemorySlices, 250_000, Unknown),
        row("notebook", MigMemorySlices, 125_000, Idle),
        row("train", MigMemorySlices, 500_000, Active),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn compute_instances_share_the_slices_of_their_gpu_instance() {
    let units = vec![
        unit(Some((1, 0)), "1c.3g.40gb", 40_448, vec![tenant("small", &[], &[7])]),
        unit(Some((1, 1)), "2c.3g.40gb", 40_448, vec![tenant("large", &[], &[8])]),
    ];
    let mut rows = shown(&device(units));
    rows.sort();
    let expected = [
        row("-", MigMemorySlices, 500_000, Unknown),
        row("large", MigMemorySlices, 333_333, Active),
        row("small", MigMemorySlices, 166_667, Active),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn replicas_have_equal_shares() {
    let tenants = vec![tenant("a", &[0, 2], &[7]), tenant("b", &[1], &[])];
    let shared = UnitUsage { replicas: Some(4), ..unit(None, "", 81_559, tenants) };
    let mut rows = shown(&device(vec![shared.clone()]));
    rows.sort();
    let expected = [
        row("-", TimeSlicingReplicas, 250_000, Unknown),
        row("a", TimeSlicingReplicas, 500_000, Active),
        row("b", TimeSlicingReplicas, 250_000, Idle),
    ];
    assert_eq!(rows, expected);
    // Without the number of replicas, the allocated ones are all that is known.
    let mut rows = shown(&device(vec![UnitUsage { replicas: None, ..shared.clone() }]));
    rows.sort();
    assert_eq!(rows.iter().map(|one| one.2).collect::<Vec<_>>(), [666_667, 333_333]);
    // More allocations than replicas share the device.
    let rows = shown(&device(vec![UnitUsage { replicas: Some(1), ..shared }]));
    assert_eq!(rows.len(), 2);
}

#[test]
fn contradictory_reports_are_unknown() {
    let whole = unit(None, "", 81_559, Vec::new());
    let part = unit(Some((1, 0)), "7g.80gb", 81_000, Vec::new());
    let no_memory = UnitUsage { memory: None, ..part.clone() };
    let too_much = UnitUsage { gpu_instance: Some(2), ..part.clone() };
    for units in [
        vec![whole.clone(), whole.clone()],
        vec![whole, part.clone()],
        vec![no_memory],
        vec![part, too_much],
    ] {
        assert_eq!(shown(&device(units)), [row("?", WholeDevice, PPM, Unknown)]);
    }
}

/// A scan that found the name of a pod that ended with the UID of the next one must not determine the name of the latter.
#[test]
fn f5_usage_belongs_to_the_pod_with_the_reported_name() {
    let node: NodeName = "gpu-1".parse().unwrap();
    let mut recorder = Recorder::default();
    for (at, pod, uid, owner) in [
        (0, "first", "a", true),
        (10, "first", "b", true),
        (20, "second", "b", false),
        (30, "second", "b", true),
        (40, "second", "b", false),
        (50, "second", "b", false),
    ] {
        let container = Container {
            namespace: "team".to_owned(),
            pod: pod.to_owned(),
            uid: uid.to_owned(),
            team: owner.then(|| format!("of-{pod}")),
            ..Container::default()
        };
        let part = Part::whole(Holder::Container(container.into()));
        let parts = vec![MeasuredPart::new(part, None)];
        let device = Device { node: node.clone(), id: GPU.to_owned(), price_key: None };
        recorder.observe(&node, at, 60, vec![DeviceState { device, parts }]);
    }
    let intervals = recorder.take_changed().into_iter().map(|one| {
        let container = one.part.holder.container().unwrap();
        (one.start, one.end, container.pod.clone(), container.team.clone())
    });
    let intervals: Vec<_> = intervals.collect();
    let team = |pod: &str| Some(format!("of-{pod}"));
    assert_eq!(
        intervals,
        [
            (0, 10, "first".to_owned(), team("first")),
            (10, 20, "first".to_owned(), team("first")),
            (20, 30, "second".to_owned(), None),
            (30, 50, "second".to_owned(), team("second")),
        ]
    );
}
