//! What a command reads: recorded inventories and labels, from files or standard input.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};

use super::CliError;
use crate::config::hardware::{HardwareSettings, NvmlLibrary};
use crate::config::octavo::Input;
use crate::domain::inventory::Inventory;
use crate::wire;

/// A recorded inventory.
pub(super) fn inventory(input: &Input) -> Result<Inventory, CliError> {
    let text = text(input, "an inventory")?;
    wire::inventory::parse(&text).map_err(|source| CliError::Inventory {
        place: place(input),
        source,
    })
}

/// Labels to compare with.
pub(super) fn labels(input: &Input) -> Result<BTreeMap<String, String>, CliError> {
    let text = text(input, "labels")?;
    wire::labels::parse(&text).map_err(|source| CliError::Labels {
        place: place(input),
        source,
    })
}

/// A library that was named must be there: the agent waits for a driver that comes late, a person rather hears of a
/// misspelt path.
pub(super) fn check_library(hardware: &HardwareSettings) -> Result<(), CliError> {
    match hardware.nvml_library() {
        NvmlLibrary::At(path) if !path.exists() => Err(CliError::LibraryMissing(path.clone())),
        NvmlLibrary::At(_) | NvmlLibrary::Search => Ok(()),
    }
}

fn text(input: &Input, what: &'static str) -> Result<String, CliError> {
    let text = match input {
        Input::Stdin => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map(|_| text)
        }
        Input::File(path) => fs::read_to_string(path),
    };
    text.map_err(|source| CliError::Read {
        what,
        place: place(input),
        source,
    })
}

fn place(input: &Input) -> String {
    match input {
        Input::Stdin => "standard input".to_owned(),
        Input::File(path) => path.display().to_string(),
    }
}
