//! Lenient parsing of a hardware profile: a field that cannot be parsed is reported with its path, and the others are
//! still read.

use serde_json::{Map, Value};

use crate::domain::cluster::{Effect, Selector, TaintOperator, Toleration};
use crate::domain::hardware_profile::{
    ARCHITECTURE, CREATED_BY, Count, HardwareProfile, Identifier, MEMORY, ProfileKey, ProfileKind,
    REASON, Said, Scheduling, TYPE,
};

/// Maximum number of items read from a list. The API server accepts longer lists, but no profile needs them.
const MOST: usize = 100;
/// Maximum number of characters stored of a text.
const LONGEST: usize = 1000;
/// Maximum number of problems reported per object.
const MOST_PROBLEMS: usize = 10;

/// Path of a field, in the notation of `kubectl explain`.
type Place<'a> = &'a str;

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
        text.map(short).unwrap_or_default()
    };
    let annotations = metadata.get("annotations").and_then(Value::as_object);
    let annotations = annotations.unwrap_or(&nothing);
    let annotation = |key| annotations.get(key).and_then(Value::as_str).map(short);
    let spec = match object.get("spec") {
        None | Some(Value::Null) => &nothing,
        Some(Value::Object(spec)) => spec,
        Some(other) => {
            problems.add("spec", other, "an object");
            &nothing
        }
    };
    let mut profile = HardwareProfile {
        key: ProfileKey {
            namespace: name("namespace"),
            name: name("name"),
        },
        kind,
        said: said(&annotation),
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
            let text = |field| spec.get(field).and_then(Value::as_str).map(short);
            profile.display_name = text("displayName");
            profile.description = text("description");
            profile.is_disabled = spec.get("enabled").and_then(Value::as_bool) == Some(false);
            profile.identifiers = if kind == ProfileKind::Dashboard {
                identifiers(spec, &mut problems)
            } else {
                text("identifier").map(one_of).into_iter().collect()
            };
            profile.scheduling = on_nodes(spec, "spec", &mut problems);
        }
    }
    profile.unreadable = problems.0;
    profile
}

impl Problems {
    fn add(&mut self, place: Place<'_>, found: &Value, expected: &str) {
        let found = match found {
            Value::Null => "nothing".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                short(&found.to_string()).chars().take(100).collect()
            }
        };
        self.say(format!("{place} is {found}, and should be {expected}"));
    }

    fn say(&mut self, problem: String) {
        if self.0.len() < MOST_PROBLEMS {
            self.0.push(problem);
        }
    }
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

fn said(annotation: &impl Fn(&'static str) -> Option<String>) -> Said {
    let types = annotation(TYPE).unwrap_or_default();
    let types = types.split(',').filter_map(|name| name.trim().parse().ok());
    Said {
        types: types.take(MOST).collect(),
        memory_mib: annotation(MEMORY).and_then(|text| text.parse().ok()),
        architecture: annotation(ARCHITECTURE),
        by: annotation(CREATED_BY),
        reason: annotation(REASON),
    }
}

/// Identifier of an `AcceleratorProfile`: one device by default, without a maximum.
fn one_of(resource: String) -> Identifier {
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
    (at, field): (Place<'_>, &str),
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
    if list.len() > MOST {
        problems.say(format!(
            "{place} has {} items, of which {MOST} are read",
            list.len()
        ));
    }
    let mut read = Vec::new();
    for (number, item) in list.iter().enumerate().take(MOST) {
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
        let resource = needed(item, (&place, "identifier"), problems)?;
        let min = count(item, (&place, "minCount"), problems);
        let max = count(item, (&place, "maxCount"), problems);
        let default = count(item, (&place, "defaultCount"), problems);
        let text = |field| item.get(field).and_then(Value::as_str).map(short);
        let missing = |field: &str, problems: &mut Problems| {
            if item.get(field).is_none() {
                problems.say(format!("{place}.{field} is missing"));
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

fn needed(
    item: &Map<String, Value>,
    (at, field): (Place<'_>, &str),
    problems: &mut Problems,
) -> Option<String> {
    match item.get(field) {
        Some(Value::String(text)) if !text.is_empty() => Some(short(text)),
        None => {
            problems.say(format!("{at}.{field} is missing"));
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
    (at, field): (Place<'_>, &str),
    problems: &mut Problems,
) -> Option<Count> {
    let value = item.get(field)?;
    let text = match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(short(text)),
        Value::Null => return None,
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let read = text.and_then(|text| Some((text.parse().ok()?, text)));
    let Some((quantity, text)) = read else {
        problems.add(
            &format!("{at}.{field}"),
            value,
            "an amount like 8, 500m or 64Gi",
        );
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
        Some("Node") => on_nodes(node, "spec.scheduling.node", problems),
        Some("Queue") => {
            let at = "spec.scheduling.kueue";
            let queue = needed(kueue, (at, "localQueueName"), problems);
            let class = kueue.get("priorityClass").and_then(Value::as_str);
            queue.map_or(Scheduling::Anywhere, |local_queue| Scheduling::Queue {
                local_queue,
                priority_class: class.map(short),
            })
        }
        Some(_) | None => {
            let found = scheduling.get("type").unwrap_or(&Value::Null);
            problems.add("spec.scheduling.type", found, "Node or Queue");
            Scheduling::Anywhere
        }
    }
}

fn on_nodes(part: &Map<String, Value>, at: Place<'_>, problems: &mut Problems) -> Scheduling {
    let place = format!("{at}.nodeSelector");
    let mut selector = Selector::new();
    match part.get("nodeSelector") {
        None | Some(Value::Null) => {}
        Some(Value::Object(labels)) => {
            for (key, value) in labels.iter().take(MOST) {
                if let Value::String(value) = value {
                    selector.insert(short(key), short(value));
                } else {
                    problems.add(&format!("{place}[{key}]"), value, "a text");
                }
            }
        }
        Some(other) => problems.add(&place, other, "an object"),
    }
    // A list of pairs until February 2025. Source: odh-dashboard at ada286912e, definition of its HardwareProfile.
    for (place, pair) in items(part, (at, "nodeSelectors"), problems) {
        let key = needed(pair, (&place, "key"), problems);
        let value = needed(pair, (&place, "value"), problems);
        selector.extend(key.zip(value));
    }
    let tolerations = items(part, (at, "tolerations"), problems);
    let tolerations: Vec<Toleration> = tolerations
        .into_iter()
        .map(|(_, item)| toleration(item))
        .collect();
    if selector.is_empty() && tolerations.is_empty() {
        return Scheduling::Anywhere;
    }
    Scheduling::Node {
        selector,
        tolerations,
    }
}

/// Follows the API server: a missing operator means `Equal`, and an unknown effect tolerates nothing.
fn toleration(item: &Map<String, Value>) -> Toleration {
    let text = |field| item.get(field).and_then(Value::as_str).map(short);
    let effect = text("effect").filter(|effect| !effect.is_empty());
    let known = effect.as_deref().map(Effect::of);
    let operator = match text("operator").as_deref() {
        Some("Exists") => TaintOperator::Exists,
        Some("Equal" | "") | None => TaintOperator::Equal,
        Some(_) => TaintOperator::Other,
    };
    Toleration {
        key: text("key").unwrap_or_default(),
        operator: if known == Some(None) {
            TaintOperator::Other
        } else {
            operator
        },
        value: text("value").unwrap_or_default(),
        effect: known.flatten(),
    }
}
