//! Layout selection by a label of the Node.

use std::fs;

use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::Rig;
use crate::cluster::Api as Server;
use crate::node::names;
use crate::time_limits::until;

const TWO: &str = "- {board: A100_40GB, count: 2, mig: enabled}\n";

#[test]
fn label_selects_node_layout_and_all_outputs_report_it() {
    let rig = Rig::new(Server::shared(), TWO);
    let _agent = rig.start(&[]);
    rig.await_label("octavo.dev/type", "nvidia-a100-40gb");
    rig.label(&["octavo.dev/layout=all-3g.20gb"]);
    rig.await_label("octavo.dev/layout-state", "applied");
    assert_eq!(names(&rig.machine.geometry(0)), ["3g.20gb", "3g.20gb"]);
    assert_eq!(names(&rig.machine.geometry(1)), ["3g.20gb", "3g.20gb"]);
    let status = rig.status();
    assert_eq!(status["layout"], "all-3g.20gb");
    assert_eq!(status["chosenBy"], "octavo.dev/layout");
    assert_eq!(status["state"], "applied");
    assert_eq!(status["devices"][0]["geometry"], "3g.20gb,3g.20gb");
    let shown = rig.await_event("LayoutApplied");
    assert_eq!(shown, "layout all-3g.20gb: 2 applied");
    let described = rig.api.kubectl(&["describe", "node", rig.name()]);
    assert!(described.contains("LayoutApplied"), "{described}");
}

#[test]
fn partitions_stay_without_label_and_unknown_layout_changes_nothing() {
    let rig = Rig::new(Server::shared(), TWO);
    let mut agent = rig.start(&[]);
    rig.label(&["octavo.dev/layout=all-3g.20gb"]);
    rig.await_label("octavo.dev/layout-state", "applied");
    rig.label(&["octavo.dev/layout=all-9g.99gb"]);
    let reported =
        agent.expect_log("this node has no layout \"all-9g.99gb\"; available layouts: all-");
    let after = "; the previous layout stays in effect reason=failed";
    assert!(reported.ends_with(after), "{reported}");
    rig.await_label("octavo.dev/layout-state", "failed");
    let status = rig.status();
    assert!(status["message"].as_str().unwrap().contains("all-9g.99gb"), "{status}");
    assert_eq!(names(&rig.machine.geometry(0)), ["3g.20gb", "3g.20gb"]);
    assert!(rig.await_event("LayoutFailed").contains("all-9g.99gb"));
    rig.label(&["octavo.dev/layout-"]);
    // The state label is removed with the layout.
    let state = || rig.labels("octavo.dev/layout-state");
    until("a Node without the state of a layout", state, Vec::is_empty);
    rig.label(&["octavo.dev/layout=all-7g.40gb"]);
    rig.await_label("octavo.dev/layout-state", "applied");
    assert_eq!(names(&rig.machine.geometry(0)), ["7g.40gb"]);
}

#[test]
fn edited_layout_file_is_used_and_invalid_file_keeps_previous_layouts() {
    let rig = Rig::new(Server::shared(), TWO);
    let file = rig.machine.layouts("[{devices: all, mig: {1g.5gb: 7}}]");
    rig.label(&["octavo.dev/layout=wanted"]);
    let mut agent = rig.start(&["--layouts", &file]);
    rig.await_label("octavo.dev/layout-state", "applied");
    let first = rig.status()["layouts"].clone();
    assert_eq!(names(&rig.machine.geometry(0)).len(), 7);
    rig.machine.layouts("[{devices: all, mig: {2g.10gb: 3}}]");
    agent.expect_log("reloaded the layouts");
    rig.await_label("octavo.dev/layout-state", "applied");
    agent.expect_log("GPU 1: applied");
    assert_eq!(names(&rig.machine.geometry(0)), ["2g.10gb"; 3]);
    // Replaced atomically, like a mounted ConfigMap.
    fs::write(format!("{file}.new"), "apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts: [[\n")
        .unwrap();
    fs::rename(format!("{file}.new"), &file).unwrap();
    agent.expect_log("the previous layouts stay in use");
    // An earlier change may be written first.
    let status = until(
        "the error in the file",
        || rig.status(),
        |status| {
            let message = status["message"].as_str();
            message.is_some_and(|message| message.contains("line 3"))
        },
    );
    assert_eq!((&status["state"], &status["layout"]), (&"applied".into(), &"wanted".into()));
    assert_ne!(status["layouts"], first);
    rig.machine.layouts("[{devices: all, mig: {7g.40gb: 1}}]");
    agent.expect_log("GPU 1: applied");
    assert_eq!(names(&rig.machine.geometry(0)), ["7g.40gb"]);
}

#[tokio::test]
async fn label_changing_ten_times_per_second_is_debounced() {
    let rig = Rig::new(Server::shared(), TWO);
    let mut agent = rig.start(&["--log-level=debug"]);
    rig.label(&["octavo.dev/layout=all-7g.40gb"]);
    rig.await_label("octavo.dev/layout-state", "applied");
    let nodes: Api<ApiNode> = Api::all(rig.api.client());
    for turn in 0..30 {
        let layout = ["all-1g.5gb", "all-7g.40gb"][turn % 2];
        let patch = json!({"metadata": {"labels": {"octavo.dev/layout": layout}}});
        let patch = Patch::Merge(patch);
        nodes.patch(rig.name(), &PatchParams::default(), &patch).await.unwrap();
    }
    rig.label(&["octavo.dev/layout=all-2g.10gb"]);
    rig.await_label("octavo.dev/layout-state", "applied");
    rig.await_event("LayoutApplied");
    let status = || rig.status();
    until("the last layout", status, |status| status["layout"] == "all-2g.10gb");
    rig.await_label("octavo.dev/layout-state", "applied");
    assert_eq!(names(&rig.machine.geometry(0)), ["2g.10gb"; 3]);
    let reported = agent.kill().join("\n");
    // The first and last change take effect immediately; those between them are debounced.
    let plans = reported.matches("applying the layout").count();
    assert!(plans <= 6, "{plans} plans:\n{reported}");
    let writes = rig.writes().len();
    assert!(writes <= 40, "{writes} writes for 31 labels");
}

#[test]
fn mig_manager_label_is_honored_and_answered_in_compat_mode() {
    let rig = Rig::new(Server::shared(), TWO);
    rig.label(&["nvidia.com/mig.config=all-1g.5gb", "nvidia.com/mig.config.state=failed"]);
    let _agent = rig.start(&["--compat=mig-manager"]);
    rig.await_label("nvidia.com/mig.config.state", "success");
    assert_eq!(names(&rig.machine.geometry(1)).len(), 7);
    rig.label(&["nvidia.com/mig.config=no-such-layout"]);
    rig.await_label("nvidia.com/mig.config.state", "failed");
    // Octavo's label takes precedence, and mig-manager's is no longer answered.
    rig.label(&["octavo.dev/layout=all-7g.40gb"]);
    rig.await_label("octavo.dev/layout-state", "applied");
    assert_eq!(names(&rig.machine.geometry(0)), ["7g.40gb"]);
}

#[test]
fn node_is_left_to_active_mig_manager() {
    let rig = Rig::new(Server::shared(), TWO);
    rig.label(&["octavo.dev/layout=all-7g.40gb"]);
    rig.is_claimed_by_mig_manager();
    let mut agent = rig.start(&[]);
    agent.expect_log("nvidia-mig-manager reports that it is partitioning this node");
    assert!(rig.machine.geometry(0).is_empty());
    rig.label(&["nvidia.com/mig.config.state=success"]);
    rig.await_label("octavo.dev/layout-state", "applied");
    assert_eq!(names(&rig.machine.geometry(0)), ["7g.40gb"]);
}

#[test]
fn layout_selected_by_label_cannot_be_changed_manually() {
    let rig = Rig::new(Server::shared(), TWO);
    rig.label(&["octavo.dev/layout=all-7g.40gb"]);
    let _agent = rig.start(&[]);
    rig.await_label("octavo.dev/layout-state", "applied");
    let refused = rig.machine.octavo(&["apply", "all-1g.5gb", "--agent"]);
    let reported = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(reported.contains("the Node label octavo.dev/layout=all-7g.40gb"), "{reported}");
    assert_eq!(names(&rig.machine.geometry(0)), ["7g.40gb"]);
}

#[test]
fn pods_are_not_scheduled_until_layout_is_applied_and_other_taints_stay() {
    let rig = Rig::new(Server::shared(), TWO);
    rig.api.kubectl(&["taint", "node", rig.name(), "team=a:NoExecute"]);
    rig.label(&["octavo.dev/layout=no-such-layout"]);
    let mut agent = rig.start(&["--taint-not-ready"]);
    agent.expect_log("2 taints");
    rig.await_path("{.spec.taints[1].key}=octavo.dev/not-ready");
    rig.label(&["octavo.dev/layout=all-7g.40gb"]);
    agent.expect_log("1 taints");
    let node = rig.get();
    let taints = node["spec"]["taints"].as_array().unwrap();
    assert_eq!((taints.len(), &taints[0]["key"]), (1, &"team".into()), "{taints:?}");
}

#[test]
fn i11_next_agent_removes_taint_of_killed_agent() {
    let rig = Rig::new(Server::shared(), TWO);
    rig.label(&["octavo.dev/layout=no-such-layout"]);
    let mut agent = rig.start(&["--taint-not-ready"]);
    agent.expect_log("1 taints");
    agent.kill();
    let mut agent = rig.start(&[]);
    agent.expect_log("0 taints");
    assert!(rig.get()["spec"].get("taints").is_none());
}

#[test]
fn annotation_changes_log_level_of_running_agent() {
    let rig = Rig::new(Server::shared(), TWO);
    let mut agent = rig.start(&[]);
    agent.expect_log(super::NODE_WRITTEN);
    rig.annotate("octavo.dev/log-level=debug");
    agent.expect_log("log level set level=debug");
    rig.annotate("octavo.dev/log-level=loud");
    agent.expect_log("unknown log level");
}
