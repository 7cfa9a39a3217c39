//! Backends that allocate devices to pods: the trait, and its interface with the agent's loop.
//!
//! [`SharingBackend::reconcile`] is called after every scan of the hardware, and between scans when [`SharingBackend::changed`] resolves. It
//! compares the offered devices with the desired ones, starts whatever leads from one to the other, and returns the
//! progress. It never blocks: kubelet and the API server may be unreachable.

pub mod embedded;
pub mod hand_off;
pub mod machine;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_model::sharing_status::SharingStatus;
use octavo_model::xid::Xid;
use octavo_node::node_object::event_deduplicator::Event;
use octavo_node::node_object::{ObservedNode, PluginLabel};
use octavo_node::sharing::Offers;
use octavo_planner::reconcile::NodeLayoutStatus;

/// Backend that allocates devices to pods.
#[tonic::async_trait]
pub trait SharingBackend: fmt::Debug + Send {
    /// Compares the offered devices with the desired ones.
    fn reconcile(&mut self, observation: Observation<'_>) -> SharingOutcome;

    /// Waits for a change, reported by kubelet, the API server or another participant, that requires another
    /// [`Self::reconcile`]. Cancel-safe.
    async fn changed(&mut self);
}

/// Inputs of [`SharingBackend::reconcile`].
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// Time since the program started.
    pub now: Duration,
    /// The devices as of the last scan.
    pub inventory: &'a Inventory,
    /// Whether the devices were scanned since the last call: evidence that requires a scan must not be drawn twice
    /// from the same one.
    pub is_read: bool,
    /// Xids that devices reported since the last call.
    pub xids: &'a [Xid],
    /// Layout status of the node, with the targets of its devices; `None` if no layout can be selected.
    pub status: Option<&'a NodeLayoutStatus>,
    /// The Node, if it is watched and was read.
    pub view: Option<&'a ObservedNode>,
    /// Devices whose pods were evicted for the layout that is currently selected.
    pub drained: &'a BTreeSet<PciAddress>,
}

/// Result of [`SharingBackend::reconcile`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SharingOutcome {
    /// Sharing status; `None` if nothing is allocated here.
    pub status: Option<SharingStatus>,
    /// The current offers, for labels; `None` if they are not known.
    pub current_offers: Option<Offers>,
    /// The Node's label that selects the configuration of NVIDIA's plugin.
    pub plugin_label: PluginLabel,
    /// Events to report on the Node.
    pub events: Vec<Event>,
    /// Maximum delay until the next call.
    pub again: Option<Duration>,
}
