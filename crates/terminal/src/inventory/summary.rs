//! The line above the table: the driver, or why there is none and what to do about it.

use octavo_model::inventory::{Inventory, NvmlState};

use crate::style::{Colors, Style};
use crate::text::{lines, printable, wrap};

pub(super) fn summary(inventory: &Inventory, colors: Colors) -> String {
    let mut output = Vec::new();
    if let Some(product) = &inventory.machine.product_name {
        output.push(format!("Machine: {}", printable(product)));
    }
    if let Some(host) = &inventory.machine.vgpu {
        let text = format!(
            "Virtual GPU: the host runs driver {} (branch {})",
            host.driver_version, host.driver_branch
        );
        output.push(wrap(&text, 2));
    }
    let bus_error = inventory.machine.bus_error.as_deref();
    if let Some(error) = bus_error {
        let text = format!("PCI bus: cannot be read: {}", printable(error));
        output.push(Style::Warning.paint(&wrap(&text, 2), colors));
    }
    let has_neuron = inventory.neuron.is_some();
    if inventory.devices.is_empty() && !has_neuron {
        output.extend(match bus_error {
            None => nothing_found(&inventory.nvml, colors),
            Some(_) => vec!["It is unknown whether this machine has an accelerator.".to_owned()],
        });
    } else if inventory.is_nvml_relevant() {
        output.extend(driver(&inventory.nvml, colors));
    }
    output.extend(amdgpu(inventory));
    lines(output)
}

/// Returns AMD's driver, with its version unless it came with the kernel.
fn amdgpu(inventory: &Inventory) -> Option<String> {
    let devices = inventory.devices.iter();
    let mut reported = devices.filter_map(|device| device.amd.as_ref());
    let version = reported.next()?.driver_version.as_deref().unwrap_or_default();
    let output = format!("Driver: amdgpu {}", printable(version));
    Some(output.trim_end().to_owned())
}

/// Explains an empty inventory: most often there are no accelerators, but a library that was found and cannot be used
/// is a problem.
fn nothing_found(nvml: &NvmlState, colors: Colors) -> Vec<String> {
    if nvml.is_without_library() {
        return vec![
            "No accelerator found on the PCI bus, and no driver for one.".to_owned(),
            "This is normal on a CPU-only node.".to_owned(),
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
            let cuda = driver.cuda.map(|version| format!(", CUDA {version}")).unwrap_or_default();
            vec![format!("Driver: NVIDIA {}{cuda}", driver.version)]
        }
        NvmlState::Absent { reason } => vec![
            notice(format!("NVML: absent: {reason}")),
            wrap(
                "  try: install the NVIDIA driver, or specify its location with --driver-root or \
                 --nvml-library",
                7,
            ),
        ],
        NvmlState::Loading => vec![
            notice("NVML: loading: found, but not initialized yet".to_owned()),
            "  try: run the command again in a moment".to_owned(),
        ],
        NvmlState::Lost { reason } => vec![
            notice(format!("NVML: lost: {reason}")),
            wrap(
                "  try: load the driver and run the command again; the data below is from the PCI \
                 bus",
                7,
            ),
        ],
        NvmlState::Stalled { call, .. } => vec![
            notice(format!("NVML: stalled: {call} does not return")),
            wrap(
                &format!(
                    "  try: {}; the data below was read earlier",
                    NvmlState::remedy_of_stall(call)
                ),
                7,
            ),
        ],
    }
}
