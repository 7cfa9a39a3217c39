//! A new profile, applied on the server's side; one that something else made is never touched, and one that was made so only where
//! that is said.

use std::path::Path;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::timeout;

use crate::domain::hardware_profile::{CREATED_BY, ProfileKey, ProfileKind};
use crate::k8s::client::{ConnectError, Program, REQUEST, connect, told};
use crate::wire::hardware_profiles::differences;

/// Who we are among those who write profiles.
pub const MANAGER: &str = "octavo-profiles";

/// Whether the API server only says what it would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRun {
    /// It does it.
    No,
    /// It checks everything and changes nothing.
    Server,
}

/// What is done with one of this name that was made so, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It is left alone.
    Keep,
    /// The new one takes its place.
    Replace,
}

/// What came of it, or would.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The object as the server has it.
    pub object: Value,
    /// What became of it.
    pub outcome: Outcome,
    /// What there was.
    pub before: Option<Value>,
    /// What differs from that, line by line.
    pub differences: Vec<String>,
}

/// What became of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// There was none, and now there is.
    Created,
    /// There was another one.
    Replaced,
    /// It was as it shall be, and nothing was written.
    Unchanged,
}

/// What kind of trouble it is, for those who answer others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// There is one of this name already, or somebody changed it meanwhile.
    Taken,
    /// The cluster does not take it.
    Refused,
    /// Nobody answered, so that it may be there or not.
    Away,
}

/// Makes profiles in a cluster.
#[derive(Clone)]
pub struct Writer {
    client: Client,
}

/// Why a profile was not made.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The cluster knows no profiles.
    #[error("this cluster has no HardwareProfiles: OpenDataHub's operator brings them")]
    NoKind,
    /// There is one of this name.
    #[error("there is a profile {key} already, made by {by}{}", listed(.differences))]
    Taken {
        /// Which.
        key: ProfileKey,
        /// Who made it, or what manages it.
        by: String,
        /// Whether it was made so, too.
        ours: bool,
        /// What would become another.
        differences: Vec<String>,
    },
    /// The API server refused it or could not be reached.
    #[error("profile {key}: {}", told(.source))]
    Refused {
        /// Which.
        key: ProfileKey,
        /// Why.
        source: Box<kube::Error>,
    },
    /// No answer came.
    #[error("profile {0}: the API server does not answer within {REQUEST:?}")]
    Late(ProfileKey),
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Writer")
    }
}

impl Writer {
    /// For the cluster of `kubeconfig`, or for the one whose pod this is. Nothing is asked yet.
    pub async fn connect(
        kubeconfig: Option<&Path>,
        program: Program,
    ) -> Result<Self, ConnectError> {
        Ok(Self::new(connect(kubeconfig, program).await?))
    }

    /// The same with a client that is there.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Who the API server says that we are; `None` where it does not say.
    pub async fn user(&self) -> Option<String> {
        let reviews: Api<SelfSubjectReview> = Api::all(self.client.clone());
        let (params, asked) = (PostParams::default(), SelfSubjectReview::default());
        let review = timeout(REQUEST, reviews.create(&params, &asked)).await;
        let user = review.ok()?.ok()?.status?.user_info?;
        user.username
    }

    /// Makes the profile be what `object` says.
    ///
    /// # Errors
    ///
    /// Nothing was written, unless no answer came.
    pub async fn apply(
        &self,
        object: &Value,
        dry: DryRun,
        existing: Existing,
    ) -> Result<Applied, WriteError> {
        let key = key(object);
        let api = self.api(&key);
        let there = timeout(REQUEST, api.get_opt(&key.name)).await;
        let there = answered(&key, there)?;
        let mut wanted = object.clone();
        let before = there.as_ref().map(value);
        let changes = before.as_ref().map(|before| differences(before, object));
        let changes = changes.unwrap_or_default();
        if let Some(there) = &there {
            let ours = is_ours(there);
            if ours && changes.is_empty() {
                return Ok(Applied {
                    object: value(there),
                    outcome: Outcome::Unchanged,
                    before,
                    differences: changes,
                });
            }
            if !ours || existing == Existing::Keep {
                return Err(WriteError::Taken {
                    by: maker(there)
                        .filter(|_| ours)
                        .unwrap_or_else(|| managers(there)),
                    ours,
                    differences: changes,
                    key,
                });
            }
            // Who changed it since it was looked at goes first.
            if let (Some(version), Some(metadata)) =
                (there.resource_version(), metadata(&mut wanted))
            {
                metadata.insert("resourceVersion".to_owned(), json!(version));
            }
        }
        let mut params = PatchParams::apply(MANAGER);
        params.dry_run = dry == DryRun::Server;
        params.field_validation = Some(kube::api::ValidationDirective::Strict);
        let patch = Patch::Apply(&wanted);
        let answer = timeout(REQUEST, api.patch(&key.name, &params, &patch)).await;
        let made = answered(&key, answer)?;
        Ok(Applied {
            object: value(&made),
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

/// The code that the API server answered with, where it did.
fn code(error: &kube::Error) -> Option<u16> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    Some(status.code)
}

impl WriteError {
    /// Which kind of trouble it is.
    pub fn trouble(&self) -> Trouble {
        match self {
            Self::NoKind => Trouble::Refused,
            Self::Taken { .. } => Trouble::Taken,
            Self::Late(_) => Trouble::Away,
            Self::Refused { source, .. } => match code(source) {
                Some(409) => Trouble::Taken,
                Some(code) if code != 429 && code < 500 => Trouble::Refused,
                Some(_) | None => Trouble::Away,
            },
        }
    }
}

impl Outcome {
    /// What it is called in answers.
    pub fn word(self) -> &'static str {
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

/// Which profile an object is.
pub fn key(object: &Value) -> ProfileKey {
    let of = |field| {
        let text = object
            .get("metadata")
            .and_then(|metadata| metadata.get(field));
        let text = text.and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    ProfileKey {
        namespace: of("namespace"),
        name: of("name"),
    }
}

fn answered<T, E>(key: &ProfileKey, answer: Result<kube::Result<T>, E>) -> Result<T, WriteError> {
    match answer {
        Ok(Ok(object)) => Ok(object),
        // A patch finds no object only where there is no such kind: of a missing one it makes one.
        Ok(Err(kube::Error::Api(status)))
            if status.code == 404 && !status.message.contains("namespaces") =>
        {
            Err(WriteError::NoKind)
        }
        Ok(Err(error)) => Err(WriteError::Refused {
            key: key.clone(),
            source: Box::new(error),
        }),
        Err(_late) => Err(WriteError::Late(key.clone())),
    }
}

/// Ours is only what we applied.
fn is_ours(object: &DynamicObject) -> bool {
    object.managed_fields().iter().any(|entry| {
        entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply")
    })
}

/// Whether nobody else made one since it was looked for, as far as what the server has now tells: an apply has no word for "only where
/// there is none".
fn is_new(made: &DynamicObject) -> bool {
    let others = |entry: &ManagedFieldsEntry| entry.manager.as_deref() != Some(MANAGER);
    made.metadata.generation.is_none_or(|times| times <= 1)
        && !made.managed_fields().iter().any(others)
}

/// Who it says made it.
fn maker(object: &DynamicObject) -> Option<String> {
    object.annotations().get(CREATED_BY).cloned()
}

fn managers(object: &DynamicObject) -> String {
    let entries = object.managed_fields().iter();
    let mut names: Vec<&str> = entries
        .filter_map(|entry| entry.manager.as_deref())
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return "somebody else".to_owned();
    }
    names.join(", ")
}

/// The object without what only the server wants to know.
fn value(object: &DynamicObject) -> Value {
    let mut object = object.clone();
    object.metadata.managed_fields = None;
    serde_json::to_value(&object).unwrap_or_default()
}

fn listed(differences: &[String]) -> String {
    const SHOWN: usize = 40;
    if differences.is_empty() {
        return ", and it says the same: there is nothing to do".to_owned();
    }
    let shown: Vec<&str> = differences.iter().take(SHOWN).map(String::as_str).collect();
    let more = differences.len().saturating_sub(SHOWN);
    let more = if more == 0 {
        String::new()
    } else {
        format!("\n  and {more} more lines")
    };
    format!(
        "; it is left alone. It would become:\n  {}{more}",
        shown.join("\n  ")
    )
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
    fn one_that_somebody_made_since_the_look_is_not_taken_for_new() {
        assert!(is_new(&made(1, &[MANAGER])));
        assert!(!is_new(&made(2, &[MANAGER])));
        assert!(!is_new(&made(1, &["kubectl", MANAGER])));
    }
}
