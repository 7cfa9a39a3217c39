//! Neuron and AMD devices: their own parts, and rejection of invalid input from a peer with its location.

use octavo_model::inventory::{
    Amd, DriverLayout, LogicalCores, LogicalSource, Neuron, NeuronDevice,
};

use super::*;

/// A node with twelve devices, so that numeric and lexical order differ.
fn neuron() -> Inventory {
    let device = |number| NeuronDevice {
        number,
        device_name: Some("Inferentia2".to_owned()),
        cores: Some(2),
        connected: Some(vec![(number + 1) % 12, (number + 11) % 12]),
        ..NeuronDevice::default()
    };
    let mut inventory = two_gpus();
    inventory.neuron = Some(Neuron {
        driver_version: Some("2.26.5.0".to_owned()),
        driver_layout: DriverLayout::Known,
        ultraserver: std::collections::BTreeMap::new(),
        logical: Some(LogicalCores { size: 1, source: LogicalSource::Default }),
        devices: (0..12).map(device).collect(),
        problems: Vec::new(),
    });
    inventory
}

fn encoded(inventory: &Inventory) -> Parts {
    encode(inventory, &LabelSet::default(), None)
}

/// Location and error of the status of [`neuron`] with one part replaced.
fn refused(key: &str, message: &impl Message) -> String {
    let parts = with(&encoded(&neuron()), key, content(message));
    let error = decode(&parts).unwrap_err();
    format!("{} {}: {}", error.part, error.field, error.problem)
}

#[test]
fn changing_one_neuron_device_changes_one_part() {
    let before = neuron();
    let mut after = before.clone();
    after.neuron.as_mut().unwrap().devices[10].cores = None;
    let parts = encoded(&after);
    let change = encoded(&before).change_to(&parts);
    let changed: Vec<&str> = change.changed.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!((changed, change.removed), (vec!["neuron/10"], vec![]));
    assert_eq!(decode(&parts).unwrap().inventory, after);
}

#[test]
fn driver_without_devices_is_encoded_and_unloaded_one_has_no_parts() {
    let mut empty = neuron();
    empty.neuron.as_mut().unwrap().devices.clear();
    assert_eq!(decode(&encoded(&empty)).unwrap().inventory, empty);
    let change = encoded(&neuron()).change_to(&encoded(&two_gpus()));
    assert_eq!((change.changed.len(), change.removed.len()), (0, 13));
    assert_eq!(neuron_parts(&encoded(&neuron())).count(), 13);
}

#[test]
fn unknown_driver_layout_is_decoded_as_unknown() {
    let newer = v1::Neuron { driver_layout: 77, ..v1::Neuron::default() };
    let parts = with(&encoded(&neuron()), "neuron", content(&newer));
    let read = decode(&parts).unwrap().inventory.neuron.unwrap();
    assert_eq!(read.driver_layout, DriverLayout::Unknown);
    assert_eq!((read.logical, read.devices.len()), (None, 12));
}

#[test]
fn i12_invalid_neuron_value_is_rejected_with_its_field() {
    let node = |physical_cores, source| v1::Neuron {
        logical_core: Some(v1::LogicalCore { physical_cores, source }),
        ..v1::Neuron::default()
    };
    let odd = v1::Neuron { problems: vec![v1::Problem::default(); 300], ..v1::Neuron::default() };
    let device = v1::NeuronDevice::default();
    let links = v1::NeuronDevice {
        links: Some(v1::NeuronLinks { devices: vec![7; 300] }),
        ..device.clone()
    };
    let parts = v1::NeuronDevice {
        unhealthy: Some(v1::NeuronUnhealthy { parts: vec!["hbm".to_owned(); 300] }),
        ..device.clone()
    };
    let problems = v1::NeuronDevice { problems: vec![v1::Problem::default(); 300], ..device };
    let cases = [
        (refused("neuron", &node(0, 1)), "neuron logical_core.physical_cores: it is 0"),
        (
            refused("neuron", &node(9, 1)),
            "neuron logical_core.physical_cores: 9 is more than the maximum of 8",
        ),
        (
            refused("neuron", &node(2, 9)),
            "neuron logical_core.source: 9 is not a value that this version knows",
        ),
        (refused("neuron", &odd), "neuron problems: 300 is more than the maximum of 256"),
        (
            refused("neuron/3", &links),
            "neuron/3 links.devices: 300 is more than the maximum of 256",
        ),
        (
            refused("neuron/3", &parts),
            "neuron/3 unhealthy.parts: 300 is more than the maximum of 256",
        ),
        (refused("neuron/3", &problems), "neuron/3 problems: 300 is more than the maximum of 256"),
    ];
    for (message, expected) in cases {
        assert_eq!(message, expected);
    }
}

#[test]
fn i12_non_canonical_device_number_is_rejected() {
    for number in ["03", "+3", "4294967296", ""] {
        let key = format!("neuron/{number}");
        assert_eq!(
            refused(&key, &v1::NeuronDevice::default()),
            format!("{key} : its number is not in the form 7")
        );
    }
}

#[test]
fn i12_neuron_devices_without_driver_or_over_limit_are_rejected() {
    let parts = encoded(&neuron());
    let retained = parts.iter().filter(|(key, _)| key.as_str() != "neuron");
    let headless = retained.map(|(key, part)| (key.clone(), part.clone()));
    let error = decode(&headless.collect()).unwrap_err();
    assert_eq!((error.part.as_str(), &error.problem), ("neuron", &StatusProblem::MissingPart));
    let many = (0..65).map(|number| {
        let part = content(&v1::NeuronDevice::default());
        (PartKey::neuron_device(number), part)
    });
    let all = parts.iter().map(|(key, part)| (key.clone(), part.clone()));
    let error = decode(&all.chain(many).collect()).unwrap_err();
    assert_eq!(error.problem.to_string(), "65 is more than the maximum of 64", "{error:?}");
}

#[test]
fn i12_invalid_amd_value_is_rejected_with_its_field() {
    let decoded = |amd| edited(|device| device.amd = Some(amd));
    let nothing = decoded(v1::Amd::default()).unwrap();
    assert_eq!(nothing.inventory.devices[0].amd, Some(Amd::default()));
    let mode = v1::AmdMode { current: "CPX".to_owned(), available: vec!["CPX".to_owned(); 300] };
    let many = v1::Amd { partitions: vec![v1::AmdPartition::default(); 300], ..v1::Amd::default() };
    let compute = v1::Amd { compute: Some(mode.clone()), ..v1::Amd::default() };
    let memory = v1::Amd { memory: Some(mode), ..v1::Amd::default() };
    for (amd, place) in [
        (many, "amd.partitions"),
        (compute, "amd.compute.available"),
        (memory, "amd.memory.available"),
    ] {
        let error = decoded(amd).unwrap_err();
        assert_eq!(error.field, place);
        assert_eq!(error.problem.to_string(), "300 is more than the maximum of 256");
    }
}
