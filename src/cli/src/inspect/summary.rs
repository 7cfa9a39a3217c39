//! The line above the table: the driver, or why there is none and what to do about it.

use octavo_model::inventory::{Inventory, NvmlState};

use crate::settings::Colors;
use crate::style::Style;
use crate::text::{lines, printable, wrap};

pub(super) fn summary(inventory: &Inventory, colors: Colors) -> String {
    let mut said = Vec::new();
    if let Some(product) = &inventory.machine.product_name {
        said.push(format!("Machine: {}", printable(product)));
    }
    if let Some(host) = &inventory.machine.vgpu {
        let text = format!(
            "Virtual GPU: the host runs driver {} (branch {})",
            host.driver_version, host.driver_branch
        );
        said.push(wrap(&text, 2));
    }
    let bus_error = inventory.machine.bus_error.as_deref();
    if let Some(error) = bus_error {
        let text = format!("PCI bus: cannot be read: {}", printable(error));
        said.push(Style::Warning.paint(&wrap(&text, 2), colors));
    }
    let has_neuron = inventory.neuron.is_some();
    if inventory.devices.is_empty() && !has_neuron {
        said.extend(match bus_error {
            None => nothing_found(&inventory.nvml, colors),
            Some(_) => vec!["Whether there is an accelerator here is not known.".to_owned()],
        });
    } else if inventory.is_nvml_relevant() {
        said.extend(driver(&inventory.nvml, colors));
    }
    said.extend(amdgpu(inventory));
    lines(said)
}

/// Returns AMD's driver, with its version unless it came with the kernel.
fn amdgpu(inventory: &Inventory) -> Option<String> {
    let devices = inventory.devices.iter();
    let mut told = devices.filter_map(|device| device.amd.as_ref());
    let version = told.next()?.driver_version.as_deref().unwrap_or_default();
    let said = format!("Driver: amdgpu {}", printable(version));
    Some(said.trim_end().to_owned())
}

/// Explains an empty inventory: most often there are no accelerators, but a library that was found and cannot be used
/// is a problem.
fn nothing_found(nvml: &NvmlState, colors: Colors) -> Vec<String> {
    if nvml.is_without_library() {
        return vec![
            "No accelerator here: there is none on the PCI bus and no driver for one.".to_owned(),
            "That is as it should be on a CPU-only node.".to_owned(),
        ];
    }
    let mut lines = driver(nvml, colors);
    lines.push("No accelerator was found.".to_owned());
    lines
}

fn driver(nvml: &NvmlState, colors: Colors) -> Vec<String> {
    let notice = |text: String| Style::Warning.paint(&wrap(&text, 2), colors);
    match nvml {
        NvmlState::Ready(driver) => {
            let cuda = driver
                .cuda
                .map(|version| format!(", CUDA {version}"))
                .unwrap_or_default();
            vec![format!("Driver: NVIDIA {}{cuda}", driver.version)]
        }
        NvmlState::Absent { reason } => vec![
            notice(format!("NVML: absent: {reason}")),
            wrap(
                "  try: install the NVIDIA driver, or say where it is with --driver-root or --nvml-library",
                7,
            ),
        ],
        NvmlState::Loading => vec![
            notice("NVML: loading: found and not yet initialised".to_owned()),
            "  try: again in a moment".to_owned(),
        ],
        NvmlState::Lost { reason } => vec![
            notice(format!("NVML: lost: {reason}")),
            wrap(
                "  try: again when the driver is loaded; what follows is what the PCI bus shows",
                7,
            ),
        ],
        NvmlState::Stalled { call, .. } => vec![
            notice(format!("NVML: stalled: {call} does not return")),
            wrap(
                &format!(
                    "  try: {}; what follows was read before",
                    NvmlState::remedy_of_stall(call)
                ),
                7,
            ),
        ],
    }
}
