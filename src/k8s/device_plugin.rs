//! The device plugin: what is listed to kubelet, and what happens when kubelet asks for it.
//!
//! ```text
//!   Gate <-- who decides what is listed (Gate::list)        Manager: sockets, registrations
//!    |  <-- who destroys things (Gate::close)                  |  one Service for each resource
//!    |  <-- what kubelet tells of its pods (follow)            v
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
