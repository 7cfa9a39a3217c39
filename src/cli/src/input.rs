//! Input of commands: recorded inventories, labels and other documents, from files or standard input.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use octavo_demo::{SimulatedMachine, is_scenario};
use octavo_files::node_resources;
use octavo_files::{inventory, label_set};
use octavo_model::inventory::Inventory;
use octavo_model::resource::ResourceName;
use octavo_settings::hardware::HardwareSettings;
use octavo_toolkit::files::{self, ReadError};
use serde::de::DeserializeOwned;

use super::CliError;
use crate::settings::Input;
use crate::settings::demo::{program_dir, program_path};

/// Maximum size of an input. Sixteen GPUs with every profile are a quarter of a megabyte; a Node with all its images
/// is less.
const MAX_INPUT_BYTES: u64 = 16 << 20;
/// Maximum size of a trace.
const MAX_TRACE_BYTES: u64 = 256 << 20;

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

/// Reads labels to compare with.
pub(super) fn labels(input: &Input) -> Result<BTreeMap<String, String>, CliError> {
    let text = text(input, "labels")?;
    label_set::parse(&text).map_err(|source| CliError::Labels { place: place(input), source })
}

/// Reads a Node's allocatable NVIDIA resources.
pub(super) fn node(input: &Input) -> Result<BTreeMap<ResourceName, u64>, CliError> {
    let text = text(input, "a Node")?;
    node_resources::allocatable(&text)
        .map_err(|source| CliError::document("Node", place(input), source))
}

/// Reads a document in YAML or JSON. Errors name it as `what`.
pub(super) fn yaml<T: DeserializeOwned>(
    input: &Input,
    read: &'static str,
    what: &'static str,
) -> Result<T, CliError> {
    serde_saphyr::from_str(&text(input, read)?)
        .map_err(|source| CliError::document(what, place(input), source))
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
pub(super) fn text(input: &Input, what: &'static str) -> Result<String, CliError> {
    text_within(input, what, MAX_INPUT_BYTES)
}

/// Reads a trace, which can be usage of many days.
pub(super) fn trace(input: &Input) -> Result<String, CliError> {
    text_within(input, "a trace", MAX_TRACE_BYTES)
}

fn text_within(input: &Input, what: &'static str, most: u64) -> Result<String, CliError> {
    let read = match input {
        Input::Stdin => files::text_of(io::stdin().lock(), most),
        // A user may give a pipe, such as `<(kubectl get node -o json)`.
        Input::File(path) => {
            File::open(path).map_err(ReadError::from).and_then(|file| files::text_of(file, most))
        }
    };
    read.map_err(|error| CliError::Read { what, place: place(input), source: error.into() })
}

/// Returns the name of an input for messages.
pub(super) fn place(input: &Input) -> String {
    match input {
        Input::Stdin => "standard input".to_owned(),
        Input::File(path) => path.display().to_string(),
    }
}
