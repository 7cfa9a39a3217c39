//! Representation of MIG devices in NVIDIA's labels and resources.

use std::fmt;

/// Representation of MIG devices in NVIDIA's keys. Source: NVIDIA k8s-device-plugin, `--mig-strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum MigStrategy {
    /// MIG devices have no keys.
    #[default]
    None,
    /// Each MIG device appears as a GPU; all MIG devices must have the same profile.
    Single,
    /// Each profile has keys of its own.
    Mixed,
}

/// Reason why the single strategy does not match the MIG devices of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InvalidMig {
    /// A GPU in MIG mode has no MIG device.
    EmptyGpu,
    /// Only some GPUs are in MIG mode.
    MixedMigModes,
    /// The MIG devices have more than one profile.
    MultipleProfiles,
    /// The profile of a MIG device has no name.
    ProfileUnknown,
}

impl fmt::Display for InvalidMig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::EmptyGpu => "a GPU in MIG mode has no partition",
            Self::MixedMigModes => "some GPUs are in MIG mode and some are not",
            Self::MultipleProfiles => "there is more than one profile",
            Self::ProfileUnknown => "a partition was made from a profile that has no name",
        })
    }
}
