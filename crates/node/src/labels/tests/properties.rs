//! Properties that hold for any inventory.

use octavo_model::inventory::{
    Amd, Condition, DriverLayout, Fabric, LinkRemote, LogicalCores, LogicalSource, Neuron,
    NeuronDevice, NvLink, PartitioningMode,
};
use octavo_model::label::{LabelKey, LabelValue};
use octavo_model::quantity::Mebibytes;
use proptest::prelude::*;

use super::machines::{
    A100_40, A100_80, H100, L40S, MAX_Q, SERVER, T4, driverless, gpu, machine, on_bus, partitioned,
};
use super::*;

/// Devices of all kinds and conditions, including names and memory sizes that no driver reports.
fn device(bus: u8) -> impl Strategy<Value = Device> {
    let board = prop_oneof![Just(&A100_40), Just(&A100_80), Just(&H100), Just(&L40S), Just(&T4)];
    let a100 = proptest::sample::subsequence(
        vec!["1g.10gb", "1g.10gb+me", "2g.20gb", "1c.3g.40gb"],
        0..=4,
    );
    let rtx = proptest::sample::subsequence(vec!["1g.24gb", "1g.24gb-me", "1g.24gb+me.all"], 0..=3);
    let kinds = prop_oneof![
        board.prop_map(move |board| gpu(bus, board)),
        a100.prop_map(move |profiles| partitioned(bus, &A100_80, &profiles)),
        rtx.prop_map(move |profiles| partitioned(bus, &MAX_Q, &profiles)),
        Just(partitioned(bus, &SERVER, &["4g.96gb"])),
        (any::<u16>(), any::<u16>()).prop_map(move |(vendor, id)| on_bus(bus, vendor, id)),
        proptest::option::of("neuron|vfio-pci")
            .prop_map(move |driver| neuron_function(bus, driver)),
        proptest::collection::vec(".{0,70}", 3).prop_map(move |texts| amd_device(bus, texts)),
    ];
    let oddity = prop_oneof![
        3 => Just(UnusualValue::None),
        1 => ".{0,90}".prop_map(UnusualValue::Name),
        1 => proptest::option::of(any::<u64>()).prop_map(UnusualValue::Memory),
        1 => Just(UnusualValue::Failing),
        1 => (any::<u8>(), ".{0,70}").prop_map(|(remote, uuid)| UnusualValue::Linked(remote, uuid)),
    ];
    (kinds, oddity).prop_map(|(device, oddity)| odd(device, oddity))
}

fn neuron_function(bus: u8, kernel_driver: Option<String>) -> Device {
    let mut device = on_bus(bus, 0x1d0f, 0x7364);
    device.condition = Condition::PciOnly { kernel_driver };
    device
}

/// An AMD device whose driver reports these strings for its version and its two modes.
fn amd_device(bus: u8, texts: Vec<String>) -> Device {
    let mut texts = texts.into_iter();
    let driver_version = texts.next();
    let mut mode = || {
        let current = texts.next()?;
        let available = Vec::new();
        Some(PartitioningMode { current, available })
    };
    let mut device = on_bus(bus, 0x1002, 0x74a1);
    device.condition = Condition::Working;
    device.amd = Some(Amd { driver_version, compute: mode(), memory: mode(), ..Amd::default() });
    device
}

/// Neuron driver data, both realistic and unrealistic.
fn neuron() -> impl Strategy<Value = Neuron> {
    let name = prop_oneof![Just("Trainium2".to_owned()), ".{0,70}"];
    let device = (any::<Option<u32>>(), proptest::option::of(name));
    let device = device.prop_map(|(cores, device_name)| NeuronDevice {
        device_name,
        cores,
        ..NeuronDevice::default()
    });
    let logical = proptest::option::of((any::<u32>(), any::<bool>()));
    let devices = proptest::collection::vec(device, 0..4);
    (proptest::option::of(".{0,70}"), logical, devices).prop_map(
        |(driver_version, logical, devices)| Neuron {
            driver_version,
            driver_layout: DriverLayout::Known,
            ultraserver: std::collections::BTreeMap::new(),
            logical: logical.map(|(size, is_file)| LogicalCores {
                size,
                source: if is_file { LogicalSource::File } else { LogicalSource::Default },
            }),
            devices,
            problems: Vec::new(),
        },
    )
}

#[derive(Debug, Clone)]
enum UnusualValue {
    None,
    Name(String),
    Memory(Option<u64>),
    Failing,
    Linked(u8, String),
}

fn odd(mut device: Device, oddity: UnusualValue) -> Device {
    match oddity {
        UnusualValue::None => {}
        UnusualValue::Name(name) => device.product_name = Some(name),
        UnusualValue::Memory(memory) => device.memory = memory.map(Mebibytes::new),
        UnusualValue::Failing => {
            device.condition = Condition::Failing { reason: "lost".to_owned() }
        }
        UnusualValue::Linked(remote, cluster_uuid) => {
            let remote = LinkRemote::Device(super::machines::at(remote));
            device.links.push(NvLink { link: 0, remote });
            device.fabric = Some(Fabric { cluster_uuid, clique_id: 1 });
        }
    }
    device
}

fn node() -> impl Strategy<Value = Inventory> {
    let devices = (0_u8..9).prop_flat_map(|count| (0..count).map(device).collect::<Vec<_>>());
    let named = proptest::option::of(".{0,90}");
    let neuron = proptest::option::of(neuron());
    (devices, named, any::<bool>(), neuron).prop_map(|(devices, product_name, ready, neuron)| {
        let mut node = if ready { machine(devices) } else { driverless(devices) };
        node.machine.product_name = product_name;
        node.neuron = neuron;
        node
    })
}

fn any_options() -> impl Strategy<Value = Options> {
    let strategy =
        prop_oneof![Just(MigStrategy::None), Just(MigStrategy::Single), Just(MigStrategy::Mixed)];
    (strategy, proptest::option::of(any::<i64>())).prop_map(|(mig_strategy, timestamp)| Options {
        mig_strategy,
        timestamp,
        ..Options::default()
    })
}

fn number(labels: &LabelSet, key: &str) -> usize {
    labels.get(key).map_or(0, |value| value.parse().unwrap())
}

proptest! {
    #[test]
    fn every_key_and_value_is_valid(node in node(), options in any_options()) {
        let compiled = compile(&node, &options, None);
        for (key, value) in compiled.labels.iter() {
            prop_assert!(key.parse::<LabelKey>().is_ok(), "{}", key);
            prop_assert!(value.parse::<LabelValue>().is_ok(), "{}={}", key, value);
        }
        let invalid = compiled.notes.iter().any(|note| {
            matches!(note, Note::Omitted { reason: Omission::InvalidKey, .. })
        });
        prop_assert!(!invalid, "{:?}", compiled.notes);
    }

    #[test]
    fn device_order_does_not_matter(
        (node, shuffled) in node().prop_flat_map(|node| {
            let devices = Just(node.devices.clone()).prop_shuffle();
            (Just(node), devices)
        }),
        options in any_options(),
    ) {
        let other = Inventory { devices: shuffled, ..node.clone() };
        prop_assert_eq!(compile(&node, &options, None), compile(&other, &options, None));
    }

    #[test]
    fn counts_add_up_to_the_devices(node in node()) {
        let labels = compile(&node, &Options::default(), None).labels;
        let types: Vec<&str> = labels
            .iter()
            .map(|(key, _)| key)
            .filter(|key| key.starts_with("type.octavo.dev/"))
            .collect();
        let total: usize = types.iter().map(|key| number(&labels, key)).sum();
        prop_assert_eq!(total, node.devices.len());
        prop_assert_eq!(labels.get("octavo.dev/type").is_some(), total > 0);
        if types.len() == 1 {
            prop_assert_eq!(number(&labels, "octavo.dev/count"), total);
        }
        prop_assert!(number(&labels, "nvidia.com/gpu.count") <= total);
    }

    #[test]
    fn partitions_add_up_in_the_mixed_strategy(node in node()) {
        let labels = compile(&node, &options(MigStrategy::Mixed), None).labels;
        let counted: usize = labels
            .iter()
            .filter_map(|(key, _)| key.strip_prefix("nvidia.com/mig-")?.strip_suffix(".count"))
            .map(|profile| number(&labels, &format!("nvidia.com/mig-{profile}.count")))
            .sum();
        let speaking = node.devices.iter().filter(|device| {
            device.condition == Condition::Working && device.product_name.is_some()
        });
        let there: usize = speaking
            .filter_map(|device| device.mig.state())
            .flat_map(|state| &state.gpu_instances)
            .map(|instance| instance.compute_instances.len())
            .sum();
        prop_assert!(counted <= there);
    }
}
