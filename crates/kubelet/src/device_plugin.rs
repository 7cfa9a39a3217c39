//! The built-in device plugin: devices listed to the kubelet, and allocations.
//!
//! ```text
//!   Gate <-- devices to list (Gate::list)                    Manager: sockets, registrations
//!    |  <-- destructive changes (Gate::close)                   |  one Service per resource
//!    |  <-- allocations reported by the kubelet (follow)        v
//!    +--- Allocate, all under one lock <------------------- kubelet
//! ```
//!
//! Source: Kubernetes, "Device Plugins"; k8s.io/kubelet, `deviceplugin/v1beta1`.

pub mod allocation_response;
mod competing_plugins;
pub mod gate;
mod kubelet_poller;
mod manager;
mod plugin_dir;
mod registration;
mod service;

pub use allocation_response::DeviceResponder;
pub use gate::{AllocationBlock, AllocationError, AllocationGate};
pub use kubelet_poller::KubeletReport;
pub use manager::{DevicePluginReport, Manager, ResourceStatus, Settings};
pub(crate) use plugin_dir::FileIdentity;
