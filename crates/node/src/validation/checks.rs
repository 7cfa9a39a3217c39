//! Comparison of the accelerators that a container sees with the expectation.

use octavo_model::inventory::Vendor;
use octavo_model::quantity::Mebibytes;
use octavo_model::text::{count_noun, first_names, format_memory, join};

use super::container::number_after;
use super::{ContainerReport, Expectation, StepResult, ValidationStep, VisibleUnit};

/// Accepted difference of memory in percent: drivers reserve different amounts.
const MEMORY_TOLERANCE: u64 = 5;
/// Variable that selects NVIDIA devices. Source: NVIDIA Container Toolkit.
const NVIDIA_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// Variable that selects Neuron cores. Source: AWS Neuron, "Runtime configuration".
const NEURON_CORES: &str = "NEURON_RT_VISIBLE_CORES";
/// Maximum number of listed names.
const SHOWN: usize = 4;

/// Compares a container that was allocated one unit with the expectation. Returns a result for each step after
/// the start of the container.
pub fn check_container(expected: &Expectation, seen: &ContainerReport) -> Vec<StepResult> {
    let units: Vec<&VisibleUnit> =
        seen.units.iter().filter(|unit| unit.vendor == expected.vendor).collect();
    let unit = units.first().copied();
    vec![
        device_files(expected, seen),
        unit_type(expected, seen, unit),
        memory(expected, unit),
        isolation(expected, seen, &units),
    ]
}

fn remedy_of_injection(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Nvidia => {
            "check that NVIDIA's container runtime runs the pod: name its RuntimeClass with --runtime-class, or make it \
             the default runtime of the node; `octavo doctor NODE` checks the driver and the device plugin"
        }
        Vendor::Amd => {
            "check the log of AMD's device plugin on the node, and that /dev/kfd and /dev/dri exist there"
        }
        Vendor::Aws => {
            "check the log of the Neuron device plugin on the node, and that /dev/neuron* exist there"
        }
        Vendor::Other(_) => "check the log of the device plugin on the node",
    }
}

/// Returns the device files of units, without those of the driver.
fn unit_files(vendor: Vendor, seen: &ContainerReport) -> Vec<&str> {
    let prefix = match vendor {
        Vendor::Nvidia => "nvidia",
        Vendor::Amd => "dri/renderD",
        Vendor::Aws => "neuron",
        Vendor::Other(_) => return Vec::new(),
    };
    let files = seen.device_files.iter().map(String::as_str);
    files.filter(|file| number_after(file, prefix).is_some()).collect()
}

fn device_files(expected: &Expectation, seen: &ContainerReport) -> StepResult {
    let step = ValidationStep::DeviceFiles;
    let common = match expected.vendor {
        Vendor::Nvidia => Some("nvidiactl"),
        Vendor::Amd => Some("kfd"),
        Vendor::Aws | Vendor::Other(_) => None,
    };
    let files = unit_files(expected.vendor, seen);
    let remedy = remedy_of_injection(expected.vendor);
    if files.is_empty() {
        let pattern = match expected.vendor {
            Vendor::Nvidia => "/dev/nvidia0 or another number",
            Vendor::Amd => "/dev/dri/renderD*",
            Vendor::Aws => "/dev/neuron*",
            Vendor::Other(_) => "a device",
        };
        return StepResult::failing(step, format!("the container has no {pattern}"), remedy);
    }
    if let Some(name) = common
        && !seen.device_files.iter().any(|file| file == name)
    {
        return StepResult::failing(step, format!("the container has no /dev/{name}"), remedy);
    }
    let names: Vec<String> = files.iter().map(|file| format!("/dev/{file}")).collect();
    if files.len() > 1 {
        let count = count_noun(files.len(), "device", "devices");
        let evidence =
            format!("the container has the files of {count}: {}", first_names(&names, SHOWN));
        return StepResult::failing(step, evidence, remedy_of_isolation(expected.vendor));
    }
    let common = common.map(|name| format!("/dev/{name}"));
    StepResult::ok(step, join(names.into_iter().chain(common), ", "))
}

fn unit_type(
    expected: &Expectation,
    seen: &ContainerReport,
    unit: Option<&VisibleUnit>,
) -> StepResult {
    let step = ValidationStep::Type;
    let Some(unit) = unit else {
        let why = match (&seen.nvml, expected.vendor) {
            (Some(reason), Vendor::Nvidia) => {
                format!("NVML is not usable in the container: {reason}")
            }
            (_, _) => "no driver reports a device to the container".to_owned(),
        };
        return StepResult::failing(step, why, remedy_of_injection(expected.vendor));
    };
    if let Some(error) = &unit.error {
        let evidence = format!("{}: {error}", unit.id);
        return StepResult::failing(
            step,
            evidence,
            "run `octavo doctor NODE` to diagnose the device",
        );
    }
    let profile = unit.profile.as_deref().map(|name| name.replace(['+', ','], "."));
    if let (Some(wanted), Some(found)) = (&expected.profile, &profile)
        && wanted != found
    {
        let evidence =
            format!("the partition has the profile {found}, the resource is for {wanted}");
        return StepResult::failing(step, evidence, "restart the device plugin on the node");
    }
    let with_profile = |name: &str| match &profile {
        Some(profile) => format!("{name}, {profile}"),
        None => name.to_owned(),
    };
    match &unit.type_name {
        None => StepResult::unknown(step, format!("the type of {} is not known", unit.id)),
        Some(name) if expected.types.is_empty() => StepResult::unknown(
            step,
            format!("{}; the Node has no label type.octavo.dev/*", with_profile(name)),
        ),
        Some(name) if expected.types.contains(name) => StepResult::ok(step, with_profile(name)),
        Some(name) => {
            let listed = join(&expected.types, ", ");
            let evidence = format!("the container sees {name}, the Node lists {listed}");
            StepResult::failing(
                step,
                evidence,
                "check that the agent on the node is connected and its labels are current",
            )
        }
    }
}

fn memory(expected: &Expectation, unit: Option<&VisibleUnit>) -> StepResult {
    let step = ValidationStep::Memory;
    let shown = |mib: u64| format_memory(Mebibytes::new(mib));
    let Some(found) = unit.and_then(|unit| unit.memory_mib) else {
        // No driver reports the memory of these.
        return if unit.is_some() && expected.vendor != Vendor::Nvidia {
            StepResult::unknown(step, "the driver does not report it to the container".to_owned())
        } else {
            let evidence = "the driver reports no memory to the container".to_owned();
            StepResult::failing(step, evidence, remedy_of_injection(expected.vendor))
        };
    };
    if expected.is_core {
        return StepResult::unknown(
            step,
            format!("{} of the device, shared by its cores", shown(found)),
        );
    }
    let is_close = |wanted: u64| {
        let difference = wanted.abs_diff(found).saturating_mul(100);
        let is_smaller = difference > wanted.saturating_mul(MEMORY_TOLERANCE);
        // With several types, the label has the minimum.
        !is_smaller || (expected.types.len() > 1 && found > wanted)
    };
    let mut labels = expected.memory.iter();
    match (expected.memory.values().any(|wanted| is_close(*wanted)), labels.next()) {
        (true, _) => StepResult::ok(step, shown(found)),
        (false, None) => StepResult::unknown(
            step,
            format!("{}; the Node has no label to compare with", shown(found)),
        ),
        (false, Some((label, wanted))) => {
            let evidence = format!(
                "the container sees {}, the label {label} is {}",
                shown(found),
                shown(*wanted)
            );
            StepResult::failing(
                step,
                evidence,
                "check that the label is current; then check the layout of the node",
            )
        }
    }
}

fn remedy_of_isolation(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Nvidia => {
            "check that the image does not set NVIDIA_VISIBLE_DEVICES, that no admission webhook makes the pod privileged, \
             and the device plugin's DEVICE_LIST_STRATEGY"
        }
        Vendor::Amd | Vendor::Aws | Vendor::Other(_) => {
            "check that no admission webhook mounts /dev or makes the pod privileged"
        }
    }
}

fn isolation(expected: &Expectation, seen: &ContainerReport, units: &[&VisibleUnit]) -> StepResult {
    let step = ValidationStep::Isolation;
    let remedy = remedy_of_isolation(expected.vendor);
    let variable = |name: &str| seen.environment.get(name).map(String::as_str).unwrap_or_default();
    let names: Vec<&str> = units.iter().map(|unit| unit.id.as_str()).collect();
    let Some(unit) = units.first() else {
        let evidence = "no allocated device is visible".to_owned();
        return StepResult::failing(step, evidence, remedy_of_injection(expected.vendor));
    };
    if units.len() > 1 {
        let evidence =
            format!("1 unit was allocated, but the container sees {}", first_names(&names, SHOWN));
        return StepResult::failing(step, evidence, remedy);
    }
    if expected.vendor == Vendor::Nvidia {
        let allocated = variable(NVIDIA_DEVICES);
        if allocated == "all" {
            let evidence = format!("{NVIDIA_DEVICES} is `all` in the container");
            return StepResult::failing(step, evidence, remedy);
        }
        let is_uuid = allocated.starts_with("GPU-") || allocated.starts_with("MIG-");
        if is_uuid && allocated != unit.id {
            let evidence = format!("{allocated} was allocated, but the container sees {}", unit.id);
            return StepResult::failing(step, evidence, remedy);
        }
    }
    if expected.is_core {
        let cores = variable(NEURON_CORES);
        return match cores.parse::<u32>() {
            Ok(_) => StepResult::ok(step, format!("only core {cores}, of {}", unit.id)),
            Err(_) if cores.is_empty() => StepResult::unknown(
                step,
                format!("{} is visible, and {NEURON_CORES} is not set", unit.id),
            ),
            Err(_) => {
                let evidence = format!("1 core was allocated, but {NEURON_CORES} is {cores}");
                StepResult::failing(step, evidence, remedy)
            }
        };
    }
    StepResult::ok(step, format!("only {} is visible", unit.id))
}
