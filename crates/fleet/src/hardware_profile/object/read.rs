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

/// A field of the object.
struct Field<'a> {
    /// Path in the notation of `kubectl explain`.
    path: String,
    /// Its value; `None` if it is missing.
    value: Option<&'a Value>,
}

/// Problems found in an object.
#[derive(Debug, Default)]
struct Problems(Vec<String>);

/// Parses `object` as a profile.
pub fn read(kind: ProfileKind, object: &Value) -> HardwareProfile {
    let mut problems = Problems::default();
    let object = Field { path: String::new(), value: Some(object) };
    let metadata = object.get("metadata");
    let name = |field| metadata.get(field).text().unwrap_or_default();
    let annotations = metadata.get("annotations");
    let annotation = |key| annotations.get(key).text();
    let spec = Field { path: "spec".to_owned(), ..object.get("spec") };
    spec.object(&mut problems);
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
            profile.identifiers = identifiers(&spec, &mut problems);
            profile.scheduling = scheduling(&spec, &mut problems);
        }
        ProfileKind::Dashboard | ProfileKind::Accelerator => {
            profile.display_name = spec.get("displayName").text();
            profile.description = spec.get("description").text();
            profile.is_disabled = spec.get("enabled").value == Some(&Value::Bool(false));
            profile.identifiers = if kind == ProfileKind::Dashboard {
                identifiers(&spec, &mut problems)
            } else {
                spec.get("identifier").text().map(single_identifier).into_iter().collect()
            };
            profile.scheduling = node_scheduling(&spec, &mut problems);
        }
    }
    profile.unreadable = problems.0;
    profile
}

impl Problems {
    fn add(&mut self, field: &Field<'_>, expected: &str) {
        let found = match field.value {
            None | Some(Value::Null) => "nothing".to_owned(),
            Some(Value::Array(_)) => "a list".to_owned(),
            Some(Value::Object(_)) => "an object".to_owned(),
            Some(value @ (Value::Bool(_) | Value::Number(_) | Value::String(_))) => {
                value.to_string().chars().take(100).collect()
            }
        };
        self.push(format!("{} is {found}, but must be {expected}", field.path));
    }

    fn add_missing(&mut self, field: &Field<'_>) {
        self.push(format!("{} is missing", field.path));
    }

    fn push(&mut self, problem: String) {
        if self.0.len() < MAX_PROBLEMS {
            self.0.push(problem);
        }
    }
}

impl<'a> Field<'a> {
    fn get(&self, name: &str) -> Field<'a> {
        let value = self.value.and_then(|value| value.get(name));
        Field { path: format!("{}.{name}", self.path), value }
    }

    /// The text, if it is one.
    fn text(&self) -> Option<String> {
        self.value?.as_str().map(truncate)
    }

    /// The object, if it is one. Another value than null is a problem.
    fn object(&self, problems: &mut Problems) -> Option<&'a Map<String, Value>> {
        match self.value {
            Some(Value::Object(object)) => return Some(object),
            None | Some(Value::Null) => {}
            Some(_) => problems.add(self, "an object"),
        }
        None
    }

    /// The objects of a list. Other values are problems.
    fn items(&self, problems: &mut Problems) -> Vec<Field<'a>> {
        let list = match self.value {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(list)) => list,
            Some(_) => {
                problems.add(self, "a list");
                return Vec::new();
            }
        };
        let (place, count) = (&self.path, list.len());
        if count > MAX_ITEMS {
            problems.push(format!("{place} has {count} items, of which only {MAX_ITEMS} are read"));
        }
        let items = list.iter().enumerate().take(MAX_ITEMS);
        let items = items
            .map(|(number, item)| Field { path: format!("{place}[{number}]"), value: Some(item) });
        let (objects, others): (Vec<Field<'_>>, Vec<Field<'_>>) =
            items.partition(|item| item.value.is_some_and(Value::is_object));
        for other in &others {
            problems.add(other, "an object");
        }
        objects
    }

    fn required_text(&self, problems: &mut Problems) -> Option<String> {
        match self.value {
            Some(Value::String(text)) if !text.is_empty() => return Some(truncate(text)),
            None => problems.add_missing(self),
            Some(_) => problems.add(self, "a name"),
        }
        None
    }

    /// Parses a whole number or a Kubernetes quantity.
    fn count(&self, problems: &mut Problems) -> Option<Count> {
        let text = match self.value? {
            Value::Number(number) => Some(number.to_string()),
            Value::String(text) => Some(truncate(text)),
            Value::Null => return None,
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let count = text.and_then(|text| Some(Count { quantity: text.parse().ok()?, text }));
        if count.is_none() {
            problems.add(self, "an amount like 8, 500m or 64Gi");
        }
        count
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

fn identifiers(spec: &Field<'_>, problems: &mut Problems) -> Vec<Identifier> {
    let all = spec.get("identifiers").items(problems);
    let read = all.into_iter().filter_map(|item| {
        let resource = item.get("identifier").required_text(problems)?;
        let (min, default) = (item.get("minCount"), item.get("defaultCount"));
        let least = min.count(problems);
        let max = item.get("maxCount").count(problems);
        let usual = default.count(problems);
        for field in [&min, &default] {
            if field.value.is_none_or(Value::is_null) {
                problems.add_missing(field);
            }
        }
        let min = least.unwrap_or_default();
        Some(Identifier {
            display_name: item.get("displayName").text().unwrap_or_else(|| resource.clone()),
            resource,
            default: usual.unwrap_or_else(|| min.clone()),
            min,
            max,
            resource_type: item.get("resourceType").text(),
        })
    });
    read.collect()
}

fn scheduling(spec: &Field<'_>, problems: &mut Problems) -> Scheduling {
    let scheduling = spec.get("scheduling");
    if scheduling.object(problems).is_none() {
        return Scheduling::Anywhere;
    }
    let (node, kueue, kind) =
        (scheduling.get("node"), scheduling.get("kueue"), scheduling.get("type"));
    node.object(problems);
    kueue.object(problems);
    match kind.text().as_deref() {
        Some("Node") => node_scheduling(&node, problems),
        Some("Queue") => {
            let queue = kueue.get("localQueueName").required_text(problems);
            let priority_class = kueue.get("priorityClass").text();
            queue.map_or(Scheduling::Anywhere, |local_queue| Scheduling::Queue {
                local_queue,
                priority_class,
            })
        }
        Some(_) | None => {
            problems.add(&kind, "Node or Queue");
            Scheduling::Anywhere
        }
    }
}

fn node_scheduling(part: &Field<'_>, problems: &mut Problems) -> Scheduling {
    let labels = part.get("nodeSelector");
    let mut selector = Selector::new();
    for (key, value) in labels.object(problems).into_iter().flatten().take(MAX_ITEMS) {
        let label = Field { path: format!("{}[{key}]", labels.path), value: Some(value) };
        if let Some(value) = label.text() {
            selector.insert(truncate(key), value);
        } else {
            problems.add(&label, "a string");
        }
    }
    // A list of pairs until February 2025. Source: odh-dashboard at ada286912e, definition of its HardwareProfile.
    for pair in part.get("nodeSelectors").items(problems) {
        let key = pair.get("key").required_text(problems);
        let value = pair.get("value").required_text(problems);
        selector.extend(key.zip(value));
    }
    let tolerations = part.get("tolerations").items(problems);
    let tolerations: Vec<Toleration> = tolerations.iter().map(toleration).collect();
    if selector.is_empty() && tolerations.is_empty() {
        return Scheduling::Anywhere;
    }
    Scheduling::Node { selector, tolerations }
}

/// Follows the API server: a missing operator means `Equal`, and an unknown effect tolerates nothing.
fn toleration(item: &Field<'_>) -> Toleration {
    let effect = item.get("effect").text().filter(|effect| !effect.is_empty());
    let known = effect.map(|effect| effect.parse::<Effect>().ok());
    let operator = match item.get("operator").text().as_deref() {
        Some("Exists") => TaintOperator::Exists,
        Some("Equal" | "") | None => TaintOperator::Equal,
        Some(_) => TaintOperator::Other,
    };
    Toleration {
        key: item.get("key").text().unwrap_or_default(),
        operator: if known == Some(None) { TaintOperator::Other } else { operator },
        value: item.get("value").text().unwrap_or_default(),
        effect: known.flatten(),
    }
}
