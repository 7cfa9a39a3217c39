//! Instances for pending pods: the shipped aggregator and agent change them through a policy.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::rig::{install, policy};
use crate::cluster::Api;
use crate::cluster::agent::Rig;
use crate::cluster::agent::proxy::Proxy;
use crate::fleet_api::Api as Reader;
use crate::node::names;
use crate::pod_resources::Kubelet;
use crate::process::{Aggregator, Program};
use crate::time_limits::{Finish, until, until_async};

const GPUS: &str = "- {board: A100_40GB, count: 2, mig: enabled}\n";
/// Profiles of the pending pods.
const PROFILES: [&str; 3] = ["2g.10gb", "3g.20gb", "4g.20gb"];

/// A node with two GPUs. The first has an idle instance and one that a pod uses, and three pods wait for others.
struct Pool<'a> {
    rig: Rig<'a>,
    _kubelet: Kubelet,
    agent: Program,
    aggregator: Aggregator,
    namespace: String,
    /// UUID of the instance in use.
    in_use: String,
}

impl<'a> Pool<'a> {
    async fn new(api: &'a Api, kubeconfig: &str) -> Self {
        install(api);
        api.kubectl(&["create", "namespace", "octavo-system"]);
        let rig = Rig::new(api, GPUS);
        let kubelet = Kubelet::start(&rig.machine);
        let namespace = api.namespace();
        // There is no controller that creates accounts and removes the taint of new nodes.
        api.kubectl(&["create", "serviceaccount", "default", "-n", &namespace]);
        let untainted = r#"--patch={"spec": {"taints": null}}"#;
        api.kubectl(&["patch", "node", rig.name(), "--type=merge", untainted]);
        let kubeconfig = format!("--kubeconfig={kubeconfig}");
        let arguments = ["--plaintext", "--follow-cluster", "--policies", &kubeconfig];
        let aggregator = Aggregator::start(&arguments);
        let layouts = rig.machine.layouts("[{devices: 0, mig: {1g.5gb: 2}}]");
        rig.label(&["pool=a", "octavo.dev/layout=wanted"]);
        let agent = start_agent(&rig, &aggregator, &["--layouts", &layouts]);
        rig.await_label("octavo.dev/layout-state", "applied");
        // The instances stay without their layout.
        rig.label(&["octavo.dev/layout-"]);
        until("a node without a layout", || rig.labels("octavo.dev/layout"), Vec::is_empty);
        let reader = Reader::at(aggregator.http);
        let node = reader.node(rig.name(), |node| instances(node).len() == 2).await;
        let in_use = instances(&node)[0]["computeInstances"][0]["uuid"].as_str().unwrap();
        kubelet.give(&namespace, "notebook", in_use);
        let (in_use, node) = (in_use.to_owned(), rig.name().to_owned());
        for profile in PROFILES {
            api.create(&pod(&namespace, &node, profile));
        }
        Self { rig, _kubelet: kubelet, agent, aggregator, namespace, in_use }
    }

    fn apply(&self, mode: &str) {
        let spec = json!({
            "nodeSelector": {"matchLabels": {"pool": "a"}},
            "demand": {"mode": mode, "hold": "1s"},
        });
        self.rig.api.apply(&policy("a", &spec).to_string());
    }

    fn status(&self) -> Value {
        let get = ["get", "acceleratorpolicy", "a", "-o", "json"];
        let policy: Value = serde_json::from_str(&self.rig.api.kubectl(&get)).unwrap();
        policy["status"].clone()
    }

    /// Outcome of the proposal for each pod.
    async fn outcomes(&self) -> Vec<String> {
        let answer = Reader::at(self.aggregator.http).get("/api/v1/demand").await;
        let report = if answer.status == 200 { answer.json() } else { Value::Null };
        let items = report["items"].as_array().cloned().unwrap_or_default();
        let ours = items.into_iter().filter(|one| one["namespace"] == *self.namespace);
        ours.map(|one| one["outcome"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until the instances of all pods exist, and checks them.
    async fn await_instances(&self) {
        let outcomes = async || self.outcomes().await;
        let all = |outcomes: &Vec<String>| *outcomes == ["available"; 3];
        until_async("instances for all pods", outcomes, all).await;
        self.check_instance_in_use();
        let mut profiles = Vec::new();
        for gpu in 0..2 {
            let geometry = self.rig.machine.geometry(gpu);
            profiles.extend(names(&geometry).into_iter().map(str::to_owned));
        }
        for profile in PROFILES {
            assert!(profiles.iter().any(|one| one == profile), "{profile}: {profiles:?}");
        }
    }

    /// The instance in use is the same.
    fn check_instance_in_use(&self) {
        let world = self.rig.machine.machine.world();
        let mut all = world.gpus[0].mig.iter().flat_map(|mig| &mig.instances);
        let exists = all.any(|one| one.compute.iter().any(|part| part.uuid == self.in_use));
        assert!(exists, "the instance in use was destroyed");
    }
}

fn start_agent(rig: &Rig<'_>, aggregator: &Aggregator, more: &[&str]) -> Program {
    let url = format!("--aggregator=http://{}", aggregator.grpc);
    let arguments = [&url, "--aggregator-plaintext", "--usage-interval=1s", "--mig-strategy=mixed"];
    rig.start(&[&arguments, more].concat())
}

/// Instances of the first device of a node.
fn instances(node: &Value) -> Vec<&Value> {
    let instances = node["inventory"]["devices"][0]["mig"]["gpuInstances"].as_array();
    instances.into_iter().flatten().collect()
}

fn pod_name(profile: &str) -> String {
    format!("wants-{}", profile.replace('.', "-"))
}

/// A pod of the node that requests an instance.
fn pod(namespace: &str, node: &str, profile: &str) -> Value {
    let name = pod_name(profile);
    let resource = format!("nvidia.com/mig-{profile}");
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{
                "name": "main", "image": "test.invalid/train:1",
                "resources": {"limits": {resource: "1"}},
            }],
        },
    })
}

/// The proposals are listed and change nothing until an administrator approves them.
#[tokio::test]
async fn m21_approved_proposal_is_carried_out_beside_an_instance_in_use() {
    let api = Api::fresh();
    let pool = Pool::new(&api, api.kubeconfig().to_str().unwrap()).await;
    pool.apply("Propose");
    let waits = |status: &Value| {
        let pods = status["changes"][0]["pods"].as_array().map_or(0, Vec::len);
        status["state"] == "Waiting" && pods == PROFILES.len()
    };
    let status = until("a proposal for all pods", || pool.status(), waits);
    assert!(status["waitsFor"].as_str().unwrap().contains("octavo policy approve a"), "{status:#}");
    assert!(pool.rig.labels("octavo.dev/layout").is_empty());

    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(arguments)
            .env("OCTAVO_SERVER", format!("http://{}", pool.aggregator.http))
            .env("KUBECONFIG", api.kubeconfig())
            .stdin(Stdio::null())
            .finish();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, shown) = run(&["policy", "status", "a"]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("Proposed") && shown.contains("wants-3g-20gb: create"), "{shown}");
    for (node, refusal) in [
        ("another-node", "no change is proposed for node another-node"),
        (pool.rig.name(), "repeat the command with --yes"),
    ] {
        let (code, refused) = run(&["policy", "approve", "a", node]);
        assert_eq!(code, Some(1), "{refused}");
        assert!(refused.contains(refusal), "{refused}");
    }
    let (code, approved) = run(&["policy", "approve", "a", "--yes"]);
    assert_eq!(code, Some(0), "{approved}");
    assert!(approved.starts_with(&format!("{}: ", pool.rig.name())), "{approved}");

    pool.await_instances().await;
    let is_complete = |status: &Value| {
        status["state"] == "Complete" && status["changes"].as_array().is_none_or(Vec::is_empty)
    };
    until("the end of the change", || pool.status(), is_complete);
    let events = || {
        let selector = "--field-selector=involvedObject.name=a";
        api.kubectl(&["get", "events", selector, "-o=jsonpath={.items[*].reason}"])
    };
    let reasons = ["InstancesProposed", "InstancesChanging", "InstancesChanged"];
    until("events", events, |events| reasons.iter().all(|reason| events.contains(reason)));
    // The description of a pod has only events with its UID.
    for profile in PROFILES {
        let name = pod_name(profile);
        let describe = || api.kubectl(&["describe", "pod", &name, "-n", &pool.namespace]);
        let is_explained = |text: &String| reasons.iter().all(|reason| text.contains(reason));
        let text = until("events of the pod", describe, is_explained);
        let create =
            format!("policy a: waits for approval: create on node {}: {profile} ", pool.rig.name());
        assert!(text.contains(&create), "{text}");
        let others = PROFILES.iter().filter(|other| **other != profile);
        assert!(others.into_iter().all(|other| !text.contains(&pod_name(other))), "{text}");
    }
}

/// `kill -9` of the aggregator after every single write: the same change is completed, and the instance in use stays.
#[tokio::test]
async fn i3_aggregator_killed_after_every_write_carries_out_the_proposals_once() {
    let api = Api::fresh();
    let proxy = Proxy::start(&api);
    let mut pool = Pool::new(&api, proxy.kubeconfig().to_str().unwrap()).await;
    pool.aggregator.kill();
    pool.apply("Act");
    let mut crashes = 0;
    loop {
        // The killed aggregator still holds the Lease.
        let lease = ["delete", "lease", "octavo-policies", "-n", "octavo-system"];
        api.kubectl(&[&lease[..], &["--ignore-not-found"]].concat());
        proxy.allow_writes(1);
        pool.aggregator.restart();
        // An agent that lost its aggregator several times waits before it connects again.
        pool.agent.kill();
        pool.agent = start_agent(&pool.rig, &pool.aggregator, &[]);
        let progress = async || proxy.is_out_of_writes() || is_complete(&pool).await;
        until_async("a write or the end", progress, |done| *done).await;
        let is_complete = !proxy.is_out_of_writes();
        pool.aggregator.kill();
        pool.check_instance_in_use();
        if is_complete {
            break;
        }
        crashes += 1;
        assert!(crashes < 30, "{:#}", pool.status());
    }
    // The finalizer, the record, the proposal, the change and its end, and the status around them.
    assert!(crashes >= 6, "{crashes}");
    pool.aggregator.restart();
    pool.await_instances().await;
    let record = pool.rig.get()["metadata"]["annotations"]["octavo.dev/policy"].clone();
    let record: Value = serde_json::from_str(record.as_str().unwrap()).unwrap();
    assert_eq!(record["changes"].as_array().map(Vec::len), Some(1), "{record:#}");
}

async fn is_complete(pool: &Pool<'_>) -> bool {
    pool.outcomes().await == ["available"; 3] && pool.status()["state"] == "Complete"
}
