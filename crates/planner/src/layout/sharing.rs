//! Time-slicing of devices and partitions, as written by users.

use std::fmt;

use octavo_model::id::{GpuUuid, MigUuid};
use octavo_model::profile::ProfileName;
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::ResourceName;
use octavo_model::source_position::SourcePosition;
use octavo_model::text::{format_memory, join};
use serde::Serialize;

/// The time-slicing settings of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeSlicing {
    /// Position in the file.
    pub position: SourcePosition,
    /// The shared units. If several entries match a unit, the most specific one counts, then the first. If empty,
    /// nothing is shared.
    pub shares: Vec<Share>,
    /// Time slice; `None` leaves the driver's default.
    pub slice: Option<TimeSlice>,
}

/// Time-slicing of units of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Position in the file.
    pub position: SourcePosition,
    /// The units that this entry applies to.
    pub of: ShareTarget,
    /// Replicas per unit: [`Share::MIN_REPLICAS`] to [`Share::MAX_REPLICAS`].
    pub replicas: u32,
    /// The name of the shared resource.
    pub rename: ResourceRename,
    /// Rejects containers that request more than one.
    pub fail_requests_greater_than_one: bool,
    /// Memory that each replica is expected to use at most; `None` divides it equally.
    pub memory_per_replica: Option<Mebibytes>,
}

/// The units that a [`Share`] applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShareTarget {
    /// Every unit of the devices.
    AllUnits,
    /// Partitions of a profile.
    Profile(ProfileName),
    /// A resource by its name before renaming, as in NVIDIA's device plugin.
    Resource {
        /// The resource name.
        name: ResourceName,
        /// The units of the resource.
        which: UnitSelector,
    },
}

/// The units of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitSelector {
    /// All units.
    All,
    /// The first units, up to this count.
    First(u32),
    /// The listed units; never empty.
    Listed(Vec<UnitRef>),
}

/// A unit, or a device whose units are all selected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnitRef {
    /// NVML index of a device.
    Index(u32),
    /// Index of a device, and zero-based index of one of its partitions.
    Partition(u32, u32),
    /// UUID of a device.
    Gpu(GpuUuid),
    /// UUID of a partition.
    Mig(MigUuid),
}

/// The name of a shared resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ResourceRename {
    /// The same name as without sharing.
    #[default]
    No,
    /// The name with the suffix `.shared`.
    Shared,
    /// This name.
    To(ResourceName),
}

/// Length of a time slice, as in `nvidia-smi compute-policy --set-timeslice`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeSlice {
    /// `short`.
    Short,
    /// `medium`.
    Medium,
    /// `long`.
    Long,
}

impl TimeSlicing {
    /// Returns true if anything is shared.
    pub fn is_sharing(&self) -> bool {
        !self.shares.is_empty()
    }

    /// Returns the settings without positions.
    #[must_use]
    pub fn without_positions(mut self) -> Self {
        self.position = SourcePosition::default();
        for share in &mut self.shares {
            share.position = SourcePosition::default();
        }
        self
    }
}

impl Share {
    /// Minimum replicas; one replica is not sharing.
    pub const MIN_REPLICAS: u32 = 2;
    /// Maximum replicas. A larger number is most likely a typo: kubelet stores every replica as a device id.
    pub const MAX_REPLICAS: u32 = 1024;

    /// Shares every unit among this many replicas, with defaults for all else.
    pub fn everything(replicas: u32) -> Self {
        Self {
            position: SourcePosition::default(),
            of: ShareTarget::AllUnits,
            replicas,
            rename: ResourceRename::No,
            fail_requests_greater_than_one: false,
            memory_per_replica: None,
        }
    }
}

impl TimeSlice {
    /// All lengths.
    pub const ALL: [Self; 3] = [Self::Short, Self::Medium, Self::Long];

    /// Returns the name of the length.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Medium => "medium",
            Self::Long => "long",
        }
    }

    /// Returns the number that `nvidia-smi compute-policy --set-timeslice` takes, where 0 is the driver's default.
    pub const fn number(self) -> u32 {
        match self {
            Self::Short => 1,
            Self::Medium => 2,
            Self::Long => 3,
        }
    }
}

impl fmt::Display for UnitRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Partition(index, partition) => write!(f, "{index}:{partition}"),
            Self::Gpu(uuid) => uuid.fmt(f),
            Self::Mig(uuid) => uuid.fmt(f),
        }
    }
}

impl fmt::Display for ShareTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllUnits => f.write_str("everything"),
            Self::Profile(profile) => profile.fmt(f),
            Self::Resource { name, which } => match which {
                UnitSelector::All => name.fmt(f),
                UnitSelector::First(count) => write!(f, "the first {count} of {name}"),
                UnitSelector::Listed(items) => {
                    write!(f, "{} of {name}", join(items.iter(), ", "))
                }
            },
        }
    }
}

impl fmt::Display for TimeSlicing {
    /// Summarizes the settings: `3 replicas, renamed, one each`, `3 replicas; 1g.10gb: 2 replicas`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shares.is_empty() {
            return f.write_str("no time-slicing");
        }
        f.write_str(&join(self.shares.iter().map(describe_share), "; "))?;
        match self.slice {
            Some(slice) => write!(f, "; {} time slices", slice.as_str()),
            None => Ok(()),
        }
    }
}

fn describe_share(share: &Share) -> String {
    let mut text = match &share.of {
        ShareTarget::AllUnits => format!("{} replicas", share.replicas),
        of @ (ShareTarget::Profile(_) | ShareTarget::Resource { .. }) => {
            format!("{of}: {} replicas", share.replicas)
        }
    };
    match &share.rename {
        ResourceRename::No => {}
        ResourceRename::Shared => text.push_str(", renamed"),
        ResourceRename::To(name) => {
            text.push_str(", as ");
            text.push_str(name.as_str());
        }
    }
    if share.fail_requests_greater_than_one {
        text.push_str(", at most one per request");
    }
    if let Some(memory) = share.memory_per_replica {
        let memory = format!(", {} each", format_memory(memory));
        text.push_str(&memory);
    }
    text
}
