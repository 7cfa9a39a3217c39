//! Watches hardware profiles and the queues that they can reference, and creates profiles.
//!
//! ```text
//!  API server --> profile_watcher (each kind separately) --> octavo_fleet: parse --> Profiles, shared --> aggregator
//!  command line, aggregator --> write: identify, check for existing, apply
//! ```
//!
//! A cluster without a kind is a normal state, which is checked again periodically. Watching never writes. Used by the
//! aggregator. Profiles are created by the command line and, if enabled, by the aggregator.

mod profile_watcher;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use octavo_fleet::hardware_profile::{HardwareProfile, LocalQueues, ProfileKey, ProfileKind};
use tokio::sync::watch;

use self::profile_watcher::{watch_profiles, watch_queues};
pub use self::write::{
    Applied, DryRun, ErrorCategory, Existing, FIELD_MANAGER, Outcome, ProfileWriter, WriteError,
    key,
};

/// Profiles and queues of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profiles {
    /// The profiles.
    pub all: BTreeMap<(ProfileKind, ProfileKey), Arc<HardwareProfile>>,
    /// Whether the cluster has each kind.
    pub kinds: BTreeMap<ProfileKind, Presence>,
    /// Kueue's queues.
    pub queues: LocalQueues,
    /// Errors that may make parts outdated, by the kind that cannot be watched.
    pub errors: BTreeMap<&'static str, String>,
}

/// Whether a cluster has a kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// It does not, so there are no objects.
    Absent,
    /// It does, and all objects are listed.
    Present,
}

/// Watches the profiles of a cluster; run it as a task.
pub struct ProfileWatcher {
    client: Client,
    known: watch::Sender<Arc<Profiles>>,
}

impl std::fmt::Debug for ProfileWatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.known.borrow().all.len();
        write!(f, "ProfileWatcher({count})")
    }
}

impl Profiles {
    /// Returns whether the state of every kind is known.
    pub fn is_read(&self) -> bool {
        ProfileKind::ALL.iter().all(|kind| self.kinds.contains_key(kind))
    }
}

impl ProfileWatcher {
    /// Creates a watcher. Sends no request before it runs.
    pub fn new(client: Client) -> Self {
        Self { client, known: watch::Sender::default() }
    }

    /// Subscribes to the profiles.
    pub fn known(&self) -> watch::Receiver<Arc<Profiles>> {
        self.known.subscribe()
    }

    /// Runs forever.
    pub async fn run(self) {
        let Self { client, known } = self;
        let of = |kind| watch_profiles(client.clone(), kind, &known);
        tokio::join!(
            of(ProfileKind::Hardware),
            of(ProfileKind::Dashboard),
            of(ProfileKind::Accelerator),
            watch_queues(client.clone(), &known),
        );
    }
}
