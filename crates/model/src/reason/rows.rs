//! Description of each reason.

use super::Reason;
use super::Severity::{self, Normal, Warning};

/// Description of a reason.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) event: Option<&'static str>,
    pub(super) kind: Severity,
    pub(super) meaning: &'static str,
    pub(super) remedy: &'static str,
}

const NO_ACTION: &str = "No action is needed.";

/// Creates a row for a reason with a Kubernetes event.
const fn with_event(
    event: &'static str,
    kind: Severity,
    meaning: &'static str,
    remedy: &'static str,
) -> Row {
    Row { event: Some(event), kind, meaning, remedy }
}

/// Creates a row for a reason without a Kubernetes event.
const fn without_event(kind: Severity, meaning: &'static str, remedy: &'static str) -> Row {
    Row { event: None, kind, meaning, remedy }
}

/// Returns the description of a reason.
#[expect(clippy::too_many_lines, reason = "a table: one row per reason")]
pub(super) const fn row(reason: Reason) -> Row {
    match reason {
        Reason::Applied => with_event(
            "LayoutApplied",
            Normal,
            "Every device matches its layout, according to the last reading of the hardware.",
            NO_ACTION,
        ),
        Reason::Pending => with_event(
            "LayoutPlanned",
            Normal,
            "The layout will be applied, or is waiting for a precondition.",
            "No action is needed. If the state persists, the status shows what it is waiting for.",
        ),
        Reason::Applying => with_event(
            "LayoutApplying",
            Normal,
            "Devices are being changed.",
            "No action is needed. `octavo watch` shows the progress.",
        ),
        Reason::Yielded => with_event(
            "LayoutYielded",
            Warning,
            "Another program is changing the device, so Octavo does not change it.",
            "Use only one program to partition the node: stop the other one, or remove the layout.",
        ),
        Reason::Drifted => with_event(
            "LayoutDrift",
            Warning,
            "Another program changed a device after its layout was applied. Octavo restores the layout, or leaves the device unchanged if the policy requires this.",
            "Find the program that changed the device. If the device was left unchanged, select the layout again.",
        ),
        Reason::Blocked => with_event(
            "LayoutBlocked",
            Warning,
            "A part of the device that must change is in use, or the mode change would be more disruptive than allowed. The device keeps its previous state.",
            "Stop the listed pods and processes, or wait: the change continues automatically. If the mode change is too disruptive, allow it.",
        ),
        Reason::RolledBack => with_event(
            "LayoutRolledBack",
            Warning,
            "The change failed, and the device was returned to its previous state.",
            "Read the cause in the status. Octavo retries the change after at most five minutes.",
        ),
        Reason::NeedsReset => with_event(
            "LayoutNeedsReset",
            Warning,
            "The change is complete except for a reset of the device, which activates its new MIG mode.",
            "Reset the device or reboot the node, or allow the agent to do so.",
        ),
        Reason::Infeasible => with_event(
            "LayoutInfeasible",
            Warning,
            "The hardware does not support the requested layout. The device keeps its previous state.",
            "Select another layout. `octavo plan` shows what would fit.",
        ),
        Reason::Failed => with_event(
            "LayoutFailed",
            Warning,
            "The change and its rollback failed, the device does not respond, or the layout does not apply to this node.",
            "Read the cause in the status. Correct the layout's name or file, or check the device.",
        ),
        Reason::LayoutNotice => with_event(
            "LayoutNotice",
            Warning,
            "The layouts file or the state directory has a problem, or another program is changing the devices.",
            "Fix the problem that the message describes. Until then, the previous layout stays in effect.",
        ),
        Reason::NoDriver => without_event(
            Warning,
            "No driver can be loaded. Labels show only what the PCI bus reports.",
            "Install the driver. The agent waits for it.",
        ),
        Reason::NvmlLost => with_event(
            "DriverLost",
            Warning,
            "The driver was available and no longer is. Labels show only what the PCI bus reports.",
            "No action is needed while the driver is being replaced. Otherwise, load it again and check the kernel log.",
        ),
        Reason::NvmlStalled => with_event(
            "DriverStalled",
            Warning,
            "A call to the driver does not return. Labels keep their last values.",
            "Check the kernel log for Xid errors. If nothing else helps, reboot the node.",
        ),
        Reason::DriverBack => with_event(
            "DriverBack",
            Normal,
            "The driver responds again after it was unavailable or did not return from a call.",
            NO_ACTION,
        ),
        Reason::Stale => without_event(
            Warning,
            "The aggregator has received no update from the node for longer than its limit.",
            "Check that the node and its agent are running and can reach the aggregator.",
        ),
        Reason::KeysLeftToOthers => with_event(
            "KeysLeftToOthers",
            Warning,
            "Another program writes keys of Octavo on the Node, so Octavo no longer writes them.",
            "Stop the other program, then remove the key from the Node. Octavo then writes it again.",
        ),
        Reason::OperandsPaused => with_event(
            "OperandsPaused",
            Normal,
            "The operands of the GPU Operator are paused so that a MIG mode can change.",
            "No action is needed. They run again after at most two minutes.",
        ),
        Reason::OperandsRestored => with_event(
            "OperandsRestored",
            Normal,
            "The operands of the GPU Operator run again.",
            NO_ACTION,
        ),
        Reason::OperandsPauseIneffective => with_event(
            "OperandsRestored",
            Warning,
            "The operands of the GPU Operator run again. Pausing them did not release the device.",
            "Stop the pods or processes listed in the status.",
        ),
        Reason::DevicePluginRefreshed => with_event(
            "DevicePluginRefreshed",
            Normal,
            "NVIDIA's device plugin is being restarted to detect the new partitions.",
            NO_ACTION,
        ),
        Reason::PartitionsOffered => with_event(
            "PartitionsOffered",
            Normal,
            "The kubelet advertises the partitions of the node.",
            NO_ACTION,
        ),
        Reason::PartitionsNotOffered => with_event(
            "PartitionsNotOffered",
            Warning,
            "The kubelet does not advertise the partitions of the node.",
            "Check the log of NVIDIA's device plugin on that node.",
        ),
        Reason::DrainBegan => with_event(
            "DrainBegan",
            Normal,
            "Pods that block a layout are evicted, and a taint keeps new pods away from the node.",
            "No action is needed. The status lists the pods that still block the layout.",
        ),
        Reason::DrainEnded => with_event(
            "DrainEnded",
            Normal,
            "No more pods need to be evicted, and new pods can be scheduled.",
            NO_ACTION,
        ),
        Reason::DrainGaveUp => with_event(
            "DrainGaveUp",
            Warning,
            "Pods still block the layout at the deadline of a drain. New pods can be scheduled, and the drain is retried after a delay.",
            "Make it possible to evict the listed pods, for example by adding a replica.",
        ),
        Reason::DrainRefused => with_event(
            "DrainRefused",
            Warning,
            "No pod, or no further pod, can be evicted: the holders that block the layout are never evicted, or agents lack the permission to evict pods.",
            "Delete the listed pods, stop the listed processes, or grant the agents the listed permission.",
        ),
        Reason::SharingInForce => with_event(
            "SharingInForce",
            Normal,
            "The Node advertises every replica that its layout requests.",
            NO_ACTION,
        ),
        Reason::SharingPending => without_event(
            Normal,
            "The Node will soon advertise the replicas that its layout requests.",
            "No action is needed. If the state persists, the status shows what it is waiting for.",
        ),
        Reason::SharingHeld => with_event(
            "SharingHeld",
            Warning,
            "Pods hold devices whose sharing the layout changes. The pods keep these devices, and no further replicas of them are allocated.",
            "Delete the pods listed in the message or in the layout status, or wait: the change continues automatically.",
        ),
        Reason::SharingNotInForce => with_event(
            "SharingNotInForce",
            Warning,
            "The Node does not advertise the replicas that its layout requests.",
            "Read the message: it names the cause and the check that found it.",
        ),
        Reason::SharingRefused => with_event(
            "SharingRefused",
            Warning,
            "No device plugin on this node can share devices as the layout requests, or set the requested time-slice duration. The previous sharing stays in effect.",
            "Change the layout as the message describes, or use the built-in device plugin: `--sharing embedded`.",
        ),
        Reason::DevicePluginConflict => with_event(
            "DevicePluginConflict",
            Warning,
            "Another device plugin registers the same resource with the kubelet, which uses the last one to register.",
            "Stop one of the two. `--sharing hand-off` leaves the resource to NVIDIA's plugin.",
        ),
        Reason::DeviceUnhealthy => with_event(
            "DeviceUnhealthy",
            Warning,
            "A device or partition is no longer allocated to pods. Pods that already have it keep it.",
            "Read the message: it gives the cause and the condition for recovery.",
        ),
        Reason::DeviceHealthy => with_event(
            "DeviceHealthy",
            Normal,
            "A device or partition that was unhealthy is allocated to pods again.",
            NO_ACTION,
        ),
        Reason::MemoryOverShare => with_event(
            "MemoryOverShare",
            Warning,
            "A container uses more than its fair share of the memory of a shared device. Octavo does not stop it.",
            "Give the container a device or partition of its own, or reduce its memory usage. Other containers on the device can run out of memory.",
        ),
        Reason::MemoryWithinShare => with_event(
            "MemoryWithinShare",
            Normal,
            "The memory usage of a container is back within its fair share.",
            NO_ACTION,
        ),
        Reason::MemoryNearlyExhausted => with_event(
            "MemoryNearlyExhausted",
            Warning,
            "A shared device is almost out of memory. The next allocation can fail, whichever container makes it.",
            "End the container that uses the most memory, which the message lists first, or give it a device of its own.",
        ),
    }
}
