//! Representation of MIG devices in NVIDIA's labels and resources.

use strum::{AsRefStr, Display, EnumString};

/// Representation of MIG devices in NVIDIA's keys. Source: NVIDIA k8s-device-plugin, `--mig-strategy`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, AsRefStr, Display, EnumString,
)]
#[strum(serialize_all = "lowercase")]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display)]
pub enum InvalidMig {
    /// A GPU in MIG mode has no MIG device.
    #[strum(to_string = "a GPU in MIG mode has no partition")]
    EmptyGpu,
    /// Only some GPUs are in MIG mode.
    #[strum(to_string = "some GPUs are in MIG mode and some are not")]
    MixedMigModes,
    /// The MIG devices have more than one profile.
    #[strum(to_string = "the partitions have more than one profile")]
    MultipleProfiles,
    /// The profile of a MIG device has no name.
    #[strum(to_string = "the profile of a partition has no name")]
    ProfileUnknown,
}
