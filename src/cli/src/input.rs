//! Input of commands: recorded inventories, labels and other documents, from files or standard input.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};

use octavo_documents::{inventory, labels, node_resources};
use octavo_model::inventory::Inventory;
use octavo_model::resource::ResourceName;
use octavo_settings::hardware::HardwareSettings;

use super::CliError;
use super::simulated::{SimulatedMachine, is_scenario};
use crate::settings::Input;
use crate::settings::demo::{program_dir, program_path};

/// Maximum size of an input. Sixteen GPUs with every profile are a quarter of a megabyte; a Node with all its images
/// is less.
const MAX_INPUT_BYTES: u64 = 16 << 20;

/// Reads a recorded inventory, or simulates a scenario once to obtain one.
pub(super) fn inventory(input: &Input) -> Result<Inventory, CliError> {
    let text = text(input, "an inventory")?;
    let place = place(input);
    if is_scenario(&text) {
        return SimulatedMachine::new(&text, &place, &program_dir())
            .and_then(|machine| machine.observe(&program_path()))
            .map_err(|source| CliError::Simulate { place, source });
    }
    inventory::parse(&text).map_err(|source| CliError::Inventory { place, source })
}

/// Reads a layouts file without parsing it.
pub(super) fn layouts(input: &Input) -> Result<String, CliError> {
    text(input, "layouts")
}

/// Reads a catalog without parsing it.
pub(super) fn catalogue(input: &Input) -> Result<String, CliError> {
    text(input, "a catalogue")
}

/// Reads measured rows without parsing them.
pub(super) fn rows(input: &Input) -> Result<String, CliError> {
    text(input, "rows")
}

/// Reads a checkpoint without parsing it.
pub(super) fn checkpoint(input: &Input) -> Result<String, CliError> {
    text(input, "a checkpoint")
}

/// Reads hooks without parsing them.
pub(super) fn hooks(input: &Input) -> Result<String, CliError> {
    text(input, "hooks")
}

/// Reads labels to compare with.
pub(super) fn labels(input: &Input) -> Result<BTreeMap<String, String>, CliError> {
    let text = text(input, "labels")?;
    labels::parse(&text).map_err(|source| CliError::Labels {
        place: place(input),
        source,
    })
}

/// Reads a Node's allocatable NVIDIA resources.
pub(super) fn node(input: &Input) -> Result<BTreeMap<ResourceName, u64>, CliError> {
    let text = text(input, "a Node")?;
    node_resources::allocatable(&text).map_err(|source| CliError::Node {
        place: place(input),
        source,
    })
}

/// Checks that a configured library exists: the agent waits for a driver that is installed later, but a user should
/// learn of a misspelt path immediately.
pub(super) fn check_library(hardware: &HardwareSettings) -> Result<(), CliError> {
    match &hardware.nvml_library {
        Some(path) if !path.exists() => Err(CliError::LibraryMissing(path.clone())),
        Some(_) | None => Ok(()),
    }
}

/// Reads the text up to the size limit: endless input is rejected and does not exhaust memory.
fn text(input: &Input, what: &'static str) -> Result<String, CliError> {
    let read = match input {
        Input::Stdin => bounded(io::stdin().lock()),
        Input::File(path) => File::open(path).and_then(bounded),
    };
    read.map_err(|source| CliError::Read {
        what,
        place: place(input),
        source,
    })
}

fn bounded(reader: impl Read) -> io::Result<String> {
    let mut text = String::new();
    let length = reader.take(MAX_INPUT_BYTES + 1).read_to_string(&mut text)?;
    if u64::try_from(length).is_ok_and(|length| length <= MAX_INPUT_BYTES) {
        return Ok(text);
    }
    let message = format!("it is longer than {} MiB", MAX_INPUT_BYTES >> 20);
    Err(io::Error::new(io::ErrorKind::FileTooLarge, message))
}

/// Returns the name of an input for messages.
pub(super) fn place(input: &Input) -> String {
    match input {
        Input::Stdin => "standard input".to_owned(),
        Input::File(path) => path.display().to_string(),
    }
}
