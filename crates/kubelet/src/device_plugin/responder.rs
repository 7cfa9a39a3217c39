//! The interface that produces allocation responses.

use std::fmt;

use octavo_model::inventory::Device;
use octavo_model::resource::ShareId;
use octavo_node::sharing::Unit;

use crate::proto::device_plugin::ContainerAllocateResponse;

/// Produces the kubelet's responses to allocations.
pub trait Answer: fmt::Debug + Send + Sync {
    /// Returns the response that gives these devices to a container, or an error message for users.
    fn answer(&self, ids: &[ShareId]) -> Result<ContainerAllocateResponse, String>;

    /// Updates the observed devices and all allocatable units. Returns an error message for users if containers cannot
    /// get them now.
    fn offer(&self, devices: &[Device], units: &[Unit]) -> Result<(), String>;
}
