//! Changes of policies with the permissions of a user.

use kube::api::{DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::{Api, Client, ResourceExt};
use octavo_policy::record::{APPROVAL_ANNOTATION, ROLLBACK_ANNOTATION};
use octavo_policy::{InstanceChange, Policy, approval};
use serde_json::{Value, json};
use thiserror::Error;

use super::object;
use crate::client::{RequestError, request};
use crate::hardware_profiles::Outcome;

/// Field manager of all writes.
const FIELD_MANAGER: &str = "octavo-policy";

/// Changes the policies of a cluster.
#[derive(Clone)]
pub struct PolicyWriter {
    policies: Api<DynamicObject>,
}

/// Error that prevents a change of a policy. Nothing was written, unless there was no response.
#[derive(Debug, Error)]
pub enum PolicyWriteError {
    /// The cluster has no policies.
    #[error("this cluster has no AcceleratorPolicy resource")]
    NoKind,
    /// The policy does not exist.
    #[error("policy {0} does not exist")]
    NotFound(String),
    /// Another client manages a field that differs.
    #[error("policy {name}: {source}")]
    Conflict {
        /// The policy.
        name: String,
        /// The cause, which names the fields and the client.
        source: RequestError,
    },
    /// The API server refused the request or is unreachable.
    #[error("policy {name}: {source}")]
    Refused {
        /// The policy.
        name: String,
        /// The cause.
        source: RequestError,
    },
}

impl std::fmt::Debug for PolicyWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PolicyWriter")
    }
}

impl PolicyWriter {
    /// Creates a writer. Sends no request yet.
    pub fn new(client: Client) -> Self {
        Self { policies: Api::all_with(client, &object::resource()) }
    }

    /// Reads a policy.
    pub async fn get(&self, name: &str) -> Result<Policy, PolicyWriteError> {
        self.read(name).await.map(|found| object::policy(&found))
    }

    /// Applies the manifest of a policy by server-side apply. Fields of other managers are not taken over.
    pub async fn apply(&self, name: &str, manifest: &Value) -> Result<Outcome, PolicyWriteError> {
        let before = match self.read(name).await {
            Ok(before) => Some(before),
            Err(PolicyWriteError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        let mut params = PatchParams::apply(FIELD_MANAGER);
        params.field_validation = Some(ValidationDirective::Strict);
        let after = self.patch(name, &params, &Patch::Apply(manifest)).await?;
        Ok(match before {
            None => Outcome::Created,
            Some(before) if before.resource_version() == after.resource_version() => {
                Outcome::Unchanged
            }
            Some(_) => Outcome::Replaced,
        })
    }

    /// Sets whether the roll-out of a policy is paused.
    pub async fn set_paused(&self, name: &str, is_paused: bool) -> Result<(), PolicyWriteError> {
        self.merge(name, json!({"spec": {"rollout": {"paused": is_paused}}})).await
    }

    /// Requests an earlier revision for the nodes of this version of a policy.
    pub async fn request_rollback(
        &self,
        policy: &Policy,
        revision: &str,
    ) -> Result<(), PolicyWriteError> {
        let annotations = json!({ROLLBACK_ANNOTATION: revision});
        let metadata = json!({"resourceVersion": policy.version, "annotations": annotations});
        self.merge(&policy.name, json!({"metadata": metadata})).await
    }

    /// Approves changes of instances that this version of a policy proposes.
    pub async fn approve(
        &self,
        policy: &Policy,
        changes: &[&InstanceChange],
    ) -> Result<(), PolicyWriteError> {
        let annotations = json!({APPROVAL_ANNOTATION: approval(policy, changes)});
        let metadata = json!({"resourceVersion": policy.version, "annotations": annotations});
        self.merge(&policy.name, json!({"metadata": metadata})).await
    }

    async fn read(&self, name: &str) -> Result<DynamicObject, PolicyWriteError> {
        let found = request(self.policies.get(name)).await;
        found.map_err(|source| failure(name, source))
    }

    async fn merge(&self, name: &str, patch: Value) -> Result<(), PolicyWriteError> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        self.patch(name, &params, &Patch::Merge(patch)).await.map(|_| ())
    }

    async fn patch(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<impl serde::Serialize + std::fmt::Debug>,
    ) -> Result<DynamicObject, PolicyWriteError> {
        let written = request(self.policies.patch(name, params, patch)).await;
        written.map_err(|source| failure(name, source))
    }
}

fn failure(name: &str, source: RequestError) -> PolicyWriteError {
    let name = name.to_owned();
    if let RequestError::Refused(error) = &source
        && is_kind_absent(error)
    {
        return PolicyWriteError::NoKind;
    }
    match source.code() {
        Some(404) => PolicyWriteError::NotFound(name),
        Some(409) => PolicyWriteError::Conflict { name, source },
        Some(_) | None => PolicyWriteError::Refused { name, source },
    }
}

/// Without the kind, the response is about the path. Otherwise, it names the object.
fn is_kind_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 && !status.message.contains(octavo_policy::crd::PLURAL))
}
