//! How devices and partitions are shared by turns, as people write it.

use std::fmt;

use super::Place;
use crate::domain::id::{GpuUuid, MigUuid};
use crate::domain::profile::ProfileName;
use crate::domain::quantity::Mebibytes;
use crate::domain::sharing::ResourceName;

/// Who shares by turns, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeSlicing {
    /// Where it stands.
    pub place: Place,
    /// What is shared. Of several that speak of one unit the most specific counts, else the first. Where there is none,
    /// nothing is shared.
    pub shares: Vec<Share>,
    /// How long a turn is; `None` leaves that to the driver.
    pub slice: Option<SliceLength>,
}

/// How units of one kind are shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Where it stands.
    pub place: Place,
    /// What it is about.
    pub of: ShareOf,
    /// How many share a unit: [`Share::LEAST`] to [`Share::MOST`].
    pub replicas: u32,
    /// What the resource is called.
    pub rename: Rename,
    /// Whether a container that asks for more than one is refused.
    pub fail_requests_greater_than_one: bool,
    /// How much memory each shall be content with; `None` is the same for all.
    pub memory_per_replica: Option<Mebibytes>,
}

/// What a share is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShareOf {
    /// Every unit of the devices.
    Everything,
    /// Partitions of a profile.
    Profile(ProfileName),
    /// What is given out under a name before it is renamed, as NVIDIA's device plugin has it.
    Resource {
        /// The name.
        name: ResourceName,
        /// Which of it.
        which: Which,
    },
}

/// Which units of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// All.
    All,
    /// The first so many.
    First(u32),
    /// These; never none.
    These(Vec<Item>),
}

/// One unit, or a device whose units are all meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// NVML's index of the device.
    Index(u32),
    /// The index of the device and which of its partitions, counted from zero.
    Partition(u32, u32),
    /// A device.
    Gpu(GpuUuid),
    /// A partition.
    Mig(MigUuid),
}

/// What a shared resource is called.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Rename {
    /// As if it were not shared.
    #[default]
    No,
    /// With `.shared` behind it.
    Shared,
    /// Otherwise.
    To(ResourceName),
}

/// How long a turn is, in the words of `nvidia-smi compute-policy --set-timeslice`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SliceLength {
    /// Short.
    Short,
    /// Medium.
    Medium,
    /// Long.
    Long,
}

impl TimeSlicing {
    /// Whether anything is shared.
    pub fn shares_anything(&self) -> bool {
        !self.shares.is_empty()
    }

    /// The same without its places.
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
    /// Fewer do not share.
    pub const LEAST: u32 = 2;
    /// More are a slip of the pen: kubelet keeps each as an id of its own.
    pub const MOST: u32 = 1024;

    /// So many share every unit, and nothing else is said.
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
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Short, Self::Medium, Self::Long];

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Medium => "medium",
            Self::Long => "long",
        }
    }

    /// The number that `nvidia-smi compute-policy --set-timeslice` takes, where 0 is the driver's own choice.
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
    /// What is shared, in a few words: `3 replicas`, `3 replicas (1g.10gb: 2), renamed, one each`.
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
