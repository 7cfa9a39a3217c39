//! Layouts: what a node's devices shall have, as people write it.
//!
//! A layout is a name and rules; a rule selects devices and says what they shall have. Three dialects of files are read and
//! two written (`wire::layouts`); here is what both mean. A layout knows no device: [`resolve`] turns it into [`Targets`] for
//! the devices of one node, through the catalogue of each.

mod compare;
mod current;
mod error;
mod export;
mod generate;
mod index;
mod limits;
mod modes;
mod resolve;
mod selector;
mod sharing;
mod target;

use std::fmt;

pub use self::compare::{Difference, DifferenceKind, compare};
pub use self::current::standing;
pub use self::error::{DeviceRef, Reason, RuleError, RuleWarning, Surprise};
pub use self::export::{ExportError, export};
pub use self::generate::generate;
pub use self::modes::{compare_modes, modes, modes_are_set, without_missing};
pub use self::resolve::{Resolved, resolve};
pub use self::selector::{Criteria, DeviceFilter, IndexRange, Selector};
pub use self::sharing::{Item, Rename, Share, ShareOf, SliceLength, TimeSlicing, Which};
pub use self::target::{DeviceTarget, InstanceTarget, MigTarget, Targets, UnverifiedDevice};
use crate::domain::profile::ProfileName;

/// A file of layouts, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layouts {
    /// The dialect it was written in, which decides what rules that overlap mean.
    pub dialect: Dialect,
    /// Names are unique.
    pub layouts: Vec<Layout>,
}

/// The forms of a layout file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `apiVersion: octavo.dev/v1`, `kind: Layouts`. Rules of which two select one device are an error.
    Octavo,
    /// `version: v1`, `mig-configs:`. Of rules that select one device the last one counts. Source: NVIDIA mig-parted
    /// v0.15.0, `cmd/nvidia-mig-parted/util`.
    MigParted,
    /// `version: v1` with `flags`, `resources`, `sharing` or `imex`: how NVIDIA's device plugin is configured. One layout with
    /// one rule for all devices. Source: NVIDIA k8s-device-plugin v0.20.0, `api/config/v1`.
    DevicePlugin,
}

/// What one layout asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// What it is selected by.
    pub name: String,
    /// Where its name stands.
    pub place: Place,
    /// At least one.
    pub rules: Vec<Rule>,
}

/// What some devices shall have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Where it begins.
    pub place: Place,
    /// Which devices.
    pub devices: Selector,
    /// How they are partitioned; `None` leaves partitioning as it is.
    pub mig: Option<MigWish>,
    /// How they, or their partitions, are shared; `None` leaves sharing as it is.
    pub time_slicing: Option<TimeSlicing>,
}

/// Partitioning as people write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigWish {
    /// MIG mode off: a whole GPU.
    Disabled,
    /// MIG mode on with these partitions and no other; none at all is allowed.
    Enabled(Vec<ProfileCount>),
}

/// So many partitions of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileCount {
    /// Where the name stands.
    pub place: Place,
    /// As it was written; a device may spell it otherwise.
    pub profile: ProfileName,
    /// How many; never zero.
    pub count: u32,
}

/// A place in a file; both count from one. Those of a layout that was made and not read are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl Layouts {
    /// The layout with this name.
    pub fn by_name(&self, name: &str) -> Option<&Layout> {
        self.layouts.iter().find(|layout| layout.name == name)
    }
}

#[cfg(test)]
pub(in crate::domain) mod tests_support;

#[cfg(test)]
mod tests;
