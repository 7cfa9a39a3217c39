//! Requests to create a profile, given as JSON, query parameters or form fields, and the result of the creation.

use std::collections::BTreeSet;

use octavo_fleet::hardware_profile::{
    CountError, CountOverride, DraftRequest, NO_TAINT, ProfileKey,
};
use octavo_model::id::NodeName;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use utoipa::ToSchema;

/// Maximum number of nodes that a profile is created from.
pub const MAX_NODES: usize = 5000;
/// Maximum number of characters of a display name.
const MAX_DISPLAY_NAME_CHARS: usize = 250;
/// Maximum number of characters of a reason.
const MAX_REASON_CHARS: usize = 1000;

/// A hardware profile that is to be made. What is not said is drafted from what the nodes have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProfileOrder {
    /// Names of the nodes it is made of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The type: all its nodes, or those of `nodes` that have it.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schema(example = "nvidia-h200-141gb")]
    pub type_name: Option<String>,
    /// What it asks for, where the nodes give out several resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "nvidia.com/gpu")]
    pub resource: Option<String>,
    /// Its name; after its type without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "premium")]
    pub name: Option<String>,
    /// Its namespace; that of all others without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "opendatahub")]
    pub namespace: Option<String>,
    /// What people are shown, in at most 250 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "Premium GPU")]
    pub display_name: Option<String>,
    /// How many of a resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<CountsJson>,
    /// The taints of the nodes that do not matter, as `key=value:Effect`; an empty list for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["nvidia.com/gpu=true:NoSchedule"]))]
    pub tolerations: Option<Vec<String>>,
    /// Why it is made, in at most 1000 characters; kept in an annotation and in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "team vision")]
    pub reason: Option<String>,
    /// Put it in the place of one of this name that was made so, too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
}

/// How many of one resource; what is absent stays as it was drafted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CountsJson {
    /// The resource.
    #[schema(example = "nvidia.com/gpu")]
    pub identifier: String,
    /// The least that a person can ask for, as Kubernetes writes amounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1")]
    pub min: Option<String>,
    /// What is asked for where nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2")]
    pub default: Option<String>,
    /// The most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "4")]
    pub max: Option<String>,
}

/// An invalid field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct InvalidFieldError {
    /// Name of the field in the document.
    pub field: &'static str,
    /// Why it is invalid.
    pub problem: String,
}

/// What came of making a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfileMade {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `ProfileMade`.
    pub kind: String,
    /// `created`, `replaced`, `unchanged`; with a dry run it would be so, and nothing is.
    pub outcome: String,
    /// Whether the API server was only asked what it would do.
    pub dry_run: bool,
    /// The object as the API server has it, or would.
    #[schema(value_type = Object)]
    pub profile: Value,
    /// What differs from the one that was there, line by line; empty where there was none.
    pub differences: Vec<String>,
    /// What a person should know of it.
    pub notes: Vec<String>,
}

impl ProfileOrder {
    /// Converts the request without checking it against the nodes.
    ///
    /// # Errors
    ///
    /// Returns the first invalid field.
    pub fn draft_request(&self) -> Result<DraftRequest, InvalidFieldError> {
        let type_name = non_empty(self.type_name.as_ref());
        if self.nodes.is_empty() && type_name.is_none() {
            return Err(invalid_field(
                "nodes",
                "a profile of what? say nodes=A,B or type=TYPE; /api/v1/types lists types",
            ));
        }
        if self.nodes.len() > MAX_NODES {
            return Err(invalid_field(
                "nodes",
                &format!("there are more than {MAX_NODES} nodes"),
            ));
        }
        let type_name = type_name.map(|name| {
            let problem = format!("{:?} is no type such as nvidia-h200-141gb", shorten(name));
            name.parse().map_err(|_| invalid_field("type", &problem))
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
            counts: self.counts.iter().map(CountOverride::from).collect(),
            tolerate: taints,
        })
    }

    /// Reason for the creation.
    ///
    /// # Errors
    ///
    /// Fails if the text has more than one line or is too long.
    pub fn reason(&self) -> Result<Option<String>, InvalidFieldError> {
        single_line("reason", self.reason.as_ref(), MAX_REASON_CHARS)
    }
}

impl From<&CountsJson> for CountOverride {
    fn from(counts: &CountsJson) -> Self {
        let said = |text: &Option<String>| non_empty(text.as_ref()).map(str::to_owned);
        Self {
            resource: counts.identifier.clone(),
            min: said(&counts.min),
            default: said(&counts.default),
            max: said(&counts.max),
        }
    }
}

impl From<CountOverride> for CountsJson {
    fn from(counts: CountOverride) -> Self {
        Self {
            identifier: counts.resource,
            min: counts.min,
            default: counts.default,
            max: counts.max,
        }
    }
}

/// Path of the field in the document, such as `counts[0].default`.
pub fn field_path(error: &CountError) -> String {
    format!("counts[{}].{}", error.at, error.part.word())
}

fn invalid_field(field: &'static str, problem: &str) -> InvalidFieldError {
    InvalidFieldError {
        field,
        problem: problem.to_owned(),
    }
}

fn non_empty(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty())
}

fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Validates a Kubernetes object name. The rules are the same as for node names.
fn object_name(field: &'static str, name: Option<&String>) -> Result<String, InvalidFieldError> {
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
            "{name:?} cannot be a namespace: lower-case letters, digits and '-', at most 63 of them"
        ),
        _ => format!(
            "{name:?} cannot be a name: lower-case letters, digits, '-' and '.', at most 253 of them"
        ),
    };
    Err(invalid_field(field, &problem))
}

/// Validates a single-line text.
fn single_line(
    field: &'static str,
    text: Option<&String>,
    longest: usize,
) -> Result<Option<String>, InvalidFieldError> {
    let Some(text) = non_empty(text) else {
        return Ok(None);
    };
    if text.chars().count() > longest {
        let problem = format!("it has more than {longest} characters");
        return Err(invalid_field(field, &problem));
    }
    if text.chars().any(char::is_control) {
        return Err(invalid_field(field, "it has to be one line of text"));
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
        let wish = order.draft_request().unwrap();
        assert_eq!(wish.nodes, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
        assert_eq!(wish.key.name, "big");
        assert_eq!(wish.counts, ["cpu:::4".parse().unwrap()]);
        assert_eq!(wish.tolerate, Some(BTreeSet::new()));
        assert!(!order.replace && wish.display_name.is_none());
    }

    #[test]
    fn invalid_field_is_reported_by_name() {
        let long = format!(r#"{{"type": "a", "reason": "{}"}}"#, "x".repeat(1001));
        let many: Vec<String> = (0..=MAX_NODES).map(|at| format!("\"n{at}\"")).collect();
        let many = format!(r#"{{"nodes": [{}]}}"#, many.join(","));
        for (text, field, said) in [
            ("{}", "nodes", "a profile of what?"),
            (&many, "nodes", "more than 5000 nodes"),
            (r#"{"type": "A b"}"#, "type", "\"A b\" is no type"),
            (r#"{"type": "a", "name": "A_b"}"#, "name", "lower-case"),
            (
                r#"{"type": "a", "namespace": "a.b"}"#,
                "namespace",
                "at most 63",
            ),
            (
                r#"{"type": "a", "displayName": "a\nb"}"#,
                "displayName",
                "one line",
            ),
            (&long, "reason", "more than 1000"),
        ] {
            let error = order(text).draft_request().unwrap_err();
            assert_eq!(error.field, field, "{error}");
            assert!(error.problem.contains(said), "{error}");
        }
        let misspelt = serde_json::from_str::<ProfileOrder>(r#"{"typ": "a"}"#);
        assert!(misspelt.unwrap_err().to_string().contains("`typ`"));
    }
}
