//! The requirements of types, profiles and usage: each row has a test whose name starts with its number.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::root;

/// The rows. Source: the requirements of the aggregator's users, as of 2026-11; described in `docs/contribute/requirements.md`.
const ROWS: [&str; 25] = [
    "REQ-001", "REQ-002", "REQ-003", "REQ-004", "REQ-005", "REQ-006", "REQ-007", "REQ-008",
    "REQ-009", "REQ-010", "REQ-011", "NFR-001", "NFR-002", "NFR-003", "AC-001", "AC-002", "AC-003",
    "AC-004", "AC-005", "AC-006", "AC-007", "AC-008", "AC-009", "AC-010", "AC-011",
];

/// Prefix of the names of a row's tests.
fn beginning(row: &str) -> String {
    format!("{}_", row.to_lowercase().replace('-', "_"))
}

/// Names of the tests in a file: functions under `#[test]` or a similar attribute.
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

fn collect(directory: &Path, found: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
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

/// All tests with their files.
fn all() -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for directory in ["src", "crates", "tests/it", "tests/it-cluster"] {
        collect(&root().join(directory), &mut found);
    }
    found
}

#[test]
fn every_requirement_row_has_a_test_with_its_number() {
    let all = all();
    assert!(all.len() > 1000, "the scan found {} tests", all.len());
    let without: Vec<&&str> = ROWS
        .iter()
        .filter(|row| !all.keys().any(|name| name.starts_with(&beginning(row))))
        .collect();
    assert!(without.is_empty(), "{without:?} have no test");
}

/// The part of `page` below the heading of `row`, up to the next heading.
fn section<'a>(page: &'a str, row: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("\n### {row}: "))?;
    Some(rest.split("\n#").next().unwrap_or(rest))
}

#[test]
fn requirements_page_names_existing_tests_for_each_row() {
    let page = fs::read_to_string(root().join("docs/contribute/requirements.md")).unwrap();
    let all = all();
    let mut wrong = Vec::new();
    for row in ROWS {
        let Some(section) = section(&page, row) else {
            wrong.push(format!("{row} is not on the page"));
            continue;
        };
        // List items: the name of a test, and its file.
        let mut of_the_row = 0;
        for item in section.split("\n- ").skip(1) {
            let words: Vec<&str> = item.split('`').skip(1).step_by(2).collect();
            let [name, file] = words[..] else {
                wrong.push(format!("{row}: {item:?} is not a test and its file"));
                continue;
            };
            of_the_row += usize::from(name.starts_with(&beginning(row)));
            let place = all.get(name).and_then(|place| place.to_str());
            if place != Some(file) {
                wrong.push(format!("{row}: {name} is not in {file:?} but in {place:?}"));
            }
        }
        if of_the_row == 0 {
            wrong.push(format!("{row}: no test of its name is named"));
        }
    }
    let rows = page.lines().filter(|line| line.starts_with("### ")).count();
    assert_eq!(rows, ROWS.len(), "requirements on the page");
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
