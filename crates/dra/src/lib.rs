//! Dynamic Resource Allocation on one node: [`device`] names the devices that claims can be allocated, and
//! [`claims`] decides how claims are prepared and released.

pub mod claims;
pub mod device;

pub use device::{DeviceName, DraDevice, DraDeviceKind, devices};

/// Name of the driver: in `ResourceSlices`, in the results of claims and at the kubelet.
pub const DRIVER: &str = "gpu.octavo.dev";
