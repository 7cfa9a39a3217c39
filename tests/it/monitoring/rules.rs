//! The alerts, parsed and evaluated by Prometheus's own tool.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::{read, root, rules};
use crate::promtool;

const CASES: &str = include_str!("alerts.yaml");

pub(super) fn alerts() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&read(&rules())).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    let of = |group: &Value| group["rules"].as_array().unwrap().clone();
    groups.iter().flat_map(of).collect()
}

fn name(alert: &Value) -> &str {
    alert["alert"].as_str().unwrap()
}

#[test]
fn each_alert_fires_when_expected_and_at_no_other_time() {
    promtool::run(&["check", "rules", rules().to_str().unwrap()]);
    let directory = tempfile::tempdir().unwrap();
    let cases = directory.path().join("cases.yaml");
    fs::write(&cases, CASES.replace("RULES", rules().to_str().unwrap())).unwrap();
    promtool::run(&["test", "rules", cases.to_str().unwrap()]);
}

#[test]
fn each_alert_has_a_firing_and_a_silent_case() {
    let cases: Value = serde_saphyr::from_str(CASES).unwrap();
    let mut fires = BTreeSet::new();
    let mut is_quiet = BTreeSet::new();
    let tests = cases["tests"].as_array().unwrap();
    let requested = tests.iter().filter_map(|test| test["promql_expr_test"].as_array());
    for requested in requested.flatten() {
        let (_, rest) = requested["expr"].as_str().unwrap().split_once("alertname=\"").unwrap();
        let alert = rest.split('"').next().unwrap().to_owned();
        match requested["exp_samples"].as_array() {
            Some(samples) if !samples.is_empty() => fires.insert(alert),
            _ => is_quiet.insert(alert),
        };
    }
    let all: BTreeSet<String> = alerts().iter().map(|alert| name(alert).to_owned()).collect();
    assert_eq!((&fires, &is_quiet), (&all, &all));
}

#[test]
fn each_alert_has_severity_remedy_and_link() {
    let page = read(&root().join("docs/operations/monitoring.md"));
    for alert in alerts() {
        let name = name(&alert);
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(["info", "warning", "critical"].contains(&severity), "{name}");
        let notes = &alert["annotations"];
        assert!(notes["summary"].as_str().is_some_and(|text| text.len() > 10), "{name}");
        let anchor = format!("docs/operations/troubleshooting.md#{}.", name.to_lowercase());
        let description = notes["description"].as_str().unwrap();
        assert!(description.ends_with(&anchor), "{name}: {description}");
        let row = format!("| `{name}` | {severity} |");
        assert!(page.contains(&row), "docs/operations/monitoring.md has no line {row}");
    }
    assert_eq!(page.matches("| `Octavo").count(), alerts().len());
}
