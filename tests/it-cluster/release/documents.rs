//! The manifest for krew, the chart, the SBOMs and the notes of a release.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Release, URL, VERSION, architecture, files, sha256, unpack};
use crate::image::{here, reported, run};
use crate::manifests::chart::{helm_output, values};
use crate::manifests::privileges::objects;
use crate::peer::Peer;
use crate::time_limits::Finish;

const KREW: Peer = Peer { pinned: "krew", package: "sigs.k8s.io/krew/cmd/krew", version: "v0.4.4" };
const VALIDATOR: Peer = Peer {
    pinned: "krew",
    package: "sigs.k8s.io/krew/cmd/validate-krew-manifest",
    version: "v0.4.4",
};

fn sbom(release: &Release, of: &str) -> Value {
    let text = fs::read_to_string(release.path(&format!("{of}.cdx.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn texts<'a>(values: &'a Value, key: &str) -> BTreeSet<&'a str> {
    values.as_array().unwrap().iter().filter_map(|value| value[key].as_str()).collect()
}

#[test]
fn krew_validates_the_manifest_and_installs_the_plugin() {
    let release = Release::shared();
    let file = release.path("octavo.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let validator = VALIDATOR.build();
    run(Command::new(&validator).arg("-skip-install").arg("-manifest").arg(&file));

    let manifest: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(manifest["metadata"]["name"], "octavo");
    assert_eq!(manifest["spec"]["version"], format!("v{VERSION}"));
    let [platform] = manifest["spec"]["platforms"].as_array().unwrap().as_slice() else {
        panic!("{text}")
    };
    let labels = serde_json::json!({"os": "linux", "arch": architecture()});
    assert_eq!(platform["selector"]["matchLabels"], labels);
    let uri = platform["uri"].as_str().unwrap();
    let archive = release.path(uri.strip_prefix(&format!("{URL}/")).unwrap());

    let home = tempfile::tempdir().unwrap();
    let install = |manifest: &Path, archive: &Path| {
        let mut krew = Command::new(KREW.build());
        krew.arg("install").arg("--manifest").arg(manifest).arg("--archive").arg(archive);
        krew.env("KREW_ROOT", home.path()).finish()
    };
    // Another archive has another checksum.
    let output = install(&file, &release.archive("octavo"));
    assert!(!output.status.success(), "{}", reported(&output));
    let output = install(&file, &archive);
    assert!(output.status.success(), "{}", reported(&output));
    let plugin = home.path().join("bin/kubectl-octavo");
    let help = run(Command::new(&plugin).args(["version", "--help"]));
    assert!(help.contains("Usage: kubectl octavo version"), "{help}");
    let version = run(Command::new(&plugin).args(["version", "--client"]));
    assert!(version.contains(VERSION), "{version}");
    let plugin = format!("octavo/v{VERSION}");
    let contents = files(&home.path().join("store").join(plugin));
    assert_eq!(contents, ["LICENSE", "kubectl-octavo"]);
}

#[test]
fn helm_accepts_the_chart_and_renders_images_of_the_release() {
    let release = Release::shared();
    let chart = release.path(&format!("octavo-{VERSION}.tgz"));
    let chart = chart.to_str().unwrap();
    let shown: BTreeMap<String, Value> =
        serde_saphyr::from_str(&helm_output(&["show", "chart", chart])).unwrap();
    assert_eq!(shown["version"], VERSION);
    assert_eq!(shown["appVersion"], VERSION);
    helm_output(&["lint", "--strict", chart]);
    let values = values("default");
    let values = values.to_str().unwrap();
    let rendered = helm_output(&["template", "octavo", chart, "--values", values]);
    let image = format!("octavo/agent:{VERSION}");
    assert!(!objects(&rendered).is_empty() && rendered.contains(&image), "{rendered}");
    let directory = tempfile::tempdir().unwrap();
    unpack(&release.path(&format!("octavo-{VERSION}.tgz")), directory.path());
    let contents = files(directory.path());
    assert!(contents.contains(&"octavo/values.schema.json".to_owned()), "{contents:?}");
    assert!(!contents.iter().any(|file| file.starts_with("octavo/ci/")), "{contents:?}");
}

#[test]
fn sboms_name_their_file_and_its_components() {
    let release = Release::shared();
    let archive = format!("octavo-{VERSION}-linux-{}.tar.gz", architecture());
    let document = sbom(&release, &archive);
    assert_eq!(
        (&document["bomFormat"], &document["specVersion"]),
        (&"CycloneDX".into(), &"1.6".into())
    );
    let subject = &document["metadata"]["component"];
    assert_eq!(subject["name"], *archive);
    assert_eq!(subject["hashes"][0]["content"], sha256(&release.path(&archive)));
    let components = document["components"].as_array().unwrap();
    let scope = |name: &str| {
        let component = components.iter().find(|one| one["name"] == name);
        component.map(|one| one["scope"].as_str().unwrap())
    };
    assert_eq!(scope("tokio"), Some("required"));
    assert_eq!(scope("octavo-planner"), Some("required"));
    assert_eq!(scope("serde_derive"), Some("excluded"));
    for test_only in ["proptest", "fantoccini", "nvml-sim"] {
        assert_eq!(scope(test_only), None, "{test_only} is not part of a release");
    }
    for component in components {
        let is_ours = component["name"].as_str().unwrap().starts_with("octavo");
        let has_source = component["purl"].is_string();
        assert_ne!(is_ours, has_source, "{component}");
        assert_ne!(component["licenses"], serde_json::json!([]), "{component}");
    }
    // Every reference of the graph exists, and every component except the subject is reachable.
    let references = texts(&document["components"], "bom-ref");
    let used: BTreeSet<&str> = document["dependencies"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|entry| entry["dependsOn"].as_array().unwrap())
        .map(|reference| reference.as_str().unwrap())
        .collect();
    assert_eq!(references, used);

    let image = format!("octavo-agent-{VERSION}-image-{}", architecture());
    let image = sbom(&release, &image);
    let names = texts(&image["components"], "name");
    assert!(names.is_superset(&BTreeSet::from(["libc6", "ca-certificates", "tokio"])), "{names:?}");
    let chart = sbom(&release, &format!("octavo-{VERSION}.tgz"));
    let [agent, aggregator] =
        ["agent", "aggregator"].map(|image| format!("octavo/{image}:{VERSION}"));
    assert_eq!(texts(&chart["components"], "name"), BTreeSet::from([&*agent, &*aggregator]));
}

#[test]
fn release_notes_are_the_section_of_the_changelog() {
    let release = Release::shared();
    let notes = fs::read_to_string(release.path("RELEASE_NOTES.md")).unwrap();
    let (title, notes) = notes.split_once('\n').unwrap();
    assert_eq!(title, format!("# Octavo {VERSION}"));
    let changelog = fs::read_to_string(here().join("CHANGELOG.md")).unwrap();
    let (_, section) = changelog.split_once(&format!("\n## {VERSION} (")).unwrap();
    let (_heading, section) = section.split_once('\n').unwrap();
    let section = section.split("\n## ").next().unwrap();
    assert_eq!(notes.trim_end(), section.trim_end());
}
