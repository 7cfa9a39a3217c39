//! The agent as a pod of the chart with sharing: on real nodes it is the device plugin, observes usage and reports it.

use std::path::Path;

use nvml_sim::model::{Process, ProcessKind};
use serde_json::{Value, json};

use super::super::nodes::{Nodes, root};
use super::site::{A100, NAMESPACE, Site, VERSION, values};

const GPU: &str = "nvidia.com/gpu";
pub(super) const SHELL: &str = "test.invalid/shared:1";
const LAYOUTS: &str = "
apiVersion: octavo.dev/v1
kind: Layouts
layouts:
  by-turns: [{devices: all, timeSlicing: {replicas: 3}}]
";

/// Values of an administrator who uses the built-in device plugin; intervals are short because the defaults are for
/// large clusters.
fn sharing() -> Value {
    let mut values = values(VERSION);
    values["tier"] = json!("applier");
    values["layouts"] = json!(LAYOUTS);
    // Agents report usage by pod themselves.
    values["aggregator"] = json!({"enabled": false});
    let agent = values["agent"].as_object_mut().unwrap();
    agent.insert("layout".to_owned(), json!("by-turns"));
    agent.insert("sharing".to_owned(), json!({"mode": "embedded"}));
    let usage = json!({"interval": "1s", "hostPID": true, "podEvents": true});
    agent.insert("usage".to_owned(), usage);
    values
}

pub(super) const INSTALL: &str = "
kubectl create namespace octavo-system
kubectl label namespace octavo-system pod-security.kubernetes.io/enforce=privileged
helm install octavo deploy/chart/octavo --namespace octavo-system --wait
";

#[tokio::test]
async fn chart_grants_sharing_agent_the_required_access() {
    let _alone = Nodes::alone().await;
    let site = Site::without_service();
    site.reader.set_values(&sharing());
    site.reader.run_commands(INSTALL, A100);
    // The other node's GPU is in MIG mode and has no partition.
    site.node(A100, |node| node["status"]["allocatable"][GPU] == "6");
    pod_matches_values(&site);
    pod_over_its_share_gets_event(&site);
    site.reader.run_block("operations/upgrade.md", "uninstall", A100);
    site.node(A100, |node| node["status"]["allocatable"][GPU] == "0");
    site.is_restored();
}

/// As stored by the API server, which admits only what the namespace allows.
fn pod_matches_values(site: &Site) {
    let pod = site.get(&["pod", "-n", NAMESPACE, &site.pod(A100)]);
    let spec = &pod["spec"];
    assert_eq!(spec["hostPID"], true);
    let container = &spec["containers"][0];
    let arguments = container["args"].as_array().unwrap();
    for argument in ["--sharing=embedded", "--usage-interval=1s", "--pod-events"] {
        assert!(arguments.contains(&json!(argument)), "{arguments:?}");
    }
    let named = |list: &Value| {
        let mut all = list.as_array().unwrap().iter();
        all.find(|one| one["name"] == "device-plugins").cloned().unwrap()
    };
    let path = "/var/lib/kubelet/device-plugins";
    assert_eq!(named(&spec["volumes"])["hostPath"]["path"], path);
    let mount = named(&container["volumeMounts"]);
    assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!(path), &Value::Null));
    let log = site.api().kubectl(&["logs", "-n", NAMESPACE, &site.pod(A100)]);
    assert!(log.contains("registered with the kubelet resource=nvidia.com/gpu"), "{log}");
}

/// A pod of node-1 with one replica that prints its device and keeps running.
fn pod(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": A100}, "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": SHELL, "imagePullPolicy": "Never",
                "args": ["-c", "echo $NVIDIA_VISIBLE_DEVICES; exec sleep 100000"],
                "resources": {"limits": {GPU: "1"}},
            }],
        },
    })
}

fn pod_over_its_share_gets_event(site: &Site) {
    let api = site.api();
    let tools = ["/bin/sh", "/bin/sleep"].map(|path| (Path::new(path), path));
    site.image(A100, SHELL, root(&tools).path(), &["/bin/sh"]);
    let namespace = api.namespace();
    api.await_account(&namespace);
    // Other pods hold the rest, so each GPU has several.
    let names = ["greedy", "two", "three", "four", "five", "six"];
    let pods = names.map(|name| pod(&namespace, name).to_string());
    api.apply(&pods.join("\n---\n"));
    let all = ["wait", "pod", "--all", "--for=condition=Ready", "--timeout=180s", "-n", &namespace];
    let waited = api.try_kubectl(&all);
    let described = || api.kubectl(&["describe", "pods", "-n", &namespace]);
    assert!(waited.status.success(), "{}", described());
    let gpu = api.output_of(&namespace, "greedy");
    let processes = site.processes(&namespace, "greedy", "sleep");
    let [pid] = processes.as_slice() else {
        panic!("{processes:?}");
    };
    site.machine.change(|world| {
        world.add_process(Process {
            pid: u32::try_from(*pid).unwrap(),
            name: "sleep".to_owned(),
            gpu_uuid: gpu,
            gi: None,
            ci: None,
            memory_mib: 40 * 1024,
            kind: ProcessKind::Compute,
        })
    });
    let uid = site.get(&["pod", "greedy", "-n", &namespace])["metadata"]["uid"].clone();
    let mut events = Vec::new();
    site.until("an event of the pod", || {
        let list = site.get(&["events.v1.events.k8s.io", "-n", &namespace]);
        let all = list["items"].as_array().unwrap().iter();
        let ours = all.filter(|event| event["reportingController"] == "octavo.dev/agent");
        events = ours.cloned().collect();
        !events.is_empty()
    });
    let [event] = events.as_slice() else {
        panic!("{events:#?}");
    };
    assert_eq!((&event["reason"], &event["regarding"]["uid"]), (&json!("MemoryOverShare"), &uid));
    assert_eq!(event["reportingInstance"], A100);
    let note = event["note"].as_str().unwrap();
    assert!(note.starts_with("container main uses 40 GiB of an 80 GiB GPU shared by 3"), "{note}");
    api.kubectl(&["delete", "namespace", &namespace, "--timeout=120s"]);
}
