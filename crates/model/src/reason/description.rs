//! Meaning and recommended action of each reason, for the documentation and the web pages.

use super::Reason;

const NO_ACTION: &str = "No action is needed.";

impl Reason {
    /// Returns the meaning, as sentences.
    pub fn meaning(self) -> &'static str {
        description(self).0
    }

    /// Returns the recommended action, as sentences. Commands and values are in backquotes.
    pub fn remedy(self) -> &'static str {
        description(self).1
    }
}

/// Meaning and recommended action of a reason, as sentences.
#[expect(clippy::too_many_lines, reason = "one row per reason")]
fn description(reason: Reason) -> (&'static str, &'static str) {
    match reason {
        Reason::Applied => (
            "Every device matches its layout, according to the last reading of the hardware.",
            NO_ACTION,
        ),
        Reason::Pending => (
            "The layout will be applied, or is waiting for a precondition.",
            "No action is needed. If the state persists, the status shows what it is waiting for.",
        ),
        Reason::Applying => (
            "Devices are being changed.",
            "No action is needed. `octavo watch` shows the progress.",
        ),
        Reason::Yielded => (
            "Another program is changing the device, so Octavo does not change it.",
            "Use only one program to partition the node: stop the other one, or remove the layout.",
        ),
        Reason::Drifted => (
            "Another program changed a device after its layout was applied. Octavo restores the layout, or leaves the device unchanged if the policy requires this.",
            "Find the program that changed the device. If the device was left unchanged, select the layout again.",
        ),
        Reason::Blocked => (
            "A part of the device that must change is in use, or the mode change would be more disruptive than allowed. The device keeps its previous state.",
            "Stop the listed pods and processes, or wait until they end: the change then continues automatically. If the message reports that the mode change is too disruptive, allow it.",
        ),
        Reason::RolledBack => (
            "The change failed, and the device was returned to its previous state.",
            "Read the cause in the status. Octavo retries the change after at most five minutes.",
        ),
        Reason::NeedsReset => (
            "The change is complete except for a reset of the device, which activates its new MIG mode.",
            "Reset the device or reboot the node, or allow the agent to do so.",
        ),
        Reason::Infeasible => (
            "The hardware does not support the requested layout. The device keeps its previous state.",
            "Select another layout. `octavo plan` shows what would fit.",
        ),
        Reason::Failed => (
            "The change and its rollback failed, the device does not respond, or the layout does not apply to this node.",
            "Remove the cause that the status names: correct the layout's name or file, or check the device.",
        ),
        Reason::LayoutNotice => (
            "The layouts file or the state directory has a problem, or another program is changing the devices.",
            "Fix the problem that the message describes. Until then, the previous layout stays in effect.",
        ),
        Reason::NoDriver => (
            "No driver can be loaded. Labels show only what the PCI bus reports.",
            "Install the driver. The agent waits for it.",
        ),
        Reason::NvmlLost => (
            "The driver was available and no longer is. Labels show only what the PCI bus reports.",
            "No action is needed while the driver is being replaced. Otherwise, load it again and check the kernel log.",
        ),
        Reason::NvmlStalled => (
            "A call to the driver does not return. Labels keep their last values.",
            "Check the kernel log for Xid errors. If nothing else helps, reboot the node.",
        ),
        Reason::DriverBack => (
            "The driver responds again after it was unavailable or did not return from a call.",
            NO_ACTION,
        ),
        Reason::Stale => (
            "The aggregator has received no update from the node for longer than its limit.",
            "Check that the node and its agent are running and can reach the aggregator.",
        ),
        Reason::KeysLeftToOthers => (
            "Another program writes keys of Octavo on the Node, so Octavo no longer writes them.",
            "Stop the other program, then remove the key from the Node. Octavo then writes it again.",
        ),
        Reason::OperandsPaused => (
            "The operands of the GPU Operator are paused so that a MIG mode can change.",
            "No action is needed. They run again after at most two minutes.",
        ),
        Reason::OperandsRestored => ("The operands of the GPU Operator run again.", NO_ACTION),
        Reason::OperandsPauseIneffective => (
            "The operands of the GPU Operator run again. Pausing them did not release the device.",
            "Stop the pods or processes listed in the status.",
        ),
        Reason::DevicePluginRefreshed => {
            ("NVIDIA's device plugin is being restarted to detect the new partitions.", NO_ACTION)
        }
        Reason::PartitionsOffered => {
            ("The kubelet advertises the partitions of the node.", NO_ACTION)
        }
        Reason::PartitionsNotOffered => (
            "The kubelet does not advertise the partitions of the node.",
            "Check the log of NVIDIA's device plugin on that node.",
        ),
        Reason::DrainBegan => (
            "Pods that block a layout are evicted, and a taint keeps new pods away from the node.",
            "No action is needed. The status lists the pods that still block the layout.",
        ),
        Reason::DrainEnded => {
            ("No more pods need to be evicted, and new pods can be scheduled.", NO_ACTION)
        }
        Reason::DrainGaveUp => (
            "Pods still block the layout at the deadline of a drain. New pods can be scheduled, and the drain is retried after a delay.",
            "Make it possible to evict the listed pods, for example by adding a replica.",
        ),
        Reason::DrainRefused => (
            "No pod, or no further pod, can be evicted: the holders that block the layout are never evicted, agents lack the permission to evict pods, or the annotation octavo.dev/drain is invalid.",
            "Delete the listed pods, stop the listed processes, grant the agents the listed permission, or correct the annotation.",
        ),
        Reason::SharingInForce => {
            ("The Node advertises every replica that its layout requests.", NO_ACTION)
        }
        Reason::SharingPending => (
            "The Node will soon advertise the replicas that its layout requests.",
            "No action is needed. If the state persists, the status shows what it is waiting for.",
        ),
        Reason::SharingHeld => (
            "Pods hold devices whose sharing the layout changes. The pods keep these devices, and no further replicas of them are allocated.",
            "Delete the pods listed in the message or in the layout status, or wait: the change continues automatically.",
        ),
        Reason::SharingNotInForce => (
            "The Node does not advertise the replicas that its layout requests.",
            "Read the message: it names the cause and the check that found it.",
        ),
        Reason::SharingRefused => (
            "No device plugin on this node can share devices as the layout requests, or set the requested time-slice duration. The previous sharing stays in effect.",
            "Change the layout as the message describes, or use the built-in device plugin: `--sharing embedded`.",
        ),
        Reason::ClaimsServed => (
            "The devices of the node are published, and its kubelet can prepare resource claims.",
            NO_ACTION,
        ),
        Reason::ClaimsNotServed => (
            "The devices of the node are not published, its kubelet has not registered the driver, or a resource claim cannot be prepared.",
            "Read the message: it names the cause. `octavo doctor` has the remedy.",
        ),
        Reason::DevicePluginConflict => (
            "Another device plugin registers the same resource with the kubelet, which uses the last one to register.",
            "Stop one of the two. `--sharing hand-off` leaves the resource to NVIDIA's plugin.",
        ),
        Reason::DeviceUnhealthy => (
            "A device or partition is no longer allocated to pods. Pods that already have it keep it.",
            "Read the message: it gives the cause and the condition for recovery.",
        ),
        Reason::DeviceHealthy => {
            ("A device or partition that was unhealthy is allocated to pods again.", NO_ACTION)
        }
        Reason::MemoryOverShare => (
            "A container uses more than its fair share of the memory of a shared device. Octavo does not stop it.",
            "Give the container a device or partition of its own, or reduce its memory usage. Other containers on the device can run out of memory.",
        ),
        Reason::MemoryWithinShare => {
            ("The memory usage of a container is back within its fair share.", NO_ACTION)
        }
        Reason::MemoryNearlyExhausted => (
            "A shared device is almost out of memory. The next allocation can fail, whichever container makes it.",
            "End the container that uses the most memory, which the message lists first, or give it a device of its own.",
        ),
    }
}
