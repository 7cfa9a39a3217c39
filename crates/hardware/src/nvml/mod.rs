//! NVIDIA driver implementation of the traits of [`crate`], and the only module with `unsafe` code.
//!
//! nvml-wrapper loads and initializes the library and makes the simple calls. Functions that it lacks or handles
//! incorrectly (placements, GPU and compute instances, fabric, row remapping, events of single devices) are called
//! through the raw functions of nvml-wrapper-sys. Both go through `session::Session`, which records every running call
//! and converts every error to the same type.
//!
//! No function is assumed to exist: if an older library lacks one, the attribute is absent.
#![expect(
    unsafe_code,
    reason = "NVML is a C library; everything that calls it is below this module"
)]

mod catalog;
mod control;
mod device;
mod events;
mod gpm;
mod health;
mod instances;
mod links;
mod loader;
mod processes;
mod readings;
mod session;

pub use loader::{Loader, PreloadCommand, load};
