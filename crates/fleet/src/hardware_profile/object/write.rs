//! Conversion of a new profile to the object sent to the API server.

use crate::cluster::{TaintOperator, Toleration};
use crate::hardware_profile::{
    ARCHITECTURE_ANNOTATION, CREATED_BY_ANNOTATION, Count, HardwareProfile, Identifier,
    MEMORY_ANNOTATION, ProfileKey, ProfileKind, REASON_ANNOTATION, Scheduling, TYPE_ANNOTATION,
};
use octavo_model::id::TypeName;
use serde_json::{Value, json};

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
    let ProfileKey { namespace, name } = &profile.key;
    let identifiers = profile.identifiers.iter().map(identifier);
    without_nulls(json!({
        "apiVersion": format!("{group}/{version}"),
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": non_empty(namespace),
            "annotations": annotations(profile),
        },
        "spec": {
            "identifiers": identifiers.collect::<Vec<Value>>(),
            "scheduling": scheduling(&profile.scheduling),
        },
    }))
}

/// Removes the fields that are null, at every level.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            fields.map(|(key, value)| (key, without_nulls(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => scalar,
    }
}

fn non_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
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
    all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

fn identifier(one: &Identifier) -> Value {
    json!({
        "displayName": one.display_name,
        "identifier": one.resource,
        "minCount": count(&one.min),
        "maxCount": one.max.as_ref().map(count),
        "defaultCount": count(&one.default),
        "resourceType": one.resource_type,
    })
}

fn count(count: &Count) -> Value {
    let number: Result<i64, _> = count.text.parse();
    number.map_or_else(|_| json!(count.text), |number| json!(number))
}

fn scheduling(scheduling: &Scheduling) -> Option<Value> {
    match scheduling {
        Scheduling::Anywhere => None,
        Scheduling::Node { selector, tolerations } => {
            let selector = Some(selector).filter(|labels| !labels.is_empty());
            let all: Vec<Value> = tolerations.iter().map(toleration).collect();
            let tolerations = Some(all).filter(|all| !all.is_empty());
            let node = json!({"nodeSelector": selector, "tolerations": tolerations});
            Some(json!({"type": "Node", "node": node}))
        }
        Scheduling::Queue { local_queue, priority_class } => {
            let kueue = json!({"localQueueName": local_queue, "priorityClass": priority_class});
            Some(json!({"type": "Queue", "kueue": kueue}))
        }
    }
}

fn toleration(one: &Toleration) -> Value {
    let (operator, value) = match one.operator {
        TaintOperator::Exists => ("Exists", None),
        TaintOperator::Equal | TaintOperator::Other => ("Equal", Some(&one.value)),
    };
    json!({
        "key": non_empty(&one.key),
        "operator": operator,
        "value": value,
        "effect": one.effect.map(|effect| effect.to_string()),
    })
}
