//! What users asked for of types, profiles and usage: each row has a test with the row's number at the beginning of its name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The rows. Source: the requirements of the aggregator's users, as of 2026-11; `docs/requirements.md` says what they ask for.
const ROWS: [&str; 25] = [
    "REQ-001", "REQ-002", "REQ-003", "REQ-004", "REQ-005", "REQ-006", "REQ-007", "REQ-008",
    "REQ-009", "REQ-010", "REQ-011", "NFR-001", "NFR-002", "NFR-003", "AC-001", "AC-002", "AC-003",
    "AC-004", "AC-005", "AC-006", "AC-007", "AC-008", "AC-009", "AC-010", "AC-011",
];

/// How names of a row's tests begin.
fn beginning(row: &str) -> String {
    format!("{}_", row.to_lowercase().replace('-', "_"))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The tests of a file: functions under `#[test]` or an attribute like it.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if line.starts_with("#[") {
            is_test |= line.contains("test]") || line.contains("test(");
            return None;
        }
        let (_, name) = line.split_once("fn ")?;
        let end = name.find('(')?;
        std::mem::take(&mut is_test).then(|| &name[..end])
    })
}

fn collect(folder: &Path, found: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let place = path.strip_prefix(root()).unwrap();
            let names = tests(&text).map(|name| (name.to_owned(), place.to_owned()));
            found.extend(names);
        }
    }
}

/// All tests there are, and where.
fn all() -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for folder in ["src", "crates", "tests/it", "tests/it-cluster"] {
        collect(&root().join(folder), &mut found);
    }
    found
}

#[test]
fn every_row_that_users_asked_for_has_a_test_of_its_name() {
    let all = all();
    assert!(all.len() > 1000, "the scan found {} tests", all.len());
    let without: Vec<&&str> = ROWS
        .iter()
        .filter(|row| !all.keys().any(|name| name.starts_with(&beginning(row))))
        .collect();
    assert!(without.is_empty(), "{without:?} have no test");
}

#[test]
fn the_page_of_requirements_names_for_each_row_tests_that_are_there() {
    let page = fs::read_to_string(root().join("docs/requirements.md")).unwrap();
    let all = all();
    let mut wrong = Vec::new();
    for row in ROWS {
        let head = format!("| {row} |");
        let Some(line) = page.lines().find(|line| line.starts_with(&head)) else {
            wrong.push(format!("{row} is not in the page"));
            continue;
        };
        let (_, shown) = line.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        // Names, and after each or several of them the file they are in.
        let words: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
        let mut of_the_row = 0;
        for (at, name) in words.iter().enumerate() {
            if name.contains('/') {
                continue;
            }
            of_the_row += usize::from(name.starts_with(&beginning(row)));
            let file = words[at..].iter().find(|word| word.contains('/'));
            let place = all.get(*name).and_then(|place| place.to_str());
            if place.is_none() || place != file.copied() {
                wrong.push(format!("{row}: {name} is not in {file:?} but in {place:?}"));
            }
        }
        if of_the_row == 0 {
            wrong.push(format!("{row}: no test of its name is named"));
        }
    }
    let rows = page.lines().filter(|line| line.starts_with("| ")).count();
    assert_eq!(rows, ROWS.len() + 1, "rows of the page, and their head");
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
