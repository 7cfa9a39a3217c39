//! Quantities of which there is a history.

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

/// Measured quantity of a device.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    Display,
    IntoStaticStr,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Metric {
    /// Share of time in which any kernel ran, in percent.
    #[default]
    Utilization,
    /// Used memory, in percent.
    Memory,
    /// Power draw, in watts.
    Power,
    /// Temperature, in degrees Celsius.
    Temperature,
    /// Share that is allocated to pods, in percent.
    Allocation,
}

/// Watts per step of a stored power value.
const WATTS_PER_STEP: u32 = 8;

impl Metric {
    /// All metrics, in the order of a sample.
    pub const ALL: [Self; 5] =
        [Self::Utilization, Self::Memory, Self::Power, Self::Temperature, Self::Allocation];

    /// Identifier: `utilization`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Unit: `percent`.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Utilization | Self::Memory | Self::Allocation => "percent",
            Self::Power => "watts",
            Self::Temperature => "celsius",
        }
    }

    /// Smallest difference between two stored values, in the metric's unit.
    pub fn precision(self) -> u32 {
        match self {
            Self::Power => WATTS_PER_STEP,
            Self::Utilization | Self::Memory | Self::Temperature | Self::Allocation => 1,
        }
    }

    /// Returns whether the value of several steps is their maximum instead of their mean.
    pub(crate) fn is_maximum(self) -> bool {
        self == Self::Temperature
    }
}
