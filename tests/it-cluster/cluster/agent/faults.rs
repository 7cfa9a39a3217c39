//! Unavailable API server, expired credentials, deleted Node, second agent and clock steps: the state of the node, and
//! the number of requests.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde_json::json;

use super::proxy::{Fault, Proxy, RequestFilter};
use super::{NODE_WRITTEN, Rig};
use crate::cluster::Api;
use crate::node::names;
use crate::process::Program;
use crate::time_limits::Finish;

const TWO: &str = "- {board: A100_40GB, count: 2, mig: enabled}\n";

/// All requests fail until the fault is cleared.
const REFUSES_ALL: Fault =
    Fault { to: RequestFilter::All, code: 500, retry_after: None, times: u32::MAX };

impl Rig<'_> {
    /// An agent that connects through a proxy.
    pub(super) fn through(&self, proxy: &Proxy, arguments: &[&str]) -> Program {
        let mut command = self.machine.agent(&["--interval=200ms", "--label-sink=node"]);
        command
            .args(arguments)
            .arg("--kubeconfig")
            .arg(proxy.kubeconfig())
            .arg("--node-name")
            .arg(self.name());
        Program::start(&mut command)
    }
}

#[test]
fn api_server_outage_delays_no_hardware_change_and_loses_no_report() {
    let mut api = Api::fresh();
    api.stop();
    let machine = crate::node::Node::new(TWO);
    api.start();
    let node = api.node("late");
    api.kubectl(&["label", "node", node.name(), "octavo.dev/layout=all-7g.40gb"]);
    api.stop();
    let kubeconfig = api.kubeconfig().display().to_string();
    let arguments = [
        "--label-sink=node",
        "--interval=200ms",
        "--kubeconfig",
        &kubeconfig,
        "--node-name",
        node.name(),
    ];
    let mut agent = Program::start(&mut machine.agent(&arguments));
    // The layout is unknown, so no change starts; the inventory is read.
    agent.expect_all_logs(&["cannot watch the Node", "device found"]);
    assert!(machine.geometry(0).is_empty());
    api.start();
    agent.expect_log("GPU 1: applied");
    agent.expect_log(NODE_WRITTEN);
    api.stop();
    agent.expect_log("cannot watch the Node");
    // Another process destroys the instances, and they are restored although the API server is unavailable.
    machine.machine.change(|world| {
        let slot = world.slot_of_index(0).unwrap();
        world.destroy_ci(slot, 0, 0)?;
        world.destroy_gi(slot, 0)
    });
    agent.expect_log("GPU 0: applied");
    assert_eq!(names(&machine.geometry(0)), ["7g.40gb"]);
    machine.machine.change(|world| world.lose_gpu(world.slot_of_index(1).unwrap()));
    api.start();
    agent.expect_log("the API server responds again");
    // A lost GPU is no longer reported by the driver.
    let name = format!("node/{}", node.name());
    let gone = "--for=jsonpath={.metadata.labels.nvidia\\.com/gpu\\.count}=1";
    api.kubectl(&["wait", "--timeout=300s", gone, &name]);
}

#[test]
fn throttled_requests_are_retried_only_as_often_as_needed() {
    for (code, retry_after) in [(429, Some(1)), (500, None), (503, Some(1)), (409, None)] {
        let rig = Rig::new(Api::shared(), TWO);
        let proxy = Proxy::start(rig.api);
        proxy.fault(Fault { to: RequestFilter::Patches, code, retry_after, times: 3 });
        let mut agent = rig.through(&proxy, &[]);
        agent.expect_log(NODE_WRITTEN);
        rig.await_label("octavo.dev/count", "2");
        assert_eq!(proxy.count("PATCH"), 4, "{code}: {:?}", proxy.requests());
    }
}

#[test]
fn expired_watch_is_restarted_without_writes() {
    let rig = Rig::new(Api::shared(), TWO);
    let proxy = Proxy::start(rig.api);
    proxy.fault(Fault { to: RequestFilter::Watches, code: 410, retry_after: None, times: 3 });
    let mut agent = rig.through(&proxy, &[]);
    agent.expect_log(NODE_WRITTEN);
    rig.label(&["octavo.dev/layout=all-7g.40gb"]);
    rig.await_label("octavo.dev/layout-state", "applied");
    let requests = proxy.requests();
    let lists =
        requests.iter().filter(|line| line.starts_with("GET") && !line.contains("watch=true"));
    assert!(lists.count() <= 5, "{requests:?}");
    assert!(proxy.count("PATCH") <= 5, "{requests:?}");
}

#[test]
fn rejected_requests_are_retried_with_backoff() {
    let rig = Rig::new(Api::shared(), TWO);
    let proxy = Proxy::start(rig.api);
    let mut agent = rig.through(&proxy, &["--log-level=debug"]);
    agent.expect_log(NODE_WRITTEN);
    proxy.fault(REFUSES_ALL);
    let (began, before) = (Instant::now(), proxy.requests().len());
    // Many changes meanwhile, each of which requires a write.
    for turn in 0..30 {
        rig.machine.machine.change(|world| {
            let slot = world.slot_of_index(turn % 2).unwrap();
            if turn % 4 < 2 { world.lose_gpu(slot) } else { world.return_gpu(slot) }
        });
        agent.expect_log("device changed");
    }
    let requested = proxy.requests().len() - before;
    let most = 10 + 2 * usize::try_from(began.elapsed().as_secs()).unwrap();
    assert!(requested <= most, "{requested} requests in {:?}", began.elapsed());
    proxy.fault(None);
    agent.expect_log(NODE_WRITTEN);
    rig.await_label("octavo.dev/count", "2");
}

#[test]
fn requests_rejected_at_start_are_retried_with_backoff() {
    let rig = Rig::new(Api::shared(), TWO);
    let proxy = Proxy::start(rig.api);
    proxy.fault(REFUSES_ALL);
    let began = Instant::now();
    let mut agent = rig.through(&proxy, &["--log-level=debug"]);
    agent.expect_log("cannot watch the Node");
    for _ in 0..4 {
        agent.expect_log("still cannot watch the Node");
    }
    // At least half a second, one, two and four, regardless of other requests.
    assert!(began.elapsed().as_secs_f64() > 7.0, "{:?}", proxy.requests());
    assert!(proxy.requests().len() <= 6, "{:?}", proxy.requests());
    proxy.fault(None);
    agent.expect_log(NODE_WRITTEN);
}

#[test]
fn rejected_token_is_reread_until_accepted() {
    let api = Api::fresh();
    let rig = Rig::new(&api, TWO);
    let token = token(&api, rig.name());
    let bearer = api.kubeconfig_with_token("refused");
    let kubeconfig = bearer.path().display().to_string();
    let mut agent = Program::start(&mut rig.machine.agent(&[
        "--label-sink=node",
        "--interval=200ms",
        "--kubeconfig",
        &kubeconfig,
        "--node-name",
        rig.name(),
    ]));
    agent.expect_log("401");
    bearer.set_token(&token);
    agent.expect_log(NODE_WRITTEN);
    rig.await_label("octavo.dev/count", "2");
    let refused = api.audit().iter().filter(|event| event["responseStatus"]["code"] == 401).count();
    assert!(refused <= 40, "{refused} requests with a bad token");
}

#[test]
fn new_api_server_ca_is_trusted_without_restart() {
    let mut api = Api::fresh();
    let machine = crate::node::Node::new(TWO);
    let node = api.node("rotated");
    let bearer = api.kubeconfig_with_token(&token(&api, node.name()));
    let kubeconfig = bearer.path().display().to_string();
    let mut agent = Program::start(&mut machine.agent(&[
        "--label-sink=node",
        "--log-level=debug",
        "--interval=200ms",
        "--kubeconfig",
        &kubeconfig,
        "--node-name",
        node.name(),
    ]));
    agent.expect_log(NODE_WRITTEN);
    api.rotate_ca();
    // The client reads the CA file once a minute.
    api.kubectl(&["label", "node", node.name(), "octavo.dev/layout=all-7g.40gb"]);
    agent.expect_log("GPU 1: applied");
    agent.expect_log(NODE_WRITTEN);
    std::mem::forget(node);
}

/// A token of a service account with the permissions of the agent, bound to a pod on `node`.
fn token(api: &Api, node: &str) -> String {
    let namespace = api.namespace();
    api.apply(
        &json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "agent", "namespace": namespace}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent", "namespace": namespace}, "spec": {
                "nodeName": node, "serviceAccountName": "agent",
                "containers": [{"name": "agent", "image": "test.invalid/none:1"}]}},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
             "metadata": {"name": format!("agent-{namespace}")},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
             "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": namespace}]},
        ]})
        .to_string(),
    );
    api.token(&namespace, "agent", "agent", &[])
}

#[test]
fn recreated_node_is_labeled_again_and_keeps_its_partitions() {
    let rig = Rig::new(Api::shared(), TWO);
    rig.label(&["octavo.dev/layout=all-7g.40gb"]);
    let mut agent = rig.start(&[]);
    rig.await_label("octavo.dev/layout-state", "applied");
    rig.api.kubectl(&["delete", "node", rig.name()]);
    agent.expect_log("the Node was deleted");
    assert_eq!(names(&rig.machine.geometry(0)), ["7g.40gb"]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {
        "name": rig.name(), "labels": {"octavo.dev/layout": "all-3g.20gb"}}});
    rig.api.create(&node);
    rig.await_label("octavo.dev/layout-state", "applied");
    assert_eq!(names(&rig.machine.geometry(0)), ["3g.20gb", "3g.20gb"]);
}

#[test]
fn two_agents_with_one_node_name_report_conflict_and_back_off() {
    let rig = Rig::new(Api::shared(), TWO);
    let other = crate::node::Node::new("- {board: H100_80GB_SXM}\n");
    let mut one = rig.start(&[]);
    one.expect_log(NODE_WRITTEN);
    let kubeconfig = rig.api.kubeconfig().display().to_string();
    let mut two = Program::start(&mut other.agent(&[
        "--label-sink=node",
        "--interval=200ms",
        "--kubeconfig",
        &kubeconfig,
        "--node-name",
        rig.name(),
    ]));
    two.expect_log("check for a second agent");
    one.expect_log("check for a second agent");
    let writes = rig.writes();
    assert!(writes.len() <= 16, "{} writes: {writes:#?}", writes.len());
}

/// Clock ids. Source: Linux, `include/uapi/linux/time.h`.
const WALL_CLOCK: u32 = 0;
pub(crate) const MONOTONIC_CLOCK: u32 = 1;

/// A library that shifts a clock of a program by the seconds in a file.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t which, struct timespec *time) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(which, time);
  const char *stepped = getenv("TEST_CLOCK_ID");
  if (result == 0 && stepped && which == (clockid_t)atoi(stepped)) {
    FILE *file = fopen(getenv("TEST_CLOCK"), "r");
    long step = 0;
    if (file) { if (fscanf(file, "%ld", &step) != 1) step = 0; fclose(file); }
    time->tv_sec += step;
  }
  return result;
}
"#;

/// Shifts a clock of a program by the seconds in the returned file.
pub(crate) fn clock(rig: &Rig<'_>, which: u32, command: &mut Command) -> PathBuf {
    let directory = rig.machine.machine.path();
    let (source, library) = (directory.join("clock.c"), directory.join("clock.so"));
    fs::write(&source, CLOCK).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .finish();
    assert!(built.status.success(), "{built:?}");
    let step = directory.join("clock");
    fs::write(&step, "0").unwrap();
    command
        .env("LD_PRELOAD", library)
        .env("TEST_CLOCK", &step)
        .env("TEST_CLOCK_ID", which.to_string());
    step
}

#[test]
fn wall_clock_step_triggers_no_action() {
    let rig = Rig::new(Api::shared(), TWO);
    let mut command = rig.agent(&["--label-sink=node", "--log-level=debug"]);
    let step = clock(&rig, WALL_CLOCK, &mut command);
    let mut agent = Program::start(&mut command);
    agent.expect_log("the Node is up to date");
    let before = rig.writes().len();
    // A step forward by a month, and back.
    for (seconds, layout) in [("2592000", "all-7g.40gb"), ("0", "all-3g.20gb")] {
        fs::write(&step, seconds).unwrap();
        rig.label(&[&format!("octavo.dev/layout={layout}")]);
        agent.expect_log("GPU 1: applied");
        agent.expect_log("the Node is up to date");
    }
    rig.await_label("octavo.dev/layout-state", "applied");
    assert_eq!(names(&rig.machine.geometry(0)), ["3g.20gb", "3g.20gb"]);
    let writes = rig.writes().len() - before;
    assert!(writes <= 6, "{writes} writes for two changes");
    let reported = agent.kill().join("\n");
    assert!(reported.contains(&stamp_in_a_month()), "the clock did not step:\n{reported}");
}

/// The month in a month, as part of the timestamps in the log.
fn stamp_in_a_month() -> String {
    let then = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(720);
    then.strftime("%Y-%m-%d").to_string()
}
