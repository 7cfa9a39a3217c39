//! Events of pods that use too much: of an agent with the permissions that the chart grants, on a real API server.
//!
//! The machine is simulated and its kubelet only keeps its sockets and its record; pods, their UIDs and what is refused are real.

use std::collections::BTreeMap;
use std::fs;

use nvml_sim::model::{Process, ProcessKind};
use serde_json::{Value, json};

use super::place::{Ask, Place, Verdict};
use super::sharing::{pod_event, upgrade};
use crate::device_plugin::{GPU, Rig, shared};
use crate::process::Program;

/// Where the kubelet says that its pods are.
const NAMESPACE: &str = "team-a";
const PODS: [&str; 4] = ["first", "second", "third", "fourth"];
/// The log message for a report that fails.
const REFUSED: &str = "the API server rejects events";

/// A node whose pods each share a GPU, and their UIDs.
struct Stage {
    place: Place,
    rig: Rig,
    uids: BTreeMap<&'static str, String>,
}

impl Stage {
    async fn new() -> Self {
        let place = Place::new().await;
        let name = json!({"name": NAMESPACE});
        place.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": name}));
        place.kubectl(&["create", "serviceaccount", "default", "-n", NAMESPACE]);
        place.kubectl(&["label", "--overwrite", "node", "node-a", "octavo.dev/layout=wanted"]);
        let uids = PODS.map(|name| (name, pod(&place, name)));
        let rig = Rig::new("- {board: A100_40GB, count: 4}\n");
        let proc = rig.node.machine.path().join("proc");
        fs::create_dir_all(proc.join("2")).unwrap();
        // A thread of the kernel, as only the machine's own namespace has it.
        fs::write(proc.join("2/stat"), stat(2, 2_129_984)).unwrap();
        let uids = uids.into();
        Self { place, rig, uids }
    }

    /// The agent as the pod on node-a, which gives each GPU out twice.
    fn agent(&self, way_in: &str) -> Program {
        let way_in = ["--kubeconfig", way_in, "--node-name=node-a"];
        let looks = ["--usage-interval=1s", "--pod-events"];
        let more = [&way_in[..], &["--label-sink=node"], &looks].concat();
        self.rig.agent(&shared(2), &more)
    }

    /// Kubelet gives each pod a replica of a GPU of its own, and says so in its record and in the Node.
    fn give(&self) {
        let kubelet = &self.rig.kubelet;
        kubelet.counts(GPU, 8);
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
        self.place.kubectl(&[&patch[..], &["-p", &offered]].concat());
    }

    /// A process of the pod has so much of the GPU that the pod was given.
    fn uses(&self, pod: &str, pid: u32, memory_mib: u64) {
        let directory = self.rig.node.machine.path().join(format!("proc/{pid}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("stat"), stat(pid, 0)).unwrap();
        let uid = self.uids[pod].replace('-', "_");
        let group = format!(
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{pid:064x}.scope\n"
        );
        fs::write(directory.join("cgroup"), group).unwrap();
        let given = self.rig.kubelet.knows(|known| {
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

    /// Waits until the server has answered so many events of pods, and gives its answers.
    #[track_caller]
    fn answers(&self, count: usize) -> Vec<u64> {
        // Each poll is a request to the server, which sets the pace; a test that polls without end has failed.
        for _ in 0..1000 {
            let answers = self.place.creations(NAMESPACE, "events");
            if answers.len() >= count {
                return answers;
            }
        }
        panic!("{:?}", self.place.creations(NAMESPACE, "events"));
    }

    /// Events of pods as `events.k8s.io/v1` has them.
    fn events(&self) -> Vec<Value> {
        let get = ["get", "events.v1.events.k8s.io", "-n", NAMESPACE, "-o", "json"];
        let list: Value = serde_json::from_str(&self.place.kubectl(&get)).unwrap();
        list["items"].as_array().unwrap().clone()
    }
}

/// Creates a pod on node-a that is never run, and returns its UID.
fn pod(place: &Place, name: &str) -> String {
    place.create(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"nodeName": "node-a", "containers": [{"name": "main", "image": "test.invalid/train:1"}]},
    }));
    let uid = ["get", "pod", name, "-n", NAMESPACE, "-o=jsonpath={.metadata.uid}"];
    place.kubectl(&uid)
}

/// A process as the kernel writes it, with these flags.
fn stat(pid: u32, flags: u32) -> String {
    let rest = " 0".repeat(43);
    format!("{pid} (x) S 0 0 0 0 -1 {flags}{rest}\n")
}

#[tokio::test]
async fn pod_over_its_share_gets_event_once_account_is_authorized() {
    let stage = Stage::new().await;
    let way_in = stage.place.way_in("agent-a");
    let mut agent = stage.agent(way_in.path().to_str().unwrap());
    stage.give();
    agent.says("sharing-in-force");
    reporting_fails(&stage, &mut agent);

    upgrade(&stage.place);
    let over = pod_event(NAMESPACE, "MemoryOverShare", "node-a");
    let may = stage.place.agent("agent-a").await;
    may.expects_soon(&over, Verdict::Done).await;
    // The agent is not restarted.
    permitted_report_is_an_event_of_the_pod(&stage, &mut agent);
    let reported = agent.kill();
    let refusals = reported.iter().filter(|line| line.contains(REFUSED));
    assert_eq!(refusals.count(), 1, "{reported:#?}");

    // The pod's user is shown it, and no other pod's.
    for (pod, is_reported) in [("third", true), ("first", false), ("fourth", false)] {
        let described = stage.place.kubectl(&["describe", "pod", pod, "-n", NAMESPACE]);
        assert_eq!(described.contains("MemoryOverShare"), is_reported, "{described}");
    }
    let node = Ask::get("/api/v1/nodes/node-a");
    may.expects("the agent's way in is still good", &node, Verdict::Done).await;
}

/// Each event is asked for once, and the first refusal is said.
fn reporting_fails(stage: &Stage, agent: &mut Program) {
    stage.uses("first", 101, 30 * 1024);
    let line = agent.says("container main uses 30.");
    assert!(line.contains("fair share") && line.ends_with(" pods=team-a/first"), "{line}");
    let why = agent.says(REFUSED);
    assert!(why.contains("forbidden") && why.contains(NAMESPACE), "{why}");
    stage.uses("second", 102, 30 * 1024);
    let line = agent.says("container main uses 30.");
    assert!(line.ends_with(" pods=team-a/second"), "{line}");
    assert_eq!(stage.answers(2), [403, 403]);
    stage.ends(102);
    let line = agent.says("container main uses 0.0");
    assert!(line.ends_with(" pods=team-a/second"), "{line}");
    assert_eq!(stage.answers(3), [403; 3]);
    assert!(stage.events().is_empty());
}

fn permitted_report_is_an_event_of_the_pod(stage: &Stage, agent: &mut Program) {
    stage.uses("third", 103, 31 * 1024);
    let line = agent.says("container main uses 31.");
    let answers = stage.answers(4);
    assert_eq!(answers, [403, 403, 403, 201]);
    let events = stage.events();
    let [event] = events.as_slice() else {
        panic!("{events:#?}");
    };
    assert_eq!(event["reason"], "MemoryOverShare");
    assert_eq!(event["type"], "Warning");
    let regarding = json!({
        "apiVersion": "v1", "kind": "Pod", "namespace": NAMESPACE, "name": "third", "uid": stage.uids["third"],
    });
    assert_eq!(event["regarding"], regarding);
    assert_eq!(event["reportingController"], "octavo.dev/agent");
    assert_eq!(event["reportingInstance"], "node-a");
    let note = event["note"].as_str().unwrap();
    assert!(note.starts_with("container main uses 31."), "{note}");
    assert!(line.ends_with(&format!("{note} pods=team-a/third")), "{line}: {note}");
    stage.ends(103);
    let line = agent.says("container main uses 0.0");
    assert!(line.ends_with(" pods=team-a/third"), "{line}");
    stage.answers(5);
    let reasons = stage.events().into_iter().map(|event| event["reason"].clone());
    let mut reasons: Vec<Value> = reasons.collect();
    reasons.sort_by_key(Value::to_string);
    assert_eq!(reasons, ["MemoryOverShare", "MemoryWithinShare"]);
}
