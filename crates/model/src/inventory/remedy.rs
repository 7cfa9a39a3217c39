//! Recommended action for each health state of a device.

use super::{DeviceState, NeuronState};
use crate::reason::Reason;

const NO_ACTION: &str = "No action is needed.";
const PARTIAL: &str =
    "Read the message: it names the call that failed. Update the driver if the error persists.";
const FAILING: &str = "Check the kernel log of the node for errors of the device. Reset the device or reboot the \
     node; if the error returns, have the device replaced.";

impl DeviceState {
    /// Returns the recommended action, as sentences. Commands are in backquotes.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Ok | Self::Passthrough | Self::NotRead => NO_ACTION,
            Self::Partial => PARTIAL,
            Self::Stale => Reason::NvmlStalled.remedy(),
            Self::NeedsAction => {
                "Look up the requested action in the documentation of the driver, and update Octavo."
            }
            Self::NeedsDrain => {
                "End the workloads that use peer-to-peer transfers with this device, then reset it."
            }
            Self::NeedsReset => {
                "End the workloads on the device, then run `nvidia-smi --gpu-reset` for it, or reboot the node."
            }
            Self::NeedsReboot => "Drain the node with `kubectl drain`, then reboot it.",
            Self::Replace => {
                "Cordon the node with `kubectl cordon`, end the workloads on the device, and have it replaced."
            }
            Self::NoDriver => Reason::NoDriver.remedy(),
            Self::Failing => FAILING,
        }
    }
}

impl NeuronState {
    /// Returns the recommended action, as sentences. Commands are in backquotes.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Ok | Self::Unknown => NO_ACTION,
            Self::Partial => PARTIAL,
            Self::Errors => {
                "Check the results of workloads on the device. Have it replaced if the number of errors grows."
            }
            Self::Failing => FAILING,
        }
    }
}
