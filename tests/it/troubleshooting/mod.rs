//! What `docs/troubleshooting.md` says that Octavo says, brought about with the real programs and held against what they do say.
//!
//! A row of the document has an id and quotations; a test with that id makes the trouble and finds each quotation where the
//! row says it is. So neither can change without the other.

mod devices;
mod files;
mod fleet;
mod given;
mod layouts;
mod row;
mod usage;
mod users;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::row::{document, id};

/// Alerts whose descriptions point into the document, as the chart gives them to Prometheus.
fn alerts() -> Vec<String> {
    let file = "deploy/chart/octavo/files/octavo-rules.yaml";
    let rules = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let rules: Value = serde_saphyr::from_str(&rules).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    let all = groups.flat_map(|group| group["rules"].as_array().unwrap());
    all.map(|rule| rule["alert"].as_str().unwrap().to_owned())
        .collect()
}

/// Ids that tests here name, each as often as it is.
fn tested() -> Vec<String> {
    let mut found = Vec::new();
    for binary in ["it", "it-cluster"] {
        let folder = format!("tests/{binary}/troubleshooting");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for entry in fs::read_dir(folder).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            let named = text.split("Row::of(\"").skip(1);
            found.extend(named.map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
    }
    // The one in the line above.
    found.retain(|id| !id.ends_with('\\'));
    found.sort();
    found
}

#[test]
fn every_row_has_a_test_and_every_test_a_row() {
    let document = document();
    let mut rows: Vec<&str> = document.lines().filter_map(id).collect();
    rows.sort_unstable();
    assert_eq!(rows, tested());
    let once: BTreeSet<&str> = rows.iter().copied().collect();
    assert_eq!(once.len(), rows.len(), "an id is there twice: {rows:?}");
}

#[test]
fn every_row_of_a_table_is_one_that_is_tested() {
    // Of tables with these heads each row has an id, so that nothing is said in them that nobody looked at.
    let document = document();
    let mut within = false;
    for line in document.lines() {
        if line.starts_with("| what you see |") {
            within = true;
        } else if !line.starts_with('|') {
            within = false;
        } else if within && !line.starts_with("|---") {
            assert!(id(line).is_some(), "this row has no id: {line}");
        }
    }
}

#[test]
fn each_alert_has_its_place() {
    let document = document();
    let alerts = alerts();
    assert!(alerts.len() >= 16, "{alerts:?}");
    for alert in alerts {
        let anchor = format!("<a id=\"{}\"></a>", alert.to_lowercase());
        assert_eq!(document.matches(&anchor).count(), 1, "{anchor}");
    }
}
