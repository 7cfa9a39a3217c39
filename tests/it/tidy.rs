//! The rules of `ARCHITECTURE.md` as tests: purity, owners of tasks, unsafe code, length of files. Cargo enforces the
//! dependencies between crates.
//!
//! The scan is textual: it sees what a reader sees and needs no compiler plug-in.

mod cycles;
mod tokens;
mod user_text;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::root;

/// Crates without I/O, clock and log.
const PURE: &[&str] = &[
    "model",
    "planner",
    "node",
    "history",
    "demand",
    "dra",
    "fleet",
    "generate",
    "policy",
    "cost-report",
    "simulation-report",
];

/// Phrases that must not occur in a pure crate. Modules of `std` must be imported one by one, so that this list detects them.
const IMPURE: &[&str] = &[
    "std::{",
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "std::thread",
    "std::io",
    "Instant",
    "SystemTime",
    "tokio",
    "tracing",
    "async fn",
    "Timestamp::now",
    "Zoned::now",
    "nix::",
    "println!",
];

/// Names that occur in these places only.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("unsafe ", &["crates/hardware/src/nvml/"]),
    ("nvml_wrapper", &["crates/hardware/src/nvml/"]),
    ("octavo_hardware::nvml", &["crates/hardware/src/nvml/", "src/bin/"]),
    ("procfs::", &["crates/hardware/src/"]),
    ("std::env::", &["crates/settings/src/", "src/agent/src/settings", "src/cli/src/settings"]),
    ("kube::", &["crates/kube/src/"]),
];

/// Maximum lines of a file before its tests.
const MAX_LINES: usize = 500;

#[test]
fn architecture_page_lists_every_crate_with_its_dependencies() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows: BTreeMap<String, BTreeSet<String>> = page
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let name = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
            let name = name.rsplit_once('/')?.1;
            let uses = cells.get(3)?.split(',').map(str::trim);
            let uses = uses.filter(|name| *name != "-").map(ToOwned::to_owned);
            Some((name.to_owned(), uses.collect()))
        })
        .collect();
    let mut wrong = Vec::new();
    for manifest in manifests() {
        let text = fs::read_to_string(&manifest).unwrap();
        let manifest: toml::Table = text.parse().unwrap();
        let name = manifest["package"]["name"].as_str().unwrap();
        let name = name.trim_start_matches("octavo-");
        let Some(listed) = rows.get(name) else {
            wrong.push(format!("ARCHITECTURE.md does not list the crate {name}"));
            continue;
        };
        let used = own_dependencies(&manifest);
        let allowed = reachable(listed, &rows);
        for extra in used.difference(&allowed) {
            wrong.push(format!("{name} uses {extra}, which the page does not list"));
        }
        for unused in listed.difference(&used) {
            wrong.push(format!("the page lists {unused}, which {name} does not use"));
        }
    }
    assert_none(&wrong);
}

#[test]
fn pure_crates_have_no_side_effects() {
    let mut wrong = Vec::new();
    for name in PURE {
        let sources = sources(&format!("crates/{name}/src"));
        for source in &sources {
            for (number, line) in source.code() {
                if let Some(word) = IMPURE.iter().find(|word| line.contains(*word)) {
                    wrong.push(format!("{}:{number}: {word:?} in pure code", source.path));
                }
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn restricted_names_stay_in_their_place() {
    let mut wrong = Vec::new();
    for source in product_sources() {
        for (number, line) in source.code() {
            for (name, places) in ONLY_IN {
                let is_in_place = places.iter().any(|place| source.path.starts_with(place));
                if has_name(line, name) && !is_in_place {
                    wrong.push(format!("{}:{number}: {name:?} belongs in {places:?}", source.path));
                }
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn every_read_is_bounded() {
    let mut wrong = Vec::new();
    let places = ["crates/toolkit/src/files.rs", "crates/model/build.rs"];
    for source in product_sources() {
        let is_test = source.path.contains("/tests/") || source.path.ends_with("/tests.rs");
        if is_test || places.contains(&source.path.as_str()) {
            continue;
        }
        for (number, line) in source.code() {
            let reads = ["read_to_end(", "read_to_string(", "fs::read("];
            if reads.iter().any(|name| line.contains(name)) {
                wrong.push(format!("{}:{number}: use octavo_toolkit::files", source.path));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn every_task_has_an_owner() {
    let mut wrong = Vec::new();
    for source in product_sources() {
        if source.path.contains("/tests/") {
            continue;
        }
        for (number, line) in source.code() {
            // Without its handle a panic of the task goes unnoticed, and shutdown does not wait for it.
            if line.trim().starts_with("tokio::spawn(") || line.contains("drop(tokio::spawn(") {
                wrong.push(format!("{}:{number}: give the task to a JoinSet", source.path));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn files_are_short_and_begin_with_a_comment() {
    let mut wrong = Vec::new();
    for source in product_sources().chain(sources("tests")) {
        let lines = source.before_tests().count();
        if lines > MAX_LINES {
            wrong.push(format!("{}: {lines} lines before its tests", source.path));
        }
        if !source.text.starts_with("//!") {
            wrong.push(format!("{}: does not begin with a module comment", source.path));
        }
    }
    assert_none(&wrong);
}

#[test]
fn no_source_has_unfinished_code_or_disabled_test() {
    let unfinished = ["todo!(", "unimplemented!(", "#[ignore", "FIXME", "XXX", "dbg!("];
    let mut wrong = Vec::new();
    for source in product_sources().chain(sources("tests")) {
        // This file names the words in order to forbid them.
        if source.path.ends_with("it/tidy.rs") {
            continue;
        }
        for (number, line) in source.text.lines().enumerate() {
            if let Some(word) = unfinished.iter().find(|word| line.contains(*word)) {
                wrong.push(format!("{}:{}: {word}", source.path, number + 1));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn architecture_page_stays_readable() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let lines = page.lines().count();
    assert!(lines <= 150, "ARCHITECTURE.md has {lines} lines, 150 is the limit");
}

struct Source {
    /// From the root, with forward slashes.
    path: String,
    text: String,
}

impl Source {
    /// Lines before the tests.
    fn before_tests(&self) -> impl Iterator<Item = &str> {
        self.text.lines().take_while(|line| *line != "#[cfg(test)]")
    }

    /// Numbered lines before the tests, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.before_tests().enumerate().filter_map(|(index, line)| {
            let code = line.split("//").next().unwrap_or_default();
            (!code.trim().is_empty()).then_some((index + 1, code))
        })
    }
}

/// Returns whether `line` has `name` and not only as the end of a longer name.
fn has_name(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// The sources of the programs and their libraries.
fn product_sources() -> impl Iterator<Item = Source> {
    sources("src").into_iter().chain(sources("crates"))
}

/// The manifests of all crates except the simulator and the root.
fn manifests() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["src", "crates"]
        .into_iter()
        .flat_map(|directory| fs::read_dir(root().join(directory)).unwrap())
        .map(|entry| entry.unwrap().path().join("Cargo.toml"))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    assert!(found.len() > 10, "the scan found {} crates", found.len());
    found
}

/// The crates in `names` and all that they use.
fn reachable(
    names: &BTreeSet<String>,
    rows: &BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<String> {
    let mut found = names.clone();
    for name in names {
        if let Some(uses) = rows.get(name) {
            found.extend(reachable(uses, rows));
        }
    }
    found
}

/// The crates of this workspace that a shipped program needs for this one.
fn own_dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    let names = manifest["dependencies"].as_table().unwrap().keys();
    names.filter_map(|name| name.strip_prefix("octavo-")).map(ToOwned::to_owned).collect()
}

fn sources(directory: &str) -> Vec<Source> {
    let paths = files(directory).into_iter().filter(|path| has_extension(path, "rs"));
    let found: Vec<Source> = paths.map(|path| Source { text: read(&path), path }).collect();
    assert!(!found.is_empty(), "no source under {directory}");
    found
}

/// The files under a directory in order, from the root, with forward slashes.
fn files(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(directory)).unwrap().map(|entry| entry.unwrap().path());
    let mut found = Vec::new();
    for path in entries {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
        if path.is_dir() {
            found.extend(files(name));
        } else {
            found.push(name.to_owned());
        }
    }
    found.sort();
    found
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
