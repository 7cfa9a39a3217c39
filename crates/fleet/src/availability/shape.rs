//! Shape of a resource's units: a device, a partition, or a time slice of either.
//!
//! Device plugins choose the resource names. Only accelerator resources are counted, by the naming rules of the
//! vendors' plugins.

use std::fmt;
use std::str::FromStr;

use octavo_model::inventory::Vendor;
use serde_with::{DeserializeFromStr, SerializeDisplay};
use thiserror::Error;

use crate::accelerator_resource::{AMD, NEURON, NVIDIA};
use crate::type_labels::parse_product_label;

/// What one unit of a resource is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub enum Shape {
    /// A whole device.
    Device,
    /// A MIG partition with this profile.
    Mig(String),
    /// A time slice of a device.
    TimeSlice,
    /// A time slice of a MIG partition with this profile.
    MigTimeSlice(String),
    /// A logical core of a Neuron device.
    NeuronCore,
    /// A partition of an AMD device, by the driver's name: `cpx_nps4`.
    AmdPartition(String),
}

/// Resource name of whole devices, which is also the key of the usual taint on their nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceResource(&'static str);

const MIG: &str = "nvidia.com/mig-";
const SHARED: &str = ".shared";

impl DeviceResource {
    /// Whole-device resource of this vendor; `None` if no known plugin offers its devices.
    pub fn for_vendor(vendor: Vendor) -> Option<Self> {
        match vendor {
            Vendor::Nvidia => Some(Self("nvidia.com/gpu")),
            Vendor::Amd => Some(Self("amd.com/gpu")),
            Vendor::Aws => Some(Self(NEURON)),
            Vendor::Other(_) => None,
        }
    }

    /// Whole-device resource of the vendor that this resource belongs to.
    pub fn for_resource(resource: &str) -> Option<Self> {
        let vendors = [Vendor::Nvidia, Vendor::Amd, Vendor::Aws];
        let domain = |name: &str| name.split_once('/').map(|(domain, _)| domain.to_owned());
        let all = vendors.into_iter().filter_map(Self::for_vendor);
        let mut all = all.filter(|whole| domain(whole.0) == domain(resource));
        all.next()
    }

    /// Returns the resource name.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl Shape {
    /// Shape of a resource on a node with this product label. The label decides where partitions or time slices use
    /// the resource name of whole devices.
    pub fn from_resource(resource: &str, product: Option<&str>) -> Self {
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
            return Self::AmdPartition(part.to_owned());
        }
        let product = product.filter(|_| name.starts_with(NVIDIA)).unwrap_or("");
        let (_, profile, has_shared_suffix) = parse_product_label(product);
        match profile {
            Some(profile) => Self::mig(profile, is_shared || has_shared_suffix),
            None if is_shared || has_shared_suffix => Self::TimeSlice,
            None => Self::Device,
        }
    }

    fn mig(profile: &str, is_shared: bool) -> Self {
        if is_shared {
            Self::MigTimeSlice(profile.to_owned())
        } else {
            Self::Mig(profile.to_owned())
        }
    }

    /// Time slice of this shape.
    pub(super) fn time_slice(&self) -> Self {
        match self {
            Self::Mig(profile) | Self::MigTimeSlice(profile) => Self::MigTimeSlice(profile.clone()),
            Self::Device | Self::TimeSlice | Self::NeuronCore | Self::AmdPartition(_) => {
                Self::TimeSlice
            }
        }
    }

    /// Returns `true` if a unit is allocated exclusively.
    pub fn is_exclusive(&self) -> bool {
        match self {
            Self::Device | Self::Mig(_) | Self::NeuronCore | Self::AmdPartition(_) => true,
            Self::TimeSlice | Self::MigTimeSlice(_) => false,
        }
    }
}

/// Text that is none of the words for a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected device, core or time-slice")]
pub struct UnknownShape;

/// Reads the shapes that have a word of their own. Names of profiles do not tell whose they are.
impl FromStr for Shape {
    type Err = UnknownShape;

    fn from_str(text: &str) -> Result<Self, UnknownShape> {
        // The former word of a time slice: remove it after 0.1.
        if text == "turn" {
            return Ok(Self::TimeSlice);
        }
        let mut all = [Self::Device, Self::TimeSlice, Self::NeuronCore].into_iter();
        all.find(|shape| shape.to_string() == text).ok_or(UnknownShape)
    }
}

/// Formats the shape for users, such as `device` or `3g.40gb`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.pad("device"),
            Self::Mig(profile) => f.pad(profile),
            Self::TimeSlice => f.pad("time-slice"),
            Self::MigTimeSlice(profile) => f.pad(&format!("time-slice of {profile}")),
            Self::NeuronCore => f.pad("core"),
            Self::AmdPartition(part) => f.pad(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accelerator_resource::is_accelerator;

    #[test]
    fn shape_of_a_resource_is_determined() {
        let mig = |profile: &str| Shape::Mig(profile.to_owned());
        for (resource, product, shape) in [
            ("nvidia.com/gpu", None, Shape::Device),
            ("nvidia.com/gpu", Some("NVIDIA-L4"), Shape::Device),
            ("nvidia.com/gpu", Some("NVIDIA-L4-SHARED"), Shape::TimeSlice),
            ("nvidia.com/gpu", Some("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"), mig("1g.10gb")),
            (
                "nvidia.com/gpu",
                Some("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED"),
                Shape::MigTimeSlice("1g.10gb".into()),
            ),
            ("nvidia.com/gpu.shared", None, Shape::TimeSlice),
            ("nvidia.com/mig-3g.40gb", None, mig("3g.40gb")),
            ("nvidia.com/mig-3g.40gb.shared", None, Shape::MigTimeSlice("3g.40gb".into())),
            ("amd.com/gpu", None, Shape::Device),
            ("amd.com/cpx_nps4", None, Shape::AmdPartition("cpx_nps4".into())),
            ("aws.amazon.com/neuron", None, Shape::Device),
            ("aws.amazon.com/neurondevice", None, Shape::Device),
            ("aws.amazon.com/neuroncore", None, Shape::NeuronCore),
        ] {
            assert_eq!(Shape::from_resource(resource, product), shape, "{resource} {product:?}");
            assert!(is_accelerator(resource), "{resource}");
        }
        for other in ["rdma/hca", "nvidia.com/hostdev", "cpu", "gpu", "nvidia.com"] {
            assert!(!is_accelerator(other), "{other}");
        }
    }

    #[test]
    fn usual_taint_is_that_of_the_vendor() {
        let behind = |name| DeviceResource::for_resource(name).map(DeviceResource::as_str);
        assert_eq!(behind("nvidia.com/mig-1g.10gb"), Some("nvidia.com/gpu"));
        assert_eq!(behind("aws.amazon.com/neuroncore"), Some("aws.amazon.com/neuron"));
        assert_eq!(behind("amd.com/cpx_nps4"), Some("amd.com/gpu"));
        assert_eq!(behind("example.com/gpu"), None);
    }
}
