//! Interrupted changes in a state directory, for processes that do not hold its lock.

use std::io;
use std::path::{Path, PathBuf};

use octavo_files::journal;
use octavo_planner::reconcile::{ApplyRecord, ApplyRecordEntry};
use octavo_toolkit::error::chain;

use super::{MAX_JOURNAL_BYTES, StoreError, read};

/// The interrupted changes of a state directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterruptedChanges {
    /// The journal.
    pub record: Option<ApplyRecord>,
    /// Unreadable journals, each with its path and the reason.
    pub unreadable: Vec<String>,
}

impl InterruptedChanges {
    /// Returns every interrupted change and unreadable journal as a message.
    pub fn notices(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let entries = self.record.iter().flat_map(|record| &record.devices);
        for entry in entries {
            let ApplyRecordEntry { plan, layout, pci, .. } = entry;
            all.push(format!(
                "plan {plan} (layout {layout}) was interrupted on the GPU at {pci}: unless a process is applying it now, the next \
                `octavo apply` of any layout completes it or restores the previous partitions"
            ));
        }
        all.extend(self.unreadable.iter().cloned());
        all
    }

    /// Returns the notices as warning lines of a command.
    pub fn warnings(&self) -> String {
        let mut text = String::new();
        for notice in self.notices() {
            text.push_str("warning: ");
            text.push_str(&notice);
            text.push('\n');
        }
        text
    }
}

/// Reads the interrupted changes in `state_dir`, including an apply that is currently running. Does not need the lock.
pub fn interrupted(state_dir: &Path) -> InterruptedChanges {
    let path = state_dir.join("journal");
    let mut found = InterruptedChanges { record: None, unreadable: unreadable_notices(state_dir) };
    match read(&path, MAX_JOURNAL_BYTES) {
        Ok(None) => {}
        Err(error) => found.unreadable.push(unchecked_notice(state_dir, &error)),
        Ok(Some(bytes)) => match journal::parse(&bytes) {
            Ok(record) => found.record = Some(record),
            Err(reason) => found.unreadable.push(format!(
                "cannot read the journal {} ({}); the next apply moves it aside",
                path.display(),
                chain(&reason)
            )),
        },
    }
    found
}

/// Reports a journal whose bytes cannot be read. Without root this is the normal case, because the directory is
/// private.
fn unchecked_notice(state_dir: &Path, error: &StoreError) -> String {
    if let StoreError::File(error) = error
        && error.source.kind() == io::ErrorKind::PermissionDenied
    {
        let state_dir = state_dir.display();
        return format!(
            "cannot check for interrupted changes in {state_dir}; run as root to include them"
        );
    }
    chain(error)
}

/// Reports a journal that was set aside.
fn unreadable_notice(path: &Path, reason: &str) -> String {
    format!(
        "the journal could not be read ({reason}) and was saved as {}. A GPU might be left between two layouts: compare \
        `octavo inspect` with the desired layout, then discard this file with `octavo apply --forget`",
        path.display()
    )
}

pub(super) fn unreadable_notices(state_dir: &Path) -> Vec<String> {
    let reports = unreadable_journals(state_dir).map(|path| {
        let reason = match read(&path, MAX_JOURNAL_BYTES) {
            Err(error) => chain(&error),
            Ok(bytes) => match journal::parse(&bytes.unwrap_or_default()) {
                Err(reason) => chain(&reason),
                Ok(_) => "an earlier version of Octavo could not read it".to_owned(),
            },
        };
        unreadable_notice(&path, &reason)
    });
    reports.collect()
}

pub(super) fn unreadable_journals(state_dir: &Path) -> impl Iterator<Item = PathBuf> {
    unreadable_paths(state_dir).filter(|path| path.exists())
}

/// Returns the file names for unreadable journals, in order of use.
pub(super) fn unreadable_paths(state_dir: &Path) -> impl Iterator<Item = PathBuf> {
    (0..100).map(|number| match number {
        0 => state_dir.join("journal.unreadable"),
        number => state_dir.join(format!("journal.unreadable.{number}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::DurableError;

    #[test]
    fn missing_permission_is_one_line_that_names_the_directory() {
        let error = |kind: io::ErrorKind| {
            StoreError::File(DurableError {
                action: "read",
                path: "/state/journal".into(),
                source: kind.into(),
            })
        };
        let directory = Path::new("/state");
        assert_eq!(
            unchecked_notice(directory, &error(io::ErrorKind::PermissionDenied)),
            "cannot check for interrupted changes in /state; run as root to include them"
        );
        let other = unchecked_notice(directory, &error(io::ErrorKind::FileTooLarge));
        assert!(other.starts_with("cannot read /state/journal"), "{other}");
    }
}
