//! Kubelet's identifiers: names of extended resources, and device ids.

use std::fmt;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};
use thiserror::Error;

use crate::id::{GpuUuid, MigUuid, is_subdomain};
use crate::profile::ProfileName;

/// Name of an extended resource of NVIDIA: `nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`, `nvidia.com/gpu.shared`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct ResourceName(String);

/// Device id: a unit's UUID, followed by the number for a replica: `GPU-<uuid>::2`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct ShareId {
    uuid: String,
    replica: Option<u32>,
}

/// Error when parsing a resource name or id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResourceError {
    /// The name is not in NVIDIA's domain.
    #[error("{0:?} does not start with nvidia.com/")]
    Domain(String),
    /// The part after the domain is not valid in a resource name.
    #[error(
        "{0:?}: nvidia.com/ must be followed by at most 63 lowercase letters, digits, '-' and '.'"
    )]
    Name(String),
    /// The id is not the UUID of a GPU or MIG device with an optional replica number.
    #[error("{0:?} is not an id like GPU-<uuid>, MIG-<uuid> or GPU-<uuid>::2")]
    Id(String),
}

/// Domain of NVIDIA's resources. Source: NVIDIA k8s-device-plugin, `api/config/v1`.
const DOMAIN: &str = "nvidia.com/";
/// Suffix of a resource with shared units, unless it is renamed otherwise. Source: as above, `renameByDefault`.
const SHARED: &str = ".shared";
/// Maximum length after the domain. Source: Kubernetes, "Extended resources"; label names.
const LONGEST: usize = 63;

impl ResourceName {
    /// Whole GPUs.
    pub fn gpu() -> Self {
        Self(format!("{DOMAIN}gpu"))
    }

    /// Partitions of a profile, under the strategy `mixed`. A `+` is not valid in a name and becomes a dot, as in
    /// NVIDIA's tools.
    pub fn mig(profile: &ProfileName) -> Self {
        let profile = profile.to_string().replace(['+', ','], ".");
        Self(format!("{DOMAIN}mig-{profile}"))
    }

    /// The name for shared units: `nvidia.com/gpu.shared`.
    #[must_use]
    pub fn shared(&self) -> Self {
        Self(format!("{}{SHARED}", self.0))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part after the domain: `gpu`.
    pub fn short(&self) -> &str {
        self.0.strip_prefix(DOMAIN).unwrap_or(&self.0)
    }
}

impl FromStr for ResourceName {
    type Err = ResourceError;

    fn from_str(text: &str) -> Result<Self, ResourceError> {
        let name =
            text.strip_prefix(DOMAIN).ok_or_else(|| ResourceError::Domain(text.to_owned()))?;
        if name.len() <= LONGEST && is_subdomain(name) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ResourceError::Name(text.to_owned()))
        }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl ShareId {
    /// Returns an id without the number of its replica, also if the rest is no UUID.
    pub fn uuid_part(text: &str) -> &str {
        text.split_once("::").map_or(text, |(uuid, _)| uuid)
    }

    /// The id of a unit that is not shared.
    pub fn whole(uuid: &str) -> Self {
        Self { uuid: uuid.to_owned(), replica: None }
    }

    /// The id of one of a unit's replicas, which are numbered from zero.
    pub fn replica(uuid: &str, number: u32) -> Self {
        Self { uuid: uuid.to_owned(), replica: Some(number) }
    }

    /// UUID of the device or partition.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The replica's number; `None` if the unit is not shared.
    pub fn number(&self) -> Option<u32> {
        self.replica
    }
}

impl FromStr for ShareId {
    type Err = ResourceError;

    fn from_str(text: &str) -> Result<Self, ResourceError> {
        let wrong = || ResourceError::Id(text.to_owned());
        let (uuid, replica) = match text.split_once("::") {
            None => (text, None),
            Some((uuid, number)) => {
                let number: u32 = number.parse().map_err(|_| wrong())?;
                (uuid, Some(number))
            }
        };
        if uuid.parse::<GpuUuid>().is_err() && uuid.parse::<MigUuid>().is_err() {
            return Err(wrong());
        }
        Ok(Self { uuid: uuid.to_owned(), replica })
    }
}

impl fmt::Display for ShareId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.replica {
            None => f.pad(&self.uuid),
            Some(number) => f.pad(&format!("{}::{number}", self.uuid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

    #[test]
    fn resource_names_match_nvidia_device_plugin() {
        let mig = |name: &str| ResourceName::mig(&name.parse().unwrap()).to_string();
        assert_eq!(ResourceName::gpu().as_str(), "nvidia.com/gpu");
        assert_eq!(ResourceName::gpu().shared().as_str(), "nvidia.com/gpu.shared");
        assert_eq!(mig("1g.10gb"), "nvidia.com/mig-1g.10gb");
        assert_eq!(mig("1g.10gb+me"), "nvidia.com/mig-1g.10gb.me");
        assert_eq!(mig("1c.3g.40gb"), "nvidia.com/mig-1c.3g.40gb");
        for name in ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb.me", "nvidia.com/a100-x3"] {
            assert_eq!(name.parse::<ResourceName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn i12_invalid_resource_names_are_rejected() {
        let long = format!("nvidia.com/{}", "a".repeat(64));
        for text in [
            "gpu",
            "amd.com/gpu",
            "nvidia.com/",
            "nvidia.com/GPU",
            "nvidia.com/a_b",
            "nvidia.com/-a",
            "nvidia.com/a..b",
            &long,
        ] {
            assert!(text.parse::<ResourceName>().is_err(), "{text}");
        }
    }

    #[test]
    fn share_ids_round_trip() {
        for id in [ShareId::whole(GPU), ShareId::replica(GPU, 0), ShareId::replica(GPU, 31)] {
            assert_eq!(id.to_string().parse::<ShareId>(), Ok(id));
        }
        for text in [
            "",
            "0",
            "0:1",
            "GPU-1",
            &format!("{GPU}::"),
            &format!("{GPU}::x"),
            &format!("{GPU}::0::1"),
        ] {
            assert!(text.parse::<ShareId>().is_err(), "{text}");
        }
    }
}
