//! Who gives devices out to pods: the port, and what the agent's loop says to it.
//!
//! [`Giver::look`] is called after every look at the hardware, and when [`Giver::changed`] says so without one. It holds what is given out against what shall be, starts whatever
//! leads from one to the other, and says how far it is. It waits for nobody: kubelet and the API server may be away.

pub mod embedded;
pub mod hand_off;
pub mod machine;

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::domain::id::PciAddress;
use crate::domain::inventory::Inventory;
use crate::domain::node::telling::Event;
use crate::domain::node::{PluginLabel, View};
use crate::domain::reconcile::Status;
use crate::domain::sharing::health::Xid;
use crate::domain::sharing::{Offers, SharingStatus};

/// Resolves when something has changed that is worth another look.
pub type Changed<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Who gives devices out.
pub trait Giver: fmt::Debug + Send {
    /// Holds what is given out against what shall be.
    fn look(&mut self, scene: Scene<'_>) -> Outcome;

    /// Waits for news of kubelet, the API server or whoever else takes part. Safe to drop and call again.
    fn changed(&mut self) -> Changed<'_>;
}

/// What there is to be looked at.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// Since the program began.
    pub now: Duration,
    /// The devices, as they were read last.
    pub inventory: &'a Inventory,
    /// Whether they were read since the last look: what only a reading can prove is not proven by the same one twice.
    pub is_read: bool,
    /// What devices have reported by themselves since the last look.
    pub xids: &'a [Xid],
    /// Where the node stands with its layout, where one can be chosen for it; what is asked of its devices is in it.
    pub status: Option<&'a Status>,
    /// The Node, where it is followed and was seen.
    pub view: Option<&'a View>,
    /// Devices that pods were evicted for, for the layout that is chosen now.
    pub drained: &'a BTreeSet<PciAddress>,
}

/// What a look came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// How far it is; `None` where nobody gives anything out.
    pub status: Option<SharingStatus>,
    /// What is given out now, for labels; `None` where nobody knows.
    pub in_force: Option<Offers>,
    /// What the label of the Node shall be that NVIDIA's plugin follows.
    pub plugin_label: PluginLabel,
    /// What is told of it in the Node's events.
    pub events: Vec<Event>,
    /// When to look again at the latest, where there is a reason; from now on.
    pub again: Option<Duration>,
}
