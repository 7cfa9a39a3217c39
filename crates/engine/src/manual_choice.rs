//! The manually chosen layout, which survives restarts of the agent: the file `chosen` in the state directory.

use std::io;
use std::path::{Path, PathBuf};

use crate::agent_socket::{LayoutChoice, MAX_LINE_BYTES, line};
use octavo_toolkit::files::{self, ReadError};

use crate::durable::{self, DurableError};

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("chosen")
}

/// Reads the choice stored in the directory `state_dir`. Returns `None` if there is none, and an error if it cannot
/// be read.
pub fn read(state_dir: &Path) -> Result<Option<LayoutChoice>, io::Error> {
    let limit = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX);
    let text = match files::text(&path(state_dir), limit) {
        Ok(text) => text,
        Err(ReadError::Missing(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let choice = serde_json::from_str(&text)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some(choice))
}

/// Stores a choice durably.
pub fn write(state_dir: &Path, choice: &LayoutChoice) -> Result<(), DurableError> {
    let text = line(choice);
    let draft = state_dir.join("chosen.draft");
    durable::replace(&path(state_dir), &draft, text.as_bytes(), 0o600)
}

/// Removes the stored choice.
pub fn remove(state_dir: &Path) -> Result<(), DurableError> {
    durable::remove(&path(state_dir))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn fifo_or_oversized_choice_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = path(directory.path());
        assert!(read(directory.path()).unwrap().is_none());
        mknodat(CWD, &file, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let error = read(directory.path()).unwrap_err();
        assert_eq!(error.to_string(), "it is not a regular file");
        fs::remove_file(&file).unwrap();
        fs::write(&file, " ".repeat(MAX_LINE_BYTES + 1)).unwrap();
        let error = read(directory.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
