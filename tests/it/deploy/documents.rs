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
        assert!(looked > 0, "{name} does not describe it");
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

/// The labels in the table of prerequisites, one row for each kind of cluster.
#[test]
fn agents_run_on_nodes_with_the_labels_of_the_page_with_and_without_the_gpu_operator() {
    let install = include_str!("../../../docs/get-started/install.md");
    let rows: Vec<&str> =
        ["| the GPU Operator |", "| Node Feature Discovery (NFD) only |", "| neither |"]
            .iter()
            .map(|row| install.lines().find(|line| line.starts_with(row)).unwrap())
            .collect();
    let rendered = objects(&chart::render(&chart::values("default")));
    let agents = rendered.iter().find(|one| one["kind"] == "DaemonSet").unwrap();
    let pod = &agents["spec"]["template"]["spec"];
    let terms = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    // One term for each label: any of them is enough.
    let terms = terms.as_array().unwrap().iter().map(|term| {
        let [one] = &term["matchExpressions"].as_array().unwrap()[..] else { panic!("{term}") };
        format!("{}={}", one["key"].as_str().unwrap(), one["values"][0].as_str().unwrap())
    });
    let terms: Vec<String> = terms.collect();
    for row in rows {
        let label = row.split('`').nth(1).unwrap();
        assert!(terms.iter().any(|term| term == label), "{label}: {terms:?}");
    }
    let label = "kubectl label node \"$NODE\" nvidia.com/gpu.present=true\n";
    assert!(install.contains(label));
    // And the RuntimeClass of the pods is the one that the page creates.
    let class = format!(
        "kind: RuntimeClass, metadata: {{name: {}}}",
        pod["runtimeClassName"].as_str().unwrap()
    );
    assert!(install.contains(&class), "{class}");
}

/// Blocks of YAML with values in a page.
fn values_of(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(indent) = line.strip_suffix("```yaml") else {
            continue;
        };
        let block = lines.by_ref().take_while(|line| line.trim() != "```");
        let block = block.map(|line| line.strip_prefix(indent).unwrap_or(line));
        blocks.push(block.collect::<Vec<_>>().join("\n"));
    }
    blocks
}

#[test]
fn chart_accepts_the_values_of_the_access_page() {
    let blocks = values_of(include_str!("../../../docs/operations/web-access.md"));
    assert!(blocks.len() >= 6, "{blocks:#?}");
    for block in blocks {
        let values: Value = serde_saphyr::from_str(&block).unwrap();
        let rendered = chart::render_with(&values);
        let has = |kind: &str| rendered.iter().any(|one| one["kind"] == kind);
        let is_enabled = |key: &str| values["aggregator"][key]["enabled"] == true;
        for (key, kind) in [("ingress", "Ingress"), ("httpRoute", "HTTPRoute"), ("route", "Route")]
        {
            assert_eq!(has(kind), is_enabled(key), "{block}");
        }
    }
}
