//! Hardware profiles of a cluster and the queues that they may name, followed; and a new profile, made.
//!
//! ```text
//!  API server --> follow (each kind by itself) --> wire: read --> Profiles, shared --> aggregator
//!  command line, aggregator --> write: who am I, is it there, apply
//! ```
//!
//! A cluster need not have any of the kinds: that is a state, which is looked at again, and no error. Following never writes.
//! Called by the aggregator, and for making one by the command line and, where it was started for that, by the aggregator.

mod follow;
mod write;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;

use self::follow::{profiles, queues};
pub use self::write::{
    Applied, DryRun, Existing, MANAGER, Outcome, Trouble, WriteError, Writer, key,
};
use super::client::{ConnectError, Program, connect};
use crate::domain::hardware_profile::{HardwareProfile, ProfileKey, ProfileKind, Queues};

/// What a cluster has of profiles and queues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profiles {
    /// The profiles.
    pub all: BTreeMap<(ProfileKind, ProfileKey), Arc<HardwareProfile>>,
    /// Whether the cluster knows each kind.
    pub kinds: BTreeMap<ProfileKind, Presence>,
    /// Kueue's queues.
    pub queues: Queues,
    /// Why some of it may not be how it is now, by what cannot be followed.
    pub troubles: BTreeMap<&'static str, String>,
}

/// Whether a cluster knows a kind of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// It does not: there can be none.
    Absent,
    /// It does, and these are all.
    There,
}

/// Follows the profiles of a cluster, to be run.
pub struct ProfileFollower {
    client: Client,
    known: watch::Sender<Arc<Profiles>>,
}

impl std::fmt::Debug for ProfileFollower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.known.borrow().all.len();
        write!(f, "ProfileFollower({count})")
    }
}

impl Profiles {
    /// Whether each kind has been asked about.
    pub fn is_read(&self) -> bool {
        ProfileKind::ALL
            .iter()
            .all(|kind| self.kinds.contains_key(kind))
    }
}

impl ProfileFollower {
    /// Of the cluster of `kubeconfig`, or of the one whose pod this is. Nothing is asked yet.
    pub async fn connect(kubeconfig: Option<&Path>) -> Result<Self, ConnectError> {
        Ok(Self::new(connect(kubeconfig, Program::Aggregator).await?))
    }

    /// The same with a client that is there.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: watch::Sender::default(),
        }
    }

    /// What is known, from now on.
    pub fn known(&self) -> watch::Receiver<Arc<Profiles>> {
        self.known.subscribe()
    }

    /// Follows them for ever.
    pub async fn run(self) {
        let Self { client, known } = self;
        let of = |kind| profiles(client.clone(), kind, &known);
        tokio::join!(
            of(ProfileKind::Hardware),
            of(ProfileKind::Dashboard),
            of(ProfileKind::Accelerator),
            queues(client.clone(), &known),
        );
    }
}
