//! Machines to label. Profile values: NVIDIA MIG User Guide and `nvidia-smi mig -lgip` of these boards.

use octavo_model::accelerators;
use octavo_model::catalog::{
    ComputeInstanceProfile, GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog,
};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    Architecture, Completeness, ComputeInstance, Condition, Device, Driver, GpuInstance, Inventory,
    LinkRemote, Machine, Mig, MigMode, MigState, NvLink, NvmlState, PciIds,
};
use octavo_model::quantity::{ComputeCapability, CudaVersion, Mebibytes};

/// A board: device id, name, memory, compute capability, and the MIG profiles it offers.
#[derive(Debug)]
pub(super) struct TestDevice {
    device: u16,
    name: &'static str,
    memory: u64,
    capability: (u32, u32),
    family: &'static str,
    profiles: &'static [Row],
}

/// Profile id, index, name, memory, multiprocessors, and copy, decoder, encoder, JPEG and OFA engines.
type Row = (u32, u32, &'static str, u64, u32, [u32; 5]);

#[rustfmt::skip]
const A100_PROFILES: &[Row] = &[
    (19, 0, "1g.10gb",    9_728,  14, [1, 0, 0, 0, 0]),
    (20, 7, "1g.10gb+me", 9_728,  14, [1, 1, 0, 1, 1]),
    (14, 1, "2g.20gb",    19_968, 28, [2, 1, 0, 0, 0]),
    (9,  2, "3g.40gb",    40_192, 42, [3, 2, 0, 0, 0]),
    (0,  4, "7g.80gb",    80_896, 98, [7, 5, 0, 1, 1]),
];

#[rustfmt::skip]
const RTX_PROFILES: &[Row] = &[
    (14, 0,  "1g.24gb",        24_192, 46,  [1, 1, 1, 1, 0]),
    (67, 13, "1g.24gb-me",     24_192, 46,  [1, 0, 0, 0, 0]),
    (65, 15, "1g.24gb+me.all", 24_192, 46,  [1, 4, 4, 4, 1]),
    (0,  3,  "4g.96gb",        97_408, 188, [4, 4, 4, 4, 1]),
];

#[rustfmt::skip]
mod boards {
    use super::{A100_PROFILES, TestDevice, RTX_PROFILES};

    pub(in super::super) const A100_80: TestDevice = TestDevice { device: 0x20b2, name: "NVIDIA A100-SXM4-80GB", memory: 81_920, capability: (8, 0), family: "ampere", profiles: A100_PROFILES };
    pub(in super::super) const A100_40: TestDevice = TestDevice { device: 0x20f1, name: "NVIDIA A100-PCIE-40GB", memory: 40_960, capability: (8, 0), family: "ampere", profiles: A100_PROFILES };
    pub(in super::super) const H100: TestDevice = TestDevice { device: 0x2330, name: "NVIDIA H100 80GB HBM3", memory: 81_559, capability: (9, 0), family: "hopper", profiles: A100_PROFILES };
    pub(in super::super) const T4: TestDevice = TestDevice { device: 0x1eb8, name: "Tesla T4", memory: 15_360, capability: (7, 5), family: "turing", profiles: &[] };
    pub(in super::super) const L40S: TestDevice = TestDevice { device: 0x26b9, name: "NVIDIA L40S", memory: 46_068, capability: (8, 9), family: "ada-lovelace", profiles: &[] };
    pub(in super::super) const MAX_Q: TestDevice = TestDevice { device: 0x2bb4, name: "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", memory: 97_887, capability: (12, 0), family: "blackwell", profiles: RTX_PROFILES };
    pub(in super::super) const SERVER: TestDevice = TestDevice { device: 0x2bb5, name: "NVIDIA RTX PRO 6000 Blackwell Server Edition", memory: 97_887, capability: (12, 0), family: "blackwell", profiles: RTX_PROFILES };
}

pub(super) use boards::*;

pub(super) fn at(bus: u8) -> PciAddress {
    PciAddress::new(0, bus, 0, 0).unwrap()
}

/// A device as the PCI bus shows it.
pub(super) fn on_bus(bus: u8, vendor: u16, device: u16) -> Device {
    let ids =
        PciIds { vendor, device, subsystem_vendor: 0, subsystem_device: 0, class: Some(0x03_0200) };
    let mut device = Device::new(at(bus), ids);
    device.identity = accelerators::identify(ids, None, None);
    device.architecture = accelerators::architecture(ids);
    device
}

/// A board whose driver responds, with MIG mode disabled if it is capable.
pub(super) fn gpu(bus: u8, board: &TestDevice) -> Device {
    let mut device = on_bus(bus, 0x10de, board.device);
    device.condition = Condition::Working;
    device.product_name = Some(board.name.to_owned());
    device.memory = Some(Mebibytes::new(board.memory));
    device.architecture = Some(Architecture::new(board.family));
    device.compute_capability =
        Some(ComputeCapability { major: board.capability.0, minor: board.capability.1 });
    device.identity =
        accelerators::identify(device.pci_ids, device.product_name.as_deref(), device.memory);
    device.mig = Mig::NotCapable;
    if !board.profiles.is_empty() {
        device.mig = Mig::Capable(MigState {
            current: MigMode::Disabled,
            pending: MigMode::Disabled,
            catalog: ProfileCatalog::new(board.profiles.iter().map(profile).collect()),
            gpu_instances: Vec::new(),
            geometry: Completeness::Complete,
        });
    }
    device
}

fn profile((id, index, name, memory, multiprocessors, engines): &Row) -> GpuInstanceProfile {
    let slices = u32::from(name.as_bytes()[0] - b'0');
    let [copy_engines, decoders, encoders, jpeg_engines, ofa_engines] = *engines;
    let compute = |count: u32| ComputeInstanceProfile {
        id: count,
        index: count,
        slices: count,
        max_count: slices / count,
        multiprocessors: multiprocessors / slices * count,
    };
    GpuInstanceProfile {
        id: *id,
        index: *index,
        name: name.parse().unwrap(),
        max_count: 1,
        memory: Mebibytes::new(*memory),
        resources: InstanceResources {
            gpu_slices: slices,
            compute_slices: slices,
            multiprocessors: *multiprocessors,
            copy_engines,
            decoders,
            encoders,
            jpeg_engines,
            ofa_engines,
        },
        placements: Vec::new(),
        compute_profiles: (1..=slices).map(compute).collect(),
    }
}

/// The same board in MIG mode with one MIG device of each of these profiles; `1c.3g.40gb` is a compute instance of one
/// slice in a GPU instance of three.
pub(super) fn partitioned(bus: u8, board: &TestDevice, profiles: &[&str]) -> Device {
    let mut device = gpu(bus, board);
    let Mig::Capable(state) = &mut device.mig else {
        panic!("{} has no MIG mode", board.name);
    };
    state.current = MigMode::Enabled;
    state.pending = MigMode::Enabled;
    state.gpu_instances =
        profiles.iter().zip(1..).map(|(name, id)| instance(&state.catalog, name, id)).collect();
    device
}

fn instance(catalog: &ProfileCatalog, name: &str, id: u32) -> GpuInstance {
    let (slices, whole) = match name.split_once("c.") {
        Some((slices, whole)) => (slices.parse().ok(), whole),
        None => (None, name),
    };
    let found = |profile: &&GpuInstanceProfile| profile.name.to_string() == whole;
    let profile = catalog.profiles().iter().find(found).unwrap();
    let slices: u32 = slices.unwrap_or(profile.resources.gpu_slices);
    GpuInstance {
        id,
        profile_id: profile.id,
        placement: Placement { start: 0, size: 1 },
        compute_instances: vec![ComputeInstance {
            id: 0,
            profile_id: slices,
            placement: None,
            uuid: None,
            memory: Some(profile.memory),
            resources: Some(InstanceResources {
                compute_slices: slices,
                multiprocessors: profile.resources.multiprocessors / profile.resources.gpu_slices
                    * slices,
                ..profile.resources
            }),
        }],
    }
}

/// Eight identical devices behind six switches.
pub(super) fn hgx(make: impl Fn(u8) -> Device) -> Vec<Device> {
    let switched = |bus| {
        let mut device: Device = make(bus);
        device.links = (0..6_u8)
            .map(|n| NvLink { link: u32::from(n), remote: LinkRemote::Switch(at(0xa0 + n)) })
            .collect();
        device
    };
    (1..=8).map(switched).collect()
}

/// A machine with driver 570.133.20 and these devices.
pub(super) fn machine(devices: Vec<Device>) -> Inventory {
    Inventory {
        neuron: None,
        machine: Machine {
            product_name: Some("DGXA100 920-23687-2530-000".to_owned()),
            vgpu: None,
            bus_error: None,
        },
        nvml: NvmlState::Ready(Driver {
            version: "570.133.20".parse().unwrap(),
            cuda: Some(CudaVersion::from_nvml(12_080)),
        }),
        devices,
    }
}

/// The same machine without a driver.
pub(super) fn driverless(devices: Vec<Device>) -> Inventory {
    Inventory {
        neuron: None,
        nvml: NvmlState::Absent { reason: "no libnvidia-ml.so.1".to_owned() },
        ..machine(devices)
    }
}
