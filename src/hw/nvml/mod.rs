//! NVIDIA's driver behind the ports of [`crate::hw`], and the one place with `unsafe`.
//!
//! nvml-wrapper loads and starts the library and asks the plain questions. What it lacks or gets wrong (placements, GPU
//! and compute instances, fabric, row remapping, events of single devices) is asked through the raw functions of
//! nvml-wrapper-sys. Both ways lead through `session::Session`, which has every call on record while it runs and
//! gives every answer the same error type.
//!
//! Nothing is assumed to be there: a function that an older library lacks is an attribute that is absent.
#![expect(
    unsafe_code,
    reason = "NVML is a C library; everything that calls it is below this module"
)]

mod catalog;
mod control;
mod device;
mod driver;
mod events;
mod health;
mod instances;
mod links;
mod loader;
mod processes;
mod readings;
mod session;

pub use loader::{Loader, Rehearsal, load};
