//! A file of hardware profiles, for clusters without these custom resources. It is reloaded when it is replaced.
//!
//! As with layouts, an invalid file at startup is an error. If the file becomes invalid later, the last valid profiles
//! stay in use and every response about them reports that.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use octavo_documents::hardware_profiles::{ProfileFileError, parse};
use octavo_fleet::hardware_profile::HardwareProfile;
use thiserror::Error;

use super::catalog::text;
use super::reloading_file::ReloadingFile;

/// The profiles of one file.
#[derive(Debug)]
pub struct HardwareProfileFile(ReloadingFile<Arc<Vec<HardwareProfile>>, HardwareProfileFileError>);

/// Error while loading a file of hardware profiles.
#[derive(Debug, Error)]
pub enum HardwareProfileFileError {
    /// The file cannot be read.
    #[error("cannot read the profiles in {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The content of the file is invalid.
    #[error("cannot use the profiles in {}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The first error in it.
        source: ProfileFileError,
    },
}

impl HardwareProfileFile {
    /// Opens the profiles in `path`.
    pub fn open(path: &Path) -> Result<Self, HardwareProfileFileError> {
        ReloadingFile::open(path, "profiles", read).map(Self)
    }

    /// Returns the profiles of the file, or the last valid ones together with the reason why they may be outdated.
    pub fn current(&self) -> (Arc<Vec<HardwareProfile>>, Option<String>) {
        self.0.current()
    }
}

fn read(path: &Path) -> Result<Arc<Vec<HardwareProfile>>, HardwareProfileFileError> {
    let text = text(path).map_err(|source| HardwareProfileFileError::Read {
        path: path.to_owned(),
        source,
    })?;
    let profiles = parse(&text).map_err(|source| HardwareProfileFileError::Invalid {
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
    fn replaced_file_is_reloaded_and_invalid_file_keeps_last_profiles() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profiles.yaml");
        let replace = |text: &str| {
            let draft = folder.path().join("draft");
            std::fs::write(&draft, text).unwrap();
            std::fs::rename(draft, &path).unwrap();
        };
        replace(&format!("{HEAD}metadata: {{name: a, namespace: b}}\n"));
        let book = HardwareProfileFile::open(&path).unwrap();
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
        assert!(HardwareProfileFile::open(&path).is_err());
        let missing = HardwareProfileFile::open(&folder.path().join("none")).unwrap_err();
        assert!(
            missing.to_string().contains("cannot read the profiles"),
            "{missing}"
        );
    }
}
