//! What a node says of itself: an inventory compiled into labels.
//!
//! Two families. Our own keys (`own.rs`) are stable under sharing and re-partitioning, and are what selectors should name. The
//! keys of NVIDIA's gpu-feature-discovery (`gfd.rs`) are there for what already reads them, byte for byte as that program
//! writes them on a node of one model. Every key and value is valid by construction: what Kubernetes would refuse, and
//! feature discovery would drop in silence, is cut with a hash of its own, and a [`Note`] says so.
//!
//! Compiling is a function of the inventory, the options and what is given out alone. The order of devices does not matter, so labels change when
//! the hardware does and at no other time. A reference of all keys is in `docs/labels.md`.

mod diff;
mod draft;
mod gfd;
mod instances;
mod note;
mod own;
mod set;
mod value;

pub use diff::{Change, Side, diff};
pub use instances::instances;
pub use note::{InvalidMig, Note, Omission};
pub use set::LabelSet;
pub use value::{LabelError, LabelKey, LabelValue};

use crate::domain::inventory::{Device, Inventory};
use crate::domain::reason::Reason;
use crate::domain::reconcile::Status;
use crate::domain::sharing::Offers;
use draft::Draft;

/// How labels are to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// How partitions appear among NVIDIA's keys.
    pub mig_strategy: MigStrategy,
    /// The value of `nvidia.com/gfd.timestamp`, in seconds since 1970; absent, the key is not written.
    pub timestamp: Option<i64>,
    /// Whether `nvidia.com/gpu.machine` is written.
    pub machine_type: Publication,
    /// Whether `nvidia.com/*` is written at all.
    pub nvidia: Publication,
    /// How far the node is on the way to its layout; absent where none is chosen for it or nobody has looked yet.
    pub layout: Option<LayoutState>,
}

/// How far a node is on the way to its layout, for who selects nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayoutState {
    /// Every device has what the layout says.
    Applied,
    /// It will be so by itself.
    Pending,
    /// It will be so once somebody lets go of a device or resets it.
    Blocked,
    /// It could not be done.
    Failed,
}

impl LayoutState {
    /// Of a node that stands so; `None` where no layout is chosen for it, and before it was looked at.
    pub fn of(status: &Status) -> Option<Self> {
        status.layout.as_ref()?;
        match status.state.map(Reason::of) {
            Some(Some(Reason::Applied)) => Some(Self::Applied),
            Some(Some(Reason::Pending | Reason::Applying | Reason::Yielded)) => Some(Self::Pending),
            Some(Some(Reason::Blocked | Reason::NeedsReset | Reason::Drifted)) => {
                Some(Self::Blocked)
            }
            // `failed`, `rolled-back`, `infeasible`.
            Some(_) => Some(Self::Failed),
            // The layout means nothing on this node.
            None => status.notice.as_ref().map(|_| Self::Failed),
        }
    }

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => Reason::Applied.word(),
            Self::Pending => Reason::Pending.word(),
            Self::Blocked => Reason::Blocked.word(),
            Self::Failed => Reason::Failed.word(),
        }
    }
}

/// How partitions appear among NVIDIA's keys. Source: NVIDIA k8s-device-plugin, `--mig-strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum MigStrategy {
    /// Not at all.
    #[default]
    None,
    /// As if each were a GPU, which takes that all are alike.
    Single,
    /// Each profile under keys of its own.
    Mixed,
}

/// Whether something is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Publication {
    /// It is.
    #[default]
    Publish,
    /// It is not.
    Withhold,
}

/// Labels, and what is to be known about them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compiled {
    /// The labels.
    pub labels: LabelSet,
    /// What was cut, left out or chosen, in the order in which it was met.
    pub notes: Vec<Note>,
}

/// Compiles an inventory into labels. A node without accelerators has none. `offers` are what is given out now; without them, what is
/// shared is not known, and nothing is said of it.
pub fn compile(inventory: &Inventory, options: &Options, offers: Option<&Offers>) -> Compiled {
    let mut devices: Vec<&Device> = inventory.devices.iter().collect();
    devices.sort_by_key(|device| device.pci);
    let mut draft = Draft::default();
    own::add(&mut draft, inventory, &devices, offers);
    own::add_layout(&mut draft, &devices, options.layout);
    match options.nvidia {
        Publication::Publish => gfd::add(&mut draft, inventory, &devices, (options, offers)),
        Publication::Withhold => {}
    }
    draft.finish()
}

/// Helpers for tests elsewhere in the crate.
#[cfg(test)]
pub(crate) mod tests_support {
    use super::LabelSet;

    /// A set of labels from keys and values that are known to be valid.
    pub(crate) fn label_set(labels: &[(&str, &str)]) -> LabelSet {
        labels
            .iter()
            .map(|(key, value)| (key.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
