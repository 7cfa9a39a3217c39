//! A GPU: board facts, settings and state.
//!
//! Every answer of a query is a plain field in NVML's units, so that the C layer only copies. Fields with rules (MIG,
//! reset) are changed by the operations of [`World`](super::World).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::code::Code;
use super::instance::{ComputeInstance, DestroyedMigDevice, GpuInstance, MigDevice};
use super::pci::PciAddress;
use super::profile::GiProfile;

/// A GPU with its instances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// The SKU of its board, which determines the profile table.
    pub board: String,
    /// `nvmlDeviceGetName`.
    pub name: String,
    /// `nvmlDeviceGetBrand`.
    pub brand: Brand,
    /// `nvmlDeviceGetArchitecture`.
    pub architecture: Architecture,
    /// CUDA compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Framebuffer as the driver reports it, MiB.
    pub memory_mib: u64,
    /// Reserved part (`nvmlMemory_v2_t.reserved`), MiB.
    pub reserved_mib: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Power limit, milliwatts.
    pub power_limit_mw: u32,
    /// Power drawn now, milliwatts.
    pub power_mw: u32,
    /// Temperature, degrees Celsius.
    pub temperature_c: u32,
    /// GPU and memory utilization, percent.
    pub utilization: (u32, u32),
    /// Utilization of the GPU and its memory by each process, percent, by pid; of the GPU instance for a process in one.
    #[serde(default)]
    pub process_utilization: BTreeMap<u32, (u32, u32)>,
    /// Encoder and decoder utilization, percent.
    #[serde(default)]
    pub video_utilization: (u32, u32),
    /// Energy drawn since the driver was loaded, millijoules.
    #[serde(default)]
    pub energy_mj: u64,
    /// PCIe replays.
    #[serde(default)]
    pub pcie_replays: u32,
    /// `GPU-` and a UUID.
    pub uuid: String,
    /// Board serial number; empty if the board has none (`nvmlDeviceGetSerial` answers `NOT_SUPPORTED`).
    pub serial: String,
    /// Index in NVML's enumeration.
    pub index: u32,
    /// N of `/dev/nvidiaN`.
    pub minor: u32,
    /// PCI address.
    pub pci: PciAddress,
    /// PCI identity.
    pub pci_ids: PciIds,
    /// NUMA node; `None` on machines without (`numa_node` is -1 in sysfs).
    pub numa_node: Option<u32>,
    /// VBIOS version.
    pub vbios: String,
    /// Its `NVLink`s, in the order of their numbers.
    pub links: Vec<NvLink>,
    /// NVLink fabric registration.
    pub fabric: Fabric,
    /// ECC mode; `None` on boards without ECC.
    pub ecc: Option<EccMode>,
    /// ECC error counts.
    pub ecc_errors: EccCounters,
    /// Row remapping; `None` where the architecture has none (before Ampere).
    pub remapped_rows: Option<RemappedRows>,
    /// Field 230: 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset.
    pub recovery_action: u32,
    /// Persistence mode.
    pub persistence: bool,
    /// `nvmlComputeMode_t`: 0 default, 2 prohibited, 3 exclusive process.
    pub compute_mode: u32,
    /// Lost: every call on it returns `GPU_IS_LOST` until it is reset.
    pub lost: bool,
    /// MIG; `None` on boards without.
    pub mig: Option<MigState>,
    /// MIG profiles of this board; empty without MIG. Stored in the world's tables.
    #[serde(skip)]
    pub profiles: std::sync::Arc<Vec<GiProfile>>,
}

/// MIG mode and instances.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MigState {
    /// The current mode.
    pub current: bool,
    /// The mode after the next reset.
    pub pending: bool,
    /// GPU instances, by id.
    pub instances: Vec<GpuInstance>,
    /// Destroyed MIG devices, newest last; only the stale-handle fault uses them.
    pub destroyed: Vec<DestroyedMigDevice>,
    /// Number of instances ever created on this GPU, so that a handle never matches a later one.
    pub made: u64,
}

/// PCI identity in the layout of sysfs (device id without the vendor half).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciIds {
    /// Device id, as `0x2330`.
    pub device: u16,
    /// Subsystem vendor, `0x10de`.
    pub subsystem_vendor: u16,
    /// Subsystem device.
    pub subsystem_device: u16,
    /// Class code with subclass and interface: `0x030200` (3D controller) or `0x030000` (VGA).
    pub class: u32,
    /// Revision.
    pub revision: u8,
}

/// `nvmlDeviceArchitecture_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are NVIDIA's and describe themselves")]
pub enum Architecture {
    Volta,
    Turing,
    Ampere,
    Ada,
    Hopper,
    Blackwell,
}

/// `nvmlBrandType_t` of data-center boards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Brand {
    /// Up to Volta.
    Tesla,
    /// Later data-center boards.
    Nvidia,
    /// RTX PRO boards.
    NvidiaRtx,
}

/// Remote end of an NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RemoteKind {
    /// Another GPU.
    Gpu,
    /// An `NVSwitch`.
    Switch,
    /// An `NVSwitch` that is not on the PCI bus, so that NVML reports no address for it.
    #[serde(rename = "hidden-switch")]
    HiddenSwitch,
}

impl RemoteKind {
    /// Whether it is an `NVSwitch`, with or without an address.
    pub fn is_switch(self) -> bool {
        match self {
            Self::Switch | Self::HiddenSwitch => true,
            Self::Gpu => false,
        }
    }
}

/// One NVLink of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvLink {
    /// True if it is active.
    pub active: bool,
    /// Its remote end.
    pub remote: RemoteKind,
    /// PCI address of the remote end.
    pub remote_pci: PciAddress,
    /// NVLink generation: 2 on Volta, 3 on Ampere, 4 on Hopper, 5 on Blackwell.
    pub version: u32,
}

/// Registration with the NVLink fabric (`nvmlGpuFabricInfo_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fabric {
    /// 0 not supported, 1 not started, 2 in progress, 3 completed.
    pub state: u8,
    /// Result of the registration; 0 is success.
    pub status: u32,
    /// The NVLink domain; zero on machines that form their own domain.
    pub cluster_uuid: [u8; 16],
    /// Clique within the domain.
    pub clique: u32,
}

/// ECC mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EccMode {
    /// Current.
    pub current: bool,
    /// After the next reset.
    pub pending: bool,
}

/// ECC error counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EccCounters {
    /// Corrected since the driver was loaded.
    pub volatile_corrected: u64,
    /// Uncorrected since the driver was loaded.
    pub volatile_uncorrected: u64,
    /// Corrected in the lifetime of the board.
    pub aggregate_corrected: u64,
    /// Uncorrected in the lifetime of the board.
    pub aggregate_uncorrected: u64,
}

/// Row remapping (`nvmlDeviceGetRemappedRows`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RemappedRows {
    /// Because of correctable errors.
    pub correctable: u32,
    /// Because of uncorrectable errors.
    pub uncorrectable: u32,
    /// A remapping waits for the next reset.
    pub pending: bool,
    /// A remapping failed: the board should be replaced.
    pub failed: bool,
}

impl Architecture {
    /// NVML's number.
    pub const fn number(self) -> u32 {
        match self {
            Self::Volta => 5,
            Self::Turing => 6,
            Self::Ampere => 7,
            Self::Ada => 8,
            Self::Hopper => 9,
            Self::Blackwell => 10,
        }
    }

    /// True if the MIG mode is stored on the board and survives driver reload and reboot (Ampere), instead of being
    /// lost (Hopper and later). Source: MIG User Guide, "GPU Reset on Hopper+".
    pub const fn keeps_mig_mode(self) -> bool {
        matches!(self, Self::Ampere)
    }
}

impl Brand {
    /// NVML's number.
    pub const fn number(self) -> u32 {
        match self {
            Self::Tesla => 2,
            Self::NvidiaRtx => 13,
            Self::Nvidia => 14,
        }
    }
}

impl Gpu {
    /// `GPU_IS_LOST` for a lost GPU; checked first by every call on a GPU.
    pub fn present(&self) -> Result<(), Code> {
        if self.lost { Err(Code::GpuIsLost) } else { Ok(()) }
    }

    /// The MIG state, or `NOT_SUPPORTED` on boards without.
    pub fn mig(&self) -> Result<&MigState, Code> {
        self.mig.as_ref().ok_or(Code::NotSupported)
    }

    /// The maximum number of MIG devices of the board in any mode; 0 on boards without MIG.
    pub fn max_mig_devices(&self) -> u32 {
        self.total_slices()
    }

    /// GPU slices of the board: those of its largest profile.
    pub fn total_slices(&self) -> u32 {
        self.profiles.iter().map(|profile| profile.slices).max().unwrap_or(0)
    }

    /// Memory slices of the board: the end of the largest placement.
    pub fn memory_slices(&self) -> u32 {
        self.profiles
            .iter()
            .flat_map(|profile| &profile.placements)
            .map(|placement| placement.end())
            .max()
            .unwrap_or(0)
    }

    /// The GPU instance with that id (`nvmlDeviceGetGpuInstanceById`).
    pub fn gi(&self, id: u32) -> Option<&GpuInstance> {
        self.mig.as_ref()?.instances.iter().find(|gi| gi.id == id)
    }

    /// The GPU instance of a handle, if it still exists.
    pub fn gi_by_serial(&self, serial: u64) -> Option<&GpuInstance> {
        self.mig.as_ref()?.instances.iter().find(|gi| gi.serial == serial)
    }

    /// The compute instance of a handle with its GPU instance, if it still exists.
    pub fn ci_by_serial(&self, serial: u64) -> Option<(&GpuInstance, &ComputeInstance)> {
        let instances = &self.mig.as_ref()?.instances;
        instances.iter().find_map(|gi| {
            let ci = gi.compute.iter().find(|ci| ci.serial == serial)?;
            Some((gi, ci))
        })
    }

    /// The MIG devices in the order of `nvmlDeviceGetMigDeviceHandleByIndex`: by GPU instance id, then by compute
    /// instance id. A GPU instance without a compute instance is no device.
    pub fn mig_devices(&self) -> impl Iterator<Item = MigDevice<'_>> {
        let mig = self.mig.as_ref().filter(|mig| mig.current);
        mig.into_iter().flat_map(|mig| {
            mig.instances
                .iter()
                .flat_map(|gi| gi.compute.iter().map(move |ci| MigDevice { gi, ci }))
        })
    }
}
