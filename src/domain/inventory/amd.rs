//! What only AMD's kernel driver tells of a device: amdgpu in sysfs, and KFD's topology.
//!
//! AMD partitions compute (`SPX`, `DPX`, `QPX`, `TPX`, `CPX`) and memory (`NPS1`, `NPS2`, `NPS4`) of a whole device at once. It is read and
//! never set here.

use crate::domain::quantity::Mebibytes;

/// A device whose compute is one partition. Source: AMD, "compute partitioning modes".
const WHOLE: &str = "SPX";

/// What the driver says of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Amd {
    /// Version of the kernel module, where it has one of its own: a driver that came with the kernel has none.
    pub driver_version: Option<String>,
    /// The chip's id, 16 hexadecimal digits; what a device is known by after it moved. Source: `unique_id`.
    pub unique_id: Option<String>,
    /// The board's serial number. Virtual functions have none.
    pub serial: Option<String>,
    /// What programs are compiled for, such as `gfx942`. Source: KFD, `gfx_target_version`.
    pub gfx_target: Option<String>,
    /// Compute units of the device, of all its partitions together.
    pub compute_units: Option<u32>,
    /// Devices with the same are linked by xGMI. Source: KFD, `hive_id`, where it is not 0.
    pub hive: Option<u64>,
    /// Memory in use.
    pub memory_used: Option<Mebibytes>,
    /// How its compute is partitioned, such as `CPX`, and how it may be. `None`: it cannot be.
    pub compute: Option<Mode>,
    /// How its memory is partitioned, such as `NPS4`, and how it may be. `None`: it cannot be.
    pub memory: Option<Mode>,
    /// What programs see: one for each node of KFD's that is this device's, ordered by render minor.
    pub partitions: Vec<AmdPartition>,
    /// Whether this is a virtual function, which has no product name and cannot be partitioned from here.
    pub is_virtual: bool,
}

impl Amd {
    /// Whether programs see more than one of it.
    pub fn is_partitioned(&self) -> bool {
        let whole = |mode: &Mode| mode.current == WHOLE;
        // KFD may not be there to be asked, and the mode says it too.
        self.partitions.len() > 1 || self.compute.as_ref().is_some_and(|mode| !whole(mode))
    }
}

/// How something is partitioned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mode {
    /// Now.
    pub current: String,
    /// All that the driver would take, in its order.
    pub available: Vec<String>,
}

/// A device or a part of one, as programs see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmdPartition {
    /// N in `/dev/dri/renderD<N>`; for display only, it moves.
    pub render_minor: u32,
    /// Its compute units.
    pub compute_units: Option<u32>,
    /// The memory it sees, which several partitions may share.
    pub memory: Option<Mebibytes>,
}
