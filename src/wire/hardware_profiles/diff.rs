//! What differs between a profile that is there and one that shall be, line by line.

use std::collections::BTreeMap;

use serde_json::Value;

/// Lines that are shown of a value.
const LONGEST: usize = 200;

/// The lines in which `there` and `wanted` differ, each after its place: `-` as it is, `+` as it shall be. Of annotations only those
/// that `wanted` has are compared: others are other people's.
pub fn differences(there: &Value, wanted: &Value) -> Vec<String> {
    let (before, after) = (said(there), said(wanted));
    let mut lines = Vec::new();
    let places: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for place in places {
        let (old, new) = (before.get(place), after.get(place));
        let is_others = new.is_none() && place.starts_with("metadata.");
        if old == new || is_others {
            continue;
        }
        lines.extend(old.map(|old| format!("- {place}: {old}")));
        lines.extend(new.map(|new| format!("+ {place}: {new}")));
    }
    lines
}

/// Each value with its place.
fn said(object: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let annotations = object
        .get("metadata")
        .and_then(|one| one.get("annotations"));
    for (place, value) in [
        ("metadata.annotations", annotations),
        ("spec", object.get("spec")),
    ] {
        if let Some(value) = value {
            add(&mut all, place, value);
        }
    }
    all
}

fn add(all: &mut BTreeMap<String, String>, place: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = if key.contains(['.', '/']) {
                    format!("{place}[{key}]")
                } else {
                    format!("{place}.{key}")
                };
                add(all, &key, value);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                add(all, &format!("{place}[{number}]"), item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let text: String = value.to_string().chars().take(LONGEST).collect();
            all.insert(place.to_owned(), text);
        }
    }
}
