//! Strategies for Neuron and AMD devices.

use octavo_model::inventory::{
    Amd, AmdPartition, DriverLayout, LogicalCores, LogicalSource, Neuron, NeuronDevice,
    NeuronErrors, PartitioningMode,
};
use octavo_model::quantity::Mebibytes;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::{problem, words};

pub(super) fn neuron() -> impl Strategy<Value = Neuron> {
    let layout = prop_oneof![Just(DriverLayout::Known), Just(DriverLayout::Unknown)];
    let source = prop_oneof![Just(LogicalSource::File), Just(LogicalSource::Default)];
    let logical = (1..=8_u32, source).prop_map(|(size, source)| LogicalCores { size, source });
    // A range in which numeric and lexical order differ.
    let devices = btree_map(0..120_u32, neuron_device(), 0..4).prop_map(|devices| {
        let devices = devices.into_iter();
        let numbered = |(number, device)| NeuronDevice { number, ..device };
        devices.map(numbered).collect()
    });
    let ultraserver = btree_map("[a-z_0-9]{1,20}", words(), 0..3);
    let reported = (option::of(words()), layout, option::of(logical), ultraserver);
    (reported, devices, vec(problem(), 0..2)).prop_map(|(reported, devices, problems)| Neuron {
        driver_version: reported.0,
        driver_layout: reported.1,
        logical: reported.2,
        ultraserver: reported.3,
        devices,
        problems,
    })
}

fn neuron_device() -> impl Strategy<Value = NeuronDevice> {
    let names = (option::of("[0-9a-f]{16}"), option::of(words()), option::of(words()));
    let figures = (any::<Option<u32>>(), any::<Option<u64>>(), option::of(0..=100_u8));
    let errors = any::<[Option<u64>; 5]>().prop_map(|errors| NeuronErrors {
        memory_uncorrected: errors[0],
        memory_repairable: errors[1],
        sram_uncorrected: errors[2],
        memory_corrected: errors[3],
        sram_corrected: errors[4],
    });
    let lists =
        (option::of(vec(any::<u32>(), 0..4)), option::of(vec(words(), 0..3)), vec(problem(), 0..2));
    (names, figures, errors, lists).prop_map(|(names, figures, errors, lists)| NeuronDevice {
        number: 0,
        serial: names.0,
        device_name: names.1,
        core_architecture: names.2,
        cores: figures.0,
        connected: lists.0,
        memory_used: figures.1.map(Mebibytes::new),
        power_percent: figures.2,
        errors,
        unhealthy: lists.1,
        problems: lists.2,
    })
}

fn mode() -> impl Strategy<Value = PartitioningMode> {
    (words(), vec(words(), 0..3))
        .prop_map(|(current, available)| PartitioningMode { current, available })
}

pub(super) fn amd() -> impl Strategy<Value = Amd> {
    let texts = (
        option::of(words()),
        option::of("[0-9a-f]{16}"),
        option::of(words()),
        option::of("gfx[0-9a-f]{3,4}"),
    );
    let figures = (any::<Option<u32>>(), any::<Option<u64>>(), any::<Option<u64>>());
    let partition = (any::<u32>(), any::<Option<u32>>(), any::<Option<u64>>()).prop_map(
        |(render_minor, compute_units, memory)| AmdPartition {
            render_minor,
            compute_units,
            memory: memory.map(Mebibytes::new),
        },
    );
    let modes = (option::of(mode()), option::of(mode()));
    (texts, figures, modes, vec(partition, 0..3), any::<bool>()).prop_map(
        |(texts, figures, modes, partitions, is_virtual)| Amd {
            driver_version: texts.0,
            unique_id: texts.1,
            serial: texts.2,
            gfx_target: texts.3,
            compute_units: figures.0,
            hive: figures.1,
            memory_used: figures.2.map(Mebibytes::new),
            compute: modes.0,
            memory: modes.1,
            partitions,
            is_virtual,
        },
    )
}
