//! Watches one kind of object while the cluster has it, and checks periodically while it does not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_stream::StreamExt;
use tracing::{info, warn};

use super::{Presence, Profiles};
use crate::domain::hardware_profile::{HardwareProfile, ProfileKey, ProfileKind, Queues};
use crate::k8s::client::told;
use crate::k8s::node::Patience;
use crate::wire::hardware_profiles::{MOST, read};

/// Limit of stored queue names. Further names are reported as an error.
const MOST_QUEUES: usize = 50_000;
/// Server-side watch timeout in seconds. Renewing the watch confirms that it works.
const WATCH: u32 = 60;
/// Page size in objects.
const PAGE: u32 = 200;
/// Maximum length of an error message in characters.
const LONGEST: usize = 500;
const QUEUES: &str = "LocalQueues";
/// Kueue's API versions, newest first.
const KUEUE: [&str; 2] = ["v1beta2", "v1beta1"];

type Known = watch::Sender<Arc<Profiles>>;
type Listed = BTreeMap<ProfileKey, Arc<HardwareProfile>>;
/// Only the metadata of queues is requested.
type Queue = PartialObjectMeta<DynamicObject>;

fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH).page_size(PAGE)
}

/// Watches profiles of one kind forever, in any version that the cluster serves.
pub(super) async fn profiles(client: Client, kind: ProfileKind, known: &Known) {
    let (group, _, name, plural) = kind.api();
    let versions = kind.versions();
    let mut patience = Patience::default();
    let mut nobody = 0;
    for version in versions.iter().cycle() {
        let resource = GroupVersionKind::gvk(group, version, name);
        let resource = ApiResource::from_gvk_with_plural(&resource, plural);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        if profiles_of_version(api, kind, known).await {
            nobody = 0;
            patience = Patience::default();
        }
        nobody += 1;
        if nobody >= versions.len() {
            absent(known, kind);
            sleep(patience.next().unwrap_or_default()).await;
        }
    }
}

/// Watches profiles of one version until the cluster no longer has it. Returns whether it ever did.
async fn profiles_of_version(api: Api<DynamicObject>, kind: ProfileKind, known: &Known) -> bool {
    let mut was_there = false;
    let path = api.resource_url().to_owned();
    let mut events = Box::pin(watcher(api, config()).backoff(Patience::default()));
    let mut listed = Listed::new();
    while let Some(event) = events.next().await {
        match event {
            Err(error) if is_absent(&error) => return was_there,
            Err(error) => trouble(known, kind.word(), Some(&error)),
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                let (key, profile) = kept(kind, &object);
                if listed.len() < MOST {
                    listed.insert(key, profile);
                }
            }
            Ok(Event::InitDone) => {
                was_there = true;
                all(known, kind, std::mem::take(&mut listed), &path);
                trouble(known, kind.word(), None);
            }
            Ok(Event::Apply(object)) => {
                let (key, profile) = kept(kind, &object);
                known.send_modify(|known| {
                    let all = &mut Arc::make_mut(known).all;
                    if all.len() < MOST * ProfileKind::ALL.len() {
                        all.insert((kind, key), profile);
                    }
                });
                trouble(known, kind.word(), None);
            }
            Ok(Event::Delete(object)) => {
                let (key, _) = kept(kind, &object);
                known.send_modify(|known| {
                    Arc::make_mut(known).all.remove(&(kind, key));
                });
            }
        }
    }
    was_there
}

/// Sets the complete list of profiles of a kind, read from `path`.
fn all(known: &Known, kind: ProfileKind, listed: Listed, path: &str) {
    if listed.len() == MOST {
        warn!("only {MOST} profiles of {path} are read: there are more");
    }
    known.send_modify(|known| {
        let known = Arc::make_mut(known);
        known.all.retain(|(other, _), _| *other != kind);
        let listed = listed.into_iter().map(|(key, one)| ((kind, key), one));
        known.all.extend(listed);
        if known.kinds.insert(kind, Presence::There) != Some(Presence::There) {
            info!("the profiles of {path} are followed");
        }
    });
}

/// Converts an object to a profile.
fn kept(kind: ProfileKind, object: &DynamicObject) -> (ProfileKey, Arc<HardwareProfile>) {
    // Keep only the relevant metadata, because managed fields can be long.
    let mut whole = object.data.clone();
    if let Value::Object(fields) = &mut whole {
        let metadata = serde_json::json!({
            "name": object.name_any(),
            "namespace": object.namespace(),
            "annotations": object.annotations(),
        });
        fields.insert("metadata".to_owned(), metadata);
    }
    let profile = read(kind, &whole);
    (profile.key.clone(), Arc::new(profile))
}

fn absent(known: &Known, kind: ProfileKind) {
    known.send_if_modified(|known| {
        if known.kinds.get(&kind) == Some(&Presence::Absent) {
            return false;
        }
        let known = Arc::make_mut(known);
        known.kinds.insert(kind, Presence::Absent);
        known.all.retain(|(other, _), _| *other != kind);
        known.troubles.remove(kind.word());
        true
    });
}

/// Watches the names of queues forever.
pub(super) async fn queues(client: Client, known: &Known) {
    let mut patience = Patience::default();
    let mut nobody = 0;
    for version in KUEUE.iter().cycle() {
        let resource = GroupVersionKind::gvk("kueue.x-k8s.io", version, "LocalQueue");
        let resource = ApiResource::from_gvk_with_plural(&resource, "localqueues");
        let api: Api<Queue> = Api::all_with(client.clone(), &resource);
        // Ends when the cluster does not have this version; another one may be available.
        if of_version(api, known).await {
            nobody = 0;
        }
        nobody += 1;
        if nobody >= KUEUE.len() {
            tell(known, Queues::NoKueue);
            sleep(patience.next().unwrap_or_default()).await;
        }
    }
}

/// Watches queues of one version until the cluster no longer has it. Returns whether it ever did.
async fn of_version(api: Api<Queue>, known: &Known) -> bool {
    let mut events = Box::pin(watcher(api, config()).backoff(Patience::default()));
    let mut was_there = false;
    let mut names = Names::default();
    while let Some(event) = events.next().await {
        match event {
            // During a new list, the previous state stays: a partial list must not be published.
            Ok(Event::Init) => {
                names = Names::default();
                continue;
            }
            Ok(Event::InitApply(queue)) => {
                names.add(&queue);
                continue;
            }
            Ok(Event::Apply(queue)) => names.add(&queue),
            Ok(Event::Delete(queue)) => names.remove(&queue),
            Ok(Event::InitDone) => was_there = true,
            Err(error) if is_absent(&error) => return was_there,
            Err(error) => {
                trouble(known, QUEUES, Some(&error));
                continue;
            }
        }
        if was_there {
            let kept = names.kept.iter().map(|(name, _)| name.clone());
            tell(known, Queues::These(kept.collect()));
            trouble(known, QUEUES, None);
            bound(known, names.is_full);
        }
    }
    was_there
}

/// Names and namespaces of queues, limited to the first [`MOST_QUEUES`].
#[derive(Debug, Default)]
struct Names {
    kept: BTreeSet<(String, String)>,
    /// Whether the limit was exceeded since the last list. Only another list can clear it.
    is_full: bool,
}

impl Names {
    fn add(&mut self, queue: &Queue) {
        let name = (queue.name_any(), queue.namespace().unwrap_or_default());
        if self.kept.len() < MOST_QUEUES {
            self.kept.insert(name);
        } else if !self.kept.contains(&name) {
            self.is_full = true;
        }
    }

    fn remove(&mut self, queue: &Queue) {
        let name = (queue.name_any(), queue.namespace().unwrap_or_default());
        self.kept.remove(&name);
    }
}

/// Reports whether there are more queues than are stored, in which case an existing queue may be reported as missing.
fn bound(known: &Known, is_full: bool) {
    const WHAT: &str = "LocalQueues beyond the bound";
    known.send_if_modified(|known| {
        if known.troubles.contains_key(WHAT) == is_full {
            return false;
        }
        let troubles = &mut Arc::make_mut(known).troubles;
        if is_full {
            warn!("only {MOST_QUEUES} LocalQueues are known: there are more");
            let said = format!(
                "only {MOST_QUEUES} are known, and a queue that is said to be missing may be there"
            );
            troubles.insert(WHAT, said);
        } else {
            info!("all LocalQueues are known again");
            troubles.remove(WHAT);
        }
        true
    });
}

fn tell(known: &Known, queues: Queues) {
    known.send_if_modified(|known| {
        if known.queues == queues {
            return false;
        }
        Arc::make_mut(known).queues = queues;
        true
    });
}

/// Logs and stores a new error, or its end.
fn trouble(known: &Known, what: &'static str, error: Option<&watcher::Error>) {
    let new = error.map(|error| -> String { words(error).chars().take(LONGEST).collect() });
    known.send_if_modified(|known| {
        if known.troubles.get(what) == new.as_ref() {
            return false;
        }
        let troubles = &mut Arc::make_mut(known).troubles;
        if let Some(new) = new {
            warn!("{what} cannot be followed: {new}; it is tried again");
            troubles.insert(what, new);
        } else {
            info!("{what} are followed again");
            troubles.remove(what);
        }
        true
    });
}

/// Returns whether the cluster does not have the kind.
fn is_absent(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    status.code == 404
}

fn words(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => told(error),
        watcher::Error::WatchError(status) => told(&kube::Error::Api(status.clone())),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn queue(name: usize) -> Queue {
        let object = json!({"metadata": {"name": format!("q-{name}"), "namespace": "a"}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn more_queues_than_are_kept_are_told_as_trouble_until_another_list() {
        let known = Known::default();
        let told = || {
            let known = known.borrow();
            known.troubles.values().cloned().collect::<Vec<_>>()
        };
        let mut names = Names::default();
        for name in 0..MOST_QUEUES {
            names.add(&queue(name));
        }
        // A known queue does not exceed the limit.
        names.add(&queue(0));
        bound(&known, names.is_full);
        assert_eq!(told(), Vec::<String>::new());
        names.add(&queue(MOST_QUEUES));
        names.remove(&queue(1));
        bound(&known, names.is_full);
        assert_eq!(names.kept.len(), MOST_QUEUES - 1);
        let said = told();
        assert!(said[0].starts_with("only 50000 are known"), "{said:?}");
        bound(&known, Names::default().is_full);
        assert_eq!(told(), Vec::<String>::new());
    }
}
