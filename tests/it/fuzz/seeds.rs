//! Seeds: fixtures, golden files and inputs that once violated a property.

use std::fs;
use std::path::{Path, PathBuf};

use octavo_model::inventory::Inventory;

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The contents of these files of the repository, and of the files in these directories.
pub(super) fn files(paths: &[&str]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for path in paths {
        let path = root().join(path);
        let mut files = if path.is_dir() { entries(&path) } else { vec![path] };
        files.sort();
        all.extend(files.iter().filter(|file| file.is_file()).map(|file| fs::read(file).unwrap()));
    }
    assert!(!all.is_empty(), "{paths:?}");
    all
}

/// Inputs of earlier runs that violated a property of the target.
pub(super) fn violations(target: &str) -> Vec<Vec<u8>> {
    let directory = root().join("tests/fixtures/fuzz").join(target);
    if directory.is_dir() { files(&[directory.to_str().unwrap()]) } else { Vec::new() }
}

/// A temporary directory in memory, if possible: the targets write files for each input.
pub(super) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Recorded machines of several vendors.
pub(super) fn machines() -> Vec<Inventory> {
    let mut paths = entries(&root().join("tests/golden/machines"));
    paths.sort();
    let sysfs = paths.iter().map(|path| path.join("inventory.json")).filter(|path| path.exists());
    let texts = sysfs.map(|path| fs::read(path).unwrap());
    let all = texts.chain(files(&["tests/golden/cli/machines"]));
    all.map(|text| octavo_files::inventory::parse(&String::from_utf8(text).unwrap()).unwrap())
        .collect()
}
