//! `octavo policy`: every command changes the policy as documented, and nothing else.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::rig::{Pool, policy, spec};
use crate::cluster::Api;
use crate::process::Aggregator;
use crate::time_limits::{Finish, until, until_async};

const ROLLBACK: &str = "octavo.dev/rollback-to";

/// Runs `octavo policy` as an administrator; it must exit with `code`. Returns its output and its messages.
#[track_caller]
fn run(api: &Api, server: &str, arguments: &[&str], code: i32) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .arg("policy")
        .args(arguments)
        .env("OCTAVO_SERVER", server)
        .env("KUBECONFIG", api.kubeconfig())
        .stdin(Stdio::null())
        .finish();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {out}{err}");
    (out, err)
}

/// A pool of three nodes with an aggregator, and a manifest.
struct Site {
    pool: Pool,
    aggregator: Aggregator,
    directory: TempDir,
}

impl Site {
    #[track_caller]
    fn run(&self, arguments: &[&str], code: i32) -> (String, String) {
        let server = format!("http://{}", self.aggregator.http);
        run(&self.pool.api, &server, arguments, code)
    }

    /// Writes the manifest of the policy `pool`.
    fn manifest(&self, spec: &Value) -> String {
        let path: PathBuf = self.directory.path().join("policy.json");
        fs::write(&path, policy("pool", spec).to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The policy without the fields that every write changes.
    fn object(&self) -> Value {
        let get = ["get", "acceleratorpolicy", "pool", "-o", "json"];
        let mut object: Value = serde_json::from_str(&self.pool.api.kubectl(&get)).unwrap();
        object.as_object_mut().unwrap().remove("status");
        let metadata = object["metadata"].as_object_mut().unwrap();
        for changing in ["resourceVersion", "generation", "finalizers"] {
            metadata.remove(changing);
        }
        object
    }
}

/// Runs a command and checks that the policy differs in this field only.
#[track_caller]
fn changes_only(site: &Site, arguments: &[&str], pointer: &str, value: &Value) -> String {
    let mut expected = site.object();
    let (output, _) = site.run(arguments, 0);
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let key = key.replace("~1", "/");
    if expected.pointer(parent).is_none() {
        let (object, field) = parent.rsplit_once('/').unwrap();
        expected.pointer_mut(object).unwrap()[field] = json!({});
    }
    expected.pointer_mut(parent).unwrap()[&key] = value.clone();
    assert_eq!(site.object(), expected, "{arguments:?}");
    output
}

fn plan_changes_nothing_and_apply_asks(site: &Site, file: &str) {
    let (plan, _) = site.run(&["plan", "-f", file], 3);
    assert!(plan.contains("pool (new)"), "{plan}");
    assert!(plan.contains("3 nodes in 3 waves, at most 1 unavailable"), "{plan}");
    let (plan, reason) = site.run(&["apply", "-f", file], 1);
    assert!(plan.contains("pool (new)") && reason.contains("--yes"), "{plan}{reason}");
    let (_, reason) = site.run(&["status", "pool"], 1);
    assert!(reason.contains("not found"), "{reason}");
    let (list, note) = site.run(&["status"], 0);
    assert!(list.is_empty() && note.contains("no policies"), "{list}{note}");
    let (_, reason) = site.run(&["pause", "pool"], 1);
    assert!(reason.contains("policy pool does not exist"), "{reason}");
    let mut wrong = spec("serving", &json!({"maxUnavailble": 1}));
    let invalid = site.manifest(&wrong);
    let (_, reason) = site.run(&["plan", "-f", &invalid], 1);
    assert!(reason.contains("unknown field"), "{reason}");
    wrong["rollout"] = json!({});
    site.manifest(&wrong);
}

fn progress_is_shown(site: &Site) {
    // The aggregator reads the status a little later.
    until("the state", || site.run(&["status"], 0).0, |table| table.contains("Complete"));
    let (detail, _) = site.run(&["status", "pool"], 0);
    assert!(detail.contains("3 of 3 applied") && !detail.contains("gpu-000"), "{detail}");
    let (wide, _) = site.run(&["status", "pool", "-o", "wide"], 0);
    assert!(wide.contains("gpu-000"), "{wide}");
    let (document, _) = site.run(&["status", "pool", "-o", "json"], 0);
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["members"][0]["state"], "applied", "{document:#}");
    let (names, _) = site.run(&["status", "-o", "name"], 0);
    assert_eq!(names, "pool\n");
    let (_, _) = site.run(&["plan", "pool"], 0);
}

#[tokio::test]
async fn p5_commands_change_the_policy_exactly_as_documented() {
    let pool = Pool::new(3).await;
    let aggregator = pool.aggregator();
    let mut site = Site { pool, aggregator, directory: tempfile::tempdir().unwrap() };
    let readers = crate::fleet_api::Api::at(site.aggregator.http);
    let serving = spec("serving", &json!({}));
    let manifest = policy("pool", &serving);
    let planned = async || readers.post("/api/v1/policies/plan", &manifest).await.status;
    until_async("the aggregator has the nodes", planned, |status| *status == 200).await;
    let listed = async || readers.get("/api/v1/policies").await.json();
    until_async("policies are read", listed, |list| list["source"] == "cluster").await;
    let file = site.manifest(&serving);
    plan_changes_nothing_and_apply_asks(&site, &file);
    let (output, _) = site.run(&["apply", "-f", &file, "--yes"], 0);
    assert!(output.ends_with("policy pool created\n"), "{output}");
    assert_eq!(site.object()["spec"]["layout"], "serving");
    site.pool.await_state("pool", "Complete", 1).await;
    progress_is_shown(&site);
    let before = site.object();
    let (output, _) = site.run(&["apply", "-f", &file, "--yes"], 0);
    assert!(output.ends_with("policy pool unchanged\n"), "{output}");
    assert_eq!(site.object(), before);

    let paused = "/spec/rollout/paused";
    let output = changes_only(&site, &["pause", "pool"], paused, &json!(true));
    assert_eq!(output, "policy pool paused\n");
    let output = changes_only(&site, &["pause", "pool"], paused, &json!(true));
    assert_eq!(output, "policy pool already paused\n");
    let output = changes_only(&site, &["resume", "pool"], paused, &json!(false));
    assert_eq!(output, "policy pool resumed\n");

    let file = site.manifest(&spec("training", &json!({})));
    let (output, _) = site.run(&["apply", "-f", &file, "--yes"], 0);
    assert!(output.ends_with("policy pool changed\n"), "{output}");
    let status = site.pool.await_state("pool", "Complete", 1).await;
    let earlier = status["revisions"][1]["revision"].as_str().unwrap().to_owned();
    let (history, _) = site.run(&["history", "pool"], 0);
    let rows: Vec<&str> = history.lines().collect();
    assert!(rows[1].contains(" yes ") && rows[1].contains("training"), "{history}");
    assert!(rows[2].starts_with(&earlier) && rows[2].contains("serving"), "{history}");

    let (_, reason) = site.run(&["rollback", "pool", "--to", "nothing"], 1);
    assert!(reason.contains("it has no revision nothing"), "{reason}");
    let pointer = format!("/metadata/annotations/{}", ROLLBACK.replace('/', "~1"));
    let output = changes_only(&site, &["rollback", "pool"], &pointer, &json!(earlier));
    assert_eq!(output, format!("policy pool rolls back to revision {earlier}\n"));
    site.pool.await_state("pool", "RolledBack", 1).await;
    assert_eq!(site.pool.with_layout("serving").await.len(), 3);
    let (_, reason) = site.run(&["rollback", "pool"], 1);
    assert!(reason.contains("it has no earlier revision"), "{reason}");

    // Fields of another client are not taken over.
    let patch = json!({"spec": {"layout": "other"}}).to_string();
    site.pool.api.kubectl(&["patch", "acceleratorpolicy", "pool", "--type=merge", "-p", &patch]);
    let before = site.object();
    let (_, reason) = site.run(&["apply", "-f", &file, "--yes"], 1);
    assert!(reason.contains("kubectl-patch") && reason.contains("--force-conflicts"), "{reason}");
    assert_eq!(site.object(), before);
}

#[tokio::test]
async fn p5_cluster_without_the_kind_is_named_with_the_remedy() {
    let api = Api::fresh();
    let (_, reason) = run(&api, "http://127.0.0.1:1", &["pause", "pool"], 1);
    assert!(reason.contains("this cluster has no AcceleratorPolicy resource"), "{reason}");
    assert!(reason.contains("docs/tasks/policies.md"), "{reason}");
}
