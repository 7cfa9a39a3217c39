//! Complete label sets for AWS Neuron and AMD devices.

use octavo_model::inventory::{
    Amd, Condition, DriverLayout, LogicalCores, LogicalSource, Neuron, NeuronDevice,
    PartitioningMode,
};
use octavo_model::quantity::Mebibytes;

use super::machines::{A100_80, T4, driverless, gpu, machine, on_bus, partitioned};
use super::*;

/// `count` PCI functions of a Neuron chip with the Neuron driver bound.
fn functions(count: u8, id: u16) -> Vec<Device> {
    let bound = |bus| {
        let mut device = on_bus(bus, 0x1d0f, id);
        device.condition = Condition::PciOnly { kernel_driver: Some("neuron".to_owned()) };
        device
    };
    (1..=count).map(bound).collect()
}

/// `count` devices of a chip as the Neuron driver reports them.
fn neuron(count: u32, name: &str, cores: u32, logical: Option<(u32, LogicalSource)>) -> Neuron {
    let device = |number| NeuronDevice {
        number,
        device_name: Some(name.to_owned()),
        cores: Some(cores),
        ..NeuronDevice::default()
    };
    Neuron {
        driver_version: Some("2.30.7.0".to_owned()),
        driver_layout: DriverLayout::Known,
        ultraserver: std::collections::BTreeMap::new(),
        logical: logical.map(|(size, source)| LogicalCores { size, source }),
        devices: (0..count).map(device).collect(),
        problems: Vec::new(),
    }
}

fn trn2(logical: Option<(u32, LogicalSource)>) -> Inventory {
    let mut node = driverless(functions(16, 0x7364));
    node.neuron = Some(neuron(16, "Trainium2", 8, logical));
    node
}

const TRN2: &str = "
octavo.dev/architecture=neuroncore-v3
octavo.dev/count=16
octavo.dev/driver=2.30.7.0
octavo.dev/memory-mib=98304
octavo.dev/mig-capable=false
octavo.dev/neuron-cores=128
octavo.dev/neuron-devices=16
octavo.dev/neuron-driver=2.30.7.0
octavo.dev/neuron-memory-mib=98304
octavo.dev/sharing=exclusive
octavo.dev/sku=aws-trainium2
octavo.dev/type=aws-trainium2-96gb
octavo.dev/vendor=aws
type.octavo.dev/aws-trainium2-96gb=16
";

/// The notes without the one about the interconnect; most devices in these tests report no links.
fn notes_without_links(node: &Inventory) -> Vec<String> {
    let mut notes = notes(node, &Options::default());
    notes.retain(|note| !note.contains("interconnect"));
    notes
}

#[test]
fn logical_cores_follow_the_node_setting() {
    for (size, logical) in [(1, 128), (2, 64)] {
        let node = trn2(Some((size, LogicalSource::File)));
        let cores = format!(
            "octavo.dev/neuron-logical-core-size={size}\noctavo.dev/neuron-logical-cores={logical}\noctavo.dev/neuron-logical-source=file"
        );
        check(&node, &Options::default(), &[TRN2, &cores]);
        assert_eq!(notes_without_links(&node), [""; 0]);
    }
}

#[test]
fn default_logical_core_size_is_noted_and_unknown_size_is_omitted() {
    let node = trn2(Some((2, LogicalSource::Default)));
    let cores = "octavo.dev/neuron-logical-core-size=2\noctavo.dev/neuron-logical-cores=64\noctavo.dev/neuron-logical-source=default";
    check(&node, &Options::default(), &[TRN2, cores]);
    assert_eq!(
        notes_without_links(&node),
        [
            "octavo.dev/neuron-logical-*: the node does not set the size of a logical core; the chip's default is 2"
        ]
    );
    let node = trn2(None);
    check(&node, &Options::default(), &[TRN2]);
    assert_eq!(
        notes_without_links(&node),
        [
            "octavo.dev/neuron-logical-core-size is omitted: the size of a logical core is unknown",
            "octavo.dev/neuron-logical-cores is omitted: the size of a logical core is unknown",
        ]
    );
}

#[test]
fn unreported_core_count_omits_both_sums() {
    let mut node = trn2(Some((2, LogicalSource::File)));
    let devices = &mut node.neuron.as_mut().unwrap().devices;
    devices[7].cores = None;
    devices[7].device_name = None;
    node.neuron.as_mut().unwrap().driver_version = None;
    let compiled = compile(&node, &Options::default(), None);
    assert_eq!(compiled.labels.get("octavo.dev/neuron-devices"), Some("16"));
    assert_eq!(
        notes_without_links(&node),
        [
            "octavo.dev/neuron-driver is omitted: the driver does not report its version",
            "octavo.dev/neuron-cores is omitted: a Neuron device does not report its cores",
            "octavo.dev/neuron-logical-cores is omitted: a Neuron device does not report its cores",
            "octavo.dev/neuron-memory-mib is omitted: the catalog does not list a device under the name that its driver reports",
            "octavo.dev/memory-mib is omitted: no responding device reports its memory",
        ]
    );
    for key in ["neuron-cores", "neuron-logical-cores", "driver", "memory-mib"] {
        assert_eq!(compiled.labels.get(&format!("octavo.dev/{key}")), None);
    }
}

#[test]
fn missing_neuron_driver_is_noted_and_idle_one_has_zero_devices() {
    let node = driverless(functions(1, 0x7264));
    assert!(
        notes_without_links(&node)
            .contains(&"octavo.dev/neuron-* is omitted: the driver does not respond".to_owned())
    );
    let mut node = driverless(functions(1, 0x7264));
    node.neuron = Some(neuron(0, "", 0, None));
    let labels = compile(&node, &Options::default(), None).labels;
    assert_eq!(labels.get("octavo.dev/neuron-devices"), Some("0"));
    assert_eq!(labels.get("octavo.dev/neuron-cores"), None);
    // Driver loaded on a node without Neuron devices.
    node.devices.clear();
    let nothing = compile(&node, &Options::default(), None);
    assert_eq!(nothing, CompiledLabels::default());
}

/// An MI300X with 192 GiB in these modes.
fn mi300x(bus: u8, compute: &str, memory: &str) -> Device {
    let mode = |current: &str| {
        Some(PartitioningMode { current: current.to_owned(), available: Vec::new() })
    };
    let mut device = on_bus(bus, 0x1002, 0x74a1);
    device.condition = Condition::Working;
    device.memory = Some(Mebibytes::new(196_592));
    device.amd = Some(Amd {
        driver_version: Some("6.12.12".to_owned()),
        compute: mode(compute),
        memory: mode(memory),
        ..Amd::default()
    });
    device
}

fn mi300xs(modes: &[(&str, &str)]) -> Inventory {
    let devices = (1..).zip(modes);
    let devices = devices.map(|(bus, (compute, memory))| mi300x(bus, compute, memory));
    driverless(devices.collect())
}

#[test]
fn different_amd_partition_modes_are_labeled_mixed() {
    check(
        &mi300xs(&[("CPX", "NPS4"), ("CPX", "NPS4")]),
        &Options::default(),
        &["
        octavo.dev/amd-compute-partition=cpx
        octavo.dev/amd-memory-partition=nps4
        octavo.dev/architecture=cdna3
        octavo.dev/count=2
        octavo.dev/driver=6.12.12
        octavo.dev/memory-mib=196592
        octavo.dev/mig-capable=false
        octavo.dev/sharing=partitioned
        octavo.dev/sku=amd-mi300x
        octavo.dev/type=amd-mi300x-192gb
        octavo.dev/vendor=amd
        type.octavo.dev/amd-mi300x-192gb=2"],
    );
    let labels = |node: &Inventory| compile(node, &Options::default(), None).labels;
    let two = labels(&mi300xs(&[("SPX", "NPS1"), ("DPX", "NPS1")]));
    assert_eq!(two.get("octavo.dev/amd-compute-partition"), Some("mixed"));
    assert_eq!(two.get("octavo.dev/amd-memory-partition"), Some("nps1"));
    // An unpartitioned device next to a partitioned one.
    assert_eq!(two.get("octavo.dev/sharing"), Some("mixed"));
    // A device that cannot be partitioned does not affect the label.
    let mut node = mi300xs(&[("SPX", "NPS1"), ("", "")]);
    let amd = node.devices[1].amd.as_mut().unwrap();
    (amd.compute, amd.memory) = (None, None);
    let one = labels(&node);
    assert_eq!(one.get("octavo.dev/amd-compute-partition"), Some("spx"));
    assert_eq!(one.get("octavo.dev/amd-memory-partition"), Some("nps1"));
    assert_eq!(one.get("octavo.dev/sharing"), Some("exclusive"));
}

#[test]
fn neuron_links_yield_kind_and_domain_and_unreported_ones_are_omitted() {
    let linked = |links: &[&[u32]]| {
        let count = u8::try_from(links.len()).unwrap();
        let mut node = driverless(functions(count, 0x7264));
        let mut neuron_facts = neuron(count.into(), "Inferentia2", 2, None);
        for (device, near) in neuron_facts.devices.iter_mut().zip(links) {
            device.connected = Some(near.to_vec());
        }
        node.neuron = Some(neuron_facts);
        node
    };
    let found = |node: &Inventory| {
        let labels = compile(node, &Options::default(), None).labels;
        let of = |key: &str| labels.get(key).map(str::to_owned);
        (of("octavo.dev/interconnect"), of("octavo.dev/interconnect-domain"))
    };
    let some = |kind: &str, size: &str| (Some(kind.to_owned()), Some(size.to_owned()));
    let ring: [&[u32]; 4] = [&[1, 3], &[0, 2], &[1, 3], &[2, 0]];
    assert_eq!(found(&linked(&ring)), some("neuronlink", "4"));
    // Two unconnected rings are two domains.
    let two: [&[u32]; 5] = [&[1, 2], &[0, 2], &[1, 0], &[4], &[3]];
    assert_eq!(found(&linked(&two)), some("neuronlink", "3"));
    let all: [&[u32]; 3] = [&[1, 2], &[0, 2], &[1, 0]];
    assert_eq!(found(&linked(&all)), some("neuronlink", "3"));
    assert_eq!(found(&linked(&[&[], &[]])), some("pcie", "1"));
    // A link that only one end reports.
    assert_eq!(found(&linked(&[&[1], &[]])), (None, None));
    let mut unreported = linked(&ring);
    unreported.neuron.as_mut().unwrap().devices[2].connected = None;
    assert_eq!(found(&unreported), (None, None));
    // Next to another vendor's devices, the usual interconnect rules apply.
    let mut mixed = linked(&ring);
    mixed.devices.push(mi300x(9, "SPX", "NPS1"));
    assert_eq!(found(&mixed).0, None);
}

#[test]
fn driver_label_prefers_nvidia_and_else_requires_a_single_driver() {
    let driver = |node: &Inventory| {
        let labels = compile(node, &Options::default(), None).labels;
        labels.get("octavo.dev/driver").map(str::to_owned)
    };
    let amd = |bus| mi300x(bus, "SPX", "NPS1");
    assert_eq!(driver(&driverless(vec![amd(1)])).as_deref(), Some("6.12.12"));
    let with_nvidia = machine(vec![amd(1), gpu(2, &T4)]);
    assert_eq!(driver(&with_nvidia).as_deref(), Some("570.133.20"));
    assert_eq!(driver(&driverless(vec![amd(1), gpu(2, &T4)])), None);
    let mut both = driverless([vec![amd(9)], functions(1, 0x7264)].concat());
    both.neuron = Some(neuron(1, "Inferentia2", 2, None));
    assert_eq!(driver(&both), None);
    assert!(
        notes_without_links(&both).contains(
            &"octavo.dev/driver is omitted: the devices have different drivers".to_owned()
        )
    );
    let labels = compile(&both, &Options::default(), None).labels;
    assert_eq!(labels.get("octavo.dev/neuron-driver"), Some("2.30.7.0"));
    // A driver included in the kernel has no version: neither a label nor a note.
    let mut bare = driverless(vec![amd(1)]);
    bare.devices[0].amd.as_mut().unwrap().driver_version = None;
    assert_eq!(driver(&bare), None);
    assert_eq!(notes_without_links(&bare), [""; 0]);
    // Two versions of one driver cannot be loaded at the same time, so no version is guessed.
    let mut odd = driverless(vec![amd(1), amd(2)]);
    odd.devices[1].amd.as_mut().unwrap().driver_version = Some("6.8.5".to_owned());
    assert_eq!(driver(&odd), None);
}

#[test]
fn node_with_four_vendors_is_labeled_completely() {
    let mut node = machine(
        [vec![gpu(1, &T4), partitioned(2, &A100_80, &["7g.80gb"])], vec![mi300x(3, "SPX", "NPS1")]]
            .concat(),
    );
    let mut chip = functions(1, 0x7264);
    chip[0].pci = super::machines::at(4);
    node.devices.extend(chip);
    node.neuron = Some(neuron(1, "Inferentia2", 2, Some((1, LogicalSource::Default))));
    let options = Options { nvidia: KeyPolicy::Withhold, ..Options::default() };
    check(
        &node,
        &options,
        &["
        octavo.dev/amd-compute-partition=spx
        octavo.dev/amd-memory-partition=nps1
        octavo.dev/driver=570.133.20
        octavo.dev/mig-capable=true
        octavo.dev/neuron-cores=2
        octavo.dev/neuron-devices=1
        octavo.dev/neuron-driver=2.30.7.0
        octavo.dev/neuron-logical-core-size=1
        octavo.dev/neuron-logical-cores=2
        octavo.dev/neuron-logical-source=default
        octavo.dev/neuron-memory-mib=32768
        octavo.dev/sharing=mixed
        octavo.dev/type=mixed
        type.octavo.dev/amd-mi300x-192gb=1
        type.octavo.dev/aws-inferentia2-32gb=1
        type.octavo.dev/nvidia-a100-80gb=1
        type.octavo.dev/nvidia-t4-16gb=1"],
    );
}
