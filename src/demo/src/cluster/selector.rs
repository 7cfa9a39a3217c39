//! Field and label selectors of lists and watches.

use serde_json::Value;

use super::status::Refusal;

/// A conjunction of requirements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    /// Path of the value in the object.
    path: Vec<String>,
    /// The compared value; `None` if only its existence matters.
    value: Option<String>,
    /// True if the value must be equal or exist; false if it must not.
    positive: bool,
}

impl Selector {
    /// Parses both selectors of a request. Supported are `key=value`, `key==value`, `key!=value`, and for labels also
    /// `key` and `!key`.
    pub(super) fn parse(fields: &str, labels: &str) -> Result<Self, Refusal> {
        let field_path = |key: &str| key.split('.').map(ToOwned::to_owned).collect();
        let label_path = |key: &str| ["metadata", "labels", key].map(ToOwned::to_owned).to_vec();
        let mut all = Vec::new();
        for part in fields.split(',').filter(|part| !part.is_empty()) {
            all.push(requirement(part, field_path)?);
        }
        for part in labels.split(',').filter(|part| !part.is_empty()) {
            all.push(requirement(part, label_path)?);
        }
        Ok(Self(all))
    }

    /// Returns whether an object is selected.
    pub(super) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|one| {
            let mut keys = one.path.iter();
            let found = keys.try_fold(object, |value, key| value.get(key));
            match &one.value {
                // A field without a value is equal to the empty text.
                Some(value) => {
                    let found = found.and_then(Value::as_str).unwrap_or_default();
                    (found == value) == one.positive
                }
                None => found.is_some() == one.positive,
            }
        })
    }
}

fn requirement(text: &str, path: impl Fn(&str) -> Vec<String>) -> Result<Requirement, Refusal> {
    if text.contains([' ', '(']) {
        let message = format!("the simulated API server cannot parse the selector {text:?}");
        return Err(Refusal::bad_request(message));
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Ok(Requirement { path: path(key), value: Some(value.to_owned()), positive: false });
    }
    if let Some((key, value)) = text.split_once('=') {
        let value = value.trim_start_matches('=');
        return Ok(Requirement { path: path(key), value: Some(value.to_owned()), positive: true });
    }
    let positive = !text.starts_with('!');
    Ok(Requirement { path: path(text.trim_start_matches('!')), value: None, positive })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_and_labels_select_objects() {
        let pod = json!({
            "metadata": {"name": "p", "labels": {"app": "a", "nvidia.com/gpu.present": "true"}},
            "spec": {"nodeName": "n"},
            "status": {"phase": "Running"},
        });
        for (fields, labels, expected) in [
            ("", "", true),
            ("metadata.name=p", "", true),
            ("metadata.name=q", "", false),
            ("spec.nodeName==n,status.phase!=Failed", "app=a", true),
            ("status.phase!=Running", "", false),
            ("spec.schedulerName=", "", true),
            ("", "nvidia.com/gpu.present=true", true),
            ("", "app!=a", false),
            ("", "app,!other", true),
            ("", "other", false),
        ] {
            let selector = Selector::parse(fields, labels).unwrap();
            assert_eq!(selector.matches(&pod), expected, "{fields} {labels}");
        }
        assert_eq!(Selector::parse("", "app in (a,b)").unwrap_err().code, 400);
    }
}
