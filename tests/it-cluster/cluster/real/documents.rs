//! Runs the commands of the documentation: the blocks of `docs` that are marked `<!-- followed: NAME -->`.
//!
//! They run literally in a directory like a checkout. A wrapper named helm adds a values file for what this environment
//! lacks: there is no driver, no DNS and no service address except that of the API.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use super::super::Api;
use super::site::{figure, story};
use crate::manifests::chart;
use crate::time_limits::Finish;

/// A user who runs the commands of a page.
pub(super) struct Reader {
    directory: TempDir,
    api: &'static Api,
}

const HELM: &str = r#"#!/bin/sh
case $1 in
  install | upgrade) exec "$REAL_HELM" "$@" --values "$SITE_VALUES" ;;
  *) exec "$REAL_HELM" "$@" ;;
esac
"#;

impl Reader {
    pub(super) fn new(api: &'static Api) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let checkout = directory.path().join("checkout");
        fs::create_dir(&checkout).unwrap();
        for part in ["deploy", "hack"] {
            let part_of_tree = Path::new(env!("CARGO_MANIFEST_DIR")).join(part);
            symlink(part_of_tree, checkout.join(part)).unwrap();
        }
        symlink(env!("CARGO_BIN_EXE_octavo"), directory.path().join("octavo")).unwrap();
        fs::write(checkout.join("values.yaml"), user_values()).unwrap();
        let helm = directory.path().join("helm");
        fs::write(&helm, HELM).unwrap();
        fs::set_permissions(&helm, fs::Permissions::from_mode(0o755)).unwrap();
        Self { directory, api }
    }

    /// Sets the helm values for this environment.
    pub(super) fn set_values(&self, values: &Value) {
        fs::write(self.values(), values.to_string()).unwrap();
    }

    fn values(&self) -> PathBuf {
        self.directory.path().join("values.yaml")
    }

    /// Runs the block `name` of the page, for `node`.
    #[track_caller]
    pub(super) fn run_block(&self, page: &str, name: &str, node: &str) {
        let began = Instant::now();
        self.run_commands(&block(page, name), node);
        figure(&format!("{page}, {name}: {:?}", began.elapsed()));
    }

    /// Runs these commands and returns their standard output.
    #[track_caller]
    pub(super) fn run_commands(&self, commands: &str, node: &str) -> String {
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", commands])
            .current_dir(self.directory.path().join("checkout"))
            .env("REAL_HELM", chart::tools().join("helm"))
            .env("SITE_VALUES", self.values())
            .env("HOME", self.directory.path())
            .env("NODE", node);
        let output = self.api.equip(&mut bash, self.directory.path()).finish();
        let [out, errors] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(
            output.status.success(),
            "{commands}\n{}\n{out}\n{errors}\n{}",
            output.status,
            story(self.api)
        );
        out
    }
}

/// The values file of the installation page.
fn user_values() -> String {
    let install = include_str!("../../../../docs/get-started/install.md");
    let (_, file) = install.split_once("```yaml\n# values.yaml\n").unwrap();
    file.split_once("```").unwrap().0.to_owned()
}

/// The code after the marker.
fn block(page: &str, name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page);
    let text = fs::read_to_string(path).unwrap();
    let mark = format!("<!-- followed: {name} -->\n```sh\n");
    let (_, after) = text.split_once(&mark).unwrap_or_else(|| panic!("{page} has no block {name}"));
    after.split_once("```\n").unwrap().0.to_owned()
}

#[test]
fn every_marked_documentation_block_is_tested() {
    let story = [include_str!("../real.rs"), include_str!("site.rs")].concat();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut marks = 0;
    for directory in fs::read_dir(&docs).unwrap().map(|entry| entry.unwrap().path()) {
        if !directory.is_dir() {
            continue;
        }
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if path.extension().is_none_or(|kind| kind != "md") {
                continue;
            }
            let page = path.strip_prefix(&docs).unwrap().to_str().unwrap();
            for mark in fs::read_to_string(&path).unwrap().split("<!-- followed: ").skip(1) {
                let (name, _) = mark.split_once(" -->").unwrap();
                let call = format!("(\"{page}\", \"{name}\"");
                assert!(story.contains(&call), "no test runs {name} of {page}");
                marks += 1;
            }
        }
    }
    assert!(marks >= 6, "{marks}");
}
