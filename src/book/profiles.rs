//! A file of hardware profiles, for clusters that do not know such objects; read again when it was replaced.
//!
//! As with layouts, a file that is broken at the start is an error of whoever starts the program, and one that breaks later
//! leaves the profiles before in use, and everything that is said of them says so.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use super::catalogue::text;
use super::kept::Kept;
use crate::domain::hardware_profile::HardwareProfile;
use crate::wire::hardware_profiles::{FileError, parse};

/// The profiles of one file.
#[derive(Debug)]
pub struct ProfileBook(Kept<Arc<Vec<HardwareProfile>>, ProfilesError>);

/// Why a file of profiles cannot be used.
#[derive(Debug, Error)]
pub enum ProfilesError {
    /// It cannot be read.
    #[error("cannot read the profiles in {}", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What it says cannot be.
    #[error("cannot use the profiles in {}", .path.display())]
    Wrong {
        /// Which.
        path: PathBuf,
        /// Why.
        source: FileError,
    },
}

impl ProfileBook {
    /// The profiles in `path`.
    pub fn open(path: &Path) -> Result<Self, ProfilesError> {
        Kept::open(path, "profiles", read).map(Self)
    }

    /// The profiles as they are in the file now, or were when it could last be used; and why they may not be what it says now.
    pub fn current(&self) -> (Arc<Vec<HardwareProfile>>, Option<String>) {
        self.0.current()
    }
}

fn read(path: &Path) -> Result<Arc<Vec<HardwareProfile>>, ProfilesError> {
    let text = text(path).map_err(|source| ProfilesError::Read {
        path: path.to_owned(),
        source,
    })?;
    let profiles = parse(&text).map_err(|source| ProfilesError::Wrong {
        path: path.to_owned(),
        source,
    })?;
    Ok(Arc::new(profiles))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: infrastructure.opendatahub.io/v1\nkind: HardwareProfile\n";

    #[test]
    fn a_replaced_file_is_read_again_and_a_broken_one_leaves_what_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profiles.yaml");
        let replace = |text: &str| {
            let draft = folder.path().join("draft");
            std::fs::write(&draft, text).unwrap();
            std::fs::rename(draft, &path).unwrap();
        };
        replace(&format!("{HEAD}metadata: {{name: a, namespace: b}}\n"));
        let book = ProfileBook::open(&path).unwrap();
        assert_eq!(book.current().0.len(), 1);
        replace(&format!(
            "{HEAD}metadata: {{name: a}}\n---\n{HEAD}metadata: {{name: b}}\n"
        ));
        assert_eq!(book.current().0.len(), 2);
        assert_eq!(book.current().1, None);
        replace("kind: Pod\n");
        let (profiles, wrong) = book.current();
        assert_eq!(profiles.len(), 2);
        let wrong = wrong.unwrap();
        assert!(
            wrong.contains("document 1 is no HardwareProfile"),
            "{wrong}"
        );
        assert!(ProfileBook::open(&path).is_err());
        let missing = ProfileBook::open(&folder.path().join("none")).unwrap_err();
        assert!(
            missing.to_string().contains("cannot read the profiles"),
            "{missing}"
        );
    }
}
