//! Interrupted changes in a state directory, for processes that do not hold its lock.

use std::io;
use std::path::{Path, PathBuf};

use octavo_files::journal;
use octavo_planner::reconcile::{ApplyRecord, ApplyRecordEntry};
use octavo_toolkit::error::chain;

use super::{MAX_JOURNAL_BYTES, StoreError, read};

/// The interrupted changes of a state directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interrupted {
    /// The journal.
    pub record: Option<ApplyRecord>,
    /// Unreadable journals, each with its path and the reason.
    pub unreadable: Vec<String>,
}

impl Interrupted {
    /// Returns every interrupted change and unreadable journal as a message.
    pub fn notices(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let entries = self.record.iter().flat_map(|record| &record.devices);
        for entry in entries {
            let ApplyRecordEntry {
                plan, layout, pci, ..
            } = entry;
            all.push(format!(
                "plan {plan} (layout {layout}) was interrupted on the GPU at {pci}: unless a process applies it now, the next \
                `octavo apply` finishes it or brings back what the GPU had, whatever layout is applied"
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

/// Reads the interrupted changes in `folder`, including an apply that is currently running. Does not need the lock.
pub fn interrupted(folder: &Path) -> Interrupted {
    let path = folder.join("journal");
    let mut found = Interrupted {
        record: None,
        unreadable: unreadable_notices(folder),
    };
    match read(&path, MAX_JOURNAL_BYTES) {
        Ok(None) => {}
        Err(error) => found.unreadable.push(unchecked_notice(folder, &error)),
        Ok(Some(bytes)) => match journal::parse(&bytes) {
            Ok(record) => found.record = Some(record),
            Err(reason) => found.unreadable.push(format!(
                "cannot read the journal {} ({}); the next apply sets it aside",
                path.display(),
                chain(&reason)
            )),
        },
    }
    found
}

/// Reports a journal whose bytes cannot be read. Without root this is the normal case, because the directory is
/// private.
fn unchecked_notice(folder: &Path, error: &StoreError) -> String {
    if let StoreError::File { source, .. } = error
        && source.kind() == io::ErrorKind::PermissionDenied
    {
        let folder = folder.display();
        return format!(
            "cannot check for interrupted changes in {folder}; run as root to include them"
        );
    }
    chain(error)
}

/// Reports a journal that was set aside.
fn unreadable_notice(path: &Path, reason: &str) -> String {
    format!(
        "the journal could not be read ({reason}): it is kept as {}. A GPU may be left between two layouts: compare `octavo inspect` \
        with the layout that it should have, and then discard this file with `octavo apply --forget`",
        path.display()
    )
}

pub(super) fn unreadable_notices(folder: &Path) -> Vec<String> {
    let reports = unreadable_journals(folder).map(|path| {
        let reason = match read(&path, MAX_JOURNAL_BYTES) {
            Err(error) => chain(&error),
            Ok(bytes) => match journal::parse(&bytes.unwrap_or_default()) {
                Err(reason) => chain(&reason),
                Ok(_) => "an earlier version could not read it".to_owned(),
            },
        };
        unreadable_notice(&path, &reason)
    });
    reports.collect()
}

pub(super) fn unreadable_journals(folder: &Path) -> impl Iterator<Item = PathBuf> {
    unreadable_paths(folder).filter(|path| path.exists())
}

/// Returns the file names for unreadable journals, in order of use.
pub(super) fn unreadable_paths(folder: &Path) -> impl Iterator<Item = PathBuf> {
    (0..100).map(|number| match number {
        0 => folder.join("journal.unreadable"),
        number => folder.join(format!("journal.unreadable.{number}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_permission_is_one_line_that_names_the_directory() {
        let error = |kind: io::ErrorKind| StoreError::File {
            action: "read",
            path: "/state/journal".into(),
            source: kind.into(),
        };
        let folder = Path::new("/state");
        assert_eq!(
            unchecked_notice(folder, &error(io::ErrorKind::PermissionDenied)),
            "cannot check for interrupted changes in /state; run as root to include them"
        );
        let other = unchecked_notice(folder, &error(io::ErrorKind::FileTooLarge));
        assert!(other.starts_with("cannot read /state/journal"), "{other}");
    }
}
