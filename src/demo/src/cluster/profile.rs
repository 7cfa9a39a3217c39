//! Strict validation of hardware profiles, as the API server does it by their resource definition.

use serde_json::Value;

use super::status::Refusal;

const IDENTIFIER_FIELDS: [&str; 6] =
    ["defaultCount", "displayName", "identifier", "maxCount", "minCount", "resourceType"];
const REQUIRED_IDENTIFIER_FIELDS: [&str; 4] =
    ["defaultCount", "displayName", "identifier", "minCount"];

/// Checks a profile.
pub(super) fn validate(profile: &Value) -> Result<(), Refusal> {
    known_fields(profile, "", &["apiVersion", "kind", "metadata", "spec", "status"])?;
    let name = profile.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if !is_name(name) {
        let rule =
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters";
        return Err(Refusal::invalid(&format!("metadata.name: Invalid value: {name:?}: {rule}")));
    }
    let spec = profile.get("spec").filter(|spec| spec.is_object());
    let spec = spec.ok_or_else(|| Refusal::invalid("spec: Required value"))?;
    known_fields(spec, "spec", &["identifiers", "scheduling"])?;
    let identifiers = spec.get("identifiers").and_then(Value::as_array);
    for (index, one) in identifiers.into_iter().flatten().enumerate() {
        let path = format!("spec.identifiers[{index}]");
        known_fields(one, &path, &IDENTIFIER_FIELDS)?;
        for field in REQUIRED_IDENTIFIER_FIELDS {
            if one.get(field).is_none() {
                return Err(Refusal::invalid(&format!("{path}.{field}: Required value")));
            }
        }
        one_of(one, &path, ("resourceType", &["CPU", "Memory", "Accelerator"]))?;
    }
    spec.get("scheduling").map_or(Ok(()), scheduling)
}

fn scheduling(scheduling: &Value) -> Result<(), Refusal> {
    let path = "spec.scheduling";
    known_fields(scheduling, path, &["kueue", "node", "type"])?;
    one_of(scheduling, path, ("type", &["Queue", "Node"]))?;
    let has = |field: &str| scheduling.get(field).is_some();
    let message = match scheduling.get("type").and_then(Value::as_str) {
        Some("Queue") if !has("kueue") || has("node") => {
            "When schedulingType is 'Queue', the 'kueue.localQueueName' field must be specified and non-empty, and the 'node' field must not be set"
        }
        Some("Node") if !has("node") || has("kueue") => {
            "When schedulingType is 'Node', the 'node' field must be set, and the 'kueue' field must not be set"
        }
        Some(_) => return Ok(()),
        None => return Err(Refusal::invalid("spec.scheduling.type: Required value")),
    };
    Err(Refusal::invalid(&format!("{path}: Invalid value: \"object\": {message}")))
}

fn known_fields(object: &Value, path: &str, known: &[&str]) -> Result<(), Refusal> {
    let mut names = object.as_object().into_iter().flat_map(|fields| fields.keys());
    let unknown = names.find(|name| !known.contains(&name.as_str()));
    unknown.map_or(Ok(()), |name| {
        let field = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        Err(Refusal::bad_request(format!("strict decoding error: unknown field \"{field}\"")))
    })
}

fn one_of(object: &Value, path: &str, (field, values): (&str, &[&str])) -> Result<(), Refusal> {
    let Some(value) = object.get(field) else { return Ok(()) };
    if value.as_str().is_some_and(|value| values.contains(&value)) {
        return Ok(());
    }
    let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    let message = format!("Unsupported value: {value}: supported values: {}", values.join(", "));
    Err(Refusal::invalid(&format!("{path}.{field}: {message}")))
}

fn is_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= 253
        && name.chars().all(is_inner)
        && is_end(name.chars().next())
        && is_end(name.chars().next_back())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn profiles_are_validated_by_their_definition() {
        let identifier = json!({"identifier": "nvidia.com/gpu", "displayName": "GPU", "minCount": 1, "defaultCount": 1, "resourceType": "Accelerator"});
        let node = json!({"type": "Node", "node": {"nodeSelector": {"a": "b"}}});
        let profile = |name: &str, identifier: &Value, scheduling: &Value| {
            validate(&json!({"metadata": {"name": name}, "spec": {"identifiers": [identifier], "scheduling": scheduling}}))
                .map_err(|refusal| refusal.to_string())
        };
        assert_eq!(profile("large", &identifier, &node), Ok(()));
        let mut odd = identifier.clone();
        odd["resourceType"] = json!("GPU");
        for (name, identifier, scheduling, expected) in [
            ("Large", &identifier, &node, "metadata.name: Invalid value"),
            ("a", &odd, &node, "resourceType: Unsupported value: \"GPU\""),
            ("a", &json!({"identifier": "x"}), &node, "defaultCount: Required value"),
            ("a", &json!({"count": 1}), &node, "unknown field \"spec.identifiers[0].count\""),
            ("a", &identifier, &json!({"type": "Node"}), "the 'node' field must be set"),
            ("a", &identifier, &json!({"type": "Queue"}), "localQueueName"),
            ("a", &identifier, &json!({}), "scheduling.type: Required value"),
        ] {
            let message = profile(name, identifier, scheduling).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
        assert!(validate(&json!({"metadata": {"name": "a"}})).is_err());
    }
}
