//! Compiles the inventory of a node into labels.
//!
//! There are two families of keys. Octavo's own keys (`octavo_keys.rs`) are stable under sharing and re-partitioning; selectors
//! should use these. The keys of NVIDIA's gpu-feature-discovery (`gfd.rs`) serve existing consumers and match that
//! program byte for byte on a node with one GPU model. Every key and value is valid by construction: a value that
//! Kubernetes would reject, and that node-feature-discovery would drop silently, is truncated, gets a hash suffix, and
//! is reported by a [`Note`].
//!
//! The result depends only on the inventory, the options and the current offers, and not on the order of devices.
//! Labels therefore change only when the hardware does. `docs/reference/label-list.md` lists all keys.

mod diff;
mod gfd;
mod instance_features;
mod note;
mod octavo_keys;

pub use diff::{DiffSide, LabelChange, diff};
pub use instance_features::instance_features;
use note::LabelsBuilder;
pub use note::{Note, Omission};
use octavo_model::inventory::{Device, Inventory};
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_planner::reconcile::NodeLayoutStatus;
use strum::IntoStaticStr;

use crate::label_set::LabelSet;
use crate::mig_strategy::MigStrategy;
use crate::sharing::Offers;

/// Options for compiling labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Representation of MIG devices in NVIDIA's keys.
    pub mig_strategy: MigStrategy,
    /// Value of `nvidia.com/gfd.timestamp` in seconds since 1970; `None` omits the key.
    pub timestamp: Option<i64>,
    /// Publication of `nvidia.com/gpu.machine`.
    pub machine_type: KeyPolicy,
    /// Publication of all `nvidia.com/*` keys.
    pub nvidia: KeyPolicy,
    /// Progress of the node towards its desired layout; `None` if the node has no layout or was not observed yet.
    pub layout: Option<LayoutState>,
}

/// Progress of a node towards its desired layout, in the few values that node selectors need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum LayoutState {
    /// Every device matches the layout.
    Applied,
    /// The layout will be applied without user action.
    Pending,
    /// The layout will be applied once a device is released or reset.
    Blocked,
    /// The layout could not be applied.
    Failed,
}

impl LayoutState {
    /// Derives the layout state from the node's status; `None` if the node has no layout or was not observed yet.
    pub fn from_status(status: &NodeLayoutStatus) -> Option<Self> {
        status.layout.as_ref()?;
        match status.state.as_ref().map(Reported::known) {
            Some(Some(Reason::Applied)) => Some(Self::Applied),
            Some(Some(Reason::Pending | Reason::Applying | Reason::Yielded)) => Some(Self::Pending),
            Some(Some(Reason::Blocked | Reason::NeedsReset | Reason::Drifted)) => {
                Some(Self::Blocked)
            }
            // `failed`, `rolled-back`, `infeasible`.
            Some(_) => Some(Self::Failed),
            // A notice without a state: the layout does not apply to this node.
            None => status.notice.as_ref().map(|_| Self::Failed),
        }
    }

    /// Returns the value of the label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Publication of a group of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum KeyPolicy {
    /// The keys are written.
    #[default]
    Publish,
    /// The keys are omitted.
    Withhold,
}

/// The compiled labels, with notes about them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompiledLabels {
    /// The labels.
    pub labels: LabelSet,
    /// Truncated, omitted and chosen values, in the order of discovery.
    pub notes: Vec<Note>,
}

/// Compiles an inventory into labels. A node without accelerators has none. `offers` is what the device plugin offers
/// now; without it, sharing is unknown and not labeled.
pub fn compile(
    inventory: &Inventory,
    options: &Options,
    offers: Option<&Offers>,
) -> CompiledLabels {
    let mut devices: Vec<&Device> = inventory.devices.iter().collect();
    devices.sort_by_key(|device| device.pci);
    let mut draft = LabelsBuilder::default();
    octavo_keys::add(&mut draft, inventory, &devices, offers);
    octavo_keys::add_layout(&mut draft, &devices, options.layout);
    match options.nvidia {
        KeyPolicy::Publish => gfd::add(&mut draft, inventory, &devices, (options, offers)),
        KeyPolicy::Withhold => {}
    }
    draft.finish()
}

#[cfg(test)]
mod tests;
