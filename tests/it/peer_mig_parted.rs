//! NVIDIA's own mig-parted, built from its module and run on every file of its dialect in the table of inputs: its
//! results must equal the table. `layouts` compares our results with the same table.

use std::fs;
use std::process::Command;

use octavo_files::layouts::parse;
use octavo_planner::layout::Dialect;

use crate::layouts::table::{Original, cases};
use crate::peer::Peer;
use crate::time_limits::Finish;

const PEER: Peer = Peer {
    pinned: "mig-parted",
    package: "github.com/NVIDIA/mig-parted/cmd/nvidia-mig-parted",
    version: "v0.13.1",
};

#[test]
fn mig_parted_treats_every_input_as_the_table_states() {
    let requested = PeerProgram::new();
    let mut compared = 0;
    let mut wrong = Vec::new();
    for case in cases() {
        let Some(stated) = case.original else {
            continue;
        };
        assert_eq!(case.dialect, Dialect::MigParted, "{}", case.name);
        let accepted = requested.accepts(&case.input, &case.select);
        if accepted.is_ok() == (stated == Original::Refuses) {
            wrong.push(format!("{}: {stated:?}, and {accepted:?}", case.name));
        }
        compared += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared >= 70, "{compared}");
}

#[test]
fn fleet_file_is_accepted_by_both_in_every_configuration() {
    let text = include_str!("../golden/layouts/fleet.yaml");
    let requested = PeerProgram::new();
    let parsed = parse(text).unwrap();
    assert_eq!(parsed.warnings, []);
    assert!(parsed.layouts.layouts.len() >= 20);
    for layout in &parsed.layouts.layouts {
        requested.accepts(text, &layout.name).unwrap();
    }
}

#[test]
fn migration_page_names_the_tested_version() {
    let page = include_str!("../../docs/tasks/migrate-from-mig-parted.md");
    let module = include_str!("../peers/mig-parted/go.mod");
    assert!(module.contains(&format!("github.com/NVIDIA/mig-parted {}", PEER.version)), "{module}");
    let tested = format!("The tests run mig-parted {} ", PEER.version);
    assert!(page.contains(&tested), "the page does not contain: {tested}");
    assert!(page.contains("refer to the source code of mig-parted v"));
}

/// The program and an input file.
struct PeerProgram {
    program: std::path::PathBuf,
    directory: tempfile::TempDir,
}

impl PeerProgram {
    fn new() -> Self {
        Self { program: PEER.build(), directory: tempfile::tempdir().unwrap() }
    }

    /// True if it accepts the file and finds the configuration, or its error.
    fn accepts(&self, text: &str, name: &str) -> Result<(), String> {
        let file = self.directory.path().join("layouts.yaml");
        fs::write(&file, text).unwrap();
        let output = Command::new(&self.program)
            .args(["assert", "--valid-config", "--selected-config", name])
            .arg("--config-file")
            .arg(&file)
            .finish();
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0) => Ok(()),
            // A Go program that crashes exits with 2.
            Some(1) => Err(reported),
            other => panic!("{other:?}: {reported}"),
        }
    }
}
