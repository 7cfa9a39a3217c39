//! Each reason for which replicas do not show up, brought about and named.

use serde_json::{Value, json};

use super::{LABEL, MAP, Stage, TWO, shown};
use crate::process::Program;

pub(crate) const SHARED: &str = "[{devices: all, timeSlicing: {replicas: 3}}]";
pub(crate) const NOW: &[&str] = &["--sharing=hand-off", "--sharing-deadline=1s"];

/// What stands around the agent.
#[derive(Clone, Copy)]
pub(crate) struct Scenery {
    /// Whether the `ConfigMap` has what the agent asks for.
    pub(crate) has_key: bool,
    /// `DaemonSets` that run the plugin: the name, the `ConfigMap` of each, whether there is a config-manager.
    pub(crate) sets: &'static [(&'static str, &'static str, bool)],
    /// What is said of the containers of their pods; nothing where there is no pod.
    pub(crate) pod: Option<&'static str>,
    /// What the Node offers, and what it has.
    pub(crate) gpus: Option<(u64, u64)>,
}

const RUNNING: &str = r#"{"running": {"startedAt": "2026-01-01T00:00:00Z"}}"#;
const CRASHING: &str = r#"{"waiting": {"reason": "CrashLoopBackOff"}}"#;
pub(crate) const WELL: Scenery = Scenery {
    has_key: true,
    sets: &[("plugin", MAP, true)],
    pod: Some(RUNNING),
    gpus: Some((2, 2)),
};

impl Stage {
    fn set_up(&self, scenery: &Scenery) {
        let api = self.rig.api;
        if scenery.has_key {
            self.make_map();
            let shown = shown("wanted", 3);
            let patch = json!({"data": {shown.key: shown.config}}).to_string();
            api.kubectl(&["patch", "configmap", MAP, "-n", &self.namespace, "-p", &patch]);
        }
        if scenery.pod.is_some() {
            api.await_account(&self.namespace);
        }
        for (name, map, follows) in scenery.sets {
            let set = api.create(&self.daemon_set(name, map, *follows));
            if let Some(state) = scenery.pod {
                self.pod(&set, state);
            }
        }
        if let Some((offered, there)) = scenery.gpus {
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

    /// As GPU Operator and Helm create it, but on no node, so that only the test creates its pods.
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

/// A stage with its agent, started.
pub(crate) fn play(scenery: &Scenery, more: &[&str]) -> (Stage, Program) {
    let stage = Stage::new(TWO);
    stage.set_up(scenery);
    let agent = stage.agent(SHARED, more);
    (stage, agent)
}

#[test]
fn each_cause_of_missing_replicas_is_reported_with_evidence() {
    let cases = [
        (Scenery { has_key: false, ..WELL }, "does not exist"),
        (
            Scenery { sets: &[("plugin", "other", true)], ..WELL },
            "No volume of DaemonSet plugin refers to ConfigMap plugin-config",
        ),
        (
            Scenery { sets: &[("plugin", MAP, false)], ..WELL },
            "DaemonSet plugin has no config-manager",
        ),
        (Scenery { sets: &[], pod: None, ..WELL }, "runs NVIDIA's device plugin. Install it there"),
        (Scenery { pod: None, ..WELL }, "DaemonSet plugin has no pod on this node"),
        (
            Scenery { pod: Some(CRASHING), ..WELL },
            "its container config-manager is not running: CrashLoopBackOff",
        ),
        (WELL, "nvidia.com/gpu: 6 requested, 2 advertised). The plugin did not receive"),
        (
            Scenery { gpus: Some((0, 6)), ..WELL },
            "The Node has 6 of nvidia.com/gpu, but the plugin reports none of them as healthy",
        ),
        (
            Scenery { sets: &[("plugin", MAP, true), ("second", MAP, true)], ..WELL },
            "Pods of plugin and second both run on this node",
        ),
    ];
    // All at once, for each waits for its own deadline.
    let playing: Vec<(Stage, Program)> =
        cases.iter().map(|(scenery, _)| play(scenery, NOW)).collect();
    for ((stage, _agent), (_, reported)) in playing.iter().zip(&cases) {
        let why = stage.rig.await_event("SharingNotInForce");
        assert!(why.contains(reported), "{reported}: {why}");
    }
}

#[test]
fn missing_key_is_reported_and_fix_applies_without_restart() {
    let stage = Stage::new(TWO);
    stage.make_map();
    let mut agent = stage.agent(SHARED, NOW);
    let why = stage.rig.await_event("SharingNotInForce");
    let key = shown("wanted", 3).key;
    let reported = format!("ConfigMap {} has no key {key}", stage.map());
    assert!(why.contains(&reported), "{why}");
    assert_eq!(stage.followed(), None);
    let _aggregator_or_a_person = {
        let patch = json!({"data": {key.clone(): shown("wanted", 3).config}}).to_string();
        let map = ["patch", "configmap", MAP, "-n", &stage.namespace, "-p", &patch];
        stage.rig.api.kubectl(&map)
    };
    stage.rig.await_label(LABEL, &key);
    stage.offer(&json!({"nvidia.com/gpu": "6"}), &json!({"nvidia.com/gpu": "6"}));
    agent.says("the Node advertises 6 nvidia.com/gpu");
}

#[test]
fn missing_device_plugin_is_reported_even_if_none_is_expected() {
    let scenery = Scenery { sets: &[], pod: None, gpus: None, ..WELL };
    let (stage, _agent) = play(&scenery, &["--sharing-deadline=1s"]);
    let why = stage.rig.await_event("SharingNotInForce");
    assert!(why.contains("and advertises no nvidia.com/gpu"), "{why}");
    assert_eq!(stage.followed(), None);
}

#[test]
fn partitions_named_differently_by_the_plugin_block_mig() {
    let stage = Stage::new("- {board: A100_40GB, mig: enabled}\n");
    stage.offer(&json!({"nvidia.com/gpu": "7"}), &json!({"nvidia.com/gpu": "7"}));
    stage.set_up(&Scenery { has_key: false, gpus: None, ..WELL });
    let rules = "[{devices: all, mig: {1g.5gb: 7}, timeSlicing: {replicas: 2}}]";
    let more = [NOW, &["--mig-strategy=mixed"]].concat();
    let _agent = stage.agent(rules, &more);
    let why = stage.rig.await_event("SharingNotInForce");
    assert!(
        why.contains("The Node advertises 7 of nvidia.com/gpu, which was not requested"),
        "{why}"
    );
}

#[test]
fn unreadable_data_is_reported_without_permissions() {
    let stage = Stage::new(TWO);
    stage.set_up(&WELL);
    let api = stage.rig.api;
    let account = ["create", "serviceaccount", "blind", "-n", &stage.namespace];
    api.kubectl(&account);
    // All of its Node, and nothing of the plugin's namespace.
    let role = format!("blind-{}", stage.namespace);
    let rules = [
        "create",
        "clusterrole",
        &role,
        "--verb=get,list,watch,patch",
        "--resource=nodes,nodes/status",
    ];
    api.kubectl(&rules);
    let subject = format!("--serviceaccount={}:blind", stage.namespace);
    api.kubectl(&[
        "create",
        "clusterrolebinding",
        &role,
        &format!("--clusterrole={role}"),
        &subject,
    ]);
    let token = api.kubectl(&["create", "token", "blind", "-n", &stage.namespace]);
    let bearer = api.as_bearer(token.trim_end());
    let mut command = stage.rig.machine.agent(&["--interval=200ms", "--label-sink=node"]);
    let file = stage.rig.machine.layouts(SHARED);
    stage.rig.label(&["octavo.dev/layout=wanted"]);
    command
        .args(["--layouts", &file, "--node-name", stage.rig.name()])
        .arg(format!("--plugin-config-map={}", stage.map()))
        .args(NOW)
        .arg("--kubeconfig")
        .arg(bearer.path());
    let reported = Program::start(&mut command).says("sharing-not-in-force");
    for what in ["configmaps", "daemonsets", "pods"] {
        assert!(
            reported.contains(&format!("cannot list resource \"{what}\""))
                || reported.contains(&format!("cannot get resource \"{what}\"")),
            "{what}: {reported}"
        );
    }
}
