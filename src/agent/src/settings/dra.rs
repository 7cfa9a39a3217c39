//! Settings of Dynamic Resource Allocation.

use std::path::PathBuf;

use octavo_dra::claims::ReleasePolicy;
use octavo_settings::EarlyExit;
use octavo_toolkit::choice::choice;

use super::{DeviceProvider, usage};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Dynamic Resource Allocation")]
pub(super) struct DraArgs {
    /// Allocate the GPUs that no layout covers to resource claims; experimental; needs --follow-node or --label-sink
    /// node
    ///
    /// Claims create and destroy MIG partitions on GPUs with MIG mode on. A GPU must have one allocator, so this
    /// excludes --sharing embedded and --sharing hand-off.
    #[arg(long, env = "OCTAVO_DRA", conflicts_with = "read_only")]
    dra: bool,

    /// What happens to a partition that was created for a claim, when the claim ends; for --dra
    #[arg(
        long,
        value_name = "POLICY",
        env = "OCTAVO_DRA_RELEASE",
        default_value = "destroy",
        value_parser = choice(&[
            ("destroy", "Destroy it as soon as it is idle", ReleasePolicy::Destroy),
            ("keep", "Keep it until another claim needs its slices", ReleasePolicy::Keep),
        ])
    )]
    dra_release: ReleasePolicy,

    /// Directory of the kubelet, with plugins and plugins_registry; for --dra
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_KUBELET_DIR",
        default_value = "/var/lib/kubelet"
    )]
    kubelet_dir: PathBuf,
}

/// Settings of resource claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraSettings {
    /// What happens to a partition that was created for a claim.
    pub release: ReleasePolicy,
    /// The kubelet's directory.
    pub kubelet_dir: PathBuf,
}

impl DraArgs {
    /// Resolves the settings; `None` without `--dra`.
    pub(super) fn resolve(
        self,
        provider: DeviceProvider,
        watches_node: bool,
    ) -> Result<Option<DraSettings>, EarlyExit> {
        if !self.dra {
            return Ok(None);
        }
        match provider {
            DeviceProvider::Embedded | DeviceProvider::HandOff => {
                return Err(usage("--dra excludes --sharing embedded and --sharing hand-off"));
            }
            DeviceProvider::Auto | DeviceProvider::Off => {}
        }
        if !watches_node {
            return Err(usage("--dra needs --follow-node or --label-sink node"));
        }
        Ok(Some(DraSettings { release: self.dra_release, kubelet_dir: self.kubelet_dir }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::AgentSettings;

    fn read(arguments: &[&str]) -> Result<Option<DraSettings>, EarlyExit> {
        let program = ["octavo-agent", "--node-name=node-1"];
        AgentSettings::from_arguments(program.iter().chain(arguments)).map(|all| all.dra)
    }

    #[test]
    fn claims_are_served_only_on_request() {
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(read(&["--dra", "--label-sink=node", "--oneshot"]).unwrap(), None);
        let settings = read(&["--dra", "--label-sink=node", "--dra-release=keep"]).unwrap();
        let expected = DraSettings {
            release: ReleasePolicy::Keep,
            kubelet_dir: PathBuf::from("/var/lib/kubelet"),
        };
        assert_eq!(settings, Some(expected));
    }

    #[test]
    fn i12_second_allocator_of_a_gpu_is_rejected() {
        for (arguments, reason) in [
            (&["--dra", "--follow-node", "--sharing=embedded"][..], "--dra excludes"),
            (&["--dra", "--follow-node", "--sharing=hand-off"], "--dra excludes"),
            (&["--dra", "--follow-node", "--read-only"], "--read-only"),
            (&["--dra"], "--dra needs --follow-node"),
        ] {
            let answer = read(arguments).unwrap_err().to_string();
            assert!(answer.contains(reason), "{arguments:?}: {answer}");
        }
    }
}
