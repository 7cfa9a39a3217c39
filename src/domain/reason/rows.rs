//! Description of each reason.

pub(super) mod sharing;

use super::Kind::{self, Normal, Warning};

/// Description of a reason.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) word: &'static str,
    pub(super) event: Option<&'static str>,
    pub(super) kind: Kind,
    pub(super) meaning: &'static str,
    pub(super) remedy: &'static str,
}

/// Meaning and recommended action.
type Said = (&'static str, &'static str);

const NOTHING: &str = "Nothing.";

/// Creates a row for a reason with a Kubernetes event.
const fn told(word: &'static str, event: &'static str, kind: Kind, (meaning, remedy): Said) -> Row {
    Row {
        word,
        event: Some(event),
        kind,
        meaning,
        remedy,
    }
}

/// Creates a row for a reason without a Kubernetes event.
const fn untold(word: &'static str, kind: Kind, (meaning, remedy): Said) -> Row {
    Row {
        word,
        event: None,
        kind,
        meaning,
        remedy,
    }
}

pub(super) const APPLIED: Row = told(
    "applied",
    "LayoutApplied",
    Normal,
    (
        "Every device has what its layout says, as last read from the hardware.",
        NOTHING,
    ),
);
pub(super) const PENDING: Row = told(
    "pending",
    "LayoutPlanned",
    Normal,
    (
        "The layout is to be put in force, or waits for what must come first.",
        "Nothing; where it lasts, the status says what it waits for.",
    ),
);
pub(super) const APPLYING: Row = told(
    "applying",
    "LayoutApplying",
    Normal,
    (
        "Devices are being changed.",
        "Nothing; `octavo watch` shows how far they are.",
    ),
);
pub(super) const YIELDED: Row = told(
    "yielded",
    "LayoutYielded",
    Warning,
    (
        "Another program changes the device just now, and it is left to that one.",
        "Let one program partition the node: stop the other, or take the layout away.",
    ),
);
pub(super) const DRIFTED: Row = told(
    "drifted",
    "LayoutDrift",
    Warning,
    (
        "Somebody else changed what a device had; it is brought back, or left so where the policy says so.",
        "Find who changed it; where it is left so, choose the layout again.",
    ),
);
pub(super) const BLOCKED: Row = told(
    "blocked",
    "LayoutBlocked",
    Warning,
    (
        "Somebody uses what would have to change, or a mode change costs more than is allowed; the device has what it had.",
        "End who is named, or wait: it goes on by itself.",
    ),
);
pub(super) const ROLLED_BACK: Row = told(
    "rolled-back",
    "LayoutRolledBack",
    Warning,
    (
        "The change did not work, and the device has again what it had before.",
        "Read why in the status; it is tried again, at most five minutes later.",
    ),
);
pub(super) const NEEDS_RESET: Row = told(
    "needs-reset",
    "LayoutNeedsReset",
    Warning,
    (
        "Everything is done but a reset of the device, with which its MIG mode comes into force.",
        "Reset the device or reboot the node, or let the agent do so.",
    ),
);
pub(super) const INFEASIBLE: Row = told(
    "infeasible",
    "LayoutInfeasible",
    Warning,
    (
        "The hardware cannot have what the layout asks; the device has what it had.",
        "Choose another layout; `octavo plan` says what would fit.",
    ),
);
pub(super) const FAILED: Row = told(
    "failed",
    "LayoutFailed",
    Warning,
    (
        "The change did not work and neither did the way back, the device does not answer, or the layout means nothing on this node.",
        "Read the reason in the status; correct the layout's name or file, or check the device.",
    ),
);
pub(super) const LAYOUT_NOTICE: Row = told(
    "layout-notice",
    "LayoutNotice",
    Warning,
    (
        "Something is wrong with the file of layouts or the state directory, or another program is at work.",
        "Mend what it names; until then the layout before stays in force.",
    ),
);
pub(super) const NO_DRIVER: Row = untold(
    "no-driver",
    Warning,
    (
        "There is no driver that can be loaded; labels say what the PCI bus shows.",
        "Install the driver; the agent waits for it.",
    ),
);
pub(super) const NVML_LOST: Row = told(
    "nvml-lost",
    "DriverLost",
    Warning,
    (
        "The driver was there and is gone; labels say what the PCI bus shows.",
        "Nothing while it is being replaced; otherwise load it again, and read the kernel's log.",
    ),
);
pub(super) const NVML_STALLED: Row = told(
    "nvml-stalled",
    "DriverStalled",
    Warning,
    (
        "A call to the driver does not return; labels stay as they were.",
        "Read the kernel's log for Xid errors; a reboot ends it if nothing else does.",
    ),
);
pub(super) const DRIVER_BACK: Row = told(
    "driver-back",
    "DriverBack",
    Normal,
    (
        "The driver answers again after it was gone or did not return.",
        NOTHING,
    ),
);
pub(super) const STALE: Row = untold(
    "stale",
    Warning,
    (
        "The aggregator has heard nothing of the node for longer than its bound.",
        "Look whether the node and its agent run and reach the aggregator.",
    ),
);
pub(super) const KEYS_LEFT_TO_OTHERS: Row = told(
    "keys-left-to-others",
    "KeysLeftToOthers",
    Warning,
    (
        "Somebody else writes keys of ours on the Node, and they are left to them.",
        "Stop the other writer, then take the key off the Node: it is written again.",
    ),
);
pub(super) const OPERANDS_PAUSED: Row = told(
    "operands-paused",
    "OperandsPaused",
    Normal,
    (
        "GPU Operator's operands are paused, so that a MIG mode can change.",
        "Nothing; they run again in two minutes at most.",
    ),
);
pub(super) const OPERANDS_RESTORED: Row = told(
    "operands-restored",
    "OperandsRestored",
    Normal,
    ("GPU Operator's operands run again.", NOTHING),
);
pub(super) const OPERANDS_IN_VAIN: Row = told(
    "operands-in-vain",
    "OperandsRestored",
    Warning,
    (
        "GPU Operator's operands run again, and it was not they who have the device open.",
        "End who is named in the status.",
    ),
);
pub(super) const DEVICE_PLUGIN_REFRESHED: Row = told(
    "device-plugin-refreshed",
    "DevicePluginRefreshed",
    Normal,
    (
        "NVIDIA's device plugin starts again to see the new partitions.",
        NOTHING,
    ),
);
pub(super) const PARTITIONS_OFFERED: Row = told(
    "partitions-offered",
    "PartitionsOffered",
    Normal,
    ("Kubelet offers the partitions that the node has.", NOTHING),
);
pub(super) const PARTITIONS_NOT_OFFERED: Row = told(
    "partitions-not-offered",
    "PartitionsNotOffered",
    Warning,
    (
        "Kubelet does not offer the partitions that the node has.",
        "Look at the log of NVIDIA's device plugin on that node.",
    ),
);
pub(super) const DRAIN_BEGAN: Row = told(
    "drain-began",
    "DrainBegan",
    Normal,
    (
        "Pods in the way of a layout are evicted, and new ones are kept away.",
        "Nothing; the status says who is waited for.",
    ),
);
pub(super) const DRAIN_ENDED: Row = told(
    "drain-ended",
    "DrainEnded",
    Normal,
    (
        "Nothing is to be evicted any more, and new pods may come.",
        NOTHING,
    ),
);
pub(super) const DRAIN_GAVE_UP: Row = told(
    "drain-gave-up",
    "DrainGaveUp",
    Warning,
    (
        "Pods still block the layout at the deadline of a drain; new pods may come, and the drain is retried after a backoff.",
        "Make room for the pods named, such as by another replica.",
    ),
);
pub(super) const DRAIN_REFUSED: Row = told(
    "drain-refused",
    "DrainRefused",
    Warning,
    (
        "Nothing can be evicted, or nothing more: what blocks the layout is never evicted, or agents lack the permission to evict.",
        "End the pods or processes named, or give agents the permission that is named.",
    ),
);
