//! Slices of example nodes, compared with the limits and conventions of the API.

use octavo_model::catalog::Placement;
use octavo_model::inventory::{
    Completeness, Condition, LinkRemote, Mig, MigMode, NvLink, NvmlState, Process, ProcessKind,
};
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{
    DeviceTarget, MigTarget, Share, ShareTarget, TargetScope, Targets, TimeSlicing,
};
use serde_json::{Value, json};

use super::*;
use crate::tests_support::{gpu, node, partitioned};

const A100: &str = "A100_80GB";
const RTX: &str = "RTX_PRO_6000_BLACKWELL_96GB";

struct Case {
    inventory: Inventory,
    rules: ClaimRules,
    claimed: BTreeSet<DeviceName>,
    faulty: BTreeSet<DeviceName>,
}

impl Case {
    fn new(devices: impl IntoIterator<Item = Device>) -> Self {
        Self {
            inventory: node(devices),
            rules: ClaimRules::default(),
            claimed: BTreeSet::new(),
            faulty: BTreeSet::new(),
        }
    }

    fn slices(&self) -> Vec<ResourceSlice> {
        let roots = [("0000:01:00.0".parse().unwrap(), "pci0000:00".to_owned())].into();
        NodeDevices {
            node: &"node-1".parse().unwrap(),
            inventory: &self.inventory,
            rules: &self.rules,
            claimed: &self.claimed,
            faulty: &self.faulty,
            pcie_roots: &roots,
        }
        .slices()
    }

    /// The values of the taints of each tainted device, by the part of its name after the GPU.
    fn taints(&self) -> BTreeMap<String, String> {
        let devices =
            self.slices().into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
        let tainted = devices.filter_map(|device| {
            let taints = device.taints?;
            let each = taints.into_iter().map(|taint| {
                assert_eq!(taint.effect, "NoSchedule");
                format!("{}={}", taint.key, taint.value.unwrap())
            });
            let name = device.name.trim_start_matches("gpu-0000-01-00-0").to_owned();
            Some((name, each.collect::<Vec<_>>().join(" ")))
        });
        tainted.collect()
    }
}

fn at(start: u32, size: u32) -> Placement {
    Placement { start, size }
}

fn process(gpu_instance: Option<u32>) -> Process {
    let compute_instance = gpu_instance.map(|_| 0);
    Process { pid: 7, kind: ProcessKind::Compute, gpu_instance, compute_instance, memory: None }
}

#[test]
fn each_partitioned_gpu_has_counters_and_a_slice_and_whole_gpus_come_last() {
    let mut off = partitioned("0000:01:00.0", A100, &[]);
    let Mig::Capable(state) = &mut off.mig else { panic!() };
    state.current = MigMode::Disabled;
    let case = Case::new([
        off,
        partitioned("0000:02:00.0", A100, &[]),
        gpu("0000:03:00.0"),
        partitioned("0000:04:00.0", RTX, &[]),
    ]);
    let slices = case.slices();
    let counts: Vec<(String, usize, usize)> = slices
        .iter()
        .map(|slice| {
            let spec = &slice.spec;
            assert_eq!((spec.driver.as_str(), spec.pool.resource_slice_count), (DRIVER, 4));
            assert_eq!(spec.pool.name, "node-1/gpu.octavo.dev");
            assert_eq!(spec.node_name.as_deref(), Some("node-1"));
            let sets = spec.shared_counters.as_ref().map_or(0, Vec::len);
            let devices = spec.devices.as_ref().map_or(0, Vec::len);
            (slice.metadata.name.clone().unwrap(), sets, devices)
        })
        .collect();
    let name = |number: usize| format!("node-1-gpu.octavo.dev-00{number}");
    assert_eq!(counts, [(name(0), 2, 0), (name(1), 0, 25), (name(2), 0, 30), (name(3), 0, 2)]);
    let sets = slices[0].spec.shared_counters.as_ref().unwrap();
    assert_eq!(sets[0].counters.len(), 8 + 6, "an A100 has no encoders");
    assert_eq!(sets[1].counters.len(), 12 + 7);
}

#[test]
fn eight_gpus_fill_one_slice_of_counters_and_a_ninth_begins_another() {
    let gpus = |count: u32| {
        let each = (1..=count).map(|bus| partitioned(&format!("0000:{bus:02x}:00.0"), A100, &[]));
        Case::new(each).slices()
    };
    let sets = |slices: &[ResourceSlice]| {
        let of = |slice: &ResourceSlice| slice.spec.shared_counters.as_ref().map(Vec::len);
        slices.iter().filter_map(of).collect::<Vec<_>>()
    };
    let (eight, nine) = (gpus(8), gpus(9));
    assert_eq!((eight.len(), sets(&eight)), (9, vec![8]));
    assert_eq!((nine.len(), sets(&nine)), (11, vec![8, 1]));
    let many: Vec<Device> = (0..70).map(|bus| gpu(&format!("0000:{bus:02x}:00.0"))).collect();
    let devices = Case::new(many).slices();
    let counts: Vec<usize> =
        devices.iter().map(|slice| slice.spec.devices.as_ref().unwrap().len()).collect();
    assert_eq!(counts, [64, 6]);
}

#[test]
fn device_is_described_as_by_nvidias_driver() {
    let mut device = partitioned("0000:01:00.0", A100, &[]);
    device.uuid = Some("GPU-5fd4087b-86f3-7a43-b711-4771313afc50".parse().unwrap());
    device.product_name = Some("NVIDIA A100-SXM4-80GB".to_owned());
    device.architecture = Some(octavo_model::inventory::Architecture::new("ampere"));
    device.compute_capability = Some("8.0".parse().unwrap());
    device.numa_node = Some(3);
    let slices = Case::new([device.clone()]).slices();
    let found = slices[1].spec.devices.as_ref().unwrap();
    let found = found.iter().find(|one| one.name == "gpu-0000-01-00-0-mig-3g40gb-9-4").unwrap();
    let attributes = json!({
        "gpu.nvidia.com/type": {"string": "mig"},
        "gpu.nvidia.com/profile": {"string": "3g.40gb"},
        "gpu.nvidia.com/parentUUID": {"string": "GPU-5fd4087b-86f3-7a43-b711-4771313afc50"},
        "gpu.nvidia.com/productName": {"string": "NVIDIA A100-SXM4-80GB"},
        "gpu.nvidia.com/architecture": {"string": "Ampere"},
        "gpu.nvidia.com/cudaComputeCapability": {"version": "8.0.0"},
        "gpu.nvidia.com/driverVersion": {"version": "535.104.5"},
        "gpu.nvidia.com/cudaDriverVersion": {"version": "12.2.0"},
        "resource.kubernetes.io/pciBusID": {"string": "0000:01:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
        "resource.kubernetes.io/numaNode": {"int": 3},
        "gpu.octavo.dev/gpuSlices": {"int": 3},
        "gpu.octavo.dev/placementStart": {"int": 4},
        "gpu.octavo.dev/placementSize": {"int": 4},
    });
    assert_eq!(serde_json::to_value(&found.attributes).unwrap(), attributes);
    let capacity = json!({
        "gpu.nvidia.com/memory": {"value": "40192Mi"},
        "gpu.nvidia.com/multiprocessors": {"value": "42"},
        "gpu.nvidia.com/copyEngines": {"value": "3"},
        "gpu.nvidia.com/decoders": {"value": "2"},
        "gpu.nvidia.com/encoders": {"value": "0"},
        "gpu.nvidia.com/jpegEngines": {"value": "0"},
        "gpu.nvidia.com/ofaEngines": {"value": "0"},
    });
    assert_eq!(serde_json::to_value(&found.capacity).unwrap(), capacity);
    let counters = json!([{"counterSet": "gpu-0000-01-00-0-counter-set", "counters": {
        "memory-slice-4": {"value": "1"}, "memory-slice-5": {"value": "1"},
        "memory-slice-6": {"value": "1"}, "memory-slice-7": {"value": "1"},
        "multiprocessors": {"value": "42"}, "copy-engines": {"value": "3"},
        "decoders": {"value": "2"}, "memory": {"value": "40192Mi"},
    }}]);
    assert_eq!(serde_json::to_value(&found.consumes_counters).unwrap(), counters);

    device.mig = Mig::NotCapable;
    let slices = Case::new([device]).slices();
    let whole: Value = serde_json::to_value(&slices[0].spec.devices.as_ref().unwrap()[0]).unwrap();
    assert_eq!(whole["name"], "gpu-0000-01-00-0");
    assert_eq!(whole["attributes"]["gpu.nvidia.com/type"], json!({"string": "gpu"}));
    assert_eq!(whole["attributes"]["gpu.nvidia.com/uuid"], attributes["gpu.nvidia.com/parentUUID"]);
    assert_eq!(whole["capacity"], json!({"gpu.nvidia.com/memory": {"value": "80Gi"}}));
    assert_eq!(whole.get("consumesCounters"), None);
}

#[test]
fn every_device_is_within_the_limits_of_the_api() {
    let case = Case::new([partitioned("0000:01:00.0", RTX, &[]), gpu("0000:02:00.0")]);
    for slice in case.slices() {
        for device in slice.spec.devices.unwrap_or_default() {
            let attributes = device.attributes.unwrap_or_default();
            let capacities = device.capacity.unwrap_or_default();
            assert!(attributes.len() + capacities.len() <= 32, "{}", device.name);
            for name in attributes.keys().chain(capacities.keys()) {
                let (domain, id) = name.split_once('/').unwrap();
                assert!(domain.len() <= 63 && id.len() <= 32, "{name}");
            }
        }
    }
}

#[test]
fn covered_gpus_are_omitted_and_a_node_without_devices_has_no_slices() {
    let mut case = Case::new([partitioned("0000:01:00.0", A100, &[]), gpu("0000:02:00.0")]);
    case.rules.covered.insert("0000:01:00.0".parse().unwrap());
    let slices = case.slices();
    assert_eq!(slices.len(), 1);
    assert_eq!(slices[0].spec.devices.as_ref().unwrap()[0].name, "gpu-0000-02-00-0");
    case.rules.covered.insert("0000:02:00.0".parse().unwrap());
    assert!(case.slices().is_empty());
}

#[test]
fn devices_of_an_unhealthy_gpu_are_tainted_with_its_state() {
    let mut failing = gpu("0000:01:00.0");
    failing.condition = Condition::Failing { reason: "GPU is lost".to_owned() };
    let mut case = Case::new([failing]);
    assert_eq!(case.taints(), [(String::new(), "octavo.dev/unhealthy=failing".to_owned())].into());
    case.inventory = node([partitioned("0000:01:00.0", A100, &[])]);
    assert!(case.taints().is_empty());
    let driver = case.inventory.nvml.driver().cloned();
    case.inventory.nvml = NvmlState::Stalled { call: "nvmlInit".to_owned(), driver };
    assert_eq!(case.taints().len(), 25);
    assert!(case.taints().values().all(|taint| taint == "octavo.dev/unhealthy=stale"));
    case.inventory = node([partitioned("0000:01:00.0", A100, &[])]);
    let Mig::Capable(state) = &mut case.inventory.devices[0].mig else { panic!() };
    state.geometry = Completeness::Partial;
    assert!(case.taints().values().all(|one| one == "octavo.dev/unhealthy=partitions-unknown"));
    assert_eq!(case.taints().len(), 25);
    // An error that a device reported does not hide the state of its GPU.
    let faulty = "gpu-0000-01-00-0-mig-3g40gb-9-4";
    case.faulty.insert(faulty.parse().unwrap());
    assert!(case.taints().values().all(|one| one == "octavo.dev/unhealthy=partitions-unknown"));
    case.inventory = node([partitioned("0000:01:00.0", A100, &[])]);
    let taint = "octavo.dev/unhealthy=reported-error".to_owned();
    assert_eq!(case.taints(), [("-mig-3g40gb-9-4".to_owned(), taint)].into());
}

#[test]
fn partition_without_a_claim_taints_what_cannot_exist_beside_it() {
    let mut case = Case::new([partitioned("0000:01:00.0", A100, &[(9, at(4, 4), &[3])])]);
    let foreign = "octavo.dev/occupied=foreign-partition";
    let excluded: Vec<String> = case.taints().into_keys().collect();
    assert!(case.taints().values().all(|taint| taint == foreign));
    assert_eq!(
        excluded,
        [
            "-mig-1g10gb-19-4",
            "-mig-1g10gb-19-5",
            "-mig-1g10gb-19-6",
            "-mig-1g10gbme-20-4",
            "-mig-1g10gbme-20-5",
            "-mig-1g10gbme-20-6",
            "-mig-1g20gb-15-4",
            "-mig-1g20gb-15-6",
            "-mig-2g20gb-14-4",
            "-mig-7g80gb-0-0",
        ]
    );
    // The same device is available, because a claim can adopt the idle partition; one in use is not.
    case.inventory.devices[0].processes.push(process(Some(1)));
    let taints = case.taints();
    assert_eq!(taints.len(), 11);
    assert_eq!(taints["-mig-3g40gb-9-4"], "octavo.dev/occupied=in-use");
    // A claim that holds the partition is charged by the scheduler.
    case.claimed.insert("gpu-0000-01-00-0-mig-3g40gb-9-4".parse().unwrap());
    assert!(case.taints().is_empty());
}

#[test]
fn split_or_incomplete_partition_cannot_be_adopted() {
    for parts in [&[][..], &[1, 2][..], &[2][..]] {
        let case = Case::new([partitioned("0000:01:00.0", A100, &[(9, at(0, 4), parts)])]);
        assert!(case.taints().contains_key("-mig-3g40gb-9-0"), "{parts:?}");
    }
}

#[test]
fn whole_gpu_in_use_without_a_claim_is_tainted() {
    let mut device = gpu("0000:01:00.0");
    device.processes.push(process(None));
    let mut case = Case::new([device]);
    assert_eq!(case.taints(), [(String::new(), "octavo.dev/occupied=in-use".to_owned())].into());
    case.claimed.insert("gpu-0000-01-00-0".parse().unwrap());
    assert!(case.taints().is_empty());
}

#[test]
fn linked_gpus_name_the_first_gpu_of_their_domain() {
    let mut devices = ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"].map(gpu);
    let pci = |device: &Device| device.pci;
    let (one, other) = (pci(&devices[0]), pci(&devices[1]));
    devices[0].links.push(NvLink { link: 0, remote: LinkRemote::Device(other) });
    devices[1].links.push(NvLink { link: 0, remote: LinkRemote::Device(one) });
    let slices = Case::new(devices).slices();
    let domains: Vec<Option<String>> = slices[0]
        .spec
        .devices
        .as_ref()
        .unwrap()
        .iter()
        .map(|device| {
            device.attributes.as_ref()?.get("gpu.octavo.dev/nvlinkDomain")?.string.clone()
        })
        .collect();
    assert_eq!(domains, [Some("0000:01:00.0".to_owned()), Some("0000:01:00.0".to_owned()), None]);
}

#[test]
fn names_of_a_long_node_are_valid() {
    let long: NodeName = format!("{}.{}", "a".repeat(199), "b".repeat(53)).parse().unwrap();
    let name = slice_name(&long, 7);
    assert!(name.len() <= MAX_NAME && name.ends_with("-gpu.octavo.dev-007"), "{name}");
    assert!(octavo_model::id::is_subdomain(&name), "{name}");
    assert_ne!(
        name,
        slice_name(&format!("{}.{}", "a".repeat(199), "c".repeat(53)).parse().unwrap(), 7)
    );
    assert_eq!(pool_name(&long), long.as_str());
}

#[test]
fn shared_devices_have_replicas_and_leave_the_slices_without_their_gate() {
    let mut case = Case::new([partitioned("0000:01:00.0", A100, &[]), gpu("0000:02:00.0")]);
    let profile = ShareTarget::Profile("1g.10gb".parse().unwrap());
    let shares = [
        vec![Share { of: profile, ..Share::everything(2) }, Share::everything(1000)],
        vec![Share::everything(4)],
    ];
    let target = |(device, shares): (&Device, Vec<Share>)| DeviceTarget {
        mig: None,
        time_slicing: Some(TimeSlicing {
            position: SourcePosition::default(),
            shares,
            slice: None,
        }),
        ..DeviceTarget::generated(device.pci, MigTarget::Disabled, TargetScope::Mode)
    };
    let devices = case.inventory.devices.iter().zip(shares).map(target).collect();
    let mut targets = Targets { devices, ..Targets::default() };
    case.rules = ClaimRules::new(&case.inventory, &targets);
    let slices = case.slices();
    let of = |name: &str| {
        let mut all = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        serde_json::to_value(all.find(|one| one.name.ends_with(name)).unwrap()).unwrap()
    };
    let whole = of("gpu-0000-02-00-0");
    assert_eq!(whole["allowMultipleAllocations"], true);
    assert_eq!(whole["attributes"]["gpu.octavo.dev/shared"], json!({"bool": true}));
    let one = json!({"default": "1", "validValues": ["1"]});
    let capacity = json!({
        "gpu.nvidia.com/memory": {"value": "80Gi", "requestPolicy": {"default": "0"}},
        "gpu.octavo.dev/replicas": {"value": "4", "requestPolicy": one},
    });
    assert_eq!(whole["capacity"], capacity);
    let replicas = |name: &str| of(name)["capacity"]["gpu.octavo.dev/replicas"]["value"].clone();
    assert_eq!((replicas("-1g10gb-19-0"), replicas("-3g40gb-9-4")), (json!("2"), json!("1k")));
    let partition = of("-3g40gb-9-4");
    for (name, capacity) in partition["capacity"].as_object().unwrap() {
        assert!(capacity["requestPolicy"]["default"].is_string(), "{name}");
    }

    // Without the gate, only the counters are left.
    let left = crate::without_shared_devices(slices.clone());
    assert_eq!((slices.len(), left.len()), (3, 1));
    assert_eq!(left[0].spec.pool.resource_slice_count, 1);
    let mut stored = slices[2].clone();
    assert!(crate::has_shared_devices(&stored));
    stored.spec.devices.as_mut().unwrap()[0].allow_multiple_allocations = None;
    assert_eq!(crate::dropped_fields(&stored, &slices[2]), [crate::SHARES]);

    // Only what exists is shared now.
    let uuid = |number: u8| format!("GPU-5fd4087b-86f3-7a43-b711-4771313afc{number:02}");
    let mut existing = [
        partitioned("0000:01:00.0", A100, &[(9, at(4, 4), &[3]), (19, at(0, 1), &[1])]),
        gpu("0000:02:00.0"),
    ];
    for (device, number) in existing.iter_mut().zip(1..) {
        device.uuid = Some(uuid(number).parse().unwrap());
    }
    let part = |id: u32| format!("MIG-{}/{id}/0", uuid(1));
    let shares = [(part(1), 1000), (part(2), 2), (uuid(2), 4)];
    assert_eq!(case.rules.shares(&existing), shares);

    // A layout that lists partitions, or changes the mode first, covers the GPU.
    targets.devices[0].mig = Some(MigTarget::Disabled);
    targets.devices[1].scope = TargetScope::Layout;
    case.rules = ClaimRules::new(&case.inventory, &targets);
    assert!(case.slices().is_empty());
}
