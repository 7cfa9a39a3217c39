//! The workflows in `.github/workflows`: actionlint accepts them, and they run the scripts of this repository.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::peer::Peer;
use crate::support::root;
use crate::time_limits::Finish;

const ACTIONLINT: Peer = Peer {
    pinned: "actionlint",
    package: "github.com/rhysd/actionlint/cmd/actionlint",
    version: "v1.7.9",
};

fn workflows() -> Vec<PathBuf> {
    let directory = root().join(".github/workflows");
    let mut files: Vec<_> =
        fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn read(workflow: &str) -> Value {
    let path = root().join(".github/workflows").join(workflow);
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Runs actionlint with shellcheck, which checks the scripts in the workflows.
fn actionlint(files: &[PathBuf]) -> (bool, String) {
    let output = Command::new(ACTIONLINT.build())
        .args(["-no-color", "-shellcheck=shellcheck", "-pyflakes="])
        .args(files)
        .current_dir(root())
        .finish();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn actionlint_reports_no_issue_in_workflows() {
    let files = workflows();
    assert!(files.iter().any(|file| file.ends_with("release.yml")), "{files:?}");
    assert_eq!(actionlint(&files), (true, String::new()));
}

#[test]
fn actionlint_reports_wrong_expressions_and_scripts() {
    let text = fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
    let wrong = text
        .replace("github.ref_name }}", "github.reference }}")
        .replace("\"$BASE_URL\"", "$BASE_URL");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wrong.yml");
    fs::write(&file, wrong).unwrap();
    let (accepted, reported) = actionlint(&[file]);
    assert!(!accepted, "{reported}");
    for issue in ["property \"reference\" is not defined", "SC2086"] {
        assert!(reported.contains(issue), "{issue}: {reported}");
    }
}

#[test]
fn release_workflow_runs_the_release_script_with_the_pushed_version() {
    let workflow = read("release.yml");
    assert_eq!(workflow["on"], serde_json::json!({"push": {"tags": ["v*"]}}));
    let steps = workflow["jobs"]["build"]["steps"].as_array().unwrap();
    let scripts: Vec<&str> = steps.iter().filter_map(|step| step["run"].as_str()).collect();
    let release: Vec<&&str> =
        scripts.iter().filter(|script| script.starts_with("hack/release.sh")).collect();
    let expected = "hack/release.sh \"${GITHUB_REF_NAME#v}\" --base-url \"$BASE_URL\"";
    assert_eq!(release, [&expected]);
}

#[test]
fn only_the_publishing_job_can_write() {
    let workflow = read("release.yml");
    assert_eq!(workflow["permissions"], serde_json::json!({}), "default permissions of jobs");
    let jobs = workflow["jobs"].as_object().unwrap();
    for (name, job) in jobs {
        let permissions = job["permissions"].as_object().unwrap();
        let writes = permissions.values().any(|access| access == "write");
        assert_eq!(writes, name == "publish", "{name}: {permissions:?}");
    }
    // The job that can write does not run code of the repository.
    let publish = jobs["publish"]["steps"].to_string();
    assert!(!publish.contains("actions/checkout") && !publish.contains("hack/"), "{publish}");
}

#[test]
fn workflows_name_no_host() {
    for file in workflows() {
        let text = fs::read_to_string(&file).unwrap();
        let text: Vec<&str> =
            text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
        let text = text.join("\n").replace("example.com", "");
        for end in ["://", ".io/", ".com", ".org", ".dev/", ".net"] {
            let found = text.replace("oci-archive:", "").replace("docker://$", "");
            assert!(!found.contains(end), "{}: {end}", file.display());
        }
    }
}
