//! Events, annotation, labels and taints of a Node on a real API server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::cluster::Api;
use crate::cluster::agent::faults::{MONOTONIC_CLOCK, clock};
use crate::cluster::agent::operands::{self, COMPAT, DCGM, PLUGIN};
use crate::cluster::agent::proxy::{Fault, Proxy, RequestFilter};
use crate::cluster::agent::{NODE_WRITTEN, Rig};
use crate::node::names;
use crate::problem::Problem;
use crate::process::Program;
use crate::time_limits::{Finish, until};

const TWO: &str = "- {board: A100_40GB, count: 2, mig: enabled}\n";
const NOT_READY: &str = "{.spec.taints[0].key}=octavo.dev/not-ready";

/// Waits for the event and compares it with the quotations of the problem.
#[track_caller]
fn shown(problem: &Problem, rig: &Rig<'_>, reason: &str) {
    problem.assert_quoted(&format!("event {reason}"), &rig.await_event(reason));
}

/// Messages of the annotation, for the node and each device.
fn annotation(rig: &Rig<'_>) -> String {
    let status = rig.status();
    let devices = status["devices"].as_array().cloned().unwrap_or_default();
    let messages = devices.iter().chain([&status]).map(|one| &one["message"]);
    let messages: Vec<&str> = messages.filter_map(Value::as_str).collect();
    messages.join("\n")
}

/// The Node's taints, as `kubectl describe` prints them.
fn taints(rig: &Rig<'_>) -> String {
    let node = rig.get();
    let taints = node["spec"]["taints"].as_array().unwrap().iter();
    let text = |taint: &Value, field: &str| taint[field].as_str().unwrap().to_owned();
    let lines: Vec<String> =
        taints.map(|taint| format!("{}:{}", text(taint, "key"), text(taint, "effect"))).collect();
    lines.join("\n")
}

/// Delays the creation of partitions until the returned file exists.
fn hold_up(rig: &Rig<'_>) -> PathBuf {
    let machine = &rig.machine.machine;
    let go_on = machine.path().join("go-on");
    machine.faults(&format!(
        "- {{call: nvmlDeviceCreateGpuInstanceWithPlacement, hang: {{until_file: {}}}}}",
        go_on.display()
    ));
    go_on
}

/// An agent for a rig's Node with the credentials in a file.
fn agent_with(rig: &Rig<'_>, kubeconfig: &Path) -> Program {
    let mut command = rig.machine.agent(&["--interval=200ms", "--label-sink=node"]);
    command.arg("--kubeconfig").arg(kubeconfig);
    command.arg("--node-name").arg(rig.name());
    Program::start(&mut command)
}

#[test]
fn blocking_client_blocks_the_node_until_it_exits() {
    let problem = Problem::documented("pain_01");
    let rig = Rig::new(Api::shared(), operands::WHOLE);
    operands::deploy(&rig);
    operands::open_the_gpu(&rig);
    rig.label(&["nvidia.com/mig.config=all-1g.5gb"]);
    let _agent = rig.start(&[COMPAT]);
    shown(&problem, &rig, "OperandsPaused");
    shown(&problem, &rig, "LayoutBlocked");
    rig.await_label(DCGM, "paused-for-octavo");
    operands::close_the_gpu(&rig);
    rig.await_label("nvidia.com/mig.config.state", "success");
    shown(&problem, &rig, "OperandsRestored");
    rig.await_label(DCGM, "true");
    assert_eq!(rig.machine.geometry(0).len(), 7);
}

#[test]
fn replaced_driver_is_reported_as_lost_and_as_back() {
    let problem = Problem::documented("pain_02");
    let rig = Rig::new(Api::shared(), TWO);
    rig.label(&["octavo.dev/layout=all-3g.20gb"]);
    let mut agent = rig.start(&[]);
    rig.await_label("octavo.dev/layout-state", "applied");
    rig.machine.machine.change(|world| world.reload_driver(Some("590.10")));
    problem.await_log(&mut agent);
    shown(&problem, &rig, "DriverLost");
    shown(&problem, &rig, "DriverBack");
    rig.await_label("octavo.dev/driver", "590.10");
    rig.await_label("octavo.dev/layout-state", "applied");
    assert_eq!(names(&rig.machine.geometry(0)), ["3g.20gb", "3g.20gb"]);
}

#[test]
fn node_shows_why_layout_is_not_applied() {
    let problem = Problem::documented("pain_06");
    let rig = Rig::new(Api::shared(), operands::MIG);
    rig.machine.machine.faults("- {call: nvmlGpuInstanceCreateComputeInstance*, return: UNKNOWN}");
    rig.label(&["octavo.dev/layout=all-3g.20gb"]);
    let _agent = rig.start(&[]);
    shown(&problem, &rig, "LayoutRolledBack");
    rig.await_label("octavo.dev/layout-state", "failed");
    // While it is retried there is no other explanation.
    let reported =
        until("an annotation", || annotation(&rig), |reported| !reported.trim().is_empty());
    problem.assert_quoted("annotation", &reported);
    rig.machine.machine.faults("[]");
    rig.await_label("octavo.dev/layout-state", "applied");
}

#[test]
fn pods_are_not_scheduled_on_new_node_until_its_layout_is_applied() {
    let problem = Problem::documented("pain_12");
    let rig = Rig::new(Api::shared(), TWO);
    // As kubelet registers a node with --register-with-taints.
    rig.api.kubectl(&["taint", "node", rig.name(), "octavo.dev/not-ready=:NoSchedule"]);
    rig.label(&["octavo.dev/layout=all-3g.20gb"]);
    let go_on = hold_up(&rig);
    let mut agent = rig.start(&["--taint-not-ready"]);
    rig.await_label("octavo.dev/layout-state", "pending");
    problem.assert_quoted("kubectl describe node", &taints(&rig));
    fs::write(go_on, "").unwrap();
    problem.await_log(&mut agent);
    assert!(rig.get()["spec"].get("taints").is_none());
    rig.await_label("octavo.dev/layout-state", "applied");
    assert_eq!(names(&rig.machine.geometry(1)), ["3g.20gb", "3g.20gb"]);
}

#[test]
fn layout_is_reapplied_after_reboot_before_pods_are_scheduled() {
    let problem = Problem::documented("pain_13");
    let rig = Rig::new(Api::shared(), TWO);
    rig.label(&["octavo.dev/layout=all-3g.20gb"]);
    let mut agent = rig.start(&["--taint-not-ready"]);
    rig.await_label("octavo.dev/layout-state", "applied");
    agent.kill();
    rig.machine.machine.change(|world| {
        world.reboot();
        Ok(())
    });
    let go_on = hold_up(&rig);
    let mut agent = rig.start(&["--taint-not-ready"]);
    rig.await_path(NOT_READY);
    problem.assert_quoted("kubectl describe node", &taints(&rig));
    fs::write(go_on, "").unwrap();
    problem.await_log(&mut agent);
    assert_eq!(names(&rig.machine.geometry(0)), ["3g.20gb", "3g.20gb"]);
    agent.expect_log("0 taints");
}

#[test]
fn layout_unsupported_by_hardware_is_infeasible() {
    let problem = Problem::documented("infeasible_on_the_node");
    let rig = Rig::new(Api::shared(), "- {board: A100_80GB, mig: enabled}\n");
    let file = rig.machine.layouts("[{devices: all, mig: {3g.40gb: 2, 1g.10gb: 1}}]");
    rig.label(&["octavo.dev/layout=wanted"]);
    let _agent = rig.start(&["--layouts", &file]);
    shown(&problem, &rig, "LayoutInfeasible");
    rig.await_label("octavo.dev/layout-state", "failed");
    problem.assert_quoted("annotation", &annotation(&rig));
}

#[test]
fn unknown_layout_is_reported_with_available_layouts() {
    let problem = Problem::documented("layout_unknown");
    let rig = Rig::new(Api::shared(), operands::MIG);
    rig.label(&["octavo.dev/layout=servign"]);
    let _agent = rig.start(&[]);
    shown(&problem, &rig, "LayoutFailed");
    rig.await_label("octavo.dev/layout-state", "failed");
    problem.assert_quoted("annotation", &annotation(&rig));
}

#[test]
fn layout_selected_by_label_is_changed_by_label() {
    let problem = Problem::documented("chosen_by_a_label");
    let rig = Rig::new(Api::shared(), operands::MIG);
    rig.label(&["octavo.dev/layout=all-7g.40gb"]);
    let _agent = rig.start(&[]);
    rig.await_label("octavo.dev/layout-state", "applied");
    let refused = rig.machine.octavo(&["apply", "all-1g.5gb", "--agent"]);
    problem.assert_quoted("octavo apply", &String::from_utf8(refused.stderr).unwrap());
}

#[test]
fn node_claimed_by_mig_manager_is_left_alone() {
    let problem = Problem::documented("mig_manager_at_work");
    let rig = Rig::new(Api::shared(), operands::MIG);
    rig.label(&["octavo.dev/layout=all-7g.40gb"]);
    rig.is_claimed_by_mig_manager();
    let _agent = rig.start(&[]);
    shown(&problem, &rig, "LayoutNotice");
    assert!(rig.machine.geometry(0).is_empty());
    rig.label(&["nvidia.com/mig.config.state=success"]);
    rig.await_label("octavo.dev/layout-state", "applied");
}

#[test]
fn partitions_not_advertised_by_kubelet_are_counted() {
    let problem = Problem::documented("allocatable_zero");
    let rig = Rig::new(Api::shared(), operands::MIG);
    rig.label(&[&format!("{PLUGIN}=true"), "nvidia.com/mig.config=all-1g.5gb"]);
    let mut command = rig.agent(&["--label-sink=node", COMPAT, "--mig-strategy=mixed"]);
    let step = clock(&rig, MONOTONIC_CLOCK, &mut command);
    let _agent = Program::start(&mut command);
    rig.await_event("DevicePluginRefreshed");
    // The plugin had enough time and advertises nothing.
    fs::write(step, "200").unwrap();
    shown(&problem, &rig, "PartitionsNotOffered");
}

#[test]
fn keys_of_other_writers_are_retained_and_named() {
    let problem = Problem::documented("keys_left");
    let rig = Rig::new(Api::shared(), operands::MIG);
    rig.api.kubectl(&[
        "label",
        "node",
        rig.name(),
        "nvidia.com/gpu.count=3",
        "--field-manager=nfd-master",
    ]);
    let _agent = rig.start(&[]);
    shown(&problem, &rig, "KeysLeftToOthers");
    rig.label(&["nvidia.com/gpu.count-"]);
    rig.await_label("nvidia.com/gpu.count", "1");
}

#[test]
fn two_agents_on_one_node_report_each_other() {
    let problem = Problem::documented("two_agents_of_a_node");
    let rig = Rig::new(Api::shared(), operands::MIG);
    let other = crate::node::Node::new("- {board: H100_80GB_SXM}\n");
    let mut one = rig.start(&[]);
    one.expect_log(NODE_WRITTEN);
    let mut command = other.agent(&["--label-sink=node", "--interval=200ms"]);
    command.arg("--kubeconfig").arg(rig.api.kubeconfig());
    command.arg("--node-name").arg(rig.name());
    let _two = Program::start(&mut command);
    problem.await_log(&mut one);
}

#[test]
fn unavailable_api_server_and_its_return_are_reported_once() {
    let problem = Problem::documented("api_server_away");
    let rig = Rig::new(Api::shared(), operands::MIG);
    let proxy = Proxy::start(rig.api);
    proxy.fault(Fault { to: RequestFilter::All, code: 503, retry_after: None, times: 3 });
    let mut agent = agent_with(&rig, &proxy.kubeconfig());
    problem.await_log(&mut agent);
    agent.expect_log(NODE_WRITTEN);
}

#[test]
fn token_rejected_by_api_server_is_reported() {
    let problem = Problem::documented("api_token_refused");
    let rig = Rig::new(Api::shared(), operands::MIG);
    let bearer = rig.api.kubeconfig_with_token("refused");
    problem.await_log(&mut agent_with(&rig, &bearer.path()));
}

#[test]
fn agent_without_service_account_reports_what_is_missing() {
    let problem = Problem::documented("no_service_account");
    let node = crate::node::Node::new(TWO);
    let output = node.agent(&["--label-sink=node"]).finish();
    assert!(!output.status.success());
    problem.assert_quoted("log", &String::from_utf8(output.stderr).unwrap());
}

#[test]
fn pod_rejected_by_pod_security_is_reported_by_daemon_set() {
    let problem = Problem::documented("pod_security");
    let api = Api::shared();
    let node = api.node("strict");
    let labels = ["kubernetes.io/os=linux", "nvidia.com/gpu.present=true"];
    api.kubectl(&[&["label", "node", node.name()], &labels[..]].concat());
    api.apply("{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: nvidia}");
    let namespace = api.namespace();
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    api.kubectl(&["label", "namespace", &namespace, enforce]);
    api.kubectl(&["create", "serviceaccount", "octavo-agent", "-n", &namespace]);
    let tier = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/tiers/applier");
    let all = api.kubectl(&["kustomize", tier]);
    let one = all.split("\n---\n").find(|text| text.lines().any(|line| line == "kind: DaemonSet"));
    api.apply(&one.unwrap().replace("octavo-system", &namespace));
    let reported = await_message(api, &namespace, "FailedCreate");
    api.kubectl(&["delete", "namespace", &namespace, "--wait=false"]);
    problem.assert_quoted("event FailedCreate of the DaemonSet", &reported);
}

/// Waits for an event with this reason in a namespace and returns the first message.
fn await_message(api: &Api, namespace: &str, reason: &str) -> String {
    let selector = format!("--field-selector=reason={reason}");
    for _ in 0..100 {
        let events = ["events", "-n", namespace, &selector];
        let all = api.kubectl(&[&["get"], &events[..], &["-o", "json"]].concat());
        let all: Value = serde_json::from_str(&all).unwrap();
        if let Some(message) = all["items"][0]["message"].as_str() {
            return message.to_owned();
        }
        // Ends with the next event, or soon.
        let soon = ["--for=create", "--timeout=1s"];
        let _nothing_came = api.try_kubectl(&[&["wait"], &events[..], &soon].concat());
    }
    let all = ["get", "daemonsets,pods,events", "-n", namespace, "-o", "yaml"];
    panic!("no event {reason}: {}", api.kubectl(&all));
}

/// The digest of the layout file in the annotation starts the output of `sha256sum`.
#[test]
fn layout_file_in_use_can_be_verified_by_digest() {
    let rig = Rig::new(Api::shared(), operands::MIG);
    let file = rig.machine.layouts("[{devices: all, mig: {7g.40gb: 1}}]");
    rig.label(&["octavo.dev/layout=wanted"]);
    let _agent = rig.start(&["--layouts", &file]);
    rig.await_label("octavo.dev/layout-state", "applied");
    let sum = Command::new("sha256sum").arg(&file).finish();
    let sum = String::from_utf8(sum.stdout).unwrap();
    let reported = rig.status()["layouts"].as_str().unwrap().to_owned();
    assert!(!reported.is_empty() && sum.starts_with(&reported), "{sum}: {reported}");
}
