//! What one unit of a resource is: a device, a part of one, or a turn on either.
//!
//! Resources are names that device plugins chose; only those of accelerators are counted, by the rules of their makers' plugins.

use std::fmt;

use crate::domain::inventory::Vendor;

/// What one unit is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// A whole device.
    Device,
    /// A MIG partition of this profile.
    Mig(String),
    /// A device, by turns with others.
    Shared,
    /// A MIG partition of this profile, by turns with others.
    SharedMig(String),
    /// A logical core of a Neuron device.
    NeuronCore,
    /// A part of an AMD device, as its driver calls it: `cpx_nps4`.
    Part(String),
}

/// The resource of whole devices, and the key of the taint that is usual on their nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole(&'static str);

const NVIDIA: &str = "nvidia.com/";
const AMD: &str = "amd.com/";
const NEURON: &str = "aws.amazon.com/neuron";
const MIG: &str = "nvidia.com/mig-";
const SHARED: &str = ".shared";
/// How NVIDIA's labels of the product end where devices are given out in parts or by turns. Source: NVIDIA k8s-device-plugin, `internal/lm`.
const MIG_PRODUCT: &str = "-MIG-";
const SHARED_PRODUCT: &str = "-SHARED";

/// Whether a resource is one of accelerators. Sources: NVIDIA k8s-device-plugin, AMD's k8s-device-plugin, AWS Neuron's.
pub fn is_accelerator(resource: &str) -> bool {
    let is_nvidia = resource
        .strip_prefix(NVIDIA)
        .is_some_and(|name| name == "gpu" || name.starts_with("gpu.") || name.starts_with("mig-"));
    is_nvidia || resource.starts_with(AMD) || resource.starts_with(NEURON)
}

impl Whole {
    /// Of this maker; `None` where no plugin gives its devices out.
    pub fn of(vendor: Vendor) -> Option<Self> {
        match vendor {
            Vendor::Nvidia => Some(Self("nvidia.com/gpu")),
            Vendor::Amd => Some(Self("amd.com/gpu")),
            Vendor::Aws => Some(Self(NEURON)),
            Vendor::Other(_) => None,
        }
    }

    /// Of the maker of this resource.
    pub fn behind(resource: &str) -> Option<Self> {
        let vendors = [Vendor::Nvidia, Vendor::Amd, Vendor::Aws];
        let domain = |name: &str| name.split_once('/').map(|(domain, _)| domain.to_owned());
        let all = vendors.into_iter().filter_map(Self::of);
        let mut all = all.filter(|whole| domain(whole.0) == domain(resource));
        all.next()
    }

    /// The name.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl Shape {
    /// Of a resource, on a node with this product label. The label says so where parts or turns keep the name of whole devices.
    pub fn of(resource: &str, product: Option<&str>) -> Self {
        let (name, is_shared) = match resource.strip_suffix(SHARED) {
            Some(name) => (name, true),
            None => (resource, false),
        };
        if let Some(profile) = name.strip_prefix(MIG) {
            return Self::mig(profile, is_shared);
        }
        if let Some(rest) = name.strip_prefix(NEURON) {
            return match rest {
                "core" => Self::NeuronCore,
                _ => Self::Device,
            };
        }
        if let Some(part) = name.strip_prefix(AMD).filter(|part| *part != "gpu") {
            return Self::Part(part.to_owned());
        }
        let product = product.filter(|_| name.starts_with(NVIDIA)).unwrap_or("");
        let (_, profile, says_shared) = parts_of_product(product);
        match profile {
            Some(profile) => Self::mig(profile, is_shared || says_shared),
            None if is_shared || says_shared => Self::Shared,
            None => Self::Device,
        }
    }

    fn mig(profile: &str, is_shared: bool) -> Self {
        if is_shared {
            Self::SharedMig(profile.to_owned())
        } else {
            Self::Mig(profile.to_owned())
        }
    }

    /// A time slice of it.
    pub(super) fn sliced(&self) -> Self {
        match self {
            Self::Mig(profile) | Self::SharedMig(profile) => Self::SharedMig(profile.clone()),
            Self::Device | Self::Shared | Self::NeuronCore | Self::Part(_) => Self::Shared,
        }
    }

    /// Whether a unit is had alone.
    pub fn is_exclusive(&self) -> bool {
        match self {
            Self::Device | Self::Mig(_) | Self::NeuronCore | Self::Part(_) => true,
            Self::Shared | Self::SharedMig(_) => false,
        }
    }
}

/// A value of `nvidia.com/gpu.product`: the product, the profile of its partitions, and whether it is shared by turns.
pub(super) fn parts_of_product(value: &str) -> (&str, Option<&str>, bool) {
    let (value, is_shared) = match value.strip_suffix(SHARED_PRODUCT) {
        Some(value) => (value, true),
        None => (value, false),
    };
    match value.split_once(MIG_PRODUCT) {
        Some((product, profile)) => (product, Some(profile), is_shared),
        None => (value, None, is_shared),
    }
}

/// As people say it: `device`, `3g.40gb`, `turn`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.pad("device"),
            Self::Mig(profile) => f.pad(profile),
            Self::Shared => f.pad("turn"),
            Self::SharedMig(profile) => f.pad(&format!("turn on {profile}")),
            Self::NeuronCore => f.pad("core"),
            Self::Part(part) => f.pad(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_says_what_one_unit_is() {
        let mig = |profile: &str| Shape::Mig(profile.to_owned());
        for (resource, product, shape) in [
            ("nvidia.com/gpu", None, Shape::Device),
            ("nvidia.com/gpu", Some("NVIDIA-L4"), Shape::Device),
            ("nvidia.com/gpu", Some("NVIDIA-L4-SHARED"), Shape::Shared),
            (
                "nvidia.com/gpu",
                Some("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"),
                mig("1g.10gb"),
            ),
            (
                "nvidia.com/gpu",
                Some("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED"),
                Shape::SharedMig("1g.10gb".into()),
            ),
            ("nvidia.com/gpu.shared", None, Shape::Shared),
            ("nvidia.com/mig-3g.40gb", None, mig("3g.40gb")),
            (
                "nvidia.com/mig-3g.40gb.shared",
                None,
                Shape::SharedMig("3g.40gb".into()),
            ),
            ("amd.com/gpu", None, Shape::Device),
            ("amd.com/cpx_nps4", None, Shape::Part("cpx_nps4".into())),
            ("aws.amazon.com/neuron", None, Shape::Device),
            ("aws.amazon.com/neurondevice", None, Shape::Device),
            ("aws.amazon.com/neuroncore", None, Shape::NeuronCore),
        ] {
            assert_eq!(
                Shape::of(resource, product),
                shape,
                "{resource} {product:?}"
            );
            assert!(is_accelerator(resource), "{resource}");
        }
        for other in ["rdma/hca", "nvidia.com/hostdev", "cpu", "gpu", "nvidia.com"] {
            assert!(!is_accelerator(other), "{other}");
        }
    }

    #[test]
    fn the_usual_taint_is_that_of_the_maker() {
        let behind = |name| Whole::behind(name).map(Whole::as_str);
        assert_eq!(behind("nvidia.com/mig-1g.10gb"), Some("nvidia.com/gpu"));
        assert_eq!(
            behind("aws.amazon.com/neuroncore"),
            Some("aws.amazon.com/neuron")
        );
        assert_eq!(behind("amd.com/cpx_nps4"), Some("amd.com/gpu"));
        assert_eq!(behind("example.com/gpu"), None);
    }
}
