//! Fields of an application of Argo CD. Source: Argo CD v3.1.9, `pkg/apis/application/v1alpha1`.

use serde::Serialize;

/// Specification of an `Application`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationSpec {
    pub(crate) project: &'static str,
    pub(crate) source: Source,
    pub(crate) destination: Destination,
    pub(crate) sync_policy: SyncPolicy,
    pub(crate) ignore_differences: Vec<IgnoredDifference>,
}

/// Place of the manifests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Source {
    #[serde(rename = "repoURL")]
    pub(crate) repository: String,
    pub(crate) path: String,
    pub(crate) target_revision: String,
}

/// Cluster to which the manifests are applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Destination {
    pub(crate) server: &'static str,
}

/// Rules of synchronization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SyncPolicy {
    pub(crate) automated: Automated,
    pub(crate) sync_options: Vec<&'static str>,
}

/// Automatic synchronization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Automated {
    pub(crate) prune: bool,
    pub(crate) self_heal: bool,
}

/// Fields that other controllers set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IgnoredDifference {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) json_pointers: Vec<&'static str>,
}
