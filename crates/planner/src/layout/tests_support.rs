//! Boards with the profiles that real ones reported, and layouts for them.
//!
//! Source of ids, memory and placements: `nvidia-smi mig -lgip` and `-lgipp` of these boards, as collected in
//! `tests/nvml-sim/data/mig-profiles.json`.

use octavo_model::catalog::{GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    Completeness, ComputeInstance, Condition, Device, GpuInstance, Identity, Inventory, Mig,
    MigMode, MigState, PciIds,
};
use octavo_model::quantity::Mebibytes;
use octavo_model::source_position::SourcePosition;

use super::{
    Criteria, Dialect, IndexRange, Layout, MigSpec, ProfileCount, ResolvedLayout, Rule, RuleError,
    Selector, resolve,
};

/// Profile id, NVML index, name, maximum count, memory, placement starts, memory slices.
type Row = (u32, u32, &'static str, u32, u64, &'static [u32], u32);

/// A board for tests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestDevice {
    type_name: &'static str,
    device_id: u16,
    memory: u64,
    rows: &'static [Row],
}

const SEVEN: &[u32] = &[0, 1, 2, 3, 4, 5, 6];
const FOUR: &[u32] = &[0, 2, 4, 6];
const THREE: &[u32] = &[0, 2, 4];
const HALVES: &[u32] = &[0, 4];
const QUARTERS_OF_12: &[u32] = &[0, 3, 6, 9];
const HALVES_OF_12: &[u32] = &[0, 6];

pub(crate) const A30: TestDevice = TestDevice {
    type_name: "nvidia-a30-24gb",
    device_id: 0x20b7,
    memory: 24_576,
    rows: &[
        (14, 0, "1g.6gb", 4, 5_952, &[0, 1, 2, 3], 1),
        (21, 7, "1g.6gb+me", 1, 5_952, &[0, 1, 2, 3], 1),
        (5, 1, "2g.12gb", 2, 11_968, &[0, 2], 2),
        (6, 8, "2g.12gb+me", 1, 11_968, &[0, 2], 2),
        (0, 3, "4g.24gb", 1, 24_000, &[0], 4),
    ],
};

pub(crate) const A100_40: TestDevice = TestDevice {
    type_name: "nvidia-a100-40gb",
    device_id: 0x20b0,
    memory: 40_960,
    rows: &[
        (19, 0, "1g.5gb", 7, 4_864, SEVEN, 1),
        (20, 7, "1g.5gb+me", 1, 4_864, SEVEN, 1),
        (15, 9, "1g.10gb", 4, 9_856, FOUR, 2),
        (14, 1, "2g.10gb", 3, 9_856, THREE, 2),
        (9, 2, "3g.20gb", 2, 19_968, HALVES, 4),
        (5, 3, "4g.20gb", 1, 19_968, &[0], 4),
        (0, 4, "7g.40gb", 1, 40_192, &[0], 8),
    ],
};

pub(crate) const A100_80: TestDevice = TestDevice {
    type_name: "nvidia-a100-80gb",
    device_id: 0x20b2,
    memory: 81_920,
    rows: &[
        (19, 0, "1g.10gb", 7, 9_728, SEVEN, 1),
        (20, 7, "1g.10gb+me", 1, 9_728, SEVEN, 1),
        (15, 9, "1g.20gb", 4, 19_968, FOUR, 2),
        (14, 1, "2g.20gb", 3, 19_968, THREE, 2),
        (9, 2, "3g.40gb", 2, 40_192, HALVES, 4),
        (5, 3, "4g.40gb", 1, 40_192, &[0], 4),
        (0, 4, "7g.80gb", 1, 80_896, &[0], 8),
    ],
};

pub(crate) const H100: TestDevice = TestDevice {
    type_name: "nvidia-h100-80gb",
    device_id: 0x2330,
    memory: 81_559,
    rows: &[
        (19, 0, "1g.10gb", 7, 9_984, SEVEN, 1),
        (20, 7, "1g.10gb+me", 1, 9_984, SEVEN, 1),
        (15, 9, "1g.20gb", 4, 20_096, FOUR, 2),
        (14, 1, "2g.20gb", 3, 20_096, THREE, 2),
        (9, 2, "3g.40gb", 2, 40_448, HALVES, 4),
        (5, 3, "4g.40gb", 1, 40_448, &[0], 4),
        (0, 4, "7g.80gb", 1, 81_152, &[0], 8),
    ],
};

pub(crate) const H200: TestDevice = TestDevice {
    type_name: "nvidia-h200-141gb",
    device_id: 0x2335,
    memory: 143_771,
    rows: &[
        (19, 0, "1g.18gb", 7, 16_384, SEVEN, 1),
        (20, 7, "1g.18gb+me", 1, 16_384, SEVEN, 1),
        (15, 9, "1g.35gb", 4, 33_024, FOUR, 2),
        (14, 1, "2g.35gb", 3, 33_024, THREE, 2),
        (9, 2, "3g.71gb", 2, 71_168, HALVES, 4),
        (5, 3, "4g.71gb", 1, 71_168, &[0], 4),
        (0, 4, "7g.141gb", 1, 143_360, &[0], 8),
    ],
};

pub(crate) const RTX_PRO_6000: TestDevice = TestDevice {
    type_name: "nvidia-rtx-pro-6000-blackwell-96gb",
    device_id: 0x2bb5,
    memory: 97_887,
    rows: &[
        (14, 0, "1g.24gb", 4, 24_192, QUARTERS_OF_12, 3),
        (21, 7, "1g.24gb+me", 1, 24_192, QUARTERS_OF_12, 3),
        (47, 10, "1g.24gb+gfx", 4, 24_192, QUARTERS_OF_12, 3),
        (65, 15, "1g.24gb+me.all", 1, 24_192, QUARTERS_OF_12, 3),
        (67, 13, "1g.24gb-me", 4, 24_192, QUARTERS_OF_12, 3),
        (5, 1, "2g.48gb", 2, 48_512, HALVES_OF_12, 6),
        (35, 11, "2g.48gb+gfx", 2, 48_512, HALVES_OF_12, 6),
        (64, 16, "2g.48gb+me.all", 1, 48_512, HALVES_OF_12, 6),
        (66, 14, "2g.48gb-me", 2, 48_512, HALVES_OF_12, 6),
        (0, 3, "4g.96gb", 1, 97_408, &[0], 12),
        (32, 12, "4g.96gb+gfx", 1, 97_408, &[0], 12),
    ],
};

pub(crate) const ALL_BOARDS: [TestDevice; 6] = [A30, A100_40, A100_80, H100, H200, RTX_PRO_6000];

impl TestDevice {
    /// The profiles of the board, without compute instance profiles.
    pub(crate) fn catalog(self) -> ProfileCatalog {
        let profiles = self.rows.iter().map(|row| {
            let (id, index, name, max_count, memory, starts, size) = *row;
            let name: octavo_model::profile::ProfileName = name.parse().unwrap();
            let gpu_slices = u32::from(name.gpu_slices());
            GpuInstanceProfile {
                id,
                index,
                name,
                max_count,
                memory: Mebibytes::new(memory),
                resources: InstanceResources {
                    gpu_slices,
                    compute_slices: gpu_slices,
                    ..InstanceResources::default()
                },
                placements: starts.iter().map(|start| Placement { start: *start, size }).collect(),
                compute_profiles: Vec::new(),
            }
        });
        ProfileCatalog::new(profiles.collect())
    }

    /// A working GPU of this board with this index, MIG mode on and no instances; its PCI bus is the index plus one.
    pub(crate) fn gpu(self, index: u8) -> Device {
        let mut device = whole(index, self.type_name, self.device_id);
        device.memory = Some(Mebibytes::new(self.memory));
        device.mig = Mig::Capable(MigState {
            current: MigMode::Enabled,
            pending: MigMode::Enabled,
            catalog: self.catalog(),
            gpu_instances: Vec::new(),
            geometry: Completeness::Complete,
        });
        device
    }

    /// A GPU of this board with these instances: profile id, start, and the slices of its compute instances.
    pub(crate) fn with(self, index: u8, instances: &[(u32, u32, &[u32])]) -> Device {
        let mut device = self.gpu(index);
        let Mig::Capable(state) = &mut device.mig else {
            panic!("every board can be partitioned");
        };
        for (id, (profile_id, start, compute)) in (1..).zip(instances) {
            let profile = state.catalog.by_id(*profile_id).unwrap();
            let size = profile.placements[0].size;
            state.gpu_instances.push(GpuInstance {
                id,
                profile_id: *profile_id,
                placement: Placement { start: *start, size },
                compute_instances: (0..).zip(*compute).map(compute_instance).collect(),
            });
        }
        device
    }
}

fn compute_instance((id, slices): (u32, &u32)) -> ComputeInstance {
    ComputeInstance {
        id,
        profile_id: slices - 1,
        placement: None,
        uuid: None,
        memory: None,
        resources: Some(InstanceResources {
            compute_slices: *slices,
            ..InstanceResources::default()
        }),
    }
}

fn whole(index: u8, type_name: &str, device_id: u16) -> Device {
    let ids = PciIds {
        vendor: 0x10de,
        device: device_id,
        subsystem_vendor: 0x10de,
        subsystem_device: 0x1463,
        class: None,
    };
    let mut device = Device::new(PciAddress::new(0, index + 1, 0, 0).unwrap(), ids);
    device.condition = Condition::Working;
    device.identity = Identity::Known { type_name: type_name.parse().unwrap(), sku: None };
    device.index = Some(u32::from(index));
    device
}

/// A T4, which cannot be partitioned.
pub(crate) fn t4(index: u8) -> Device {
    let mut device = whole(index, "nvidia-t4-16gb", 0x1eb8);
    device.memory = Some(Mebibytes::new(15_360));
    device.mig = Mig::NotCapable;
    device
}

/// A GPU that is lost.
pub(crate) fn failing(index: u8) -> Device {
    let mut device = whole(index, "nvidia-a100-80gb", 0x20b2);
    device.condition = Condition::Failing { reason: "GPU is lost".to_owned() };
    device
}

/// A node with these devices.
pub(crate) fn node(devices: impl IntoIterator<Item = Device>) -> Inventory {
    Inventory { devices: devices.into_iter().collect(), ..Inventory::default() }
}

/// A layout of these rules; the line of each is its number.
pub(crate) fn layout(rules: impl IntoIterator<Item = Rule>) -> Layout {
    let numbered = (1..).zip(rules).map(|(line, mut rule)| {
        rule.position = SourcePosition { line, column: 5 };
        rule
    });
    Layout {
        name: "test".to_owned(),
        position: SourcePosition { line: 0, column: 1 },
        rules: numbered.collect(),
    }
}

/// A rule that partitions.
pub(crate) fn partition(devices: Selector, counts: &[(&str, u32)]) -> Rule {
    rule(devices, Some(mig_spec(counts)))
}

/// A rule with only a partitioning request, if any.
pub(crate) fn rule(devices: Selector, mig: Option<MigSpec>) -> Rule {
    Rule { position: SourcePosition::default(), devices, mig, time_slicing: None, claims: false }
}

/// A request for these partitions; the column of each is its position in the list.
pub(crate) fn mig_spec(counts: &[(&str, u32)]) -> MigSpec {
    let counts = (1..).zip(counts).map(|(column, (name, count))| ProfileCount {
        position: SourcePosition { line: 9, column },
        profile: name.parse().unwrap(),
        count: *count,
    });
    MigSpec::Enabled(counts.collect())
}

/// Selects devices by index.
pub(crate) fn index(ranges: &[(u32, u32)]) -> Selector {
    let ranges = ranges.iter();
    Selector::Matching(Criteria {
        index: Some(
            ranges.map(|(first, last)| IndexRange { first: *first, last: *last }).collect(),
        ),
        ..Criteria::default()
    })
}

/// Resolves the rules on the node in Octavo's dialect.
pub(crate) fn resolve_octavo(
    rules: impl IntoIterator<Item = Rule>,
    inventory: &Inventory,
) -> Result<ResolvedLayout, Vec<RuleError>> {
    resolve(&layout(rules), Dialect::Octavo, inventory)
}
