//! Polls the kubelet's allocations, because its API has no change notifications.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::folder::Stamp;
use super::gate::Gate;
use crate::domain::error::chain;
use crate::k8s::pod_resources::{self, Allocatable};
use crate::k8s::who_has::Asker;

/// Query timeout. The kubelet answers from memory.
const PATIENCE: Duration = Duration::from_secs(2);
/// Poll interval while a change is expected. The kubelet rejects more than a hundred queries per second.
const SOON: Duration = Duration::from_secs(1);
/// Poll interval while no change is expected.
const SELDOM: Duration = Duration::from_secs(15);
/// After this time, an expected change is polled at the slow interval.
const HASTE: Duration = Duration::from_mins(3);

/// Result of the last query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// When the query started.
    pub asked: Instant,
    /// Why the allocations are unknown, for users.
    pub trouble: Option<String>,
    /// The IDs that the kubelet may allocate; `None` if it does not report them.
    pub allocatable: Option<Allocatable>,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            asked: Instant::now(),
            trouble: Some("kubelet was not asked yet who has what".to_owned()),
            allocatable: None,
        }
    }
}

/// Polls the kubelet and updates the gate and subscribers until there are no subscribers.
pub(super) async fn follow(
    kubelet: Option<(PathBuf, Asker)>,
    gate: Arc<Gate>,
    told: watch::Sender<Arc<Told>>,
) {
    let Some((socket, mut asker)) = kubelet else {
        let reason = "kubelet cannot be asked who has what: --pod-resources none";
        told.send_modify(|told| Arc::make_mut(told).trouble = Some(reason.to_owned()));
        return told.closed().await;
    };
    let mut listing = gate.listing();
    let mut given = gate.given();
    let mut known = None;
    let mut haste = Haste::default();
    while !told.is_closed() {
        ask((&socket, &mut asker), &gate, &told, &mut known).await;
        // Limits the query rate regardless of events.
        sleep(SOON).await;
        if haste.is_on(Instant::now(), is_waited_for(&gate, &told.borrow())) {
            continue;
        }
        tokio::select! {
            () = sleep(SELDOM) => {}
            Ok(()) = listing.changed() => haste = Haste::default(),
            Ok(()) = given.changed() => haste = Haste::default(),
            () = told.closed() => {}
        }
    }
}

/// Limits fast polling in time: a pod that keeps its devices may run for weeks.
#[derive(Debug, Default)]
struct Haste {
    since: Option<Instant>,
}

impl Haste {
    fn is_on(&mut self, now: Instant, waits: bool) -> bool {
        if !waits {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.saturating_duration_since(since) < HASTE
    }
}

async fn ask(
    (socket, kubelet): (&Path, &mut Asker),
    gate: &Gate,
    told: &watch::Sender<Arc<Told>>,
    known: &mut Option<Stamp>,
) {
    let (asked, now) = (gate.now(), Instant::now());
    // The kubelet recreates its socket at start, and responds before it has loaded its pods.
    let before = Stamp::of(socket);
    let heard = kubelet.ask(PATIENCE).await;
    let (news, trouble) = match heard {
        // Without a checkpoint, the first response of a young kubelet may lack the allocations of its predecessor.
        Ok(heard) if known.is_none() && heard.is_young && !heard.is_recorded => {
            (gate.untold(), Some(pod_resources::YOUNG.to_owned()))
        }
        Ok(heard) => {
            // If it restarted during the query, it is unknown which of the two processes has responded.
            let after = Stamp::of(socket);
            let restarted = known.is_some() && (*known != before || before != after);
            *known = after;
            (gate.told(asked, heard.given, restarted), None)
        }
        Err(error) => (gate.untold(), Some(chain(&error))),
    };
    let allocatable = match &trouble {
        None => pod_resources::allocatable(socket, PATIENCE).await,
        Some(_) => Ok(None),
    };
    let new = Told {
        asked: now,
        trouble,
        allocatable: allocatable.unwrap_or_default(),
    };
    told.send_if_modified(|told| {
        let differs = told.trouble != new.trouble || told.allocatable != new.allocatable;
        *told = Arc::new(new);
        differs || news
    });
}

/// Returns whether a change in the kubelet's report is expected: a pod ends, an allocation appears, or a list was read.
fn is_waited_for(gate: &Gate, told: &Told) -> bool {
    let listing = gate.listing();
    let listing = Arc::clone(&listing.borrow());
    if told.trouble.is_some() || !listing.kept.is_empty() || !gate.unseen().is_empty() {
        return true;
    }
    let Some(allocatable) = &told.allocatable else {
        return false;
    };
    listing.resources.iter().any(|(name, listed)| {
        let known = allocatable.get(name.as_str());
        let known = known.into_iter().flatten();
        let listed = listed.fit().map(ToString::to_string);
        let mut listed: Vec<String> = listed.collect();
        listed.sort();
        !known.eq(listed.iter())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_long_is_asked_for_seldom_and_what_is_new_soon_again() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut haste = Haste::default();
        assert!(!haste.is_on(at(0), false));
        assert!(haste.is_on(at(10), true));
        assert!(haste.is_on(at(189), true));
        assert!(!haste.is_on(at(190), true));
        assert!(!haste.is_on(at(191), false));
        assert!(haste.is_on(at(192), true));
    }
}
