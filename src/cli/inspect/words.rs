//! How devices and their states are called, in every part of the output alike.

use crate::cli::paint::Ink;
use crate::domain::inventory::{
    Condition, Device, NvmlState, Process, RecoveryAction, RemappedRows, Vendor,
};

/// A device as a person would call it: `GPU 0`, and `GPU 0000:07:00.0` when it has no number.
pub(super) fn name(device: &Device) -> String {
    format!("{} {}", noun(device), number(device))
}

/// What kind of thing it is called.
pub(super) fn noun(device: &Device) -> &'static str {
    match device.vendor {
        Vendor::Aws => "device",
        Vendor::Nvidia | Vendor::Amd | Vendor::Other(_) => "GPU",
    }
}

/// The driver's number for it, or its address.
pub(super) fn number(device: &Device) -> String {
    device
        .index
        .map_or_else(|| device.pci.to_string(), |index| index.to_string())
}

/// The one word that says whether a device is as it should be; the reasons follow below the table.
pub(super) fn state(device: &Device, nvml: &NvmlState) -> (&'static str, Ink) {
    match &device.condition {
        Condition::Failing { .. } => return ("failing", Ink::Bad),
        Condition::PciOnly { .. } => return ("no driver", Ink::Notice),
        Condition::Working => {}
    }
    if let Some(need) = need(device) {
        return need;
    }
    match nvml {
        NvmlState::Stalled { .. } | NvmlState::Lost { .. } if device.vendor == Vendor::Nvidia => {
            ("stale", Ink::Notice)
        }
        _ if !device.problems.is_empty() => ("partial", Ink::Notice),
        NvmlState::Absent { .. }
        | NvmlState::Loading
        | NvmlState::Ready(_)
        | NvmlState::Lost { .. }
        | NvmlState::Stalled { .. } => ("ok", Ink::Good),
    }
}

/// What its driver or its memory asks for, the gravest first.
fn need(device: &Device) -> Option<(&'static str, Ink)> {
    let rows = device.health.remapped_rows.unwrap_or_default();
    if rows.failed {
        return Some(("replace", Ink::Bad));
    }
    match device.health.recovery_action {
        Some(RecoveryAction::RebootNode) => Some(("needs reboot", Ink::Bad)),
        Some(RecoveryAction::ResetGpu | RecoveryAction::DrainAndReset) => {
            Some(("needs reset", Ink::Bad))
        }
        Some(RecoveryAction::DrainP2p) => Some(("needs drain", Ink::Notice)),
        Some(RecoveryAction::Other(_)) => Some(("needs action", Ink::Notice)),
        Some(RecoveryAction::None) | None => rows.pending.then_some(("needs reset", Ink::Notice)),
    }
}

/// What is wrong with a device, one sentence each; the same things that [`state`] sums up.
pub(super) fn complaints(device: &Device) -> Vec<(String, Ink)> {
    let mut said = Vec::new();
    match &device.condition {
        Condition::Working => {}
        Condition::Failing { reason } => said.push((format!("failing: {reason}"), Ink::Bad)),
        Condition::PciOnly { kernel_driver } => {
            let driver = kernel_driver.as_deref().map_or_else(
                || "no kernel driver is bound to it".to_owned(),
                |driver| format!("the kernel driver {driver} is bound to it"),
            );
            said.push((
                format!("no driver library speaks for it; {driver}"),
                Ink::Notice,
            ));
        }
    }
    let asked = match device.health.recovery_action {
        Some(RecoveryAction::ResetGpu) => "the driver asks for a GPU reset".to_owned(),
        Some(RecoveryAction::RebootNode) => "the driver asks for a reboot of the node".to_owned(),
        Some(RecoveryAction::DrainP2p) => {
            "the driver asks for peer-to-peer traffic to be drained".to_owned()
        }
        Some(RecoveryAction::DrainAndReset) => {
            "the driver asks for the GPU to be drained and then reset".to_owned()
        }
        Some(RecoveryAction::Other(number)) => {
            format!(
                "the driver asks for recovery action {number}, which this version does not know"
            )
        }
        Some(RecoveryAction::None) | None => String::new(),
    };
    if !asked.is_empty() {
        said.push((asked, Ink::Bad));
    }
    said.extend(memory_complaints(device));
    for problem in &device.problems {
        said.push((format!("{}: {}", problem.what, problem.error), Ink::Plain));
    }
    said
}

fn memory_complaints(device: &Device) -> Vec<(String, Ink)> {
    let mut said = Vec::new();
    let RemappedRows {
        pending, failed, ..
    } = device.health.remapped_rows.unwrap_or_default();
    if failed {
        let text = "remapping a bad memory row failed: the board is to be replaced";
        said.push((text.to_owned(), Ink::Bad));
    } else if pending {
        let text = "a bad memory row waits to be remapped by a GPU reset";
        said.push((text.to_owned(), Ink::Notice));
    }
    if let Some(errors) = device
        .health
        .uncorrected_errors
        .filter(|errors| *errors > 0)
    {
        let text = format!("{errors} uncorrected memory errors since the driver was loaded");
        said.push((text, Ink::Notice));
    }
    said
}

/// Who runs on a device, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub(super) enum Usage<'a> {
    /// These processes.
    Known(&'a [Process]),
    /// The driver would not say, which must not look like idle.
    Unknown,
}

/// Who runs on `device`.
pub(super) fn usage(device: &Device) -> Usage<'_> {
    let refused = |problem: &crate::domain::inventory::Problem| problem.what.contains("Processes");
    if device.condition != Condition::Working || device.problems.iter().any(refused) {
        Usage::Unknown
    } else {
        Usage::Known(&device.processes)
    }
}
