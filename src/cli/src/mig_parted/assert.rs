//! `assert`: checks whether the node has a configuration.

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Inventory, Vendor};
use octavo_planner::layout::{DeviceRef, compare, compare_modes};

use super::OpenHardware;
use super::config::SelectedConfig;
use crate::settings::mig_parted::AssertSettings;
use crate::text::{lines, wrap};
use crate::{CliError, MigPartedError, Report};

/// Reports success, or fails with the differences.
pub(super) async fn report(
    open: OpenHardware<'_>,
    settings: &AssertSettings,
    strict: bool,
) -> Result<Report, CliError> {
    let config = SelectedConfig::read(&settings.config, strict)?;
    if settings.valid_config {
        return Ok(success("Selected MIG configuration is valid", String::new()));
    }
    let inventory = open(&settings.hardware)?.observe().await;
    let mode_only = settings.mode.mode_only;
    let (resolved, notes) = match config.looked_up(mode_only, &inventory) {
        Ok(resolved) => resolved,
        Err(errors) => return Ok(not_applied(&errors)),
    };
    let (differences, yes) = if mode_only {
        (
            compare_modes(&resolved.targets, &inventory),
            "Selected MIG mode settings from configuration currently applied",
        )
    } else {
        (compare(&resolved.targets, &inventory), "Selected MIG configuration currently applied")
    };
    let mut differences: Vec<String> = differences.iter().map(ToString::to_string).collect();
    if strict && !mode_only {
        differences.extend(uncovered(&resolved.covered, &inventory));
    }
    if differences.is_empty() {
        return Ok(success(yes, notes));
    }
    let differences = lines(differences.iter().map(|one| wrap(one, 2)));
    Ok(not_applied(&(notes + &differences)))
}

/// Returns the GPUs that the configuration omits; mig-parted requires it to cover every GPU of the node.
fn uncovered<'a>(
    covered: &'a [PciAddress],
    inventory: &'a Inventory,
) -> impl Iterator<Item = String> + 'a {
    let gpus = inventory.devices.iter();
    let missing = gpus.filter(|device| {
        device.vendor == Vendor::Nvidia && device.index.is_some() && !covered.contains(&device.pci)
    });
    missing.map(|device| {
        let name = DeviceRef::from_device(device);
        format!("{name}: not in the configuration, and --strict-compat is set")
    })
}

fn not_applied(differences: &str) -> Report {
    CliError::from(MigPartedError::NotApplied).into_report().after(differences.to_owned())
}

fn success(yes: &str, notes: String) -> Report {
    Report { output: format!("{yes}\n"), notes, ..Report::default() }
}
