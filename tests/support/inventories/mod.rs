//! Property test strategies for arbitrary inventories: plausible or not, but valid in the domain model.

mod amd_neuron;

use octavo_model::catalog::{
    ComputeInstanceProfile, GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog,
};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    Architecture, Completeness, ComputeInstance, Condition, Device, Driver, Fabric, GpuInstance,
    Health, Identity, Inventory, LinkRemote, Machine, Mig, MigMode, MigState, NvLink, NvmlState,
    PciIds, Process, ProcessKind, ReadProblem, RecoveryAction, RemappedRows, Vendor, VgpuHost,
};
use octavo_model::quantity::{ComputeCapability, CudaVersion, Mebibytes};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Arbitrary inventory, also used by property tests of other modules.
pub(crate) fn inventory() -> impl Strategy<Value = Inventory> {
    let neuron = option::of(amd_neuron::neuron().boxed());
    // Boxed, because the combined strategy would exceed the stack of a test thread.
    (machine(), nvml(), neuron, vec(device().boxed(), 0..3)).prop_map(
        |(machine, nvml, neuron, mut devices)| {
            devices.sort_by_key(|device| device.pci);
            devices.dedup_by_key(|device| device.pci);
            Inventory { machine, nvml, neuron, devices }
        },
    )
}

/// Arbitrary driver texts, including ones that are ambiguous in YAML or JSON.
fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,12}",
        Just("no".to_owned()),
        Just("1.50".to_owned()),
        Just("0x1F".to_owned()),
        Just("null".to_owned()),
        Just("a: b # c\n\"d\"".to_owned()),
        Just("GPU-\u{fc}\t'".to_owned()),
    ]
}

fn machine() -> impl Strategy<Value = Machine> {
    let host = (words(), words())
        .prop_map(|(driver_version, driver_branch)| VgpuHost { driver_version, driver_branch });
    (option::of(words()), option::of(host), option::of(words()))
        .prop_map(|(product_name, vgpu, bus_error)| Machine { product_name, vgpu, bus_error })
}

fn nvml() -> impl Strategy<Value = NvmlState> {
    prop_oneof![
        words().prop_map(|reason| NvmlState::Absent { reason }),
        Just(NvmlState::Loading),
        driver().prop_map(NvmlState::Ready),
        words().prop_map(|reason| NvmlState::Lost { reason }),
        (words(), option::of(driver()))
            .prop_map(|(call, driver)| NvmlState::Stalled { call, driver }),
    ]
}

fn driver() -> impl Strategy<Value = Driver> {
    let cuda = (0..20_u32, 0..10_u32).prop_map(|(major, minor)| CudaVersion { major, minor });
    ("[0-9]{1,4}[.][0-9]{1,3}([.][0-9]{1,2})?", option::of(cuda))
        .prop_map(|(version, cuda)| Driver { version: version.parse().unwrap(), cuda })
}

fn pci() -> impl Strategy<Value = PciAddress> {
    (any::<u32>(), any::<u8>(), 0..32_u8, 0..8_u8).prop_map(|(domain, bus, device, function)| {
        PciAddress::new(domain, bus, device, function).unwrap()
    })
}

const GPU_UUID: &str = "GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}";
const MIG_UUID: &str = "MIG-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}";
const OLD_MIG_UUID: &str = "MIG-GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]{1,2}/[0-7]";

fn identity() -> impl Strategy<Value = Identity> {
    let name = || "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?";
    prop_oneof![
        Just(Identity::Unknown),
        (name(), option::of(name())).prop_map(|(type_name, sku)| Identity::Known {
            type_name: type_name.parse().unwrap(),
            sku: sku.map(|sku| sku.parse().unwrap()),
        }),
        (name(), option::of(name())).prop_map(|(type_name, sku)| Identity::Manual {
            type_name: type_name.parse().unwrap(),
            sku: sku.map(|sku| sku.parse().unwrap()),
        }),
    ]
}

fn vendor() -> impl Strategy<Value = Vendor> {
    prop_oneof![
        Just(Vendor::Nvidia),
        Just(Vendor::Amd),
        Just(Vendor::Aws),
        any::<u16>().prop_map(Vendor::Other),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        Just(Condition::Working),
        words().prop_map(|reason| Condition::Failing { reason }),
        option::of(words()).prop_map(|kernel_driver| Condition::PciOnly { kernel_driver }),
    ]
}

/// Split into three groups, because a tuple of strategies has at most twelve members.
fn device() -> impl Strategy<Value = Device> {
    let ids = (any::<[u16; 4]>(), option::of(0..0x0100_0000_u32)).prop_map(|(ids, class)| PciIds {
        vendor: ids[0],
        device: ids[1],
        subsystem_vendor: ids[2],
        subsystem_device: ids[3],
        class,
    });
    let names = (pci(), option::of(GPU_UUID), vendor(), identity(), ids, condition());
    let capability =
        (0..20_u32, 0..10_u32).prop_map(|(major, minor)| ComputeCapability { major, minor });
    let facts = (
        option::of(words()),
        any::<[Option<u32>; 4]>(),
        option::of("[A-Za-z ]{0,12}"),
        option::of(capability),
        any::<Option<u64>>(),
    );
    let lists = (
        mig().boxed(),
        vec(process(), 0..3),
        vec(link(), 0..3),
        option::of((words(), any::<u32>())),
        health(),
        vec(problem(), 0..2),
        option::of(amd_neuron::amd().boxed()),
    );
    (names, facts, lists).prop_map(|(names, facts, lists)| Device {
        amd: lists.6,
        pci: names.0,
        uuid: names.1.map(|uuid| uuid.parse().unwrap()),
        vendor: names.2,
        identity: names.3,
        pci_ids: names.4,
        condition: names.5,
        product_name: facts.0,
        index: facts.1[0],
        minor: facts.1[1],
        numa_node: facts.1[2],
        architecture: facts.2.map(|name| Architecture::new(&name)),
        compute_capability: facts.3,
        memory: facts.4.map(Mebibytes::new),
        mig: lists.0,
        processes: lists.1,
        links: lists.2,
        fabric: lists.3.map(|(cluster_uuid, clique_id)| Fabric { cluster_uuid, clique_id }),
        p2p_group: facts.1[3],
        health: lists.4,
        problems: lists.5,
    })
}

fn problem() -> impl Strategy<Value = ReadProblem> {
    (words(), words()).prop_map(|(what, error)| ReadProblem { source: what, error })
}

fn placement() -> impl Strategy<Value = Placement> {
    (any::<u32>(), any::<u32>()).prop_map(|(start, size)| Placement { start, size })
}

fn resources() -> impl Strategy<Value = InstanceResources> {
    any::<[u32; 8]>().prop_map(|n| InstanceResources {
        gpu_slices: n[0],
        compute_slices: n[1],
        multiprocessors: n[2],
        copy_engines: n[3],
        decoders: n[4],
        encoders: n[5],
        jpeg_engines: n[6],
        ofa_engines: n[7],
    })
}

fn profile() -> impl Strategy<Value = GpuInstanceProfile> {
    let name = prop_oneof!["[1-7]g[.][1-9][0-9]{0,2}gb", Just("1g.24gb+gfx,me.all".to_owned())];
    let compute = any::<[u32; 5]>().prop_map(|n| ComputeInstanceProfile {
        id: n[0],
        index: n[1],
        slices: n[2],
        max_count: n[3],
        multiprocessors: n[4],
    });
    let lists = (vec(placement(), 0..3), vec(compute, 0..2));
    (any::<[u32; 3]>(), name, any::<u64>(), resources(), lists).prop_map(
        |(n, name, memory, resources, lists)| GpuInstanceProfile {
            id: n[0],
            index: n[1],
            name: name.parse().unwrap(),
            max_count: n[2],
            memory: Mebibytes::new(memory),
            resources,
            placements: lists.0,
            compute_profiles: lists.1,
        },
    )
}

fn compute_instance() -> impl Strategy<Value = ComputeInstance> {
    let uuid = prop_oneof![MIG_UUID, OLD_MIG_UUID];
    let rest = (any::<Option<u64>>(), option::of(resources()));
    (any::<[u32; 2]>(), option::of(placement()), option::of(uuid), rest).prop_map(
        |(n, placement, uuid, (memory, resources))| ComputeInstance {
            id: n[0],
            profile_id: n[1],
            placement,
            uuid: uuid.map(|uuid| uuid.parse().unwrap()),
            memory: memory.map(Mebibytes::new),
            resources,
        },
    )
}

fn mig() -> impl Strategy<Value = Mig> {
    let mode = || prop_oneof![Just(MigMode::Disabled), Just(MigMode::Enabled)];
    let instance = (any::<[u32; 2]>(), placement(), vec(compute_instance(), 0..2)).prop_map(
        |(n, placement, compute_instances)| GpuInstance {
            id: n[0],
            profile_id: n[1],
            placement,
            compute_instances,
        },
    );
    let geometry = prop_oneof![Just(Completeness::Complete), Just(Completeness::Partial)];
    let state = (mode(), mode(), vec(profile(), 0..3), vec(instance, 0..3), geometry).prop_map(
        |(current, pending, profiles, gpu_instances, geometry)| {
            Mig::Capable(MigState {
                current,
                pending,
                catalog: ProfileCatalog::new(profiles),
                gpu_instances,
                geometry,
            })
        },
    );
    prop_oneof![Just(Mig::Unknown), Just(Mig::NotCapable), state]
}

fn process() -> impl Strategy<Value = Process> {
    let kind = prop_oneof![Just(ProcessKind::Compute), Just(ProcessKind::Graphics)];
    let places = any::<[Option<u32>; 2]>();
    (any::<u32>(), kind, places, any::<Option<u64>>()).prop_map(|(pid, kind, places, memory)| {
        Process {
            pid,
            kind,
            gpu_instance: places[0],
            compute_instance: places[1],
            memory: memory.map(Mebibytes::new),
        }
    })
}

fn link() -> impl Strategy<Value = NvLink> {
    let remote = prop_oneof![
        pci().prop_map(LinkRemote::Device),
        pci().prop_map(LinkRemote::Switch),
        Just(LinkRemote::HiddenSwitch),
        Just(LinkRemote::Unknown),
    ];
    (any::<u32>(), remote).prop_map(|(link, remote)| NvLink { link, remote })
}

fn health() -> impl Strategy<Value = Health> {
    let rows = (any::<[u32; 2]>(), any::<[bool; 2]>()).prop_map(|(rows, flags)| RemappedRows {
        correctable: rows[0],
        uncorrectable: rows[1],
        pending: flags[0],
        failed: flags[1],
    });
    let action = prop_oneof![
        Just(RecoveryAction::None),
        Just(RecoveryAction::ResetGpu),
        Just(RecoveryAction::RebootNode),
        Just(RecoveryAction::DrainP2p),
        Just(RecoveryAction::DrainAndReset),
        any::<u32>().prop_map(RecoveryAction::Other),
    ];
    let counters = (any::<Option<bool>>(), any::<Option<u64>>());
    (counters, option::of(rows), option::of(action)).prop_map(
        |((ecc_enabled, uncorrected_errors), remapped_rows, recovery_action)| Health {
            ecc_enabled,
            uncorrected_errors,
            remapped_rows,
            recovery_action,
        },
    )
}
