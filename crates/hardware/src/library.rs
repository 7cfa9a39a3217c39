//! Search paths of `libnvidia-ml.so.1`. Pure except for checks whether a file exists.
//!
//! The kernel driver and the library must be of the same build, so the search covers the directories where drivers are
//! installed: the host's own, a driver container's, GKE's. `LD_LIBRARY_PATH` is deliberately not searched, because any
//! process in a container can set it.

use std::path::{Path, PathBuf};

use crate::error::LoadError;

/// The library's file name.
pub const LIBRARY_NAME: &str = "libnvidia-ml.so.1";

/// Library directories below a root, in order of precedence.
const DIRECTORIES: [&str; 6] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "lib",
];

/// Returns all candidate paths below `roots`, in order of precedence.
pub fn candidates(roots: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    roots.iter().flat_map(|root| {
        DIRECTORIES.iter().map(move |directory| root.join(directory).join(LIBRARY_NAME))
    })
}

/// Returns the files to try. If `chosen` is set, it is the only one. Otherwise the dynamic loader's own search, which
/// uses the system's cache, comes last.
pub(crate) fn find(chosen: Option<&Path>, roots: &[PathBuf]) -> Result<Vec<PathBuf>, LoadError> {
    if let Some(path) = chosen {
        return if path.exists() { Ok(vec![path.to_owned()]) } else { Err(not_found(path)) };
    }
    let there = candidates(roots).filter(|path| path.exists());
    Ok(there.chain([PathBuf::from(LIBRARY_NAME)]).collect())
}

fn not_found(path: &Path) -> LoadError {
    let words = |part: Option<&Path>| {
        part.filter(|part| !part.as_os_str().is_empty())
            .unwrap_or_else(|| Path::new("."))
            .display()
            .to_string()
    };
    LoadError::NotFound {
        name: words(path.file_name().map(Path::new)),
        searched: words(path.parent()),
    }
}

/// Returns the searched directories for a message.
pub(crate) fn describe_search_path(roots: &[PathBuf]) -> String {
    let mut places: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
    places.push("the default search path".to_owned());
    places.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_root_is_searched_in_the_order_given() {
        let roots = [PathBuf::from("/"), PathBuf::from("/run/nvidia/driver")];
        let all: Vec<PathBuf> = candidates(&roots).collect();
        assert_eq!(all.len(), 12);
        assert_eq!(all.first().unwrap(), Path::new("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"));
        assert_eq!(all.last().unwrap(), Path::new("/run/nvidia/driver/lib/libnvidia-ml.so.1"));
    }

    #[test]
    fn existing_files_are_tried_before_the_dynamic_loader() {
        let root = tempfile::tempdir().unwrap();
        let there = root.path().join("usr/lib64/libnvidia-ml.so.1");
        std::fs::create_dir_all(there.parent().unwrap()).unwrap();
        std::fs::write(&there, "").unwrap();
        let found = find(None, &[root.path().to_owned()]).unwrap();
        assert_eq!(found, [there, PathBuf::from(LIBRARY_NAME)]);
    }

    #[test]
    fn configured_library_is_the_only_candidate() {
        let error = find(Some(Path::new("/nowhere/libfoo.so")), &[PathBuf::from("/")]).unwrap_err();
        assert_eq!(error.to_string(), "no NVML library libfoo.so (looked in /nowhere)");
    }
}
