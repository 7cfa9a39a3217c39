//! Descriptions of the reasons about sharing, device health and memory usage.

use super::Severity::{Normal, Warning};
use super::{NO_ACTION, Row, with_event, without_event};

pub(in crate::reason) const SHARING_IN_FORCE: Row = with_event(
    "sharing-in-force",
    "SharingInForce",
    Normal,
    (
        "The Node offers to pods what its layout says, replica by replica.",
        NO_ACTION,
    ),
);
pub(in crate::reason) const SHARING_PENDING: Row = without_event(
    "sharing-pending",
    Normal,
    (
        "What the Node offers to pods is about to be what its layout says.",
        "Nothing; where it lasts, the status says what it waits for.",
    ),
);
pub(in crate::reason) const SHARING_HELD: Row = with_event(
    "sharing-held",
    "SharingHeld",
    Warning,
    (
        "Pods have what the layout changes; it stays theirs, and nothing more of it is allocated.",
        "End the pods that the message or the state of the layout names, or wait: it goes on by itself.",
    ),
);
pub(in crate::reason) const SHARING_NOT_IN_FORCE: Row = with_event(
    "sharing-not-in-force",
    "SharingNotInForce",
    Warning,
    (
        "The Node does not offer to pods what its layout says.",
        "The message names the cause and the check that found it.",
    ),
);
pub(in crate::reason) const SHARING_REFUSED: Row = with_event(
    "sharing-refused",
    "SharingRefused",
    Warning,
    (
        "Nobody here can give devices out as the layout says, or make turns as long as it says; what was given out before stays so.",
        "Change the layout as the message says, or let the agent give devices out: `--sharing embedded`.",
    ),
);
pub(in crate::reason) const DEVICE_PLUGIN_CONFLICT: Row = with_event(
    "device-plugin-conflict",
    "DevicePluginConflict",
    Warning,
    (
        "Another program offers the same resource to kubelet, and the last to register wins.",
        "Stop one of the two: `--sharing hand-off` leaves it to NVIDIA's plugin.",
    ),
);
pub(in crate::reason) const DEVICE_UNHEALTHY: Row = with_event(
    "device-unhealthy",
    "DeviceUnhealthy",
    Warning,
    (
        "A device or partition is not given out any more; pods that have it keep it.",
        "The message says why, and what brings it back.",
    ),
);
pub(in crate::reason) const DEVICE_HEALTHY: Row = with_event(
    "device-healthy",
    "DeviceHealthy",
    Normal,
    (
        "A device or partition that was not fit is given out again.",
        NO_ACTION,
    ),
);
pub(in crate::reason) const MEMORY_OVER_SHARE: Row = with_event(
    "memory-over-share",
    "MemoryOverShare",
    Warning,
    (
        "A container uses more than its fair share of a device that others share; nothing is done to it.",
        "Give it a device or partition of its own, or let it use less; the others may fail for want of memory.",
    ),
);
pub(in crate::reason) const MEMORY_WITHIN_SHARE: Row = with_event(
    "memory-within-share",
    "MemoryWithinShare",
    Normal,
    (
        "A container that was over its share is within it again.",
        NO_ACTION,
    ),
);
pub(in crate::reason) const MEMORY_NEARLY_EXHAUSTED: Row = with_event(
    "memory-nearly-exhausted",
    "MemoryNearlyExhausted",
    Warning,
    (
        "A shared device has hardly any memory left: whoever asks for more fails next, whoever it is.",
        "End the one that uses most, which is named first, or give it a device of its own.",
    ),
);
