//! Watches policies while the cluster has the kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use octavo_policy::Policy;
use octavo_toolkit::desired::update;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tracing::{info, warn};

use super::{KnownPolicies, object};
use crate::backoff::ReconnectBackoff;
use crate::client::describe_watch_error;
use crate::hardware_profiles::Presence;
use crate::optional_kind::{config, is_absent, watch_versions};

/// Maximum number of policies; further ones are ignored. A policy stands for a pool of nodes.
const MAX_POLICIES: usize = 1000;

type Known = watch::Sender<Arc<KnownPolicies>>;

/// Watches the policies of a cluster; run it as a task.
pub struct PolicyWatcher {
    client: Client,
    known: Known,
}

impl std::fmt::Debug for PolicyWatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PolicyWatcher({})", self.known.borrow().all.len())
    }
}

impl PolicyWatcher {
    /// Creates a watcher. Sends no request before it runs.
    pub fn new(client: Client) -> Self {
        Self { client, known: watch::Sender::default() }
    }

    /// Subscribes to the policies.
    pub fn known(&self) -> watch::Receiver<Arc<KnownPolicies>> {
        self.known.subscribe()
    }

    /// Runs forever.
    pub async fn run(self) {
        let Self { client, known } = self;
        let watch = |_version: &str| {
            watch_policies(Api::all_with(client.clone(), &object::resource()), &known)
        };
        let set_absent = || {
            let absent =
                KnownPolicies { presence: Some(Presence::Absent), ..KnownPolicies::default() };
            update(&known, |known| *known = Arc::new(absent));
        };
        watch_versions(&[octavo_policy::crd::VERSION], watch, set_absent).await;
    }
}

/// Watches until the cluster no longer has the kind. Returns whether it ever did.
async fn watch_policies(api: Api<DynamicObject>, known: &Known) -> bool {
    let mut was_there = false;
    let mut listed: BTreeMap<String, Arc<Policy>> = BTreeMap::new();
    let mut events = Box::pin(watcher(api, config()).backoff(ReconnectBackoff::default()));
    while let Some(event) = events.next().await {
        match event {
            Err(error) if is_absent(&error) => return was_there,
            Err(error) => set_error(known, Some(&error)),
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(found)) => {
                let policy = object::policy(&found);
                listed.insert(policy.name.clone(), Arc::new(policy));
            }
            Ok(Event::InitDone) => {
                was_there = true;
                let all = bounded(std::mem::take(&mut listed));
                change(known, |known| {
                    known.all = all;
                    if known.presence.replace(Presence::Present) != Some(Presence::Present) {
                        info!(policies = known.all.len(), "watching accelerator policies");
                    }
                });
            }
            Ok(Event::Apply(found)) => {
                let policy = object::policy(&found);
                change(known, |known| {
                    if known.all.len() < MAX_POLICIES || known.all.contains_key(&policy.name) {
                        known.all.insert(policy.name.clone(), Arc::new(policy));
                    }
                });
            }
            Ok(Event::Delete(found)) => change(known, |known| {
                known.all.remove(&found.name_any());
            }),
        }
    }
    was_there
}

fn bounded(mut all: BTreeMap<String, Arc<Policy>>) -> BTreeMap<String, Arc<Policy>> {
    if all.len() > MAX_POLICIES {
        warn!(
            limit = MAX_POLICIES,
            "too many accelerator policies; ignoring those above the limit"
        );
    }
    while all.len() > MAX_POLICIES {
        all.pop_last();
    }
    all
}

/// Publishes a change, which also shows that the watch works.
fn change(known: &Known, change: impl FnOnce(&mut KnownPolicies)) {
    set_error(known, None);
    update(known, |known| change(Arc::make_mut(known)));
}

/// Logs and stores a new error, or its end.
fn set_error(known: &Known, error: Option<&watcher::Error>) {
    let error = error.map(describe_watch_error);
    update(known, |known| {
        if known.error != error {
            if let Some(error) = &error {
                warn!(%error, "cannot watch accelerator policies; retrying");
            } else {
                info!("watching accelerator policies again");
            }
            Arc::make_mut(known).error = error;
        }
    });
}
