//! A file of hardware profiles, for clusters without these custom resources. It is reloaded when it is replaced.
//!
//! As with layouts, an invalid file at startup is an error. If the file becomes invalid later, the last valid profiles
//! stay in use and every response about them reports that.

use std::path::Path;
use std::sync::Arc;

use octavo_fleet::hardware_profile::HardwareProfile;

use super::reloading_file::{ConfigFileError, ReloadingFile, read_text};
use crate::hardware_profiles::parse;

/// Size limit. A file with a thousand profiles is smaller.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The profiles of one file.
#[derive(Debug)]
pub struct HardwareProfileFile(ReloadingFile<Arc<Vec<HardwareProfile>>>);

impl HardwareProfileFile {
    /// Opens the profiles in `path`.
    pub fn open(path: &Path) -> Result<Self, ConfigFileError> {
        ReloadingFile::open(path, "profiles", read).map(Self)
    }

    /// Returns the profiles of the file, or the last valid ones together with the reason why they may be outdated.
    pub fn current(&self) -> (Arc<Vec<HardwareProfile>>, Option<String>) {
        self.0.current()
    }
}

fn read(path: &Path) -> Result<Arc<Vec<HardwareProfile>>, ConfigFileError> {
    let profiles = parse(&read_text("profiles in", path, MAX_FILE_BYTES)?);
    profiles
        .map(Arc::new)
        .map_err(|source| ConfigFileError::InvalidProfiles { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: infrastructure.opendatahub.io/v1\nkind: HardwareProfile\n";

    #[test]
    fn replaced_file_is_reloaded_and_invalid_file_keeps_last_profiles() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("profiles.yaml");
        let replace = |text: &str| {
            let draft = directory.path().join("draft");
            std::fs::write(&draft, text).unwrap();
            std::fs::rename(draft, &path).unwrap();
        };
        replace(&format!("{HEAD}metadata: {{name: a, namespace: b}}\n"));
        let profiles = HardwareProfileFile::open(&path).unwrap();
        assert_eq!(profiles.current().0.len(), 1);
        replace(&format!("{HEAD}metadata: {{name: a}}\n---\n{HEAD}metadata: {{name: b}}\n"));
        assert_eq!(profiles.current().0.len(), 2);
        assert_eq!(profiles.current().1, None);
        replace("kind: Pod\n");
        let (current, wrong) = profiles.current();
        assert_eq!(current.len(), 2);
        let wrong = wrong.unwrap();
        assert!(wrong.contains("document 1 is not a HardwareProfile"), "{wrong}");
        assert!(HardwareProfileFile::open(&path).is_err());
        let missing = HardwareProfileFile::open(&directory.path().join("none")).unwrap_err();
        assert!(missing.to_string().contains("cannot read the profiles"), "{missing}");
    }
}
