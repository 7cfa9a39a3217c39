//! A file system as text, `tests/fixtures/sysfs/*.tree`, created in a directory.
//!
//! One entry per line: `path = text`, with `\n` and `\\` in the text, for a file; `path -> target` for a symbolic link;
//! `path/` for an empty directory. A line that begins with `#` names the source of the values. Directories are created
//! as needed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Creates the entries of a text below a directory.
pub(crate) fn write_tree(root: &Path, text: &str) {
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some((path, target)) = line.split_once(" -> ") {
            symlink(target, above(root, path)).unwrap();
        } else if let Some((path, content)) = line.split_once(" = ") {
            let content = content.replace("\\n", "\n").replace("\\\\", "\\");
            fs::write(above(root, path), content).unwrap();
        } else if let Some(directory) = line.strip_suffix('/') {
            fs::create_dir_all(root.join(directory)).unwrap();
        } else {
            panic!("{line:?} is not an entry of a tree");
        }
    }
}

/// A machine of `tests/fixtures/sysfs`, in a temporary directory.
pub(crate) fn machine(name: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let file = super::root().join(format!("tests/fixtures/sysfs/{name}.tree"));
    write_tree(directory.path(), &fs::read_to_string(file).unwrap());
    directory
}

/// The path of an entry. Creates its directory.
fn above(root: &Path, path: &str) -> std::path::PathBuf {
    let place = root.join(path);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    place
}
