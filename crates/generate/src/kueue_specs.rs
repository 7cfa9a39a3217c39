//! Fields of Kueue's objects. Source: Kueue v0.19.2, `apis/kueue/v1beta2` and `v1beta1`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Serialize;
use serde_with::skip_serializing_none;

/// Specification of a `Topology`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopologySpec {
    pub(crate) levels: Vec<TopologyLevel>,
}

/// Level of a topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopologyLevel {
    pub(crate) node_label: &'static str,
}

/// Specification of a `ResourceFlavor`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceFlavorSpec {
    pub(crate) node_labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tolerations: Vec<v1::Toleration>,
    pub(crate) topology_name: Option<&'static str>,
}

/// Specification of a `ClusterQueue`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueSpec {
    /// Only in `v1beta1`.
    pub(crate) cohort: Option<&'static str>,
    pub(crate) cohort_name: Option<&'static str>,
    pub(crate) flavor_fungibility: FlavorFungibility,
    pub(crate) namespace_selector: LabelSelector,
    pub(crate) resource_groups: Vec<ResourceGroup>,
}

/// Search for a flavor: a workload gets the next one before it borrows quota or preempts other workloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FlavorFungibility {
    pub(crate) when_can_borrow: &'static str,
    pub(crate) when_can_preempt: &'static str,
}

/// Resources that are assigned from the same flavor.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceGroup {
    pub(crate) covered_resources: Vec<String>,
    pub(crate) flavors: Vec<FlavorQuotas>,
}

/// Quotas of a flavor, in the order of the covered resources.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct FlavorQuotas {
    pub(crate) name: String,
    pub(crate) resources: Vec<ResourceQuota>,
}

/// Quota of a resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceQuota {
    pub(crate) name: String,
    pub(crate) nominal_quota: String,
}

/// Specification of a `LocalQueue`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueSpec {
    pub(crate) cluster_queue: &'static str,
}

/// A `WorkloadPriorityClass`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPriority {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) metadata: ObjectMeta,
    pub(crate) value: i32,
}
