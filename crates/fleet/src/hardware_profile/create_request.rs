//! Requests to create a profile, given as JSON, query parameters or form fields.

use std::collections::BTreeSet;

use octavo_model::id::{NodeName, TypeName};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use super::{CountError, CountOverride, ProfileKey};
use crate::request_error::RequestError;

/// Value that stands for "no taint is tolerated".
pub const NO_TAINT: &str = "none";
/// Maximum number of nodes that a profile is created from.
pub const MAX_NODES: usize = 5000;
/// Maximum number of characters of a display name.
const MAX_DISPLAY_NAME_CHARS: usize = 250;
/// Maximum number of characters of a reason.
const MAX_REASON_CHARS: usize = 1000;

/// Request to create a hardware profile. Omitted fields are drafted from the nodes.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProfileOrder {
    /// Names of the nodes to cover.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Type to cover: all its nodes, or those of `nodes` that have it.
    #[serde(rename = "type")]
    #[schema(example = "nvidia-h200-141gb")]
    pub type_name: Option<String>,
    /// Resource to request, if the nodes have several.
    #[schema(example = "nvidia.com/gpu")]
    pub resource: Option<String>,
    /// Name; derived from the type by default.
    #[schema(example = "premium")]
    pub name: Option<String>,
    /// Namespace; by default that of the existing profiles.
    #[schema(example = "opendatahub")]
    pub namespace: Option<String>,
    /// Display name, at most 250 characters.
    #[schema(example = "Premium GPU")]
    pub display_name: Option<String>,
    /// Counts that override the drafted ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<CountOverride>,
    /// Taints to tolerate, as `key=value:Effect`; an empty list for none.
    #[schema(example = json!(["nvidia.com/gpu=true:NoSchedule"]))]
    pub tolerations: Option<Vec<String>>,
    /// Reason for the creation, at most 1000 characters; stored in an annotation and in the audit log.
    #[schema(example = "team vision")]
    pub reason: Option<String>,
    /// Replace a profile of this name that was also created by Octavo.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
}

/// Request for a draft.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DraftRequest {
    /// Nodes to cover; all if empty.
    pub nodes: BTreeSet<String>,
    /// Type to cover.
    pub type_name: Option<TypeName>,
    /// Resource to request, if the nodes have several.
    pub resource: Option<String>,
    /// Namespace and name; the name defaults to one derived from the type.
    pub key: ProfileKey,
    /// Display name.
    pub display_name: Option<String>,
    /// Counts that override the drafted ones.
    pub counts: Vec<CountOverride>,
    /// Taints to tolerate, in their text form; `None` for the default selection.
    pub tolerate: Option<BTreeSet<String>>,
}

impl ProfileOrder {
    /// Converts the request without checking it against the nodes.
    ///
    /// # Errors
    ///
    /// Returns the first invalid field.
    pub fn draft_request(&self) -> Result<DraftRequest, RequestError> {
        let type_name = non_empty(self.type_name.as_ref());
        if self.nodes.is_empty() && type_name.is_none() {
            return Err(RequestError::new(
                "nodes",
                "specify nodes=A,B or type=TYPE; /api/v1/types lists types",
            ));
        }
        if self.nodes.len() > MAX_NODES {
            return Err(RequestError::new(
                "nodes",
                format!("more than {MAX_NODES} nodes are specified"),
            ));
        }
        let type_name = type_name.map(|name| {
            let problem = format!("{:?} is not a type such as nvidia-h200-141gb", shorten(name));
            name.parse().map_err(|_| RequestError::new("type", problem))
        });
        let taints = self.tolerations.as_ref().map(|all| {
            let all = all.iter().filter(|one| *one != NO_TAINT);
            all.cloned().collect::<BTreeSet<String>>()
        });
        self.reason()?;
        Ok(DraftRequest {
            nodes: self.nodes.iter().cloned().collect(),
            type_name: type_name.transpose()?,
            resource: non_empty(self.resource.as_ref()).map(str::to_owned),
            key: ProfileKey {
                namespace: object_name("namespace", self.namespace.as_ref())?,
                name: object_name("name", self.name.as_ref())?,
            },
            display_name: single_line(
                "displayName",
                self.display_name.as_ref(),
                MAX_DISPLAY_NAME_CHARS,
            )?,
            counts: self.counts.iter().map(trimmed).collect(),
            tolerate: taints,
        })
    }

    /// Reason for the creation.
    ///
    /// # Errors
    ///
    /// Fails if the text has more than one line or is too long.
    pub fn reason(&self) -> Result<Option<String>, RequestError> {
        single_line("reason", self.reason.as_ref(), MAX_REASON_CHARS)
    }
}

/// Path of the field in the document, such as `counts[0].default`.
pub fn field_path(error: &CountError) -> String {
    format!("counts[{}].{}", error.at, error.part.word())
}

fn non_empty(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty())
}

/// Counts without surrounding blanks; an empty count keeps the drafted value.
fn trimmed(counts: &CountOverride) -> CountOverride {
    let owned = |text: &Option<String>| non_empty(text.as_ref()).map(str::to_owned);
    CountOverride {
        resource: counts.resource.clone(),
        min: owned(&counts.min),
        default: owned(&counts.default),
        max: owned(&counts.max),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Validates a Kubernetes object name. The rules are the same as for node names.
fn object_name(field: &'static str, name: Option<&String>) -> Result<String, RequestError> {
    let Some(name) = non_empty(name) else {
        return Ok(String::new());
    };
    // A namespace is a single DNS label.
    let is_one = field != "namespace" || (name.len() <= 63 && !name.contains('.'));
    if is_one && name.parse::<NodeName>().is_ok() {
        return Ok(name.to_owned());
    }
    let name = shorten(name);
    let problem = match field {
        "namespace" => format!(
            "{name:?} is not a namespace name: at most 63 lowercase letters, digits and '-'"
        ),
        _ => format!(
            "{name:?} is not an object name: at most 253 lowercase letters, digits, '-' and '.'"
        ),
    };
    Err(RequestError::new(field, problem))
}

/// Validates a single-line text.
fn single_line(
    field: &'static str,
    text: Option<&String>,
    longest: usize,
) -> Result<Option<String>, RequestError> {
    let Some(text) = non_empty(text) else {
        return Ok(None);
    };
    if text.chars().count() > longest {
        let problem = format!("it has more than {longest} characters");
        return Err(RequestError::new(field, problem));
    }
    if text.chars().any(char::is_control) {
        return Err(RequestError::new(field, "it must be a single line of text"));
    }
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(text: &str) -> ProfileOrder {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn request_fields_are_converted_and_missing_ones_left_open() {
        let order = order(
            r#"{"nodes": ["b", "a"], "type": "nvidia-t4-16gb", "name": " big ", "counts": [{"identifier": "cpu", "max": "4"}],
                "tolerations": []}"#,
        );
        let request = order.draft_request().unwrap();
        assert_eq!(request.nodes, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
        assert_eq!(request.key.name, "big");
        assert_eq!(request.counts, ["cpu:::4".parse().unwrap()]);
        assert_eq!(request.tolerate, Some(BTreeSet::new()));
        assert!(!order.replace && request.display_name.is_none());
    }

    #[test]
    fn invalid_field_is_reported_by_name() {
        let long = format!(r#"{{"type": "a", "reason": "{}"}}"#, "x".repeat(1001));
        let many: Vec<String> = (0..=MAX_NODES).map(|at| format!("\"n{at}\"")).collect();
        let many = format!(r#"{{"nodes": [{}]}}"#, many.join(","));
        for (text, field, expected) in [
            ("{}", "nodes", "specify nodes"),
            (&many, "nodes", "more than 5000 nodes"),
            (r#"{"type": "A b"}"#, "type", "\"A b\" is not a type"),
            (r#"{"type": "a", "name": "A_b"}"#, "name", "lowercase"),
            (r#"{"type": "a", "namespace": "a.b"}"#, "namespace", "at most 63"),
            (r#"{"type": "a", "displayName": "a\nb"}"#, "displayName", "a single line"),
            (&long, "reason", "more than 1000"),
        ] {
            let error = order(text).draft_request().unwrap_err();
            assert_eq!(error.field, field, "{error}");
            assert!(error.problem.contains(expected), "{error}");
        }
        let misspelt = serde_json::from_str::<ProfileOrder>(r#"{"typ": "a"}"#);
        assert!(misspelt.unwrap_err().to_string().contains("`typ`"));
    }
}
