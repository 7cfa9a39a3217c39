//! Server-side apply of manifests with the permissions of a user.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, ValidationDirective,
};
use kube::core::discovery::Scope;
use kube::error::DiscoveryError;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use thiserror::Error;

use crate::client::{RequestError, request};
use crate::hardware_profiles::Outcome;

/// Applies manifests. Nothing is ever deleted.
#[derive(Clone)]
pub struct ManifestApplier {
    client: Client,
    params: PatchParams,
    kinds: BTreeMap<(String, String), (ApiResource, Scope)>,
}

/// Error that prevents the application of one object. The object is unchanged, unless there was no response.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The manifest names no object.
    #[error("a manifest has no apiVersion, kind or metadata.name")]
    Unnamed,
    /// The cluster does not have the kind.
    #[error("cannot apply {object}: this cluster has no kind {kind} of {version}")]
    NoKind {
        /// The object.
        object: String,
        /// Its kind.
        kind: String,
        /// Its group and version.
        version: String,
    },
    /// Other clients manage fields that differ.
    #[error("cannot apply {object}")]
    Conflict {
        /// The object.
        object: String,
        /// The cause, which names the fields and their managers.
        source: RequestError,
    },
    /// The API server refused the request or is unreachable.
    #[error("cannot apply {object}")]
    Refused {
        /// The object.
        object: String,
        /// The cause.
        source: RequestError,
    },
}

impl ApplyError {
    /// Returns whether the API server did not respond, so that other objects will fail as well.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if source.code().is_none())
    }
}

impl std::fmt::Debug for ManifestApplier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ManifestApplier")
    }
}

impl ManifestApplier {
    /// Creates an applier with this field manager. With `is_forced`, fields of other managers are taken over. Sends no request yet.
    pub fn new(client: Client, manager: &str, is_forced: bool) -> Self {
        let mut params = PatchParams::apply(manager);
        params.force = is_forced;
        params.field_validation = Some(ValidationDirective::Strict);
        Self { client, params, kinds: BTreeMap::new() }
    }

    /// Applies a manifest. Returns the name of the object, as kubectl prints it, and the result.
    pub async fn apply(&mut self, manifest: &Value) -> Result<(String, Outcome), ApplyError> {
        let field = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
        let (version, kind) = (field("/apiVersion"), field("/kind"));
        let (Some(version), Some(kind), Some(name)) = (version, kind, field("/metadata/name"))
        else {
            return Err(ApplyError::Unnamed);
        };
        let namespace = field("/metadata/namespace");
        let object = display_name((version, kind), name, namespace);
        let (resource, scope) = self.kind((version, kind), &object).await?;
        let client = self.client.clone();
        let objects: Api<DynamicObject> = match (scope, namespace) {
            (Scope::Namespaced, Some(namespace)) => {
                Api::namespaced_with(client, namespace, &resource)
            }
            (Scope::Namespaced, None) => Api::default_namespaced_with(client, &resource),
            (Scope::Cluster, _) => Api::all_with(client, &resource),
        };
        let failed = |source| refused(&object, source);
        let before = request(objects.get_opt(name)).await.map_err(failed)?;
        let patch = Patch::Apply(manifest);
        let after = request(objects.patch(name, &self.params, &patch)).await.map_err(failed)?;
        let outcome = match before {
            None => Outcome::Created,
            Some(before) if before.resource_version() == after.resource_version() => {
                Outcome::Unchanged
            }
            Some(_) => Outcome::Replaced,
        };
        Ok((object, outcome))
    }

    /// Resource and scope of a kind, which the API server lists.
    async fn kind(
        &mut self,
        (version, kind): (&str, &str),
        object: &str,
    ) -> Result<(ApiResource, Scope), ApplyError> {
        let entry = match self.kinds.entry((version.to_owned(), kind.to_owned())) {
            Entry::Occupied(known) => return Ok(known.get().clone()),
            Entry::Vacant(entry) => entry,
        };
        let (group, number) = version.split_once('/').unwrap_or(("", version));
        let named = GroupVersionKind::gvk(group, number, kind);
        let found = request(kube::discovery::pinned_kind(&self.client, &named)).await;
        let (resource, capabilities) = found.map_err(|source| {
            if is_kind_absent(&source) {
                let (kind, version) = (kind.to_owned(), version.to_owned());
                return ApplyError::NoKind { object: object.to_owned(), kind, version };
            }
            refused(object, source)
        })?;
        Ok(entry.insert((resource, capabilities.scope)).clone())
    }
}

fn refused(object: &str, source: RequestError) -> ApplyError {
    let object = object.to_owned();
    match source.code() {
        Some(409) => ApplyError::Conflict { object, source },
        Some(_) | None => ApplyError::Refused { object, source },
    }
}

/// Without the group or version, discovery has the status 404.
fn is_kind_absent(error: &RequestError) -> bool {
    let RequestError::Refused(cause) = error else { return false };
    error.code() == Some(404)
        || matches!(**cause, kube::Error::Discovery(DiscoveryError::MissingKind(_)))
}

/// Name of an object as in the output of kubectl, with its namespace: `localqueue.kueue.x-k8s.io/gpus in team-a`.
fn display_name((version, kind): (&str, &str), name: &str, namespace: Option<&str>) -> String {
    let group = version.split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
    let namespace = namespace.map(|one| format!(" in {one}")).unwrap_or_default();
    format!("{}{group}/{name}{namespace}", kind.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_the_names_that_kubectl_prints() {
        let quota = display_name(("v1", "ResourceQuota"), "gpus", Some("team-a"));
        assert_eq!(quota, "resourcequota/gpus in team-a");
        let queue = display_name(("kueue.x-k8s.io/v1beta2", "ClusterQueue"), "gpus", None);
        assert_eq!(queue, "clusterqueue.kueue.x-k8s.io/gpus");
    }
}
