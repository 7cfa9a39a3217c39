//! The inventory of a simulated machine.

use std::process::Command;

use octavo_model::inventory::Inventory;

use crate::simulated_machine;

/// Returns the inventory that `octavo inspect` prints for the machine of `scenario`.
pub(crate) fn inventory(scenario: &str) -> Inventory {
    let directory = simulated_machine::directory("inspect", scenario);
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["inspect", "-o", "json", "--nvml-library"])
        .arg(directory.path().join(simulated_machine::LIBRARY))
        .arg("--sys-root")
        .arg(directory.path().join("sys"))
        .output()
        .unwrap();
    octavo_files::inventory::parse(&String::from_utf8(output.stdout).unwrap()).unwrap()
}
