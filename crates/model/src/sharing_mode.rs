//! Sharing mode of devices and nodes.

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

/// Sharing mode. The words are those of the label `octavo.dev/sharing`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
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
    /// Returns the mode with this word; `None` for an unknown one.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == word)
    }

    /// All sharing modes.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Exclusive, Self::Mig, Self::Partitioned, Self::TimeSlicing, Self::Mixed];

    /// Name in documents.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
