//! Creates profiles by server-side apply. Never modifies a profile that others created, and modifies one of ours only
//! on request.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use octavo_fleet::hardware_profile::object::differences;
use octavo_fleet::hardware_profile::{CREATED_BY_ANNOTATION, ProfileKey, ProfileKind};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::timeout;

use crate::client::{REQUEST_TIMEOUT, describe_error, response_code};

/// Our field manager.
pub const FIELD_MANAGER: &str = "octavo-profiles";

/// Whether to perform a server-side dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRun {
    /// Apply the change.
    No,
    /// Validate the change on the server without persisting it.
    Server,
}

/// Handling of an existing profile of ours with the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Keep it.
    Keep,
    /// Replace it.
    Replace,
}

/// Result of a change or dry run.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The object returned by the server.
    pub object: Value,
    /// What was done.
    pub outcome: Outcome,
    /// The previous object.
    pub before: Option<Value>,
    /// Differences from the previous object, line by line.
    pub differences: Vec<String>,
}

/// Result for a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It did not exist and was created.
    Created,
    /// It existed and was replaced.
    Replaced,
    /// It was up to date; nothing was written.
    Unchanged,
}

/// Category of an error, for API responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCategory {
    /// The name is in use, or the object was modified concurrently.
    Conflict,
    /// The cluster rejected the request.
    Rejected,
    /// There was no response, so the result is unknown.
    Unavailable,
}

/// Creates profiles in a cluster.
#[derive(Clone)]
pub struct ProfileWriter {
    client: Client,
}

/// Error that prevents creation of a profile.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The cluster has no hardware profiles.
    #[error("this cluster has no HardwareProfile resource: install the Open Data Hub operator")]
    NoKind,
    /// The name is in use.
    #[error("profile {key} already exists, created by {by}{}", listed(.differences))]
    Taken {
        /// The profile.
        key: ProfileKey,
        /// Its creator or field manager.
        by: String,
        /// Whether we created it.
        ours: bool,
        /// What would change.
        differences: Vec<String>,
    },
    /// The API server refused the request or is unreachable.
    #[error("profile {key}: {}", describe_error(.source))]
    Refused {
        /// The profile.
        key: ProfileKey,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// No response.
    #[error("profile {0}: no response from the API server within {REQUEST_TIMEOUT:?}")]
    TimedOut(ProfileKey),
}

impl std::fmt::Debug for ProfileWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProfileWriter")
    }
}

impl ProfileWriter {
    /// Creates a writer.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the user name that the API server reports for us; `None` if it does not.
    pub async fn user(&self) -> Option<String> {
        let reviews: Api<SelfSubjectReview> = Api::all(self.client.clone());
        let (params, review) = (PostParams::default(), SelfSubjectReview::default());
        let review = timeout(REQUEST_TIMEOUT, reviews.create(&params, &review)).await;
        let user = review.ok()?.ok()?.status?.user_info?;
        user.username
    }

    /// Applies `object` as a profile.
    ///
    /// # Errors
    ///
    /// Nothing was written, unless there was no response.
    pub async fn apply(
        &self,
        object: &Value,
        dry: DryRun,
        existing: Existing,
    ) -> Result<Applied, WriteError> {
        let key = key(object);
        let api = self.api(&key);
        let there = timeout(REQUEST_TIMEOUT, api.get_opt(&key.name)).await;
        let there = unwrap_response(&key, there)?;
        let mut wanted = object.clone();
        let before = there.as_ref().map(without_server_metadata);
        let changes = before.as_ref().map(|before| differences(before, object));
        let changes = changes.unwrap_or_default();
        if let Some(there) = &there {
            let ours = is_ours(there);
            if ours && changes.is_empty() {
                return Ok(Applied {
                    object: without_server_metadata(there),
                    outcome: Outcome::Unchanged,
                    before,
                    differences: changes,
                });
            }
            if !ours || existing == Existing::Keep {
                return Err(WriteError::Taken {
                    by: creator(there).filter(|_| ours).unwrap_or_else(|| managers(there)),
                    ours,
                    differences: changes,
                    key,
                });
            }
            // The resource version makes the request fail after a concurrent modification.
            if let (Some(version), Some(metadata)) =
                (there.resource_version(), metadata(&mut wanted))
            {
                metadata.insert("resourceVersion".to_owned(), json!(version));
            }
        }
        let mut params = PatchParams::apply(FIELD_MANAGER);
        params.dry_run = dry == DryRun::Server;
        params.field_validation = Some(kube::api::ValidationDirective::Strict);
        let patch = Patch::Apply(&wanted);
        let result = timeout(REQUEST_TIMEOUT, api.patch(&key.name, &params, &patch)).await;
        let made = unwrap_response(&key, result)?;
        Ok(Applied {
            object: without_server_metadata(&made),
            outcome: if before.is_some() || !is_new(&made) {
                Outcome::Replaced
            } else {
                Outcome::Created
            },
            before,
            differences: changes,
        })
    }

    fn api(&self, key: &ProfileKey) -> Api<DynamicObject> {
        let (group, version, name, plural) = ProfileKind::Hardware.api();
        let kind = GroupVersionKind::gvk(group, version, name);
        let kind = ApiResource::from_gvk_with_plural(&kind, plural);
        Api::namespaced_with(self.client.clone(), &key.namespace, &kind)
    }
}

impl WriteError {
    /// Returns the error's category.
    pub fn category(&self) -> ErrorCategory {
        match self {
            Self::NoKind => ErrorCategory::Rejected,
            Self::Taken { .. } => ErrorCategory::Conflict,
            Self::TimedOut(_) => ErrorCategory::Unavailable,
            Self::Refused { source, .. } => match response_code(source) {
                Some(409) => ErrorCategory::Conflict,
                Some(code) if code != 429 && code < 500 => ErrorCategory::Rejected,
                Some(_) | None => ErrorCategory::Unavailable,
            },
        }
    }
}

impl Outcome {
    /// Returns the name used in API responses.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Replaced => "replaced",
            Self::Unchanged => "unchanged",
        }
    }
}

fn metadata(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    object.get_mut("metadata")?.as_object_mut()
}

/// Returns the key of a profile object.
pub fn key(object: &Value) -> ProfileKey {
    let metadata = |field| {
        let text = object.get("metadata").and_then(|metadata| metadata.get(field));
        let text = text.and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    ProfileKey { namespace: metadata("namespace"), name: metadata("name") }
}

fn unwrap_response<T, E>(
    key: &ProfileKey,
    result: Result<kube::Result<T>, E>,
) -> Result<T, WriteError> {
    match result {
        Ok(Ok(object)) => Ok(object),
        // A patch creates a missing object, so 404 means that the kind does not exist.
        Ok(Err(kube::Error::Api(status)))
            if status.code == 404 && !status.message.contains("namespaces") =>
        {
            Err(WriteError::NoKind)
        }
        Ok(Err(error)) => Err(WriteError::Refused { key: key.clone(), source: Box::new(error) }),
        Err(_late) => Err(WriteError::TimedOut(key.clone())),
    }
}

/// Only objects that we applied are ours.
fn is_ours(object: &DynamicObject) -> bool {
    object.managed_fields().iter().any(|entry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Apply")
    })
}

/// Returns whether the object was created by this request rather than by another client since the check, judging from
/// the server's response: server-side apply cannot be limited to creation.
fn is_new(made: &DynamicObject) -> bool {
    let others = |entry: &ManagedFieldsEntry| entry.manager.as_deref() != Some(FIELD_MANAGER);
    made.metadata.generation.is_none_or(|times| times <= 1)
        && !made.managed_fields().iter().any(others)
}

/// Returns the recorded creator.
fn creator(object: &DynamicObject) -> Option<String> {
    object.annotations().get(CREATED_BY_ANNOTATION).cloned()
}

fn managers(object: &DynamicObject) -> String {
    let entries = object.managed_fields().iter();
    let mut names: Vec<&str> = entries.filter_map(|entry| entry.manager.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return "another client".to_owned();
    }
    names.join(", ")
}

/// Returns the object without server-side metadata.
fn without_server_metadata(object: &DynamicObject) -> Value {
    let mut object = object.clone();
    object.metadata.managed_fields = None;
    serde_json::to_value(&object).unwrap_or_default()
}

fn listed(differences: &[String]) -> String {
    const SHOWN: usize = 40;
    if differences.is_empty() {
        return ", with the same content: nothing to do".to_owned();
    }
    let shown: Vec<&str> = differences.iter().take(SHOWN).map(String::as_str).collect();
    let more = differences.len().saturating_sub(SHOWN);
    let more = if more == 0 { String::new() } else { format!("\n  and {more} more lines") };
    format!("; it is not changed. It would become:\n  {}{more}", shown.join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(generation: i64, managers: &[&str]) -> DynamicObject {
        let fields: Vec<Value> = { managers.iter() }
            .map(|manager| json!({"manager": manager, "operation": "Apply"}))
            .collect();
        let metadata = json!({"name": "a", "generation": generation, "managedFields": fields});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn concurrently_created_profile_is_not_reported_as_created() {
        assert!(is_new(&made(1, &[FIELD_MANAGER])));
        assert!(!is_new(&made(2, &[FIELD_MANAGER])));
        assert!(!is_new(&made(1, &["kubectl", FIELD_MANAGER])));
    }
}
