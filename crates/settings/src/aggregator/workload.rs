//! Settings of annotating pods with their accelerator types, and of the leader election for it.

use std::path::{Path, PathBuf};

use octavo_node::workload::PodKey;
use octavo_toolkit::files;

use super::usage;
use crate::Answer;

/// The kernel's host name; in a pod, the pod's name.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";
const MAX_HOSTNAME_BYTES: u64 = 4096;
/// Name of the Lease.
const LEASE_NAME: &str = "octavo-aggregator";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Workloads")]
pub(super) struct WorkloadArgs {
    /// Write on pods which type of accelerator they were given, as accelerator.opendatahub.io/type
    ///
    /// The annotations octavo.dev/mig-profile and octavo.dev/sharing say the rest; no other one is touched. Of several aggregators the
    /// one writes that holds the Lease octavo-aggregator.
    #[arg(long, env = "OCTAVO_ANNOTATE_PODS")]
    annotate_pods: bool,

    /// Where the Lease is, with --annotate-pods
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "OCTAVO_LEASE_NAMESPACE",
        default_value = "octavo-system",
        value_parser = namespace
    )]
    lease_namespace: String,
}

/// Settings of annotating pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAnnotationSettings {
    /// The namespace of the Lease.
    pub lease_namespace: String,
    /// Name of the Lease.
    pub lease_name: &'static str,
    /// Prefix of the holder's identity.
    pub holder_prefix: String,
    /// Kubeconfig of the pods' cluster; `None` for the one of this pod.
    pub kubeconfig: Option<PathBuf>,
}

impl WorkloadArgs {
    /// Resolves the settings; `None` if nothing is to be written. `kubeconfig` selects the cluster.
    pub(super) fn resolve(
        self,
        kubeconfig: Option<PathBuf>,
    ) -> Result<Option<PodAnnotationSettings>, Answer> {
        if !self.annotate_pods {
            return Ok(None);
        }
        Ok(Some(PodAnnotationSettings {
            lease_namespace: self.lease_namespace,
            lease_name: LEASE_NAME,
            holder_prefix: hostname(Path::new(HOSTNAME))?,
            kubeconfig,
        }))
    }
}

/// Parses the name of a namespace.
fn namespace(text: &str) -> Result<String, String> {
    match PodKey::new(text, "any") {
        Some(place) => Ok(place.namespace().to_owned()),
        None => Err("a namespace has at most 63 lower-case letters, digits and '-'".to_owned()),
    }
}

fn hostname(file: &Path) -> Result<String, Answer> {
    let text = files::text(file, MAX_HOSTNAME_BYTES).map_err(|error| {
        let file = file.display();
        usage(&format!("--annotate-pods: cannot read {file}: {error}"))
    })?;
    Ok(text.trim().to_owned())
}
