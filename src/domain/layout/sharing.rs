//! Time-slicing of devices and partitions, as written by users.

use std::fmt;

use super::Place;
use crate::domain::id::{GpuUuid, MigUuid};
use crate::domain::profile::ProfileName;
use crate::domain::quantity::Mebibytes;
use crate::domain::sharing::ResourceName;

/// The time-slicing settings of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeSlicing {
    /// Position in the file.
    pub place: Place,
    /// The shared units. If several entries match a unit, the most specific one counts, then the first. If empty,
    /// nothing is shared.
    pub shares: Vec<Share>,
    /// Time slice; `None` leaves the driver's default.
    pub slice: Option<SliceLength>,
}

/// Time-slicing of units of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Position in the file.
    pub place: Place,
    /// The units that this entry applies to.
    pub of: ShareOf,
    /// Replicas per unit: [`Share::LEAST`] to [`Share::MOST`].
    pub replicas: u32,
    /// The name of the shared resource.
    pub rename: Rename,
    /// Rejects containers that request more than one.
    pub fail_requests_greater_than_one: bool,
    /// Memory that each replica is expected to use at most; `None` divides it equally.
    pub memory_per_replica: Option<Mebibytes>,
}

/// The units that a [`Share`] applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShareOf {
    /// Every unit of the devices.
    Everything,
    /// Partitions of a profile.
    Profile(ProfileName),
    /// A resource by its name before renaming, as in NVIDIA's device plugin.
    Resource {
        /// The resource name.
        name: ResourceName,
        /// The units of the resource.
        which: Which,
    },
}

/// The units of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// All units.
    All,
    /// The first units, up to this count.
    First(u32),
    /// The listed units; never empty.
    These(Vec<Item>),
}

/// A unit, or a device whose units are all selected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
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
pub enum Rename {
    /// The same name as without sharing.
    #[default]
    No,
    /// The name with the suffix `.shared`.
    Shared,
    /// This name.
    To(ResourceName),
}

/// Length of a time slice, as in `nvidia-smi compute-policy --set-timeslice`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SliceLength {
    /// `short`.
    Short,
    /// `medium`.
    Medium,
    /// `long`.
    Long,
}

impl TimeSlicing {
    /// Returns true if anything is shared.
    pub fn shares_anything(&self) -> bool {
        !self.shares.is_empty()
    }

    /// Returns the settings without positions.
    #[must_use]
    pub fn without_places(mut self) -> Self {
        self.place = Place::default();
        for share in &mut self.shares {
            share.place = Place::default();
        }
        self
    }
}

impl Share {
    /// Minimum replicas; one replica is not sharing.
    pub const LEAST: u32 = 2;
    /// Maximum replicas. A larger number is most likely a typo: kubelet stores every replica as a device id.
    pub const MOST: u32 = 1024;

    /// Shares every unit among this many replicas, with defaults for all else.
    pub fn everything(replicas: u32) -> Self {
        Self {
            place: Place::default(),
            of: ShareOf::Everything,
            replicas,
            rename: Rename::No,
            fail_requests_greater_than_one: false,
            memory_per_replica: None,
        }
    }
}

impl SliceLength {
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

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Partition(index, partition) => write!(f, "{index}:{partition}"),
            Self::Gpu(uuid) => uuid.fmt(f),
            Self::Mig(uuid) => uuid.fmt(f),
        }
    }
}

impl fmt::Display for ShareOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("everything"),
            Self::Profile(profile) => profile.fmt(f),
            Self::Resource { name, which } => match which {
                Which::All => name.fmt(f),
                Which::First(count) => write!(f, "the first {count} of {name}"),
                Which::These(items) => {
                    let items: Vec<String> = items.iter().map(Item::to_string).collect();
                    write!(f, "{} of {name}", items.join(", "))
                }
            },
        }
    }
}

impl fmt::Display for TimeSlicing {
    /// Summarizes the settings: `3 replicas, renamed, one each`, `3 replicas; 1g.10gb: 2 replicas`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shares.is_empty() {
            return f.write_str("nothing is shared");
        }
        let said: Vec<String> = self.shares.iter().map(in_words).collect();
        f.write_str(&said.join("; "))?;
        match self.slice {
            Some(slice) => write!(f, "; {} turns", slice.as_str()),
            None => Ok(()),
        }
    }
}

fn in_words(share: &Share) -> String {
    let mut text = match &share.of {
        ShareOf::Everything => format!("{} replicas", share.replicas),
        of @ (ShareOf::Profile(_) | ShareOf::Resource { .. }) => {
            format!("{of}: {} replicas", share.replicas)
        }
    };
    match &share.rename {
        Rename::No => {}
        Rename::Shared => text.push_str(", renamed"),
        Rename::To(name) => {
            text.push_str(", as ");
            text.push_str(name.as_str());
        }
    }
    if share.fail_requests_greater_than_one {
        text.push_str(", one each");
    }
    if let Some(memory) = share.memory_per_replica {
        let memory = format!(", {memory} each");
        text.push_str(&memory);
    }
    text
}
