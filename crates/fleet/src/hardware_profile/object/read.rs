//! Lenient parsing of a hardware profile: a field that cannot be parsed is reported with its path, and the others are
//! still read.

use crate::cluster::{Effect, Selector, TaintOperator, Toleration};
use crate::hardware_profile::{
    ARCHITECTURE_ANNOTATION, CREATED_BY_ANNOTATION, Count, HardwareProfile, Identifier,
    MEMORY_ANNOTATION, ProfileAnnotations, ProfileKey, ProfileKind, REASON_ANNOTATION, Scheduling,
    TYPE_ANNOTATION,
};
use serde_json::{Map, Value};

/// Maximum number of items read from a list. The API server accepts longer lists, but no profile needs them.
const MAX_ITEMS: usize = 100;
/// Maximum number of characters stored of a text.
const MAX_TEXT_CHARS: usize = 1000;
/// Maximum number of problems reported per object.
const MAX_PROBLEMS: usize = 10;

/// Path of a field, in the notation of `kubectl explain`.
type FieldPath<'a> = &'a str;

/// Problems found in an object.
#[derive(Debug, Default)]
struct Problems(Vec<String>);

/// Parses `object` as a profile.
pub fn read(kind: ProfileKind, object: &Value) -> HardwareProfile {
    let mut problems = Problems::default();
    let nothing = Map::new();
    let metadata = object.get("metadata").and_then(Value::as_object);
    let metadata = metadata.unwrap_or(&nothing);
    let name = |field| {
        let text = metadata.get(field).and_then(Value::as_str);
        text.map(truncate).unwrap_or_default()
    };
    let annotations = metadata.get("annotations").and_then(Value::as_object);
    let annotations = annotations.unwrap_or(&nothing);
    let annotation = |key| annotations.get(key).and_then(Value::as_str).map(truncate);
    let spec = match object.get("spec") {
        None | Some(Value::Null) => &nothing,
        Some(Value::Object(spec)) => spec,
        Some(other) => {
            problems.add("spec", other, "an object");
            &nothing
        }
    };
    let mut profile = HardwareProfile {
        key: ProfileKey { namespace: name("namespace"), name: name("name") },
        kind,
        annotations: octavo_annotations(&annotation),
        ..HardwareProfile::default()
    };
    match kind {
        ProfileKind::Hardware => {
            profile.display_name = annotation("opendatahub.io/display-name");
            profile.description = annotation("opendatahub.io/description");
            profile.is_disabled = annotation("opendatahub.io/disabled").as_deref() == Some("true");
            profile.identifiers = identifiers(spec, &mut problems);
            profile.scheduling = scheduling(spec, &mut problems);
        }
        ProfileKind::Dashboard | ProfileKind::Accelerator => {
            let text = |field| spec.get(field).and_then(Value::as_str).map(truncate);
            profile.display_name = text("displayName");
            profile.description = text("description");
            profile.is_disabled = spec.get("enabled").and_then(Value::as_bool) == Some(false);
            profile.identifiers = if kind == ProfileKind::Dashboard {
                identifiers(spec, &mut problems)
            } else {
                text("identifier").map(single_identifier).into_iter().collect()
            };
            profile.scheduling = node_scheduling(spec, "spec", &mut problems);
        }
    }
    profile.unreadable = problems.0;
    profile
}

impl Problems {
    fn add(&mut self, place: FieldPath<'_>, found: &Value, expected: &str) {
        let found = match found {
            Value::Null => "nothing".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                truncate(&found.to_string()).chars().take(100).collect()
            }
        };
        self.push(format!("{place} is {found}, but must be {expected}"));
    }

    fn push(&mut self, problem: String) {
        if self.0.len() < MAX_PROBLEMS {
            self.0.push(problem);
        }
    }
}

fn truncate(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).collect()
}

fn octavo_annotations(annotation: &impl Fn(&'static str) -> Option<String>) -> ProfileAnnotations {
    let types = annotation(TYPE_ANNOTATION).unwrap_or_default();
    let types = types.split(',').filter_map(|name| name.trim().parse().ok());
    ProfileAnnotations {
        types: types.take(MAX_ITEMS).collect(),
        memory_mib: annotation(MEMORY_ANNOTATION).and_then(|text| text.parse().ok()),
        architecture: annotation(ARCHITECTURE_ANNOTATION),
        by: annotation(CREATED_BY_ANNOTATION),
        reason: annotation(REASON_ANNOTATION),
    }
}

/// Identifier of an `AcceleratorProfile`: one device by default, without a maximum.
fn single_identifier(resource: String) -> Identifier {
    Identifier {
        display_name: resource.clone(),
        resource,
        min: Count::whole(0),
        max: None,
        default: Count::whole(1),
        resource_type: Some("Accelerator".to_owned()),
    }
}

/// Returns the items of a list with their paths.
fn items<'a>(
    parent: &'a Map<String, Value>,
    (at, field): (FieldPath<'_>, &str),
    problems: &mut Problems,
) -> Vec<(String, &'a Map<String, Value>)> {
    let place = format!("{at}.{field}");
    let list = match parent.get(field) {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(list)) => list,
        Some(other) => {
            problems.add(&place, other, "a list");
            return Vec::new();
        }
    };
    if list.len() > MAX_ITEMS {
        problems
            .push(format!("{place} has {} items, of which only {MAX_ITEMS} are read", list.len()));
    }
    let mut read = Vec::new();
    for (number, item) in list.iter().enumerate().take(MAX_ITEMS) {
        let place = format!("{place}[{number}]");
        if let Value::Object(item) = item {
            read.push((place, item));
        } else {
            problems.add(&place, item, "an object");
        }
    }
    read
}

fn identifiers(spec: &Map<String, Value>, problems: &mut Problems) -> Vec<Identifier> {
    let all = items(spec, ("spec", "identifiers"), problems);
    let read = all.into_iter().filter_map(|(place, item)| {
        let resource = required_text(item, (&place, "identifier"), problems)?;
        let min = count(item, (&place, "minCount"), problems);
        let max = count(item, (&place, "maxCount"), problems);
        let default = count(item, (&place, "defaultCount"), problems);
        let text = |field| item.get(field).and_then(Value::as_str).map(truncate);
        let missing = |field: &str, problems: &mut Problems| {
            if item.get(field).is_none() {
                problems.push(format!("{place}.{field} is missing"));
            }
        };
        missing("minCount", problems);
        missing("defaultCount", problems);
        let min = min.unwrap_or_default();
        Some(Identifier {
            display_name: text("displayName").unwrap_or_else(|| resource.clone()),
            resource,
            default: default.unwrap_or_else(|| min.clone()),
            min,
            max,
            resource_type: text("resourceType"),
        })
    });
    read.collect()
}

fn required_text(
    item: &Map<String, Value>,
    (at, field): (FieldPath<'_>, &str),
    problems: &mut Problems,
) -> Option<String> {
    match item.get(field) {
        Some(Value::String(text)) if !text.is_empty() => Some(truncate(text)),
        None => {
            problems.push(format!("{at}.{field} is missing"));
            None
        }
        Some(other) => {
            problems.add(&format!("{at}.{field}"), other, "a name");
            None
        }
    }
}

/// Parses a whole number or a Kubernetes quantity.
fn count(
    item: &Map<String, Value>,
    (at, field): (FieldPath<'_>, &str),
    problems: &mut Problems,
) -> Option<Count> {
    let value = item.get(field)?;
    let text = match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(truncate(text)),
        Value::Null => return None,
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let read = text.and_then(|text| Some((text.parse().ok()?, text)));
    let Some((quantity, text)) = read else {
        problems.add(&format!("{at}.{field}"), value, "an amount like 8, 500m or 64Gi");
        return None;
    };
    Some(Count { text, quantity })
}

fn scheduling(spec: &Map<String, Value>, problems: &mut Problems) -> Scheduling {
    let place = "spec.scheduling";
    let scheduling = match spec.get("scheduling") {
        None | Some(Value::Null) => return Scheduling::Anywhere,
        Some(Value::Object(scheduling)) => scheduling,
        Some(other) => {
            problems.add(place, other, "an object");
            return Scheduling::Anywhere;
        }
    };
    let nothing = Map::new();
    let mut part = |name: &str| match scheduling.get(name) {
        Some(Value::Object(part)) => part,
        None | Some(Value::Null) => &nothing,
        Some(other) => {
            problems.add(&format!("{place}.{name}"), other, "an object");
            &nothing
        }
    };
    let (node, kueue) = (part("node"), part("kueue"));
    match scheduling.get("type").and_then(Value::as_str) {
        Some("Node") => node_scheduling(node, "spec.scheduling.node", problems),
        Some("Queue") => {
            let at = "spec.scheduling.kueue";
            let queue = required_text(kueue, (at, "localQueueName"), problems);
            let class = kueue.get("priorityClass").and_then(Value::as_str);
            queue.map_or(Scheduling::Anywhere, |local_queue| Scheduling::Queue {
                local_queue,
                priority_class: class.map(truncate),
            })
        }
        Some(_) | None => {
            let found = scheduling.get("type").unwrap_or(&Value::Null);
            problems.add("spec.scheduling.type", found, "Node or Queue");
            Scheduling::Anywhere
        }
    }
}

fn node_scheduling(
    part: &Map<String, Value>,
    at: FieldPath<'_>,
    problems: &mut Problems,
) -> Scheduling {
    let place = format!("{at}.nodeSelector");
    let mut selector = Selector::new();
    match part.get("nodeSelector") {
        None | Some(Value::Null) => {}
        Some(Value::Object(labels)) => {
            for (key, value) in labels.iter().take(MAX_ITEMS) {
                if let Value::String(value) = value {
                    selector.insert(truncate(key), truncate(value));
                } else {
                    problems.add(&format!("{place}[{key}]"), value, "a string");
                }
            }
        }
        Some(other) => problems.add(&place, other, "an object"),
    }
    // A list of pairs until February 2025. Source: odh-dashboard at ada286912e, definition of its HardwareProfile.
    for (place, pair) in items(part, (at, "nodeSelectors"), problems) {
        let key = required_text(pair, (&place, "key"), problems);
        let value = required_text(pair, (&place, "value"), problems);
        selector.extend(key.zip(value));
    }
    let tolerations = items(part, (at, "tolerations"), problems);
    let tolerations: Vec<Toleration> =
        tolerations.into_iter().map(|(_, item)| toleration(item)).collect();
    if selector.is_empty() && tolerations.is_empty() {
        return Scheduling::Anywhere;
    }
    Scheduling::Node { selector, tolerations }
}

/// Follows the API server: a missing operator means `Equal`, and an unknown effect tolerates nothing.
fn toleration(item: &Map<String, Value>) -> Toleration {
    let text = |field| item.get(field).and_then(Value::as_str).map(truncate);
    let effect = text("effect").filter(|effect| !effect.is_empty());
    let known = effect.as_deref().map(Effect::parse);
    let operator = match text("operator").as_deref() {
        Some("Exists") => TaintOperator::Exists,
        Some("Equal" | "") | None => TaintOperator::Equal,
        Some(_) => TaintOperator::Other,
    };
    Toleration {
        key: text("key").unwrap_or_default(),
        operator: if known == Some(None) { TaintOperator::Other } else { operator },
        value: text("value").unwrap_or_default(),
        effect: known.flatten(),
    }
}
