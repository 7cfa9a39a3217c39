//! Stored objects with resource versions, and their latest changes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::kinds::{Kind, ObjectKey};
use super::status::Refusal;

/// Number of retained changes; older versions have expired for watches.
const MAX_CHANGES: usize = 4096;
/// Maximum number of events; the oldest are dropped.
const MAX_EVENTS: usize = 1000;

/// A change of an object.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) kind: Kind,
    /// The object before the change; `None` if it was created.
    pub(super) before: Option<Arc<Value>>,
    /// The object after the change; `None` if it was deleted.
    pub(super) after: Option<Arc<Value>>,
}

/// The objects of a cluster.
#[derive(Debug)]
pub struct Objects {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    uids: u64,
    objects: BTreeMap<ObjectKey, Arc<Value>>,
    changes: VecDeque<Change>,
    /// Version of the last change, by kind.
    last_changes: BTreeMap<Kind, u64>,
}

impl Default for Objects {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Objects {
    /// Subscribes to the latest resource version.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns an object.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Value>> {
        self.lock().objects.get(key).map(Arc::clone)
    }

    /// Returns the objects of a kind, ordered by namespace and name, and the resource version of the list. An empty
    /// namespace selects all.
    pub fn list(&self, kind: Kind, namespace: &str) -> (u64, Vec<Arc<Value>>) {
        let state = self.lock();
        let objects = state.objects.iter();
        let found = objects.filter(|(key, _)| {
            key.kind == kind && (namespace.is_empty() || key.namespace == namespace)
        });
        (state.version, found.map(|(_, object)| Arc::clone(object)).collect())
    }

    /// Creates an object, and returns it with the server's metadata.
    pub fn create(&self, kind: Kind, mut object: Value) -> Result<Arc<Value>, Refusal> {
        let mut state = self.lock();
        let key = key_of(kind, &object);
        if key.name.is_empty() {
            return Err(Refusal::invalid("metadata.name: Required value: name is required"));
        }
        if state.objects.contains_key(&key) {
            return Err(Refusal::exists(&key));
        }
        state.check_namespace(&key)?;
        state.uids += 1;
        let uid = format!("00000000-0000-4000-8000-{:012x}", state.uids);
        if object.pointer("/metadata/uid").is_none() {
            set_metadata(&mut object, "uid", json!(uid));
        }
        set_metadata(&mut object, "creationTimestamp", json!(now()));
        set_metadata(&mut object, "generation", json!(1));
        let object = state.record(&key, object);
        state.drop_old_events();
        self.changed.send_replace(state.version);
        Ok(object)
    }

    /// Checks that the namespace of an object exists.
    pub(super) fn check_namespace(&self, key: &ObjectKey) -> Result<(), Refusal> {
        self.lock().check_namespace(key)
    }

    /// Changes an object, and returns it. An object that stays the same keeps its resource version. An object that is being deleted is
    /// removed with its last finalizer.
    pub fn update(
        &self,
        key: &ObjectKey,
        change: impl FnOnce(&mut Value) -> Result<(), Refusal>,
    ) -> Result<Arc<Value>, Refusal> {
        let mut state = self.lock();
        let before =
            state.objects.get(key).map(Arc::clone).ok_or_else(|| Refusal::not_found(key))?;
        let mut after = Value::clone(&before);
        change(&mut after)?;
        if after == *before {
            return Ok(before);
        }
        if after.get("spec") != before.get("spec") {
            let generation = before.pointer("/metadata/generation").and_then(Value::as_u64);
            let next = generation.unwrap_or_default().saturating_add(1);
            set_metadata(&mut after, "generation", json!(next));
        }
        let is_last = is_terminating(&after) && !has_finalizers(&after);
        let object = state.record(key, after);
        if is_last {
            state.remove(key);
        }
        self.changed.send_replace(state.version);
        Ok(object)
    }

    /// Deletes an object, or marks it as being deleted if it has finalizers. Returns its last state.
    pub fn delete(&self, key: &ObjectKey) -> Result<Arc<Value>, Refusal> {
        let mut state = self.lock();
        let object = state.objects.get(key).ok_or_else(|| Refusal::not_found(key))?;
        let object = if has_finalizers(object) {
            let mut terminating = Value::clone(object);
            if is_terminating(&terminating) {
                return Ok(Arc::clone(object));
            }
            set_metadata(&mut terminating, "deletionTimestamp", json!(now()));
            Some(state.record(key, terminating))
        } else {
            state.remove(key)
        };
        self.changed.send_replace(state.version);
        object.ok_or_else(|| Refusal::not_found(key))
    }

    /// Returns the resource version of the last change of a kind.
    pub fn last_change(&self, kind: Kind) -> u64 {
        self.lock().last_changes.get(&kind).copied().unwrap_or_default()
    }

    /// Returns the changes of a kind after `version`, and the latest version. `None` if the version has expired.
    pub(super) fn changes_after(&self, kind: Kind, version: u64) -> Option<(u64, Vec<Change>)> {
        let state = self.lock();
        let oldest = state.changes.front().map_or(state.version, |change| change.version);
        let is_expired = state.changes.len() >= MAX_CHANGES && version.saturating_add(1) < oldest;
        if is_expired || version > state.version {
            return None;
        }
        let from = state.changes.partition_point(|change| change.version <= version);
        let later = state.changes.range(from..).filter(|change| change.kind == kind);
        Some((state.version, later.cloned().collect()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check_namespace(&self, key: &ObjectKey) -> Result<(), Refusal> {
        let namespace = ObjectKey::new(Kind::Namespace, "", &key.namespace);
        // Events about Nodes are in `default`, which every cluster has.
        let is_required = key.kind.is_namespaced() && key.namespace != "default";
        if is_required && !self.objects.contains_key(&namespace) {
            return Err(Refusal::not_found(&namespace));
        }
        Ok(())
    }

    /// Stores an object with the next resource version.
    fn record(&mut self, key: &ObjectKey, mut object: Value) -> Arc<Value> {
        self.version += 1;
        let (version, _) = key.kind.api();
        if let Value::Object(fields) = &mut object {
            fields.insert("apiVersion".to_owned(), json!(version));
            fields.insert("kind".to_owned(), json!(key.kind.name()));
        }
        set_metadata(&mut object, "resourceVersion", json!(self.version.to_string()));
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        self.log(key.kind, before, Some(Arc::clone(&object)));
        object
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Value>> {
        let object = self.objects.remove(key)?;
        self.version += 1;
        let mut last = Value::clone(&object);
        set_metadata(&mut last, "resourceVersion", json!(self.version.to_string()));
        let last = Arc::new(last);
        self.log(key.kind, Some(Arc::clone(&last)), None);
        Some(last)
    }

    fn log(&mut self, kind: Kind, before: Option<Arc<Value>>, after: Option<Arc<Value>>) {
        self.last_changes.insert(kind, self.version);
        self.changes.push_back(Change { version: self.version, kind, before, after });
        if self.changes.len() > MAX_CHANGES {
            self.changes.pop_front();
        }
    }

    fn drop_old_events(&mut self) {
        let version = |object: &Value| {
            let text = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            text.and_then(|text| text.parse::<u64>().ok()).unwrap_or_default()
        };
        let events = self.objects.iter().filter(|(key, _)| key.kind == Kind::Event);
        let mut events: Vec<(u64, ObjectKey)> =
            events.map(|(key, object)| (version(object), key.clone())).collect();
        let surplus = events.len().saturating_sub(MAX_EVENTS);
        events.sort();
        for (_, key) in events.into_iter().take(surplus) {
            self.remove(&key);
        }
    }
}

fn has_finalizers(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

/// Returns whether an object is being deleted.
fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// Returns the key that an object's metadata contains.
pub(super) fn key_of(kind: Kind, object: &Value) -> ObjectKey {
    let text = |field: &str| {
        let metadata = object.get("metadata");
        metadata.and_then(|metadata| metadata.get(field)?.as_str()).unwrap_or_default().to_owned()
    };
    ObjectKey { kind, namespace: text("namespace"), name: text("name") }
}

/// Sets a field of an object's metadata.
pub(super) fn set_metadata(object: &mut Value, field: &str, value: Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.insert(field.to_owned(), value);
    }
}

/// Returns the time as the API server writes it.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Value {
        json!({"metadata": {"name": name}})
    }

    #[test]
    fn changes_have_increasing_versions_and_unchanged_objects_keep_theirs() {
        let objects = Objects::default();
        let key = ObjectKey::new(Kind::Node, "", "a");
        objects.create(Kind::Node, node("a")).unwrap();
        assert_eq!(objects.create(Kind::Node, node("a")).unwrap_err().code, 409);
        let same = objects.update(&key, |_| Ok(())).unwrap();
        assert_eq!(same["metadata"]["resourceVersion"], "1");
        let changed = objects.update(&key, |node| {
            node["spec"] = json!({"unschedulable": true});
            Ok(())
        });
        assert_eq!(changed.unwrap()["metadata"]["generation"], 2);
        objects.delete(&key).unwrap();
        let (version, found) = objects.changes_after(Kind::Node, 1).unwrap();
        assert_eq!((version, found.len()), (3, 2));
        assert!(found[1].after.is_none());
        assert_eq!(objects.changes_after(Kind::Pod, 1).unwrap().1.len(), 0);
    }

    #[test]
    fn expired_and_future_versions_are_refused() {
        let objects = Objects::default();
        for number in 0..MAX_CHANGES + 10 {
            objects.create(Kind::Node, node(&number.to_string())).unwrap();
        }
        assert!(objects.changes_after(Kind::Node, 1).is_none());
        assert!(objects.changes_after(Kind::Node, 10).is_some());
        assert!(objects.changes_after(Kind::Node, 1_000_000).is_none());
    }

    #[test]
    fn object_with_finalizers_is_removed_with_the_last_one() {
        let objects = Objects::default();
        let key = ObjectKey::new(Kind::AcceleratorPolicy, "", "a");
        let policy = json!({"metadata": {"name": "a", "finalizers": ["octavo.dev/policy"]}});
        objects.create(Kind::AcceleratorPolicy, policy).unwrap();
        for _repeated in 0..2 {
            let terminating = objects.delete(&key).unwrap();
            assert!(terminating["metadata"]["deletionTimestamp"].is_string(), "{terminating}");
        }
        assert_eq!(objects.changes_after(Kind::AcceleratorPolicy, 0).unwrap().1.len(), 2);
        let released = objects.update(&key, |policy| {
            policy["metadata"]["finalizers"] = json!([]);
            Ok(())
        });
        released.unwrap();
        assert!(objects.get(&key).is_none());
        let (_, changes) = objects.changes_after(Kind::AcceleratorPolicy, 0).unwrap();
        assert!(changes.last().unwrap().after.is_none());
    }

    #[test]
    fn object_needs_its_namespace_and_old_events_are_dropped() {
        let objects = Objects::default();
        let pod = json!({"metadata": {"name": "p", "namespace": "a"}});
        assert_eq!(objects.create(Kind::Pod, pod.clone()).unwrap_err().code, 404);
        objects.create(Kind::Namespace, node("a")).unwrap();
        objects.create(Kind::Pod, pod).unwrap();
        for number in 0..MAX_EVENTS + 5 {
            let event = json!({"metadata": {"name": number.to_string(), "namespace": "a"}});
            objects.create(Kind::Event, event).unwrap();
        }
        let (_, events) = objects.list(Kind::Event, "");
        assert_eq!(events.len(), MAX_EVENTS);
        assert!(objects.get(&ObjectKey::new(Kind::Event, "a", "0")).is_none());
    }
}
