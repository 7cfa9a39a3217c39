//! Settings of annotating pods with their accelerator types, and of the leader election for it.

use std::path::Path;

use octavo_node::workload::PodKey;
use octavo_settings::EarlyExit;
use octavo_toolkit::files;

use super::usage;

/// The kernel's host name; in a pod, the pod's name.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";
const MAX_HOSTNAME_BYTES: u64 = 4096;

/// Settings of annotating pods.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Workloads")]
pub struct WorkloadSettings {
    /// Annotate pods with the type of their accelerators (accelerator.opendatahub.io/type)
    ///
    /// Also writes the annotations octavo.dev/mig-profile and octavo.dev/sharing, and no others. With several
    /// aggregators, only the holder of the Lease octavo-aggregator writes.
    #[arg(long, env = "OCTAVO_ANNOTATE_PODS")]
    pub annotate_pods: bool,

    /// Namespace of the Leases, for --annotate-pods, --policies and --leader-election
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "OCTAVO_LEASE_NAMESPACE",
        default_value = "octavo-system",
        value_parser = namespace
    )]
    pub lease_namespace: String,

    /// Prefix of the holder's identity.
    #[arg(skip)]
    pub holder_prefix: String,
}

impl WorkloadSettings {
    /// Reads the identity of this process, if it takes part in a leader election.
    pub(super) fn identify(&mut self, has_policies: bool) -> Result<(), EarlyExit> {
        if self.annotate_pods || has_policies {
            self.holder_prefix = hostname(Path::new(HOSTNAME))?;
        }
        Ok(())
    }
}

/// Parses the name of a namespace.
fn namespace(text: &str) -> Result<String, String> {
    match PodKey::new(text, "any") {
        Some(place) => Ok(place.namespace().to_owned()),
        None => Err("a namespace has at most 63 lower-case letters, digits and '-'".to_owned()),
    }
}

fn hostname(file: &Path) -> Result<String, EarlyExit> {
    let text = files::text(file, MAX_HOSTNAME_BYTES).map_err(|error| {
        let file = file.display();
        usage(&format!("identity for the Lease: cannot read {file}: {error}"))
    })?;
    Ok(text.trim().to_owned())
}
