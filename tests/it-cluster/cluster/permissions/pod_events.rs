//! Events of pods that exceed their share, from an agent with the permissions of the chart, on a real API server.
//!
//! The machine is simulated and its kubelet only has sockets and a checkpoint; pods, their UIDs and denials are real.

use std::collections::BTreeMap;
use std::fs;

use nvml_sim::model::{Process, ProcessKind};
use serde_json::{Value, json};

use super::cluster::{ApiRequest, PermissionCluster, Verdict};
use super::sharing::{pod_event, upgrade};
use crate::device_plugin::{GPU, Rig, shared};
use crate::process::Program;

/// Namespace of the pods that the kubelet reports.
const NAMESPACE: &str = "team-a";
const PODS: [&str; 4] = ["first", "second", "third", "fourth"];
/// The log message for a report that fails.
const REFUSED: &str = "the API server rejects events";

/// A node whose pods each share a GPU, and their UIDs.
struct SharedNode {
    cluster: PermissionCluster,
    rig: Rig,
    uids: BTreeMap<&'static str, String>,
}

impl SharedNode {
    async fn new() -> Self {
        let cluster = PermissionCluster::new().await;
        let name = json!({"name": NAMESPACE});
        cluster.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": name}));
        cluster.kubectl(&["create", "serviceaccount", "default", "-n", NAMESPACE]);
        cluster.kubectl(&["label", "--overwrite", "node", "node-a", "octavo.dev/layout=wanted"]);
        let uids = PODS.map(|name| (name, pod(&cluster, name)));
        let rig = Rig::new("- {board: A100_40GB, count: 4}\n");
        let proc = rig.node.machine.path().join("proc");
        fs::create_dir_all(proc.join("2")).unwrap();
        // A kernel thread, which only the host's PID namespace has.
        fs::write(proc.join("2/stat"), stat(2, 2_129_984)).unwrap();
        let uids = uids.into();
        Self { cluster, rig, uids }
    }

    /// The agent as the pod on node-a, with two replicas of each GPU.
    fn agent(&self, kubeconfig: &str) -> Program {
        let kubeconfig = ["--kubeconfig", kubeconfig, "--node-name=node-a"];
        let looks = ["--usage-interval=1s", "--pod-events"];
        let more = [&kubeconfig[..], &["--label-sink=node"], &looks].concat();
        self.rig.agent(&shared(2), &more)
    }

    /// Allocates a replica of its own GPU to each pod, in the checkpoint and in the kubelet's response.
    fn give(&self) {
        let kubelet = &self.rig.kubelet;
        kubelet.await_count(GPU, 8);
        let pods = PODS.map(|name| kubelet.admit(name, GPU, 1).unwrap());
        let entries = pods.iter().map(|pod| {
            json!({
                "PodUID": self.uids[pod.name.as_str()], "ContainerName": "main", "ResourceName": GPU,
                "DeviceIDs": {"-1": pod.ids}, "AllocResp": "",
            })
        });
        let entries: Vec<Value> = entries.collect();
        let record =
            json!({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1});
        let draft = self.rig.directory().join("draft");
        fs::write(&draft, record.to_string()).unwrap();
        fs::rename(draft, self.rig.directory().join("kubelet_internal_checkpoint")).unwrap();
        let offered = json!({"status": {"allocatable": {GPU: "8"}, "capacity": {GPU: "8"}}});
        let offered = offered.to_string();
        let patch = ["patch", "node", "node-a", "--subresource=status", "--type=merge"];
        self.cluster.kubectl(&[&patch[..], &["-p", &offered]].concat());
    }

    /// A process of the pod uses this much memory of its GPU.
    fn uses(&self, pod: &str, pid: u32, memory_mib: u64) {
        let directory = self.rig.node.machine.path().join(format!("proc/{pid}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("stat"), stat(pid, 0)).unwrap();
        let uid = self.uids[pod].replace('-', "_");
        let group = format!(
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{pid:064x}.scope\n"
        );
        fs::write(directory.join("cgroup"), group).unwrap();
        let given = self.rig.kubelet.inspect(|known| {
            let mut pods = known.pods.iter();
            pods.find(|one| one.name == pod).unwrap().ids[0].clone()
        });
        let (gpu_uuid, _replica) = given.split_once("::").unwrap();
        self.rig.node.machine.change(|world| {
            world.add_process(Process {
                pid,
                name: "train".to_owned(),
                gpu_uuid: gpu_uuid.to_owned(),
                gi: None,
                ci: None,
                memory_mib,
                kind: ProcessKind::Compute,
            })
        });
    }

    fn ends(&self, pid: u32) {
        let machine = &self.rig.node.machine;
        machine.change(|world| world.remove_process(pid));
        fs::remove_dir_all(machine.path().join(format!("proc/{pid}"))).unwrap();
    }

    /// Waits until the server has answered this many events of pods, and returns the status codes.
    #[track_caller]
    fn answers(&self, count: usize) -> Vec<u64> {
        // Each poll is a request to the server, which sets the pace; a test that polls endlessly fails.
        for _ in 0..1000 {
            let answers = self.cluster.creations(NAMESPACE, "events");
            if answers.len() >= count {
                return answers;
            }
        }
        panic!("{:?}", self.cluster.creations(NAMESPACE, "events"));
    }

    /// Events of pods in `events.k8s.io/v1`.
    fn events(&self) -> Vec<Value> {
        let get = ["get", "events.v1.events.k8s.io", "-n", NAMESPACE, "-o", "json"];
        let list: Value = serde_json::from_str(&self.cluster.kubectl(&get)).unwrap();
        list["items"].as_array().unwrap().clone()
    }
}

/// Creates a pod on node-a that is never run, and returns its UID.
fn pod(cluster: &PermissionCluster, name: &str) -> String {
    cluster.create(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"nodeName": "node-a", "containers": [{"name": "main", "image": "test.invalid/train:1"}]},
    }));
    let uid = ["get", "pod", name, "-n", NAMESPACE, "-o=jsonpath={.metadata.uid}"];
    cluster.kubectl(&uid)
}

/// The kernel's format of a process with these flags.
fn stat(pid: u32, flags: u32) -> String {
    let rest = " 0".repeat(43);
    format!("{pid} (x) S 0 0 0 0 -1 {flags}{rest}\n")
}

#[tokio::test]
async fn pod_over_its_share_gets_event_once_account_is_authorized() {
    let node = SharedNode::new().await;
    let kubeconfig = node.cluster.kubeconfig_of_agent("agent-a");
    let mut agent = node.agent(kubeconfig.path().to_str().unwrap());
    node.give();
    agent.expect_log("sharing-in-force");
    reporting_fails(&node, &mut agent);

    upgrade(&node.cluster);
    let over = pod_event(NAMESPACE, "MemoryOverShare", "node-a");
    let may = node.cluster.agent("agent-a").await;
    may.expect_eventually(&over, Verdict::Allowed).await;
    // The agent is not restarted.
    permitted_report_is_an_event_of_the_pod(&node, &mut agent);
    let reported = agent.kill();
    let refusals = reported.iter().filter(|line| line.contains(REFUSED));
    assert_eq!(refusals.count(), 1, "{reported:#?}");

    // Users of the pod see its events only.
    for (pod, is_reported) in [("third", true), ("first", false), ("fourth", false)] {
        let described = node.cluster.kubectl(&["describe", "pod", pod, "-n", NAMESPACE]);
        assert_eq!(described.contains("MemoryOverShare"), is_reported, "{described}");
    }
    let node = ApiRequest::get("/api/v1/nodes/node-a");
    may.expect("the agent is still authorized", &node, Verdict::Allowed).await;
}

/// Each event is requested once, and the first denial is logged.
fn reporting_fails(node: &SharedNode, agent: &mut Program) {
    node.uses("first", 101, 30 * 1024);
    let line = agent.expect_log("container main uses 30 GiB");
    assert!(line.contains("fair share") && line.ends_with(" pods=team-a/first"), "{line}");
    let why = agent.expect_log(REFUSED);
    assert!(why.contains("forbidden") && why.contains(NAMESPACE), "{why}");
    node.uses("second", 102, 30 * 1024);
    let line = agent.expect_log("container main uses 30 GiB");
    assert!(line.ends_with(" pods=team-a/second"), "{line}");
    assert_eq!(node.answers(2), [403, 403]);
    node.ends(102);
    let line = agent.expect_log("container main uses 0 MiB");
    assert!(line.ends_with(" pods=team-a/second"), "{line}");
    assert_eq!(node.answers(3), [403; 3]);
    assert!(node.events().is_empty());
}

fn permitted_report_is_an_event_of_the_pod(node: &SharedNode, agent: &mut Program) {
    node.uses("third", 103, 31 * 1024);
    let line = agent.expect_log("container main uses 31 GiB");
    let answers = node.answers(4);
    assert_eq!(answers, [403, 403, 403, 201]);
    let events = node.events();
    let [event] = events.as_slice() else {
        panic!("{events:#?}");
    };
    assert_eq!(event["reason"], "MemoryOverShare");
    assert_eq!(event["type"], "Warning");
    let regarding = json!({
        "apiVersion": "v1", "kind": "Pod", "namespace": NAMESPACE, "name": "third", "uid": node.uids["third"],
    });
    assert_eq!(event["regarding"], regarding);
    assert_eq!(event["reportingController"], "octavo.dev/agent");
    assert_eq!(event["reportingInstance"], "node-a");
    let text = event["note"].as_str().unwrap();
    assert!(text.starts_with("container main uses 31 GiB"), "{text}");
    assert!(line.ends_with(&format!("{text} pods=team-a/third")), "{line}: {text}");
    node.ends(103);
    let line = agent.expect_log("container main uses 0 MiB");
    assert!(line.ends_with(" pods=team-a/third"), "{line}");
    node.answers(5);
    let reasons = node.events().into_iter().map(|event| event["reason"].clone());
    let mut reasons: Vec<Value> = reasons.collect();
    reasons.sort_by_key(Value::to_string);
    assert_eq!(reasons, ["MemoryOverShare", "MemoryWithinShare"]);
}
