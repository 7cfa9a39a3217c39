//! Reads the configuration of NVIDIA's GPU Operator: its `ClusterPolicy`, the `ConfigMap`s of its namespace, and the Nodes that it manages.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, ObjectMeta};
use kube::core::GroupVersionKind;
use serde_json::Value;

use crate::aggregator_access::{AccessError, Step};
use crate::client::{ClusterSelection, connect_user, request};

/// Nodes with GPUs, as the operator labels them.
const GPU_NODES: &str = "nvidia.com/gpu.present=true";
/// Objects per response.
const PAGE: u32 = 250;

/// Reads the objects. Without the operator's resource type, there is no `ClusterPolicy`. `namespace` is that of the operator if the
/// `ClusterPolicy` does not report one.
pub async fn read(cluster: &ClusterSelection, namespace: &str) -> Result<Vec<Value>, AccessError> {
    let client = connect_user(cluster).await?;
    let policy = GroupVersionKind::gvk("nvidia.com", "v1", "ClusterPolicy");
    let policy = ApiResource::from_gvk_with_plural(&policy, "clusterpolicies");
    let policies = Api::all_with(client.clone(), &policy);
    let mut objects = match list(&policies, &policy, ListParams::default()).await {
        Err(AccessError::Api { source, .. }) if source.code() == Some(404) => Vec::new(),
        found => found?,
    };
    let reported = objects.first().and_then(|policy| policy.pointer("/status/namespace")?.as_str());
    let namespace = reported.filter(|name| !name.is_empty()).unwrap_or(namespace).to_owned();
    let config_map = core("ConfigMap", "configmaps");
    let config_maps = Api::namespaced_with(client.clone(), &namespace, &config_map);
    objects.extend(list(&config_maps, &config_map, ListParams::default()).await?);
    let node = core("Node", "nodes");
    let nodes = Api::all_with(client, &node);
    objects.extend(list(&nodes, &node, ListParams::default().labels(GPU_NODES)).await?);
    Ok(objects)
}

fn core(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", kind), plural)
}

/// Lists objects, page by page.
async fn list(
    api: &Api<DynamicObject>,
    resource: &ApiResource,
    mut wanted: ListParams,
) -> Result<Vec<Value>, AccessError> {
    wanted = wanted.limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = request(api.list(&wanted)).await;
        let page =
            page.map_err(AccessError::api(Step::Migrate, || format!("list {}", resource.plural)))?;
        for DynamicObject { metadata, data, .. } in page.items {
            all.push(document(resource, &metadata, data));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => wanted = wanted.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// Converts an item of a list, which has no kind of its own, to the document that kubectl prints.
fn document(resource: &ApiResource, metadata: &ObjectMeta, mut data: Value) -> Value {
    if let Some(fields) = data.as_object_mut() {
        fields.insert("kind".to_owned(), Value::from(resource.kind.as_str()));
        let metadata = serde_json::to_value(metadata).unwrap_or_default();
        fields.insert("metadata".to_owned(), metadata);
    }
    data
}
