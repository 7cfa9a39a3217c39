//! Whether pods are told what they were given, and who of several aggregators does that.

use std::path::{Path, PathBuf};

use super::usage;
use crate::config::Answer;
use crate::domain::workload::Place;
use crate::files;

/// The host name as the kernel has it; in a pod that is the pod's name.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";
const MAX_HOSTNAME_BYTES: u64 = 4096;
/// What the Lease is called.
const LEASE: &str = "octavo-aggregator";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Workloads")]
pub(super) struct WorkloadArgs {
    /// Write on pods which type of accelerator they were given, as accelerator.opendatahub.io/type
    ///
    /// The annotations octavo.dev/mig-profile and octavo.dev/sharing say the rest; no other one is touched. Of several aggregators the
    /// one writes that holds the Lease octavo-aggregator.
    #[arg(long, env = "OCTAVO_ANNOTATE_PODS", hide_env_values = true)]
    annotate_pods: bool,

    /// Where the Lease is, with --annotate-pods
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "OCTAVO_LEASE_NAMESPACE",
        hide_env_values = true,
        default_value = "octavo-system",
        value_parser = namespace
    )]
    lease_namespace: String,
}

/// How pods are told what they were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTypes {
    /// The namespace of the Lease.
    pub lease_namespace: String,
    /// What the Lease is called.
    pub lease_name: &'static str,
    /// How the name begins under which it is held.
    pub who: String,
    /// The cluster whose pods they are; that of this pod where there is none.
    pub kubeconfig: Option<PathBuf>,
}

impl WorkloadArgs {
    /// `kubeconfig` is the cluster that is asked; `None` where nothing is to be written.
    pub(super) fn resolve(self, kubeconfig: Option<PathBuf>) -> Result<Option<PodTypes>, Answer> {
        if !self.annotate_pods {
            return Ok(None);
        }
        Ok(Some(PodTypes {
            lease_namespace: self.lease_namespace,
            lease_name: LEASE,
            who: hostname(Path::new(HOSTNAME))?,
            kubeconfig,
        }))
    }
}

/// A text that is the name of a namespace.
fn namespace(text: &str) -> Result<String, String> {
    match Place::new(text, "any") {
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
