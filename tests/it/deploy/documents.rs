//! Commands in the documentation whose omission would leave something behind.

use serde_json::Value;

use crate::manifests::privileges::objects;
use crate::manifests::{chart, commands, list};

/// Waits for the agents of all pools, in addition to helm.
const WAITS: &str =
    "rollout status daemonset --selector=app.kubernetes.io/instance=octavo --timeout=10m";

/// Pages about removal.
fn pages() -> [(&'static str, String); 3] {
    [
        ("permissions.md", list::page().to_owned()),
        ("upgrade.md", include_str!("../../../docs/operations/upgrade.md").to_owned()),
        (
            "NOTES.txt",
            include_str!("../../../deploy/chart/octavo/templates/NOTES.txt")
                .replace("{{ .Release.Name }}", "octavo"),
        ),
    ]
}

#[test]
fn documented_removal_waits_for_agents_of_all_pools() {
    for (name, text) in pages() {
        let mut looked = 0;
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2) {
            if pair[0].contains("--set agent.cleanup=true") {
                assert!(pair[1].contains(WAITS), "{name}: {pair:#?}");
                looked += 1;
            }
        }
        assert!(looked > 0, "{name} says nothing of it");
        // The name of one DaemonSet covers all agents only without pools.
        assert!(!text.contains("rollout status daemonset octavo"), "{name}");
    }
    let rendered = objects(&chart::render(&chart::values("pools")));
    let mut sets = rendered.iter().filter(|one| one["kind"] == "DaemonSet");
    assert!(sets.clone().count() > 1);
    assert!(sets.all(|one| one["metadata"]["labels"]["app.kubernetes.io/instance"] == "octavo"));
}

#[test]
fn documented_installation_waits_for_its_agents() {
    let install = include_str!("../../../docs/get-started/install.md");
    let waits: Vec<Vec<&str>> = commands(install, "kubectl rollout status ").collect();
    let [command] = &waits[..] else { panic!("{waits:?}") };
    let name = command[2].strip_prefix("daemonset/").unwrap();
    let rendered = objects(&chart::render(&chart::values("default")));
    let sets = rendered.iter().filter(|one| one["kind"] == "DaemonSet");
    let names: Vec<&Value> = sets.map(|one| &one["metadata"]["name"]).collect();
    assert_eq!(names, [name]);
    for command in commands(install, "kubectl wait node ") {
        // `kubectl wait` fails if its selector matches no object yet.
        let has_selector = command.iter().any(|word| word.starts_with("--selector"));
        assert!(!has_selector, "{command:?}");
    }
}
