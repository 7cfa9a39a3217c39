//! Checks of the dashboard without Grafana: its JSON model and its queries.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use super::{read, root};
use crate::promtool;

fn board() -> Value {
    serde_json::from_str(&read(&root().join("deploy/chart/octavo/files/octavo-dashboard.json")))
        .unwrap()
}

fn panels() -> Vec<Value> {
    let panels = board()["panels"].as_array().unwrap().clone();
    panels.into_iter().filter(|panel| panel["type"] != "row").collect()
}

/// Every query with its legend.
pub(super) fn queries() -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of = |panel: Value| {
        let targets = panel["targets"].as_array().unwrap().clone();
        targets
            .into_iter()
            .map(move |target| (text(&target["expr"]), text(&target["legendFormat"])))
    };
    panels().into_iter().flat_map(of).collect()
}

/// Queries of the dashboard's variables.
pub(super) fn variables() -> Vec<String> {
    let list = board()["templating"]["list"].as_array().unwrap().clone();
    let queries = list.iter().filter(|one| one["type"] == "query");
    queries.map(|one| one["query"]["query"].as_str().unwrap().to_owned()).collect()
}

/// A query with values for Grafana's placeholders.
pub(super) fn filled(query: &str) -> String {
    query.replace("$__rate_interval", "5m").replace("$node", ".*")
}

#[test]
fn dashboard_has_the_fields_that_grafana_requires() {
    let board = board();
    // Source: Grafana, "JSON model" of a dashboard; 41 is the schema of Grafana 12.
    for (key, is_so) in [
        ("title", board["title"].is_string()),
        ("uid", board["uid"].as_str().is_some_and(|uid| uid.len() <= 40)),
        ("schemaVersion", board["schemaVersion"] == 41),
        ("version", board["version"].is_u64()),
        ("time", board["time"]["from"].is_string() && board["time"]["to"].is_string()),
        ("refresh", board["refresh"].is_string()),
        ("timezone", board["timezone"].is_string()),
        ("annotations", board["annotations"]["list"].is_array()),
        ("tags", board["tags"].is_array()),
        ("id", board["id"].is_null()),
    ] {
        assert!(is_so, "{key}");
    }
    let variable = &board["templating"]["list"][0];
    assert_eq!(
        (&variable["name"], &variable["type"], &variable["query"]),
        (&"datasource".into(), &"datasource".into(), &"prometheus".into())
    );
}

#[test]
fn each_panel_has_own_position_description_and_selected_source() {
    let board = board();
    let all = board["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = all.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), all.len());
    let mut places = BTreeSet::new();
    for panel in all {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24 && at("w") > 0 && at("h") > 0, "{panel}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(places.insert((x, y)), "two panels are at {x}, {y}: {panel}");
            }
        }
    }
    for panel in panels() {
        let title = panel["title"].as_str().unwrap();
        let description = panel["description"].as_str().unwrap_or_default();
        assert!(description.len() > 20, "{title} is not described");
        assert!(
            ["stat", "table", "timeseries"].contains(&panel["type"].as_str().unwrap()),
            "{title}"
        );
        assert!(
            panel["fieldConfig"]["defaults"].is_object() && panel["options"].is_object(),
            "{title}"
        );
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title} has no query");
        let letters: BTreeSet<&str> =
            targets.iter().map(|target| target["refId"].as_str().unwrap()).collect();
        assert_eq!(letters.len(), targets.len(), "{title}");
        for source in targets.iter().chain([&panel]).map(|of| &of["datasource"]) {
            assert_eq!(
                (&source["type"], &source["uid"]),
                (&"prometheus".into(), &"${datasource}".into()),
                "{title}"
            );
        }
    }
}

#[test]
fn prometheus_parses_each_dashboard_query() {
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    let queries = queries();
    assert!(queries.len() > 20);
    for (number, (query, _)) in queries.iter().enumerate() {
        let query = Value::from(filled(query));
        writeln!(rules, "  - {{record: 'dashboard:query:{number}', expr: {query}}}").unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    fs::write(&path, rules).unwrap();
    promtool::run(&["check", "rules", path.to_str().unwrap()]);
}
