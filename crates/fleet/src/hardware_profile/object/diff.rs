//! Line-by-line differences between an existing and a desired profile.

use std::collections::BTreeMap;

use serde_json::Value;

/// Maximum number of characters shown of a value.
const MAX_VALUE_CHARS: usize = 200;

/// Lists the differing values with their paths: `-` for the existing value, `+` for the desired one. Compares only the
/// annotations that `wanted` has, because other annotations belong to other tools.
pub fn differences(there: &Value, wanted: &Value) -> Vec<String> {
    let (before, after) = (flatten(there), flatten(wanted));
    let mut lines = Vec::new();
    let places: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for place in places {
        let (old, new) = (before.get(place), after.get(place));
        let is_others = new.is_none() && place.starts_with("metadata.");
        if old == new || is_others {
            continue;
        }
        lines.extend(old.map(|old| format!("- {place}: {}", shorten(old))));
        lines.extend(new.map(|new| format!("+ {place}: {}", shorten(new))));
    }
    lines
}

/// Flattens an object to a map from path to value.
fn flatten(object: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let annotations = object.get("metadata").and_then(|one| one.get("annotations"));
    for (place, value) in [("metadata.annotations", annotations), ("spec", object.get("spec"))] {
        if let Some(value) = value {
            flatten_into(&mut all, place, value);
        }
    }
    all
}

fn flatten_into(all: &mut BTreeMap<String, String>, place: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = if key.contains(['.', '/']) {
                    format!("{place}[{key}]")
                } else {
                    format!("{place}.{key}")
                };
                flatten_into(all, &key, value);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                flatten_into(all, &format!("{place}[{number}]"), item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            all.insert(place.to_owned(), value.to_string());
        }
    }
}

/// Shortens a value for display. Values are compared in full.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_VALUE_CHARS) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_compared_beyond_their_shown_part() {
        let reason = |end: &str| {
            let reason = format!("{}{end}", "x".repeat(300));
            json!({"metadata": {"annotations": {"octavo.dev/reason": reason}}})
        };
        assert_eq!(differences(&reason("a"), &reason("a")), Vec::<String>::new());
        let lines = differences(&reason("a"), &reason("b"));
        assert_eq!(lines.len(), 2, "{lines:?}");
        for line in &lines {
            assert!(line.len() < 300 && line.ends_with("xxx..."), "{line}");
        }
    }
}
