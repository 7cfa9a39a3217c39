//! The chart as rendered by helm.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::deploy;
use super::privileges::objects;
use crate::time_limits::{Finish, watch};

pub(crate) fn path() -> PathBuf {
    deploy().join("chart/octavo")
}

/// A directory with helm, kubeconform and schemas, built if necessary.
pub(crate) fn tools() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/tools/build.sh");
    // Builds may take longer than any other program.
    watch();
    let output = Command::new(script).stderr(Stdio::inherit()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "`make setup` lists what is missing");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
}

/// Runs helm without the user's configuration.
pub(crate) fn helm(arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    Command::new(tools().join("helm"))
        .args(arguments)
        .env("HOME", home.path())
        .env_remove("KUBECONFIG")
        .finish()
}

/// Runs helm, which must succeed, and returns its output.
#[track_caller]
pub(crate) fn helm_output(arguments: &[&str]) -> String {
    let output = helm(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "helm {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Renders the release `octavo` in `octavo-system`.
#[track_caller]
pub(crate) fn render(values: &Path) -> String {
    helm_output(&[
        "template",
        "octavo",
        path().to_str().unwrap(),
        "--namespace=octavo-system",
        "--values",
        values.to_str().unwrap(),
    ])
}

/// The objects of the same release with these values.
#[track_caller]
pub(crate) fn render_with(values: &Value) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("values.yaml");
    fs::write(&file, values.to_string()).unwrap();
    objects(&render(&file))
}

/// A values file for tests.
pub(crate) fn values(name: &str) -> PathBuf {
    path().join(format!("ci/{name}-values.yaml"))
}

/// The names of all values files for tests.
pub(crate) fn all_values() -> BTreeSet<String> {
    let files = fs::read_dir(path().join("ci")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let names = names.map(|name| name.strip_suffix("-values.yaml").unwrap().to_owned());
    names.collect()
}
