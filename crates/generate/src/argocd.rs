//! Application of Argo CD for generated machine pools: it never deletes machines, and leaves their number to the autoscaler.
//!
//! Source of the options: Argo CD v3.1.9, documentation, "Sync Options" and "Diff Customization".

use crate::argocd_specs::{
    ApplicationSpec, Automated, Destination, IgnoredDifference, Source, SyncPolicy,
};
use crate::manifest::{CustomObject, Generated, Manifest, ManifestFile, namespaced};

/// Settings of the generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgoCdOptions<'a> {
    /// Name of the application.
    pub name: &'a str,
    /// Namespace of Argo CD.
    pub namespace: &'a str,
    /// URL of the Git repository.
    pub repository: &'a str,
    /// Directory of the manifests in it.
    pub path: &'a str,
    /// Branch, tag or commit.
    pub revision: &'a str,
}

/// Generates the application. It has no finalizer, so that its deletion leaves the machines.
pub fn argo_cd(options: &ArgoCdOptions<'_>) -> Generated {
    let spec = ApplicationSpec {
        project: "default",
        source: Source {
            repository: options.repository.to_owned(),
            path: options.path.to_owned(),
            target_revision: options.revision.to_owned(),
        },
        destination: Destination { server: "https://kubernetes.default.svc" },
        sync_policy: SyncPolicy {
            automated: Automated { prune: false, self_heal: true },
            sync_options: vec![
                "Prune=false",
                // Otherwise, each synchronization writes the ignored fields too.
                "RespectIgnoreDifferences=true",
                // Fields that only the cluster's objects have stay, such as those of an existing ClusterAutoscaler.
                "ServerSideApply=true",
            ],
        },
        ignore_differences: vec![IgnoredDifference {
            group: "machine.openshift.io",
            kind: "MachineSet",
            json_pointers: vec![
                "/spec/replicas",
                // The machine controller adds the architecture.
                "/metadata/annotations/capacity.cluster-autoscaler.kubernetes.io~1labels",
            ],
        }],
    };
    let application = CustomObject {
        api_version: "argoproj.io/v1alpha1",
        kind: "Application",
        metadata: namespaced(options.namespace, options.name),
        spec,
    };
    let manifests = vec![Manifest::Application(Box::new(application))];
    let files = vec![ManifestFile { name: "application.yaml", manifests }];
    Generated { files, notes: Vec::new() }
}

#[cfg(test)]
mod tests;
