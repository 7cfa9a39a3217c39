//! Every JSON and YAML file of the repository is read by the reader of its format, and contains nothing that the reader drops.

use std::fs;
use std::path::{Path, PathBuf};

use nvml_sim::scenario::Scenario;
use octavo_files::hooks::Hooks;
use octavo_files::layouts;
use octavo_files::{history, inventory, label_set, node_resources};
use octavo_model::inventory::Vendor;
use octavo_planner::layout::Dialect;
use octavo_policy::PolicySpec;
use serde::Deserialize as _;
use serde_json::Value;

use crate::layouts::checks::without_places;
use crate::support::root;

const DIRECTORIES: [&str; 5] = ["crates", "demo", "deploy", "hack", "tests"];

/// Templates of Helm, which are not YAML.
const TEMPLATES: &str = "deploy/chart/octavo/templates/";

/// Files of other programs (Kubernetes, Helm, Prometheus, Grafana), whose tests are `deploy` and `monitoring`, and data
/// that is compiled in: that of the catalog and of the demo's cluster.
const FOREIGN: [&str; 12] = [
    "crates/model/data/accelerators.json",
    "demo/profiles.yaml",
    "demo/workloads.yaml",
    "deploy/",
    "hack/cluster/audit.yaml",
    "hack/try/pod.yaml",
    "hack/try/values.yaml",
    "tests/fixtures/crds/",
    "tests/golden/cli/generate/",
    "tests/golden/cli/migrate/",
    "tests/it/monitoring/alerts.yaml",
    "tests/nvml-sim/data/",
];

/// Inputs of tests that must be rejected.
const INVALID: [&str; 2] = ["tests/golden/cli/prices/invalid.yaml", "tests/golden/plan/wrong.yaml"];

#[test]
fn every_json_and_yaml_file_is_read_without_loss() {
    let mut files = Vec::new();
    for directory in DIRECTORIES {
        collect(&root().join(directory), &mut files);
    }
    assert!(files.len() > 100, "only {} files found", files.len());
    let mut failures = Vec::new();
    for file in files {
        let path = file.strip_prefix(root()).unwrap().to_str().unwrap();
        if path.starts_with(TEMPLATES) {
            continue;
        }
        let read = read(path, &fs::read_to_string(&file).unwrap());
        match (read, INVALID.contains(&path)) {
            (Ok(()), false) | (Err(_), true) => {}
            (Ok(()), true) => failures.push(format!("{path}: accepted, but it must be invalid")),
            (Err(error), false) => failures.push(format!("{path}: {error}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, files);
            }
        } else if matches!(extension, Some("json" | "jsonl" | "yaml" | "yml")) {
            files.push(path);
        }
    }
}

/// Reads a file with the reader of its format, which its content identifies.
fn read(path: &str, text: &str) -> Result<(), String> {
    let documents = match Path::new(path).extension().and_then(|extension| extension.to_str()) {
        Some("jsonl") => {
            let written: String = history::parse(text).iter().map(history::line).collect();
            return same(&written, &text.to_owned());
        }
        Some("json") => serde_json::from_str(text)
            .map(|document: Value| vec![document])
            .map_err(|error| error.to_string()),
        _ => serde_saphyr::from_multiple(text).map_err(|error| error.to_string()),
    };
    let documents = documents?;
    if FOREIGN.iter().any(|prefix| path.starts_with(prefix)) {
        return Ok(());
    }
    let [document] = documents.as_slice() else {
        return Err(format!("{} documents in one file", documents.len()));
    };
    if path == "demo/policies.yaml" {
        return document.as_array().unwrap().iter().try_for_each(read_policy);
    }
    let has = |key| document.get(key).is_some();
    match document.get("kind").and_then(Value::as_str) {
        Some("Inventory") => read_inventory(text, document),
        Some("Layouts") => read_layouts(text),
        Some("PriceBook") => {
            layouts::prices::parse(text).map(drop).map_err(|errors| format!("{errors:?}"))
        }
        Some("AcceleratorPolicy") => read_policy(document),
        Some("Node") if document.pointer("/metadata/labels").is_some() => {
            label_set::parse(text).map(drop).map_err(|error| error.to_string())
        }
        Some("Node") => {
            node_resources::allocatable(text).map(drop).map_err(|error| error.to_string())
        }
        None if has("mig-configs") || has("sharing") => read_layouts(text),
        None if has("hooks") => Hooks::parse(text).map(drop).map_err(|error| error.to_string()),
        None if has("machine") => Scenario::parse(Path::new(path), text)
            .and_then(|scenario| scenario.world())
            .map(drop)
            .map_err(|error| error.to_string()),
        _ => Err("no reader for this format: add it here".to_owned()),
    }
}

fn read_policy(document: &Value) -> Result<(), String> {
    let spec = &document["spec"];
    let policy = PolicySpec::deserialize(spec).map_err(|error| error.to_string())?;
    let written = serde_json::to_value(&policy).map_err(|error| error.to_string())?;
    contains(&written, spec).then_some(()).ok_or_else(|| format!("values were lost: {written}"))
}

fn read_inventory(text: &str, document: &Value) -> Result<(), String> {
    let inventory = inventory::parse(text).map_err(|error| format!("{error:?}"))?;
    let written = serde_json::to_value(&inventory).map_err(|error| error.to_string())?;
    if contains(&written, document) {
        return Ok(());
    }
    Err(format!("values were lost: {written}"))
}

/// Returns whether `whole` has every value of `part`. Absent and null are the same.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(key, value)| {
            value.is_null() || whole.get(key).is_some_and(|whole| contains(whole, value))
        }),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len()
                && whole.iter().zip(part).all(|(one, other)| contains(one, other))
        }
        _ => whole == part || is_same_vendor(whole, part),
    }
}

/// A vendor can be spelled as its name and as its PCI id.
fn is_same_vendor(one: &Value, other: &Value) -> bool {
    let vendor = |value: &Value| value.as_str()?.parse::<Vendor>().ok();
    vendor(one).is_some_and(|one| Some(one) == vendor(other))
}

fn read_layouts(text: &str) -> Result<(), String> {
    let layouts = layouts::parse(text).map_err(|errors| format!("{errors:?}"))?.layouts;
    if layouts.dialect == Dialect::DevicePlugin {
        // This dialect is only read.
        return Ok(());
    }
    let written = layouts::write(&layouts, layouts.dialect).map_err(|error| error.to_string())?;
    let again = layouts::parse(&written).map_err(|errors| format!("{errors:?}"))?.layouts;
    same(&without_places(again), &without_places(layouts))
}

fn same<T: PartialEq + std::fmt::Debug>(written: &T, original: &T) -> Result<(), String> {
    if written == original {
        return Ok(());
    }
    Err(format!("read and written again it differs: {written:?}"))
}
