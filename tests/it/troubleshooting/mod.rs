//! Problems in `docs/operations/troubleshooting.md`, reproduced with the real programs.
//!
//! Each problem of the page has an id and quotations of Octavo's output. The test with that id reproduces the problem
//! and finds each quotation in the place that the page names, so that page and programs cannot diverge.

mod device_plugin;
mod devices;
mod files;
mod fleet;
mod layouts;
mod problem;
mod usage;
mod users;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::problem::{Quotation, document, id, quotations, sections};

/// Names of the alerts in the chart's rules, whose descriptions link to the page.
fn alerts() -> Vec<String> {
    let file = "deploy/chart/octavo/files/octavo-rules.yaml";
    let rules = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let rules: Value = serde_saphyr::from_str(&rules).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    let all = groups.flat_map(|group| group["rules"].as_array().unwrap());
    all.map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect()
}

/// Ids in the tests, with duplicates.
fn tested() -> Vec<String> {
    let mut found = Vec::new();
    for binary in ["it", "it-cluster"] {
        let directory = format!("tests/{binary}/troubleshooting");
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
        for entry in fs::read_dir(directory).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            let named = text.split("Problem::documented(\"").skip(1);
            found.extend(named.map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
    }
    // Excludes the pattern in this function.
    found.retain(|id| !id.ends_with('\\'));
    found.sort();
    found
}

#[test]
fn every_problem_has_a_test_and_every_test_a_problem() {
    let document = document();
    let mut problems: Vec<&str> = document.lines().filter_map(id).collect();
    problems.sort_unstable();
    assert_eq!(problems, tested());
    let unique: BTreeSet<&str> = problems.iter().copied().collect();
    assert_eq!(unique.len(), problems.len(), "duplicate id: {problems:?}");
}

#[test]
fn every_quotation_belongs_to_a_tested_problem() {
    let document = document();
    for section in sections(&document) {
        let ids = section.iter().filter_map(|line| id(line)).count();
        let has_quotations = section.iter().any(|line| line.contains("Octavo reports:"));
        assert_eq!(ids, usize::from(has_quotations), "{section:#?}");
        if ids > 0 {
            for text in quotations(&section) {
                Quotation::read(text);
            }
        }
    }
}

#[test]
fn each_alert_has_an_anchor() {
    let document = document();
    let alerts = alerts();
    assert!(alerts.len() >= 16, "{alerts:?}");
    for alert in alerts {
        let anchor = format!("<a id=\"{}\"></a>", alert.to_lowercase());
        assert_eq!(document.matches(&anchor).count(), 1, "{anchor}");
    }
}
