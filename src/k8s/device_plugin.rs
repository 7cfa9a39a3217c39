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

pub mod delivery;
mod folder;
pub mod gate;
mod kubelet;
mod link;
pub mod lists;
mod manager;
mod register;
mod rivals;
mod service;
mod serving;

pub use gate::{Closed, Gate, Refusal};
pub use kubelet::Told;
pub use lists::Answer;
pub use manager::{Manager, Report, Settings, Standing};
