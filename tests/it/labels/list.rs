//! `docs/reference/label-list.md` has exactly the written labels.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::reference::{self, GROUPS};
use crate::golden::golden;

/// Labels that no golden machine has.
const RARE: &[&str] = &[
    "octavo.dev/type-source",
    "octavo.dev/layout-state",
    "nvidia.com/gfd.timestamp",
    "nvidia.com/gpu.clique",
    "nvidia.com/vgpu.host-driver-branch",
    "nvidia.com/vgpu.host-driver-version",
];

const LONGEST_LINE: usize = 160;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(directory: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, end, found);
        } else if path.extension().is_some_and(|one| one == end) {
            found.push(path);
        }
    }
}

fn listed() -> BTreeSet<&'static str> {
    GROUPS.iter().flat_map(|group| group.labels).map(|label| label.key).collect()
}

/// The key as it is listed: a type or profile in it becomes a placeholder.
fn generalized(key: &str) -> String {
    if key.starts_with("type.octavo.dev/") {
        return "type.octavo.dev/<type>".to_owned();
    }
    let Some(rest) = key.strip_prefix("nvidia.com/mig-") else {
        return key.to_owned();
    };
    let attributes =
        listed().into_iter().filter_map(|key| key.strip_prefix("nvidia.com/mig-<profile>"));
    let found =
        attributes.filter(|attribute| rest.ends_with(attribute)).max_by_key(|one| one.len());
    format!("nvidia.com/mig-<profile>{}", found.unwrap_or(rest))
}

/// Keys of all label golden files in the form of the list.
fn written() -> BTreeSet<String> {
    let mut found = Vec::new();
    files(&root().join("tests/golden/labels"), "labels", &mut found);
    files(&root().join("demo/expected"), "labels", &mut found);
    assert!(found.len() > 50, "{found:?}");
    let texts = found.iter().map(|path| fs::read_to_string(path).unwrap());
    let keys = texts.flat_map(|text| {
        let keys = text.lines().filter_map(|line| line.split_once('='));
        keys.map(|(key, _)| generalized(key)).collect::<Vec<_>>()
    });
    keys.collect()
}

#[test]
fn label_list_matches_code() {
    let page = reference::page();
    for line in page.lines().filter(|line| line.starts_with('|')) {
        assert!(line.chars().count() <= LONGEST_LINE, "{line}");
    }
    golden("../../docs/reference/label-list.md", &page);
}

#[test]
fn label_list_has_exactly_the_written_labels() {
    let (listed, written) = (listed(), written());
    for key in &written {
        assert!(listed.contains(key.as_str()), "{key} is not listed");
    }
    let mut sources = Vec::new();
    files(&root().join("crates/node/src/labels"), "rs", &mut sources);
    let sources: String = sources.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    for key in listed {
        let is_rare = RARE.contains(&key);
        assert_eq!(written.contains(key), !is_rare, "{key}");
        assert!(
            !is_rare || sources.contains(&format!("\"{key}\"")),
            "{key} is not in the compiler"
        );
    }
}
