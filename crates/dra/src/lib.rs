//! Dynamic Resource Allocation on one node: [`device`] names the devices that claims can be allocated, [`slices`]
//! describes them for the scheduler, and [`claims`] decides how claims are prepared and released.

pub mod allocations;
mod attributes;
pub mod claims;
mod counters;
pub mod device;
mod occupancy;
mod order;
mod pool_update;
mod readings;
mod rules;
pub mod slices;

pub use device::{DeviceName, DraDevice, DraDeviceKind, devices};
pub use octavo_model::claim::DRIVER;
pub use pool_update::{
    PoolUpdate, SHARES, dropped_fields, has_shared_devices, without_shared_devices,
};
pub use readings::LastReadings;
pub use rules::ClaimRules;

#[cfg(test)]
mod tests_support;
