//! How a container gets what it was given: the port.

use std::fmt;

use crate::domain::inventory::Device;
use crate::domain::sharing::{ShareId, Unit};
use crate::proto::device_plugin::ContainerAllocateResponse;

/// Makes kubelet's answer of what a container was given.
pub trait Answer: fmt::Debug + Send + Sync {
    /// What the runtime is told so that the container has these; why it cannot be told, in words for a person.
    fn answer(&self, ids: &[ShareId]) -> Result<ContainerAllocateResponse, String>;

    /// Takes in the devices as they were read last, and all units that are given out; why containers would not get them now, in
    /// words for a person.
    fn offer(&self, devices: &[Device], units: &[Unit]) -> Result<(), String>;
}
