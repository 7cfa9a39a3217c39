//! What `hack/release.sh` refuses. The tests change a small repository with the files that the script reads first.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::{Binaries, architecture, script};
use crate::image::{here, reported, run};

/// A repository with one commit.
struct Repository(TempDir);

impl Repository {
    /// Its changelog has these headings, and its packages have this version.
    fn new(headings: &[&str], version: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut copy = Command::new("cp");
        run(copy.arg("-r").arg(here().join("hack")).arg(path));
        let chart = path.join("deploy/chart/octavo");
        fs::create_dir_all(&chart).unwrap();
        fs::write(chart.join("Chart.yaml"), format!("name: octavo\nversion: {version}\n")).unwrap();
        let package = format!("name = \"octavo\"\nversion = \"{version}\"\n");
        fs::write(path.join("Cargo.toml"), format!("[package]\n{package}")).unwrap();
        fs::write(path.join("Cargo.lock"), format!("version = 4\n\n[[package]]\n{package}"))
            .unwrap();
        let repository = Self(directory);
        repository.set_changelog(headings);
        repository.git(&["init", "--quiet"]);
        repository.commit();
        repository
    }

    fn set_changelog(&self, headings: &[&str]) {
        let sections = headings.iter().map(|heading| format!("## {heading}\n\n- A change\n"));
        let text = format!("# Changelog\n\n{}", sections.collect::<Vec<_>>().join("\n"));
        fs::write(self.0.path().join("CHANGELOG.md"), text).unwrap();
    }

    fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "-qm", "All"]);
    }

    fn git(&self, arguments: &[&str]) {
        run(Command::new("git").args(arguments).current_dir(self.0.path()));
    }

    /// The message with which a release from these programs fails.
    fn refusal(&self, binaries: &Path, arguments: &[&str]) -> String {
        let out = self.0.path().join("target/out");
        let output = script(self.0.path(), binaries, &out, arguments);
        let printed = reported(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(!out.exists(), "a refused release has no files");
        let message = printed.lines().find_map(|line| line.strip_prefix("error: "));
        message.unwrap_or_else(|| panic!("no error: {printed}")).to_owned()
    }
}

/// Programs are the last condition, so this message means that all others are met.
const NO_PROGRAMS: &str = "contains neither amd64 nor arm64";

#[test]
fn version_must_be_semantic_and_have_a_section_with_a_date() {
    let empty = tempfile::tempdir().unwrap();
    let empty = empty.path();
    let repository = Repository::new(&["0.2.0 (unreleased)", "0.1.0 (2026-11-26)"], "0.2.0");
    for wrong in ["v0.2.0", "0.2", "0.02.0", "0.2.0-", "0.2.0-01", "0.2.0-a..b", "0.2.0+5"] {
        let message = repository.refusal(empty, &[wrong]);
        let expected = format!("{wrong} is not a semantic version");
        assert!(message.starts_with(&expected), "{wrong}: {message}");
    }
    for (arguments, expected) in [
        (&["0.3.0"][..], "CHANGELOG.md has no section for 0.3.0; add one: ## 0.3.0 (YYYY-MM-DD)"),
        (&["0.3.0-rc.1"], "CHANGELOG.md has no section for 0.3.0-rc.1"),
        (&["0.2.0"], "CHANGELOG.md marks 0.2.0 as unreleased"),
        (&["0.1.0"], "Cargo.toml has version 0.2.0; set it to 0.1.0"),
        (&["0.2.0", "--draft"], NO_PROGRAMS),
        (&["0.2.0-rc.1"], NO_PROGRAMS),
        (&["0.2.0-x-y.7.z"], NO_PROGRAMS),
        (&[], "no version is given"),
        (&["0.2.0", "0.2.1"], "two versions are given: 0.2.0 and 0.2.1"),
        (&["0.2.0", "--fast"], "unknown argument --fast"),
        (&["0.2.0", "--base-url", "downloads"], "--base-url downloads is not an HTTP URL"),
    ] {
        let message = repository.refusal(empty, arguments);
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
    repository.set_changelog(&["0.2.0 (2026-12-01)", "0.1.0 (2026-11-26)"]);
    let message = repository.refusal(empty, &["0.2.0"]);
    assert!(message.contains("the working tree has uncommitted changes"), "{message}");
    repository.commit();
    assert!(repository.refusal(empty, &["0.2.0"]).contains(NO_PROGRAMS));
    repository.set_changelog(&["0.2.0 (soon)"]);
    repository.commit();
    let message = repository.refusal(empty, &["0.2.0"]);
    assert!(message.contains("\"## 0.2.0 (soon)\" in CHANGELOG.md has no date"), "{message}");
}

#[test]
fn programs_must_match_version_architecture_and_glibc() {
    let binaries = Binaries::new();
    let native = binaries.path().join(architecture());
    let version = super::VERSION;
    let repository = Repository::new(&[&format!("{version} (unreleased)")], version);
    let draft = [version, "--draft"];

    let old = repository.refusal(binaries.path(), &[version, "--draft", "--glibc", "2.17"]);
    let expected = format!("octavo ({}) needs glibc 2.", architecture());
    assert!(old.starts_with(&expected) && old.contains("the limit is 2.17; symbols: "), "{old}");
    assert!(old.contains("@GLIBC_2."), "{old}");

    let other = repository.refusal(binaries.path(), &[&format!("{version}-rc.1")]);
    let expected = format!("reports version 'octavo {version}', expected {version}-rc.1");
    assert!(other.contains(&expected), "{other}");

    fs::rename(binaries.path().join("man"), binaries.path().join("pages")).unwrap();
    let message = repository.refusal(binaries.path(), &draft);
    assert!(message.contains("contains no manual pages"), "{message}");
    fs::remove_file(native.join("octavo-agent")).unwrap();
    let message = repository.refusal(binaries.path(), &draft);
    assert!(message.ends_with("/octavo-agent is missing"), "{message}");
    let foreign = if architecture() == "amd64" { "arm64" } else { "amd64" };
    fs::rename(&native, binaries.path().join(foreign)).unwrap();
    let message = repository.refusal(binaries.path(), &draft);
    assert!(message.ends_with(&format!(", expected {foreign}")), "{message}");
}

#[test]
fn other_files_are_never_replaced() {
    let empty = tempfile::tempdir().unwrap();
    let repository = Repository::new(&["0.2.0 (2026-12-01)"], "0.2.0");
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("thesis.txt");
    fs::write(&file, "years of work").unwrap();
    let output = script(repository.0.path(), empty.path(), out.path(), &["0.2.0"]);
    let printed = reported(&output);
    assert!(!output.status.success(), "{printed}");
    assert!(printed.contains("contains files that are not of a release"), "{printed}");
    assert_eq!(fs::read_to_string(file).unwrap(), "years of work");
}

#[test]
fn help_has_examples() {
    let output = Command::new(here().join("hack/release.sh")).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && help.contains("\nExamples:\n"), "{help}");
}
