//! An API server in trouble, credentials that go, a Node that goes, another agent, a clock that steps: what becomes of the node,
//! and how many requests that makes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde_json::json;

use super::proxy::{Fault, Proxy, To};
use super::{NODE_WRITTEN, Rig};
use crate::cluster::Api;
use crate::node::names;
use crate::process::Program;
use crate::time_limits::Finish;

const TWO: &str = "- {board: A100_40GB, count: 2, mig: enabled}\n";

/// Nothing is answered well until this ends.
const REFUSES_ALL: Fault = Fault { to: To::All, code: 500, retry_after: None, times: u32::MAX };

impl Rig<'_> {
    /// An agent that speaks through a proxy.
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
    // The layout is not known yet, so nothing is begun; the inventory is read.
    agent.says("cannot watch the Node");
    agent.says("device found");
    assert!(machine.geometry(0).is_empty());
    api.start();
    agent.says("GPU 1: applied");
    agent.says(NODE_WRITTEN);
    api.stop();
    agent.says("cannot watch the Node");
    // Another process destroys the instances, and they are restored although the API server is unavailable.
    machine.machine.change(|world| {
        let slot = world.slot_of_index(0).unwrap();
        world.destroy_ci(slot, 0, 0)?;
        world.destroy_gi(slot, 0)
    });
    agent.says("GPU 0: applied");
    assert_eq!(names(&machine.geometry(0)), ["7g.40gb"]);
    machine.machine.change(|world| world.lose_gpu(world.slot_of_index(1).unwrap()));
    api.start();
    agent.says("the API server responds again");
    // A GPU that fell off the bus is not among those that the driver speaks for.
    let name = format!("node/{}", node.name());
    let gone = "--for=jsonpath={.metadata.labels.nvidia\\.com/gpu\\.count}=1";
    api.kubectl(&["wait", "--timeout=100s", gone, &name]);
}

#[test]
fn throttled_requests_are_retried_only_as_often_as_needed() {
    for (code, retry_after) in [(429, Some(1)), (500, None), (503, Some(1)), (409, None)] {
        let rig = Rig::new(Api::shared(), TWO);
        let proxy = Proxy::start(rig.api);
        proxy.fault(Fault { to: To::Patches, code, retry_after, times: 3 });
        let mut agent = rig.through(&proxy, &[]);
        agent.says(NODE_WRITTEN);
        rig.await_label("octavo.dev/count", "2");
        assert_eq!(proxy.count("PATCH"), 4, "{code}: {:?}", proxy.requests());
    }
}

#[test]
fn expired_watch_is_restarted_without_writes() {
    let rig = Rig::new(Api::shared(), TWO);
    let proxy = Proxy::start(rig.api);
    proxy.fault(Fault { to: To::Watches, code: 410, retry_after: None, times: 3 });
    let mut agent = rig.through(&proxy, &[]);
    agent.says(NODE_WRITTEN);
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
    agent.says(NODE_WRITTEN);
    proxy.fault(REFUSES_ALL);
    let (began, before) = (Instant::now(), proxy.requests().len());
    // Much changes meanwhile, and each change is something to write.
    for turn in 0..30 {
        rig.machine.machine.change(|world| {
            let slot = world.slot_of_index(turn % 2).unwrap();
            if turn % 4 < 2 { world.lose_gpu(slot) } else { world.return_gpu(slot) }
        });
        agent.says("device changed");
    }
    let requested = proxy.requests().len() - before;
    let most = 10 + 2 * usize::try_from(began.elapsed().as_secs()).unwrap();
    assert!(requested <= most, "{requested} requests in {:?}", began.elapsed());
    proxy.fault(None);
    agent.says(NODE_WRITTEN);
    rig.await_label("octavo.dev/count", "2");
}

#[test]
fn requests_rejected_at_start_are_retried_with_backoff() {
    let rig = Rig::new(Api::shared(), TWO);
    let proxy = Proxy::start(rig.api);
    proxy.fault(REFUSES_ALL);
    let began = Instant::now();
    let mut agent = rig.through(&proxy, &["--log-level=debug"]);
    agent.says("cannot watch the Node");
    for _ in 0..4 {
        agent.says("still cannot watch the Node");
    }
    // Half a second, one, two and four at the least, whatever else is asked for meanwhile.
    assert!(began.elapsed().as_secs_f64() > 7.0, "{:?}", proxy.requests());
    assert!(proxy.requests().len() <= 6, "{:?}", proxy.requests());
    proxy.fault(None);
    agent.says(NODE_WRITTEN);
}

#[test]
fn rejected_token_is_reread_until_accepted() {
    let api = Api::fresh();
    let rig = Rig::new(&api, TWO);
    let token = token(&api, rig.name());
    let bearer = api.as_bearer("refused");
    let kubeconfig = bearer.path().display().to_string();
    let mut agent = Program::start(&mut rig.machine.agent(&[
        "--label-sink=node",
        "--interval=200ms",
        "--kubeconfig",
        &kubeconfig,
        "--node-name",
        rig.name(),
    ]));
    agent.says("401");
    bearer.set_token(&token);
    agent.says(NODE_WRITTEN);
    rig.await_label("octavo.dev/count", "2");
    let refused = api.audit().iter().filter(|event| event["responseStatus"]["code"] == 401).count();
    assert!(refused <= 40, "{refused} requests with a bad token");
}

#[test]
fn new_api_server_ca_is_trusted_without_restart() {
    let mut api = Api::fresh();
    let machine = crate::node::Node::new(TWO);
    let node = api.node("rotated");
    let bearer = api.as_bearer(&token(&api, node.name()));
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
    agent.says(NODE_WRITTEN);
    api.rotate_ca();
    // The client reads the file of authorities once a minute.
    api.kubectl(&["label", "node", node.name(), "octavo.dev/layout=all-7g.40gb"]);
    agent.says("GPU 1: applied");
    agent.says(NODE_WRITTEN);
    std::mem::forget(node);
}

/// A token of a service account that may do what the agent does, bound to a pod on `node`.
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
    agent.says("the Node was deleted");
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
    one.says(NODE_WRITTEN);
    let kubeconfig = rig.api.kubeconfig().display().to_string();
    let mut two = Program::start(&mut other.agent(&[
        "--label-sink=node",
        "--interval=200ms",
        "--kubeconfig",
        &kubeconfig,
        "--node-name",
        rig.name(),
    ]));
    two.says("check for a second agent");
    one.says("check for a second agent");
    let writes = rig.writes();
    assert!(writes.len() <= 16, "{} writes: {writes:#?}", writes.len());
}

/// Clocks by their numbers. Source: Linux, `include/uapi/linux/time.h`.
const WALL_CLOCK: u32 = 0;
pub(crate) const MONOTONIC_CLOCK: u32 = 1;

/// Makes a clock of a program what a file says: seconds to add.
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

/// Has a program's clock go by a file, which is given.
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
    agent.says("the Node is up to date");
    let before = rig.writes().len();
    // A month ahead, and back: a step forwards and one backwards.
    for (seconds, layout) in [("2592000", "all-7g.40gb"), ("0", "all-3g.20gb")] {
        fs::write(&step, seconds).unwrap();
        rig.label(&[&format!("octavo.dev/layout={layout}")]);
        agent.says("GPU 1: applied");
        agent.says("the Node is up to date");
    }
    rig.await_label("octavo.dev/layout-state", "applied");
    assert_eq!(names(&rig.machine.geometry(0)), ["3g.20gb", "3g.20gb"]);
    let writes = rig.writes().len() - before;
    assert!(writes <= 6, "{writes} writes for two changes");
    let reported = agent.kill().join("\n");
    assert!(reported.contains(&stamp_in_a_month()), "the clock did not step:\n{reported}");
}

/// The month that it is in a month: part of the log's lines of then.
fn stamp_in_a_month() -> String {
    let then = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(720);
    then.strftime("%Y-%m-%d").to_string()
}
