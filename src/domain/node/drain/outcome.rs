//! What comes of a drain.

use std::collections::BTreeSet;
use std::time::Duration;

use super::facts::Scope;
use super::pod::PodId;
use crate::domain::id::PciAddress;

/// What is asked of whoever speaks to the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Orders {
    /// How often the node's pods are to be listed.
    pub list: Option<Duration>,
    /// Pods that shall go.
    pub evict: Vec<PodId>,
}

/// What is to be, and what has come of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Whether the Node shall have our taint.
    pub is_tainted: bool,
    /// What the API server is asked.
    pub orders: Orders,
    /// Whether pods are still to go before anything is done about others.
    pub waits_for_pods: bool,
    /// When to look again at the latest.
    pub again: Option<Duration>,
    /// Devices that pods were evicted for, for the layout that is chosen now.
    pub devices: BTreeSet<PciAddress>,
    /// What just happened.
    pub news: Vec<News>,
    /// Where it stands; `None` while there is nothing to drain for.
    pub standing: Option<Standing>,
}

/// How far a drain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Who is in the way is looked up.
    Looking,
    /// Nothing is evicted.
    Refused,
    /// The taint is on its way.
    Tainting,
    /// Pods are evicted.
    Emptying,
    /// It has had its deadline, and is retried after a backoff.
    GaveUp,
    /// The latest attempt did not give up, and another one follows after a backoff.
    Waiting,
}

impl Stage {
    /// In a word, as the annotation has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Looking => "looking",
            Self::Refused => "refused",
            Self::Tainting => "tainting",
            Self::Emptying => "emptying",
            Self::GaveUp => "gave-up",
            Self::Waiting => "waiting",
        }
    }
}

impl Standing {
    /// The same without what comes and goes at every look: processes.
    #[must_use]
    pub fn steady(&self) -> Self {
        let mut steady = self.clone();
        let comes_and_goes = |who: &Name| matches!(who, Name::Process(_));
        steady.waits_for.retain(|one| !comes_and_goes(&one.who));
        steady
    }
}

/// Where a drain stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// `affected` or `node`.
    pub policy: &'static str,
    /// How far it is.
    pub phase: Stage,
    /// What is wrong, where it is no pod's fault.
    pub message: Option<String>,
    /// Who is still in the way, and why.
    pub waits_for: Vec<Waiting>,
}

/// Somebody who is waited for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// Who.
    pub who: Name,
    /// Why it is still there.
    pub reason: String,
}

/// What somebody in the way is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// A pod, as `namespace/name`, or by its UID where that is all there is.
    Pod(String),
    /// A process of no pod.
    Process(String),
}

/// Something to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Pods in the way of these devices are about to be evicted.
    Began {
        /// Which may be.
        scope: Scope,
        /// What people call the devices.
        devices: Vec<String>,
        /// The pods in the way.
        pods: Vec<String>,
    },
    /// Nothing is in the way any more.
    Ended,
    /// Something else is asked of the node.
    Withdrawn,
    /// Nothing can be done for a while.
    Interrupted,
    /// The deadline has passed.
    GaveUp {
        /// How long it went on.
        after: Duration,
        /// The backoff before the next attempt.
        retry: Duration,
        /// Who is still there.
        waits_for: Vec<Waiting>,
    },
    /// Nothing more is evicted because of these.
    Refused {
        /// The blockers that stay.
        waits_for: Vec<Waiting>,
    },
    /// We may not list or evict pods.
    Forbidden,
}
