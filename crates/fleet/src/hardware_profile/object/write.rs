//! Conversion of a new profile to the object sent to the API server.

use crate::cluster::{TaintOperator, Toleration};
use crate::hardware_profile::{
    ARCHITECTURE_ANNOTATION, CREATED_BY_ANNOTATION, Count, HardwareProfile, Identifier,
    MEMORY_ANNOTATION, ProfileKind, REASON_ANNOTATION, Scheduling, TYPE_ANNOTATION,
};
use octavo_model::id::TypeName;
use serde_json::{Map, Value, json};

/// Sets an annotation on a profile's object. An empty text is ignored.
pub fn annotate(object: &mut Value, key: &str, text: &str) {
    let annotations = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
        .and_then(Value::as_object_mut);
    if let Some(annotations) = annotations
        && !text.is_empty()
    {
        annotations.insert(key.to_owned(), json!(text));
    }
}

/// Converts a profile to an object. Values outside the schema are stored in annotations, because the API server
/// silently drops unknown fields.
pub fn object(profile: &HardwareProfile) -> Value {
    let (group, version, kind, _) = ProfileKind::Hardware.api();
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(profile.key.name));
    if !profile.key.namespace.is_empty() {
        metadata.insert("namespace".to_owned(), json!(profile.key.namespace));
    }
    metadata.insert("annotations".to_owned(), annotations(profile));
    let mut spec = Map::new();
    let identifiers: Vec<Value> = profile.identifiers.iter().map(identifier).collect();
    spec.insert("identifiers".to_owned(), json!(identifiers));
    if let Some(scheduling) = scheduling(&profile.scheduling) {
        spec.insert("scheduling".to_owned(), scheduling);
    }
    json!({
        "apiVersion": format!("{group}/{version}"),
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    })
}

fn annotations(profile: &HardwareProfile) -> Value {
    let annotations = &profile.annotations;
    let types: Vec<&str> = annotations.types.iter().map(TypeName::as_str).collect();
    let types = (!types.is_empty()).then(|| types.join(","));
    let disabled = if profile.is_disabled { "true" } else { "false" };
    let all = [
        ("opendatahub.io/display-name", profile.display_name.clone()),
        ("opendatahub.io/description", profile.description.clone()),
        ("opendatahub.io/disabled", Some(disabled.to_owned())),
        // An empty list makes the profile visible in all parts of the dashboard.
        ("opendatahub.io/dashboard-feature-visibility", Some("[]".to_owned())),
        (TYPE_ANNOTATION, types),
        (MEMORY_ANNOTATION, annotations.memory_mib.map(|memory| memory.to_string())),
        (ARCHITECTURE_ANNOTATION, annotations.architecture.clone()),
        (CREATED_BY_ANNOTATION, annotations.by.clone()),
        (REASON_ANNOTATION, annotations.reason.clone()),
    ];
    let entries = all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value?))));
    Value::Object(entries.collect())
}

fn identifier(one: &Identifier) -> Value {
    let mut item = Map::new();
    item.insert("displayName".to_owned(), json!(one.display_name));
    item.insert("identifier".to_owned(), json!(one.resource));
    item.insert("minCount".to_owned(), count(&one.min));
    if let Some(max) = &one.max {
        item.insert("maxCount".to_owned(), count(max));
    }
    item.insert("defaultCount".to_owned(), count(&one.default));
    if let Some(kind) = &one.resource_type {
        item.insert("resourceType".to_owned(), json!(kind));
    }
    Value::Object(item)
}

/// Writes a whole number as a JSON number and any other quantity as a string.
fn count(count: &Count) -> Value {
    let number: Result<i64, _> = count.text.parse();
    number.map_or_else(|_| json!(count.text), |number| json!(number))
}

fn scheduling(scheduling: &Scheduling) -> Option<Value> {
    match scheduling {
        Scheduling::Anywhere => None,
        Scheduling::Node { selector, tolerations } => {
            let mut node = Map::new();
            if !selector.is_empty() {
                node.insert("nodeSelector".to_owned(), json!(selector));
            }
            if !tolerations.is_empty() {
                let all: Vec<Value> = tolerations.iter().map(toleration).collect();
                node.insert("tolerations".to_owned(), json!(all));
            }
            Some(json!({"type": "Node", "node": node}))
        }
        Scheduling::Queue { local_queue, priority_class } => {
            let mut kueue = Map::new();
            kueue.insert("localQueueName".to_owned(), json!(local_queue));
            if let Some(class) = priority_class {
                kueue.insert("priorityClass".to_owned(), json!(class));
            }
            Some(json!({"type": "Queue", "kueue": kueue}))
        }
    }
}

fn toleration(one: &Toleration) -> Value {
    let mut item = Map::new();
    if !one.key.is_empty() {
        item.insert("key".to_owned(), json!(one.key));
    }
    match one.operator {
        TaintOperator::Exists => {
            item.insert("operator".to_owned(), json!("Exists"));
        }
        TaintOperator::Equal | TaintOperator::Other => {
            item.insert("operator".to_owned(), json!("Equal"));
            item.insert("value".to_owned(), json!(one.value));
        }
    }
    if let Some(effect) = one.effect {
        item.insert("effect".to_owned(), json!(effect.as_str()));
    }
    Value::Object(item)
}
