//! Watches one kind of object while the cluster has it, and checks periodically while it does not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use octavo_fleet::hardware_profile::MAX_PROFILES;
use octavo_fleet::hardware_profile::object::read;
use octavo_fleet::hardware_profile::{HardwareProfile, LocalQueues, ProfileKey, ProfileKind};
use serde_json::Value;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tracing::{info, warn};

use super::{Presence, Profiles};
use crate::backoff::ReconnectBackoff;
use crate::client::describe_watch_error;
use crate::optional_kind::{config, is_absent, watch_versions};

/// Limit of stored queue names. Further names are reported as an error.
const MAX_QUEUES: usize = 50_000;
/// Maximum length of an error message in characters.
const MAX_ERROR_CHARS: usize = 500;
const QUEUES: &str = "LocalQueues";
/// Kueue's API versions, newest first.
const KUEUE_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

type Known = watch::Sender<Arc<Profiles>>;
type Listed = BTreeMap<ProfileKey, Arc<HardwareProfile>>;
/// Only the metadata of queues is requested.
type Queue = PartialObjectMeta<DynamicObject>;

/// Watches profiles of one kind forever, in any version that the cluster serves.
pub(super) async fn watch_profiles(client: Client, kind: ProfileKind, known: &Known) {
    let (group, _, name, plural) = kind.api();
    let watch = |version: &str| {
        let resource = GroupVersionKind::gvk(group, version, name);
        let resource = ApiResource::from_gvk_with_plural(&resource, plural);
        watch_profiles_of_version(Api::all_with(client.clone(), &resource), kind, known)
    };
    watch_versions(kind.versions(), watch, || set_absent(known, kind)).await;
}

/// Watches profiles of one version until the cluster no longer has it. Returns whether it ever did.
async fn watch_profiles_of_version(
    api: Api<DynamicObject>,
    kind: ProfileKind,
    known: &Known,
) -> bool {
    let mut was_there = false;
    let path = api.resource_url().to_owned();
    let mut events = Box::pin(watcher(api, config()).backoff(ReconnectBackoff::default()));
    let mut listed = Listed::new();
    while let Some(event) = events.next().await {
        match event {
            Err(error) if is_absent(&error) => return was_there,
            Err(error) => set_error(known, kind.as_str(), Some(&error)),
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                let (key, profile) = parse_profile(kind, &object);
                if listed.len() < MAX_PROFILES {
                    listed.insert(key, profile);
                }
            }
            Ok(Event::InitDone) => {
                was_there = true;
                set_profiles(known, kind, std::mem::take(&mut listed), &path);
                set_error(known, kind.as_str(), None);
            }
            Ok(Event::Apply(object)) => {
                let (key, profile) = parse_profile(kind, &object);
                known.send_modify(|known| {
                    let all = &mut Arc::make_mut(known).all;
                    if all.len() < MAX_PROFILES * ProfileKind::ALL.len() {
                        all.insert((kind, key), profile);
                    }
                });
                set_error(known, kind.as_str(), None);
            }
            Ok(Event::Delete(object)) => {
                let (key, _) = parse_profile(kind, &object);
                known.send_modify(|known| {
                    Arc::make_mut(known).all.remove(&(kind, key));
                });
            }
        }
    }
    was_there
}

/// Sets the complete list of profiles of a kind, read from `path`.
fn set_profiles(known: &Known, kind: ProfileKind, listed: Listed, path: &str) {
    if listed.len() == MAX_PROFILES {
        warn!(limit = MAX_PROFILES, %path, "too many hardware profiles; ignoring those above the limit");
    }
    known.send_modify(|known| {
        let known = Arc::make_mut(known);
        known.all.retain(|(other, _), _| *other != kind);
        let listed = listed.into_iter().map(|(key, one)| ((kind, key), one));
        known.all.extend(listed);
        if known.kinds.insert(kind, Presence::Present) != Some(Presence::Present) {
            info!(%path, "watching hardware profiles");
        }
    });
}

/// Converts an object to a profile.
fn parse_profile(kind: ProfileKind, object: &DynamicObject) -> (ProfileKey, Arc<HardwareProfile>) {
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

fn set_absent(known: &Known, kind: ProfileKind) {
    known.send_if_modified(|known| {
        if known.kinds.get(&kind) == Some(&Presence::Absent) {
            return false;
        }
        let known = Arc::make_mut(known);
        known.kinds.insert(kind, Presence::Absent);
        known.all.retain(|(other, _), _| *other != kind);
        known.errors.remove(kind.as_str());
        true
    });
}

/// Watches the names of queues forever.
pub(super) async fn watch_queues(client: Client, known: &Known) {
    let watch = |version: &str| {
        let resource = GroupVersionKind::gvk("kueue.x-k8s.io", version, "LocalQueue");
        let resource = ApiResource::from_gvk_with_plural(&resource, "localqueues");
        watch_queues_of_version(Api::all_with(client.clone(), &resource), known)
    };
    watch_versions(&KUEUE_VERSIONS, watch, || set_queues(known, LocalQueues::NoKueue)).await;
}

/// Watches queues of one version until the cluster no longer has it. Returns whether it ever did.
async fn watch_queues_of_version(api: Api<Queue>, known: &Known) -> bool {
    let mut events = Box::pin(watcher(api, config()).backoff(ReconnectBackoff::default()));
    let mut was_there = false;
    let mut names = QueueNames::default();
    while let Some(event) = events.next().await {
        match event {
            // During a new list, the previous state stays: a partial list must not be published.
            Ok(Event::Init) => {
                names = QueueNames::default();
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
                set_error(known, QUEUES, Some(&error));
                continue;
            }
        }
        if was_there {
            let queue_names = names.names.iter().map(|(name, _)| name.clone());
            set_queues(known, LocalQueues::Known(queue_names.collect()));
            set_error(known, QUEUES, None);
            report_limit(known, names.is_full);
        }
    }
    was_there
}

/// Names and namespaces of queues, limited to the first [`MAX_QUEUES`].
#[derive(Debug, Default)]
struct QueueNames {
    names: BTreeSet<(String, String)>,
    /// Whether the limit was exceeded since the last list. Only another list can clear it.
    is_full: bool,
}

impl QueueNames {
    fn add(&mut self, queue: &Queue) {
        let name = queue_name(queue);
        if self.names.len() < MAX_QUEUES {
            self.names.insert(name);
        } else if !self.names.contains(&name) {
            self.is_full = true;
        }
    }

    fn remove(&mut self, queue: &Queue) {
        self.names.remove(&queue_name(queue));
    }
}

fn queue_name(queue: &Queue) -> (String, String) {
    (queue.name_any(), queue.namespace().unwrap_or_default())
}

/// Reports whether there are more queues than are stored, in which case an existing queue may be reported as missing.
fn report_limit(known: &Known, is_full: bool) {
    const WHAT: &str = "LocalQueues above the limit";
    known.send_if_modified(|known| {
        if known.errors.contains_key(WHAT) == is_full {
            return false;
        }
        let troubles = &mut Arc::make_mut(known).errors;
        if is_full {
            warn!(limit = MAX_QUEUES, "too many LocalQueues; ignoring those above the limit");
            let message =
                format!("only {MAX_QUEUES} are read, so a queue reported as missing might exist");
            troubles.insert(WHAT, message);
        } else {
            info!("all LocalQueues are read again");
            troubles.remove(WHAT);
        }
        true
    });
}

fn set_queues(known: &Known, queues: LocalQueues) {
    known.send_if_modified(|known| {
        if known.queues == queues {
            return false;
        }
        Arc::make_mut(known).queues = queues;
        true
    });
}

/// Logs and stores a new error, or its end.
fn set_error(known: &Known, what: &'static str, error: Option<&watcher::Error>) {
    let new: Option<String> =
        error.map(|error| describe_watch_error(error).chars().take(MAX_ERROR_CHARS).collect());
    known.send_if_modified(|known| {
        if known.errors.get(what) == new.as_ref() {
            return false;
        }
        let troubles = &mut Arc::make_mut(known).errors;
        if let Some(new) = new {
            warn!(objects = %what, error = %new, "cannot watch the cluster; retrying");
            troubles.insert(what, new);
        } else {
            info!(objects = %what, "watching the cluster again");
            troubles.remove(what);
        }
        true
    });
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
    fn exceeding_queue_limit_is_reported_until_next_list() {
        let known = Known::default();
        let errors = || {
            let known = known.borrow();
            known.errors.values().cloned().collect::<Vec<_>>()
        };
        let mut names = QueueNames::default();
        for name in 0..MAX_QUEUES {
            names.add(&queue(name));
        }
        // A known queue does not exceed the limit.
        names.add(&queue(0));
        report_limit(&known, names.is_full);
        assert_eq!(errors(), Vec::<String>::new());
        names.add(&queue(MAX_QUEUES));
        names.remove(&queue(1));
        report_limit(&known, names.is_full);
        assert_eq!(names.names.len(), MAX_QUEUES - 1);
        let messages = errors();
        assert!(messages[0].starts_with("only 50000 are read"), "{messages:?}");
        report_limit(&known, QueueNames::default().is_full);
        assert_eq!(errors(), Vec::<String>::new());
    }
}
