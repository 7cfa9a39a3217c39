//! Server of the kubelet's API for Dynamic Resource Allocation (DRA): registration, claims and health of devices.
//!
//! ```text
//!   kubelet --GetInfo-----------> plugins_registry/octavo@<driver>-reg.sock   registration
//!      |----Prepare, Unprepare--> plugins/<driver>/dra.sock --> ClaimHandler  claims
//!      |----NodeWatchResources--> plugins/<driver>/dra.sock <-- devices       health
//! ```
//!
//! The kubelet dials both sockets, and scans the registration directory after its restart, so there is nothing to
//! register again. Source: Kubernetes v1.36.3, `pkg/kubelet/pluginmanager` and `pkg/kubelet/cm/dra`.

mod claims;
mod health;
mod registration;
mod server;

pub use self::claims::{ClaimHandler, InjectedDevice};
pub use self::health::{DeviceHealth, NodeDevices};
pub use self::server::{DraServer, ServeError, Settings};
