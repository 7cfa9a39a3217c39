//! Description of each reason.

pub(super) mod sharing;

use super::Severity::{self, Normal, Warning};

/// Description of a reason.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) word: &'static str,
    pub(super) event: Option<&'static str>,
    pub(super) kind: Severity,
    pub(super) meaning: &'static str,
    pub(super) remedy: &'static str,
}

/// Meaning and recommended action.
type ReasonTexts = (&'static str, &'static str);

const NO_ACTION: &str = "Nothing.";

/// Creates a row for a reason with a Kubernetes event.
const fn with_event(
    word: &'static str,
    event: &'static str,
    kind: Severity,
    (meaning, remedy): ReasonTexts,
) -> Row {
    Row {
        word,
        event: Some(event),
        kind,
        meaning,
        remedy,
    }
}

/// Creates a row for a reason without a Kubernetes event.
const fn without_event(word: &'static str, kind: Severity, (meaning, remedy): ReasonTexts) -> Row {
    Row {
        word,
        event: None,
        kind,
        meaning,
        remedy,
    }
}

pub(super) const APPLIED: Row = with_event(
    "applied",
    "LayoutApplied",
    Normal,
    (
        "Every device has what its layout says, as last read from the hardware.",
        NO_ACTION,
    ),
);
pub(super) const PENDING: Row = with_event(
    "pending",
    "LayoutPlanned",
    Normal,
    (
        "The layout is to be put in force, or waits for what must come first.",
        "Nothing; where it lasts, the status says what it waits for.",
    ),
);
pub(super) const APPLYING: Row = with_event(
    "applying",
    "LayoutApplying",
    Normal,
    (
        "Devices are being changed.",
        "Nothing; `octavo watch` shows how far they are.",
    ),
);
pub(super) const YIELDED: Row = with_event(
    "yielded",
    "LayoutYielded",
    Warning,
    (
        "Another program changes the device just now, and it is left to that one.",
        "Let one program partition the node: stop the other, or take the layout away.",
    ),
);
pub(super) const DRIFTED: Row = with_event(
    "drifted",
    "LayoutDrift",
    Warning,
    (
        "Somebody else changed what a device had; it is brought back, or left so where the policy says so.",
        "Find who changed it; where it is left so, choose the layout again.",
    ),
);
pub(super) const BLOCKED: Row = with_event(
    "blocked",
    "LayoutBlocked",
    Warning,
    (
        "Somebody uses what would have to change, or a mode change costs more than is allowed; the device has what it had.",
        "End who is named, or wait: it goes on by itself.",
    ),
);
pub(super) const ROLLED_BACK: Row = with_event(
    "rolled-back",
    "LayoutRolledBack",
    Warning,
    (
        "The change did not work, and the device has again what it had before.",
        "Read why in the status; it is tried again, at most five minutes later.",
    ),
);
pub(super) const NEEDS_RESET: Row = with_event(
    "needs-reset",
    "LayoutNeedsReset",
    Warning,
    (
        "Everything is done but a reset of the device, with which its MIG mode comes into force.",
        "Reset the device or reboot the node, or let the agent do so.",
    ),
);
pub(super) const INFEASIBLE: Row = with_event(
    "infeasible",
    "LayoutInfeasible",
    Warning,
    (
        "The hardware cannot have what the layout asks; the device has what it had.",
        "Choose another layout; `octavo plan` says what would fit.",
    ),
);
pub(super) const FAILED: Row = with_event(
    "failed",
    "LayoutFailed",
    Warning,
    (
        "The change did not work and neither did the way back, the device does not answer, or the layout means nothing on this node.",
        "Read the reason in the status; correct the layout's name or file, or check the device.",
    ),
);
pub(super) const LAYOUT_NOTICE: Row = with_event(
    "layout-notice",
    "LayoutNotice",
    Warning,
    (
        "Something is wrong with the file of layouts or the state directory, or another program is at work.",
        "Mend what it names; until then the layout before stays in force.",
    ),
);
pub(super) const NO_DRIVER: Row = without_event(
    "no-driver",
    Warning,
    (
        "There is no driver that can be loaded; labels say what the PCI bus shows.",
        "Install the driver; the agent waits for it.",
    ),
);
pub(super) const NVML_LOST: Row = with_event(
    "nvml-lost",
    "DriverLost",
    Warning,
    (
        "The driver was there and is gone; labels say what the PCI bus shows.",
        "Nothing while it is being replaced; otherwise load it again, and read the kernel's log.",
    ),
);
pub(super) const NVML_STALLED: Row = with_event(
    "nvml-stalled",
    "DriverStalled",
    Warning,
    (
        "A call to the driver does not return; labels stay as they were.",
        "Read the kernel's log for Xid errors; a reboot ends it if nothing else does.",
    ),
);
pub(super) const DRIVER_BACK: Row = with_event(
    "driver-back",
    "DriverBack",
    Normal,
    (
        "The driver answers again after it was gone or did not return.",
        NO_ACTION,
    ),
);
pub(super) const STALE: Row = without_event(
    "stale",
    Warning,
    (
        "The aggregator has heard nothing of the node for longer than its bound.",
        "Look whether the node and its agent run and reach the aggregator.",
    ),
);
pub(super) const KEYS_LEFT_TO_OTHERS: Row = with_event(
    "keys-left-to-others",
    "KeysLeftToOthers",
    Warning,
    (
        "Somebody else writes keys of ours on the Node, and they are left to them.",
        "Stop the other writer, then take the key off the Node: it is written again.",
    ),
);
pub(super) const OPERANDS_PAUSED: Row = with_event(
    "operands-paused",
    "OperandsPaused",
    Normal,
    (
        "GPU Operator's operands are paused, so that a MIG mode can change.",
        "Nothing; they run again in two minutes at most.",
    ),
);
pub(super) const OPERANDS_RESTORED: Row = with_event(
    "operands-restored",
    "OperandsRestored",
    Normal,
    ("GPU Operator's operands run again.", NO_ACTION),
);
pub(super) const OPERANDS_PAUSE_INEFFECTIVE: Row = with_event(
    "operands-in-vain",
    "OperandsRestored",
    Warning,
    (
        "GPU Operator's operands run again, and it was not they who have the device open.",
        "End who is named in the status.",
    ),
);
pub(super) const DEVICE_PLUGIN_REFRESHED: Row = with_event(
    "device-plugin-refreshed",
    "DevicePluginRefreshed",
    Normal,
    (
        "NVIDIA's device plugin starts again to see the new partitions.",
        NO_ACTION,
    ),
);
pub(super) const PARTITIONS_OFFERED: Row = with_event(
    "partitions-offered",
    "PartitionsOffered",
    Normal,
    (
        "Kubelet offers the partitions that the node has.",
        NO_ACTION,
    ),
);
pub(super) const PARTITIONS_NOT_OFFERED: Row = with_event(
    "partitions-not-offered",
    "PartitionsNotOffered",
    Warning,
    (
        "Kubelet does not offer the partitions that the node has.",
        "Look at the log of NVIDIA's device plugin on that node.",
    ),
);
pub(super) const DRAIN_BEGAN: Row = with_event(
    "drain-began",
    "DrainBegan",
    Normal,
    (
        "Pods in the way of a layout are evicted, and new ones are kept away.",
        "Nothing; the status says who is waited for.",
    ),
);
pub(super) const DRAIN_ENDED: Row = with_event(
    "drain-ended",
    "DrainEnded",
    Normal,
    (
        "Nothing is to be evicted any more, and new pods may come.",
        NO_ACTION,
    ),
);
pub(super) const DRAIN_GAVE_UP: Row = with_event(
    "drain-gave-up",
    "DrainGaveUp",
    Warning,
    (
        "Pods still block the layout at the deadline of a drain; new pods may come, and the drain is retried after a backoff.",
        "Make room for the pods named, such as by another replica.",
    ),
);
pub(super) const DRAIN_REFUSED: Row = with_event(
    "drain-refused",
    "DrainRefused",
    Warning,
    (
        "Nothing can be evicted, or nothing more: what blocks the layout is never evicted, or agents lack the permission to evict.",
        "End the pods or processes named, or give agents the permission that is named.",
    ),
);
