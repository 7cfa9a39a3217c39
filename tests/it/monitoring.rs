//! Reasons, alerts and dashboard are consistent with the output of the programs.

mod dashboard;
mod prometheus;
mod reasons;
mod reference;
mod rules;
mod served;

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::root;

/// The file of the alerts.
fn rules() -> PathBuf {
    root().join("deploy/chart/octavo/files/octavo-rules.yaml")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
