//! Programs of other projects, built from the pinned Go modules in `tests/peers`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::time_limits::watch;

/// A program of a pinned module.
pub(crate) struct Peer {
    /// The directory under `tests/peers`.
    pub(crate) pinned: &'static str,
    /// The package of the program.
    pub(crate) package: &'static str,
    /// As pinned in the `go.mod` of the directory; part of the cached file's name.
    pub(crate) version: &'static str,
}

impl Peer {
    /// Returns the program from the cache in the user's cache directory, and builds it there if it is missing.
    pub(crate) fn build(&self) -> PathBuf {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(self.pinned);
        let module = fs::read_to_string(directory.join("go.mod")).unwrap();
        assert!(module.contains(self.version), "another one is pinned");
        let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
            || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"),
            PathBuf::from,
        );
        let (_, name) = self.package.rsplit_once('/').unwrap();
        let program = cache.join(format!("octavo/{name}-{}", self.version));
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        watch();
        // Tests that need the same program at the same time wait for one build.
        let lock = fs::File::create(cache.join(format!("octavo/{name}.lock"))).unwrap();
        lock.lock().unwrap();
        if program.is_file() {
            return program;
        }
        let draft = tempfile::NamedTempFile::new_in(program.parent().unwrap()).unwrap();
        let output = Command::new("go")
            .args(["build", "-ldflags=-s -w", "-o"])
            .arg(draft.path())
            .arg(self.package)
            .current_dir(directory)
            .output()
            .unwrap_or_else(|error| panic!("no Go: {error}; `make setup` installs it"));
        assert!(
            output.status.success(),
            "go build failed; it needs the Go module proxy the first time:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        draft.persist(&program).unwrap();
        program
    }
}
