//! Server-side apply and merge patches, with the owners of fields.
//!
//! Ownership is tracked for each field that is not an object; a list is one field. Source: Kubernetes, "Server-Side
//! Apply"; RFC 7386.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::objects::{now, set_metadata};
use super::status::Refusal;

/// Path of a field.
type FieldPath = Vec<String>;

/// Fields that identify an object or belong to the server.
const SERVER_FIELDS: [&[&str]; 9] = [
    &["apiVersion"],
    &["kind"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "resourceVersion"],
    &["metadata", "generation"],
    &["metadata", "creationTimestamp"],
    &["metadata", "managedFields"],
];

/// The author of a change, as the object records it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Author<'a> {
    pub(super) manager: &'a str,
    /// True for server-side apply, which replaces all fields of the manager; false for an update.
    pub(super) applies: bool,
    /// True if fields of other managers are taken over.
    pub(super) force: bool,
}

/// A manager and the fields that it owns.
#[derive(Debug)]
struct Owner {
    manager: String,
    applies: bool,
    fields: BTreeSet<FieldPath>,
    /// When it last changed.
    time: String,
}

/// Checks the preconditions in the metadata of a patch.
pub(super) fn check_preconditions(object: &Value, patch: &Value) -> Result<(), Refusal> {
    for field in ["uid", "resourceVersion"] {
        let value = |object: &Value| object.get("metadata").and_then(|one| one.get(field)).cloned();
        if let Some(wanted) = value(patch).filter(|wanted| !wanted.is_null())
            && value(object).as_ref() != Some(&wanted)
        {
            let message = format!("the object has been modified: its {field} is not {wanted}");
            return Err(Refusal::conflict(message));
        }
    }
    Ok(())
}

/// Applies `patch` to `object`.
pub(super) fn patch(object: &mut Value, patch: &Value, author: Author<'_>) -> Result<(), Refusal> {
    let before = object.clone();
    let mut owners = owners(object);
    let mut set = BTreeSet::new();
    leaves(patch, &mut Vec::new(), &mut set);
    if author.applies {
        let changed = set.iter().filter(|path| at(&before, path) != at(patch, path));
        let changed: Vec<&FieldPath> = changed.collect();
        take_over(&mut owners, &changed, author)?;
        let own = owners.iter_mut().find(|one| one.manager == author.manager && one.applies);
        let previous = own.map(|one| std::mem::take(&mut one.fields)).unwrap_or_default();
        for path in previous.difference(&set) {
            // A field that others own as well stays.
            if !owners.iter().any(|one| one.fields.contains(path)) {
                remove(object, path);
            }
        }
    } else {
        let forced = Author { force: true, ..author };
        let changed = set.iter().filter(|path| at(&before, path) != at(patch, path));
        take_over(&mut owners, &changed.collect::<Vec<_>>(), forced)?;
    }
    merge(object, patch);
    set.retain(|path| at(object, path).is_some());
    record(&mut owners, author, set);
    owners.retain(|one| !one.fields.is_empty());
    set_metadata(object, "managedFields", Value::Array(owners.iter().map(entry).collect()));
    // A repeated patch must not change the object.
    if differs_only_in_times(&before, object) {
        *object = before;
    }
    Ok(())
}

/// Removes changed fields from their other owners, or refuses the change.
fn take_over(
    owners: &mut [Owner],
    changed: &[&FieldPath],
    author: Author<'_>,
) -> Result<(), Refusal> {
    for owner in owners {
        if owner.manager == author.manager && owner.applies == author.applies {
            continue;
        }
        for path in changed {
            if !owner.fields.contains(*path) {
                continue;
            }
            if !author.force {
                let field = path.join(".");
                let message = format!(
                    "Apply failed with 1 conflict: conflict with \"{}\": .{field}",
                    owner.manager
                );
                return Err(Refusal::conflict(message));
            }
            owner.fields.remove(*path);
        }
    }
    Ok(())
}

fn record(owners: &mut Vec<Owner>, author: Author<'_>, set: BTreeSet<FieldPath>) {
    let own = |one: &&mut Owner| one.manager == author.manager && one.applies == author.applies;
    match owners.iter_mut().find(own) {
        Some(owner) if author.applies => {
            owner.fields = set;
            owner.time = now();
        }
        Some(owner) => {
            owner.fields.extend(set);
            owner.time = now();
        }
        None => owners.push(Owner {
            manager: author.manager.to_owned(),
            applies: author.applies,
            fields: set,
            time: now(),
        }),
    }
}

/// Collects the fields of a patch, without those of the server.
fn leaves(value: &Value, path: &mut FieldPath, found: &mut BTreeSet<FieldPath>) {
    if SERVER_FIELDS.iter().any(|field| *field == path.as_slice()) {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                path.push(key.clone());
                leaves(value, path, found);
                path.pop();
            }
        }
        Value::Null => {}
        Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            found.insert(path.clone());
        }
    }
}

/// Merges a patch without the fields of the server.
fn merge(object: &mut Value, patch: &Value) {
    let mut patch = patch.clone();
    for path in SERVER_FIELDS {
        remove(&mut patch, &path.iter().map(|&key| key.to_owned()).collect::<Vec<_>>());
    }
    merge_value(object, patch);
}

fn merge_value(target: &mut Value, patch: Value) {
    let Value::Object(fields) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else { return };
    for (key, value) in fields {
        if value.is_null() {
            target.remove(&key);
        } else {
            merge_value(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

fn remove(value: &mut Value, path: &[String]) {
    let Some((last, parents)) = path.split_last() else { return };
    let parent = parents.iter().try_fold(value, |value, key| value.get_mut(key));
    if let Some(Value::Object(fields)) = parent {
        fields.remove(last);
    }
}

/// Parses the managed fields of an object.
fn owners(object: &Value) -> Vec<Owner> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let text = |entry: &Value, field: &str| {
        entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let owner = |entry: &Value| {
        let mut fields = BTreeSet::new();
        owned(entry.get("fieldsV1").unwrap_or(&Value::Null), &mut Vec::new(), &mut fields);
        Owner {
            manager: text(entry, "manager"),
            applies: text(entry, "operation") == "Apply",
            fields,
            time: text(entry, "time"),
        }
    };
    entries.into_iter().flatten().map(owner).collect()
}

fn owned(value: &Value, path: &mut FieldPath, found: &mut BTreeSet<FieldPath>) {
    let fields = value.as_object().into_iter().flatten();
    let fields: Vec<_> =
        fields.filter_map(|(key, value)| Some((key.strip_prefix("f:")?, value))).collect();
    if fields.is_empty() && !path.is_empty() {
        found.insert(path.clone());
    }
    for (key, value) in fields {
        path.push(key.to_owned());
        owned(value, path, found);
        path.pop();
    }
}

/// Returns the entry of an owner in the managed fields.
fn entry(owner: &Owner) -> Value {
    let mut fields = json!({});
    for path in &owner.fields {
        let mut place = &mut fields;
        for key in path {
            let Some(known) = place.as_object_mut() else { break };
            place = known.entry(format!("f:{key}")).or_insert_with(|| json!({}));
        }
    }
    json!({
        "manager": owner.manager,
        "operation": if owner.applies { "Apply" } else { "Update" },
        "apiVersion": "v1",
        "time": owner.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    })
}

fn differs_only_in_times(before: &Value, after: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten() {
            remove(entry, &["time".to_owned()]);
        }
        object
    };
    without(before) == without(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applies(manager: &str) -> Author<'_> {
        Author { manager, applies: true, force: false }
    }

    fn labels(labels: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"uid": "1", "labels": labels}})
    }

    #[test]
    fn applied_fields_that_are_omitted_later_are_removed() {
        let mut node = json!({"metadata": {"name": "a", "labels": {"os": "linux"}}});
        patch(&mut node, &labels(&json!({"a/b": "1", "c": "2"})), applies("agent")).unwrap();
        assert_eq!(node["metadata"]["labels"], json!({"a/b": "1", "c": "2", "os": "linux"}));
        patch(&mut node, &labels(&json!({"c": "3"})), applies("agent")).unwrap();
        assert_eq!(node["metadata"]["labels"], json!({"c": "3", "os": "linux"}));
        let managed = &node["metadata"]["managedFields"][0];
        assert_eq!(managed["fieldsV1"], json!({"f:metadata": {"f:labels": {"f:c": {}}}}));
        let before = node.clone();
        patch(&mut node, &labels(&json!({"c": "3"})), applies("agent")).unwrap();
        assert_eq!(node, before);
        patch(&mut node, &json!({"metadata": {"uid": "1"}}), applies("agent")).unwrap();
        assert_eq!(node["metadata"]["labels"], json!({"os": "linux"}));
        assert_eq!(node["metadata"]["managedFields"], json!([]));
    }

    #[test]
    fn field_of_another_manager_is_changed_only_with_force() {
        let mut node = json!({"metadata": {"name": "a"}});
        patch(&mut node, &labels(&json!({"a": "1"})), applies("one")).unwrap();
        let other = labels(&json!({"a": "2"}));
        let refused = patch(&mut node.clone(), &other, applies("two")).unwrap_err();
        assert_eq!(refused.code, 409);
        patch(&mut node, &other, Author { force: true, ..applies("two") }).unwrap();
        assert_eq!(node["metadata"]["labels"]["a"], "2");
        // The same value has two owners and survives the first.
        patch(&mut node, &other, applies("three")).unwrap();
        patch(&mut node, &labels(&json!({})), applies("two")).unwrap();
        assert_eq!(node["metadata"]["labels"]["a"], "2");
    }

    #[test]
    fn merge_patch_takes_fields_over_and_null_removes_them() {
        let mut node = json!({"metadata": {"name": "a"}});
        patch(&mut node, &labels(&json!({"a": "1", "b": "1"})), applies("agent")).unwrap();
        let update = Author { manager: "kubectl", applies: false, force: false };
        let change = json!({"metadata": {"labels": {"a": "2", "b": null}}, "spec": {"taints": []}});
        patch(&mut node, &change, update).unwrap();
        assert_eq!(node["metadata"]["labels"], json!({"a": "2"}));
        let again = patch(&mut node, &labels(&json!({"a": "1"})), applies("agent"));
        assert_eq!(again.unwrap_err().code, 409);
    }

    #[test]
    fn preconditions_protect_newer_and_other_objects() {
        let node = json!({"metadata": {"uid": "1", "resourceVersion": "7"}});
        let with = |uid: &str, version: &str| {
            check_preconditions(
                &node,
                &json!({"metadata": {"uid": uid, "resourceVersion": version}}),
            )
        };
        assert!(with("1", "7").is_ok());
        assert_eq!(with("2", "7").unwrap_err().code, 409);
        assert_eq!(with("1", "6").unwrap_err().code, 409);
        assert!(check_preconditions(&node, &json!({"metadata": {}})).is_ok());
    }
}
