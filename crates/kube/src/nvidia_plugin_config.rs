//! Writes our keys to the `ConfigMap` of NVIDIA's device plugin and leaves all others unchanged.
//!
//! Keys are written by server-side apply with our own field manager. The server therefore records which keys are ours
//! and rejects changes to keys of others, and no local state is needed.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use thiserror::Error;

use super::client::{self, RequestError};

/// Our field manager.
pub const FIELD_MANAGER: &str = "octavo-aggregator";

/// Client of the `ConfigMap`.
#[derive(Clone)]
pub struct PluginConfigMap {
    maps: Api<ConfigMap>,
    namespace: String,
    name: String,
}

/// The content of the `ConfigMap`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// All keys and values.
    pub all: BTreeMap<String, String>,
    /// Keys that we applied.
    pub ours: BTreeSet<String>,
    /// Keys of other managers, with the manager's name.
    pub others: BTreeMap<String, String>,
    /// The resource version; `None` if the object does not exist.
    pub version: Option<String>,
}

/// Reason why the `ConfigMap` was not read or written.
#[derive(Debug, Error)]
#[error("ConfigMap {name}: {source}")]
pub struct PluginConfigMapError {
    /// The `ConfigMap`.
    name: String,
    /// The cause.
    source: RequestError,
}

impl std::fmt::Debug for PluginConfigMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PluginConfigMap({})", self.name())
    }
}

impl PluginConfigMap {
    /// Creates a client of the `ConfigMap` of this namespace and name.
    pub fn new(client: Client, (namespace, name): (&str, &str)) -> Self {
        Self {
            maps: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the namespace and name, such as `gpu-operator/plugin-config`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Reads the content; empty if the object does not exist.
    pub async fn read(&self) -> Result<Contents, PluginConfigMapError> {
        let map = self.request(self.maps.get_opt(&self.name)).await?;
        Ok(map.map(contents).unwrap_or_default())
    }

    /// Replaces all of our keys with these if the object is still as `seen`. Creates the object if it does not exist.
    pub async fn apply(
        &self,
        keys: &BTreeMap<String, String>,
        seen: &Contents,
    ) -> Result<(), PluginConfigMapError> {
        let mut body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": self.name, "namespace": self.namespace},
        });
        // Another aggregator may have written keys for its own nodes in between.
        if let Some(metadata) = body.get_mut("metadata").and_then(|one| one.as_object_mut())
            && let Some(version) = &seen.version
        {
            metadata.insert("resourceVersion".to_owned(), json!(version));
        }
        // Omit an empty set, so that a manager without any field is removed from the managed fields.
        if let Some(fields) = body.as_object_mut().filter(|_| !keys.is_empty()) {
            fields.insert("data".to_owned(), json!(keys));
        }
        let params = PatchParams::apply(FIELD_MANAGER);
        let patch = Patch::Apply(body);
        self.request(self.maps.patch(&self.name, &params, &patch)).await.map(|_map| ())
    }

    async fn request<T>(
        &self,
        response: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, PluginConfigMapError> {
        let response = client::request(response).await;
        response.map_err(|source| PluginConfigMapError { name: self.name(), source })
    }
}

fn contents(map: ConfigMap) -> Contents {
    let mut contents = Contents {
        all: map.data.unwrap_or_default(),
        version: map.metadata.resource_version,
        ..Contents::default()
    };
    for entry in map.metadata.managed_fields.unwrap_or_default() {
        let is_ours = is_ours(&entry);
        let manager = entry.manager.unwrap_or_default();
        let data = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:data"));
        let keys = data.and_then(|data| data.as_object());
        let keys = keys.into_iter().flat_map(|keys| keys.keys());
        for key in keys.filter_map(|key| key.strip_prefix("f:")) {
            if is_ours {
                contents.ours.insert(key.to_owned());
            } else {
                contents.others.insert(key.to_owned(), manager.clone());
            }
        }
    }
    contents
}

/// Only keys that we applied are ours.
fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.operation.as_deref() == Some("Apply")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_classified_by_field_manager() {
        let map = serde_json::from_value(json!({
            "metadata": {"managedFields": [
                {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:data": {"f:octavo-a-1": {}}}},
                {"manager": FIELD_MANAGER, "operation": "Update", "fieldsV1": {"f:data": {"f:octavo-b-1": {}}}},
                {"manager": "helm", "operation": "Update", "fieldsV1": {"f:data": {".": {}, "f:default": {}}}},
                {"manager": "odd"},
            ]},
            "data": {"octavo-a-1": "x", "default": "y"},
        }));
        let contents = contents(map.unwrap());
        assert_eq!(contents.ours, ["octavo-a-1".to_owned()].into());
        let others: Vec<&str> = contents.others.keys().map(String::as_str).collect();
        assert_eq!(others, ["default", "octavo-b-1"]);
        assert_eq!(contents.others["default"], "helm");
        assert_eq!(contents.all.len(), 2);
    }
}
