//! `assert`: checks whether the node has a configuration.

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Inventory, Vendor};
use octavo_planner::layout::{DeviceRef, compare, compare_modes};

use super::config::SelectedConfig;
use super::{OpenHardware, failed};
use crate::settings::mig_parted::{AssertScope, AssertSettings, Compat, ConfigScope};
use crate::text::{lines, wrap};
use crate::{CliError, MigPartedError, Report};

/// Reports success, or fails with the differences.
pub(super) async fn report(
    open: OpenHardware<'_>,
    settings: &AssertSettings,
    compat: Compat,
) -> Result<Report, CliError> {
    let config = match SelectedConfig::read(&settings.config, compat)? {
        Ok(config) => config,
        Err(refused) => return Ok(refused),
    };
    if settings.validity == AssertScope::FileOnly {
        return Ok(said("Selected MIG configuration is valid", String::new()));
    }
    let inventory = open(&settings.hardware)?.observe().await;
    let (resolved, notes) = match config.looked_up(settings.mode.scope, &inventory) {
        Ok(resolved) => resolved,
        Err(errors) => return Ok(not_applied(&errors)),
    };
    let (differences, yes) = match settings.mode.scope {
        ConfigScope::ModeOnly => (
            compare_modes(&resolved.targets, &inventory),
            "Selected MIG mode settings from configuration currently applied",
        ),
        ConfigScope::Full => (
            compare(&resolved.targets, &inventory),
            "Selected MIG configuration currently applied",
        ),
    };
    let mut differences: Vec<String> = differences.iter().map(ToString::to_string).collect();
    if compat == Compat::Strict && settings.mode.scope == ConfigScope::Full {
        differences.extend(uncovered(&resolved.covered, &inventory));
    }
    if differences.is_empty() {
        return Ok(said(yes, notes));
    }
    let told = lines(differences.iter().map(|one| wrap(one, 2)));
    Ok(not_applied(&(notes + &told)))
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
        format!("{name}: the configuration does not speak of it, and --strict-compat is given")
    })
}

fn not_applied(told: &str) -> Report {
    let error = CliError::from(MigPartedError::NotApplied);
    failed(told.to_owned() + &crate::explain(&error))
}

fn said(yes: &str, notes: String) -> Report {
    Report {
        output: format!("{yes}\n"),
        notes,
        ..Report::default()
    }
}
