//! The layout that a person chose by hand, which outlives the agent: `chosen` in the state directory.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::apply::durable::{self, DurableError};
use crate::wire::local::{Choice, LONGEST_LINE, line};

fn path(folder: &Path) -> PathBuf {
    folder.join("chosen")
}

/// What was chosen in `folder`; nothing where nothing was, and why it cannot be read.
pub fn read(folder: &Path) -> Result<Option<Choice>, io::Error> {
    let file = match File::open(path(folder)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    let limit = u64::try_from(LONGEST_LINE).unwrap_or(u64::MAX);
    file.take(limit).read_to_string(&mut text)?;
    let choice = serde_json::from_str(&text)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some(choice))
}

/// Keeps a choice, durably.
pub fn write(folder: &Path, choice: &Choice) -> Result<(), DurableError> {
    let text = line(choice);
    let draft = folder.join("chosen.draft");
    durable::replace(&path(folder), &draft, text.as_bytes(), 0o600)
}

/// Forgets it.
pub fn forget(folder: &Path) -> Result<(), DurableError> {
    durable::remove(&path(folder))
}
