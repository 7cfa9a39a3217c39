//! Each cause of missing replicas, reproduced and named.

use serde_json::{Value, json};

use super::{HandOffFixture, LABEL, MAP, TWO, shown};
use crate::process::Program;

pub(crate) const SHARED: &str = "[{devices: all, timeSlicing: {replicas: 3}}]";
pub(crate) const NOW: &[&str] = &["--sharing=hand-off", "--sharing-deadline=1s"];

/// State of the plugin around the agent.
#[derive(Clone, Copy)]
pub(crate) struct PluginSetup {
    /// True if the `ConfigMap` has the requested key.
    pub(crate) has_key: bool,
    /// `DaemonSets` that run the plugin: the name, the `ConfigMap` of each, whether there is a config-manager.
    pub(crate) sets: &'static [(&'static str, &'static str, bool)],
    /// Container state of their pods; `None` without a pod.
    pub(crate) pod: Option<&'static str>,
    /// Allocatable and capacity of the Node.
    pub(crate) gpus: Option<(u64, u64)>,
}

const RUNNING: &str = r#"{"running": {"startedAt": "2026-01-01T00:00:00Z"}}"#;
const CRASHING: &str = r#"{"waiting": {"reason": "CrashLoopBackOff"}}"#;
pub(crate) const COMPLETE: PluginSetup = PluginSetup {
    has_key: true,
    sets: &[("plugin", MAP, true)],
    pod: Some(RUNNING),
    gpus: Some((2, 2)),
};

impl HandOffFixture {
    fn set_up(&self, setup: &PluginSetup) {
        let api = self.rig.api;
        if setup.has_key {
            self.make_map();
            let shown = shown("wanted", 3);
            let patch = json!({"data": {shown.key: shown.config}}).to_string();
            api.kubectl(&["patch", "configmap", MAP, "-n", &self.namespace, "-p", &patch]);
        }
        if setup.pod.is_some() {
            api.await_account(&self.namespace);
        }
        for (name, map, follows) in setup.sets {
            let set = api.create(&self.daemon_set(name, map, *follows));
            if let Some(state) = setup.pod {
                self.pod(&set, state);
            }
        }
        if let Some((offered, there)) = setup.gpus {
            self.offer(
                &json!({"nvidia.com/gpu": offered.to_string()}),
                &json!({"nvidia.com/gpu": there.to_string()}),
            );
        }
    }

    fn offer(&self, allocatable: &Value, capacity: &Value) {
        let patch =
            json!({"status": {"allocatable": allocatable, "capacity": capacity}}).to_string();
        let node = ["patch", "node", self.rig.name(), "--subresource=status", "--type=merge"];
        self.rig.api.kubectl(&[&node[..], &["-p", &patch]].concat());
    }

    /// As created by GPU Operator and Helm, but on no node, so that only the test creates its pods.
    fn daemon_set(&self, name: &str, map: &str, follows: bool) -> Value {
        let mut containers = vec![json!({
            "name": "nvidia-device-plugin", "image": "test.invalid/none:1", "command": ["nvidia-device-plugin"]})];
        if follows {
            containers.push(json!({
                "name": "config-manager", "image": "test.invalid/none:1", "command": ["config-manager"]}));
        }
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {
                        "nodeSelector": {"octavo.test/nowhere": "true"},
                        "containers": containers,
                        "volumes": [{"name": "available-configs", "configMap": {"name": map}}],
                    },
                },
            },
        })
    }

    fn pod(&self, set: &Value, state: &str) {
        let name = set["metadata"]["name"].as_str().unwrap();
        let pod = format!("{name}-x");
        let spec = &set["spec"]["template"]["spec"];
        self.rig.api.create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": pod, "namespace": self.namespace,
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": set["metadata"]["uid"]}],
            },
            "spec": {
                "nodeName": self.rig.name(), "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
                "containers": spec["containers"], "volumes": spec["volumes"],
                "tolerations": [{"operator": "Exists"}],
            },
        }));
        let running: Value = serde_json::from_str(RUNNING).unwrap();
        let second: Value = serde_json::from_str(state).unwrap();
        let status = |name: &str, state: &Value| json!({"name": name, "state": state, "image": "a", "imageID": "b", "ready": true, "restartCount": 0});
        let statuses =
            json!([status("nvidia-device-plugin", &running), status("config-manager", &second)]);
        let patch =
            json!({"status": {"phase": "Running", "containerStatuses": statuses}}).to_string();
        let patching =
            ["patch", "pod", &pod, "-n", &self.namespace, "--subresource=status", "-p", &patch];
        self.rig.api.kubectl(&patching);
    }
}

/// A fixture with this state and a running agent.
pub(crate) fn start_setup(setup: &PluginSetup, more: &[&str]) -> (HandOffFixture, Program) {
    let fixture = HandOffFixture::new(TWO);
    fixture.set_up(setup);
    let agent = fixture.agent(SHARED, more);
    (fixture, agent)
}

#[test]
fn each_cause_of_missing_replicas_is_reported_with_evidence() {
    let cases = [
        (PluginSetup { has_key: false, ..COMPLETE }, "does not exist"),
        (
            PluginSetup { sets: &[("plugin", "other", true)], ..COMPLETE },
            "No volume of DaemonSet plugin refers to ConfigMap plugin-config",
        ),
        (
            PluginSetup { sets: &[("plugin", MAP, false)], ..COMPLETE },
            "DaemonSet plugin has no config-manager",
        ),
        (
            PluginSetup { sets: &[], pod: None, ..COMPLETE },
            "runs NVIDIA's device plugin. Install it there",
        ),
        (PluginSetup { pod: None, ..COMPLETE }, "DaemonSet plugin has no pod on this node"),
        (
            PluginSetup { pod: Some(CRASHING), ..COMPLETE },
            "its container config-manager is not running: CrashLoopBackOff",
        ),
        (COMPLETE, "nvidia.com/gpu: 6 requested, 2 advertised). The plugin did not receive"),
        (
            PluginSetup { gpus: Some((0, 6)), ..COMPLETE },
            "The Node has 6 of nvidia.com/gpu, but the plugin reports none of them as healthy",
        ),
        (
            PluginSetup { sets: &[("plugin", MAP, true), ("second", MAP, true)], ..COMPLETE },
            "Pods of plugin and second both run on this node",
        ),
    ];
    // All at the same time, because each waits for its own deadline.
    let fixtures: Vec<(HandOffFixture, Program)> =
        cases.iter().map(|(setup, _)| start_setup(setup, NOW)).collect();
    for ((fixture, _agent), (_, reported)) in fixtures.iter().zip(&cases) {
        let why = fixture.rig.await_event("SharingNotInForce");
        assert!(why.contains(reported), "{reported}: {why}");
    }
}

#[test]
fn missing_key_is_reported_and_fix_applies_without_restart() {
    let fixture = HandOffFixture::new(TWO);
    fixture.make_map();
    let mut agent = fixture.agent(SHARED, NOW);
    let why = fixture.rig.await_event("SharingNotInForce");
    let key = shown("wanted", 3).key;
    let reported = format!("ConfigMap {} has no key {key}", fixture.map());
    assert!(why.contains(&reported), "{why}");
    assert_eq!(fixture.followed(), None);
    let _aggregator_or_a_person = {
        let patch = json!({"data": {key.clone(): shown("wanted", 3).config}}).to_string();
        let map = ["patch", "configmap", MAP, "-n", &fixture.namespace, "-p", &patch];
        fixture.rig.api.kubectl(&map)
    };
    fixture.rig.await_label(LABEL, &key);
    fixture.offer(&json!({"nvidia.com/gpu": "6"}), &json!({"nvidia.com/gpu": "6"}));
    agent.expect_log("the Node advertises 6 nvidia.com/gpu");
}

#[test]
fn missing_device_plugin_is_reported_even_if_none_is_expected() {
    let setup = PluginSetup { sets: &[], pod: None, gpus: None, ..COMPLETE };
    let (fixture, _agent) = start_setup(&setup, &["--sharing-deadline=1s"]);
    let why = fixture.rig.await_event("SharingNotInForce");
    assert!(why.contains("and advertises no nvidia.com/gpu"), "{why}");
    assert_eq!(fixture.followed(), None);
}

#[test]
fn partitions_named_differently_by_the_plugin_block_mig() {
    let fixture = HandOffFixture::new("- {board: A100_40GB, mig: enabled}\n");
    fixture.offer(&json!({"nvidia.com/gpu": "7"}), &json!({"nvidia.com/gpu": "7"}));
    fixture.set_up(&PluginSetup { has_key: false, gpus: None, ..COMPLETE });
    let rules = "[{devices: all, mig: {1g.5gb: 7}, timeSlicing: {replicas: 2}}]";
    let more = [NOW, &["--mig-strategy=mixed"]].concat();
    let _agent = fixture.agent(rules, &more);
    let why = fixture.rig.await_event("SharingNotInForce");
    assert!(
        why.contains("The Node advertises 7 of nvidia.com/gpu, which was not requested"),
        "{why}"
    );
}

#[test]
fn unreadable_data_is_reported_without_permissions() {
    let fixture = HandOffFixture::new(TWO);
    fixture.set_up(&COMPLETE);
    let api = fixture.rig.api;
    let account = ["create", "serviceaccount", "blind", "-n", &fixture.namespace];
    api.kubectl(&account);
    // All permissions on its Node, and none in the namespace of the plugin.
    let role = format!("blind-{}", fixture.namespace);
    let rules = [
        "create",
        "clusterrole",
        &role,
        "--verb=get,list,watch,patch",
        "--resource=nodes,nodes/status",
    ];
    api.kubectl(&rules);
    let subject = format!("--serviceaccount={}:blind", fixture.namespace);
    api.kubectl(&[
        "create",
        "clusterrolebinding",
        &role,
        &format!("--clusterrole={role}"),
        &subject,
    ]);
    let token = api.kubectl(&["create", "token", "blind", "-n", &fixture.namespace]);
    let bearer = api.kubeconfig_with_token(token.trim_end());
    let mut command = fixture.rig.machine.agent(&["--interval=200ms", "--label-sink=node"]);
    let file = fixture.rig.machine.layouts(SHARED);
    fixture.rig.label(&["octavo.dev/layout=wanted"]);
    command
        .args(["--layouts", &file, "--node-name", fixture.rig.name()])
        .arg(format!("--plugin-config-map={}", fixture.map()))
        .args(NOW)
        .arg("--kubeconfig")
        .arg(bearer.path());
    let reported = Program::start(&mut command).expect_log("sharing-not-in-force");
    for what in ["configmaps", "daemonsets", "pods"] {
        assert!(
            reported.contains(&format!("cannot list resource \"{what}\""))
                || reported.contains(&format!("cannot get resource \"{what}\"")),
            "{what}: {reported}"
        );
    }
}
