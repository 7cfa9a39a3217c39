//! Sharing mode of devices and nodes.

use std::fmt;

/// Sharing mode. The words are those of the label `octavo.dev/sharing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// No allocatable device, or unknown.
    None,
    /// Whole devices.
    Exclusive,
    /// MIG partitions.
    Mig,
    /// Partitions of AMD devices.
    Partitioned,
    /// Everything is time-sliced.
    TimeSlicing,
    /// Several modes.
    Mixed,
}

impl Sharing {
    /// All sharing modes.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::Exclusive,
        Self::Mig,
        Self::Partitioned,
        Self::TimeSlicing,
        Self::Mixed,
    ];

    /// Name in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Exclusive => "exclusive",
            Self::Mig => "mig",
            Self::Partitioned => "partitioned",
            Self::TimeSlicing => "time-slicing",
            Self::Mixed => "mixed",
        }
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
