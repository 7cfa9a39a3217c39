//! Resource names of accelerators, by the naming rules of the vendors' device plugins.

/// Prefix of NVIDIA's resources.
pub(crate) const NVIDIA: &str = "nvidia.com/";
/// Prefix of AMD's resources.
pub(crate) const AMD: &str = "amd.com/";
/// Prefix of Neuron resources, and the resource of whole devices.
pub(crate) const NEURON: &str = "aws.amazon.com/neuron";

/// Returns `true` if a resource is an accelerator resource. Sources: NVIDIA k8s-device-plugin, AMD's
/// k8s-device-plugin, AWS Neuron's.
pub fn is_accelerator(resource: &str) -> bool {
    let is_nvidia = resource
        .strip_prefix(NVIDIA)
        .is_some_and(|name| name == "gpu" || name.starts_with("gpu.") || name.starts_with("mig-"));
    is_nvidia || resource.starts_with(AMD) || resource.starts_with(NEURON)
}
