//! Profiles on two real nodes with devices of different types: agents, kubelets, scheduler and pods are real.
//!
//! Each agent runs beside the kubelet of its node, on a simulated machine, and is its device plugin.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use super::made::{object, pod};
use super::{HARDWARE, Site, define, profile, words};
use crate::cluster::Api;
use crate::cluster::nodes::{Nodes, root};
use crate::node::Node;
use crate::process::Program;
use crate::time_limits::Finish;

const GPU: &str = "nvidia.com/gpu";
const SHELL: &str = "test.invalid/placed:1";
const A100: &str = "nvidia-a100-80gb";
const H100: &str = "nvidia-h100-80gb";
/// A type without nodes.
const V100: &str = "nvidia-v100-32gb";
const TAINT: &str = "nvidia.com/gpu";

/// A machine, its node, and its agent.
struct Host {
    // Dropped before the machine, whose files it uses.
    agent: Program,
    machine: Node,
    name: &'static str,
    type_name: &'static str,
    devices: usize,
}

impl Host {
    fn new(
        site: &Site<'_>,
        (name, board, type_name): (&'static str, &str, &'static str),
        devices: usize,
    ) -> Self {
        let nodes = Nodes::shared();
        let machine = Node::new(&format!("- {{board: {board}, count: {devices}}}\n"));
        // The pod-resources socket of the machine's kubelet.
        let kubelet = machine.kubelet();
        let requested = nodes.kubelet(name).join("pod-resources");
        symlink(requested, kubelet.parent().unwrap()).unwrap();
        // Processes of pods must be visible, or ended pods would retain their devices.
        let proc = machine.machine.path().join("proc");
        fs::remove_dir_all(&proc).unwrap();
        symlink("/proc", proc).unwrap();
        let tools = ["/bin/sh", "/bin/sleep"].map(|path| (Path::new(path), path));
        nodes.image(name, SHELL, root(&tools).path(), &["/bin/sh"]);
        let layouts = machine.layouts("[{devices: all, mig: disabled}]");
        let aggregator = format!("--aggregator=http://{}", site.aggregator.grpc);
        let mut command =
            machine.agent(&["--sharing=embedded", "--interval=500ms", "--usage-interval=1s"]);
        command
            .args(["--layouts", &layouts, "--layout=wanted", "--label-sink=node"])
            .args(["--node-name", name, &aggregator, "--aggregator-plaintext"])
            .arg("--device-plugins")
            .arg(nodes.kubelet(name).join("device-plugins"))
            .arg("--kubeconfig")
            .arg(site.api.kubeconfig());
        let agent = Program::start(&mut command);
        let taint = format!("{TAINT}=present:NoSchedule");
        site.api.kubectl(&["taint", "node", name, &taint, "--overwrite"]);
        Self { agent, machine, name, type_name, devices }
    }

    /// Waits until all its devices are allocatable and its type is known.
    fn is_ready(&self, api: &Api) {
        let count =
            format!("--for=jsonpath={{.status.allocatable.nvidia\\.com/gpu}}={}", self.devices);
        let label =
            format!("--for=jsonpath={{.metadata.labels.octavo\\.dev/type}}={}", self.type_name);
        for condition in [count, label] {
            api.kubectl(&["wait", "node", self.name, &condition, "--timeout=300s"]);
        }
    }

    fn uuids(&self) -> BTreeSet<String> {
        let world = self.machine.machine.world();
        world.gpus.iter().map(|gpu| gpu.uuid.clone()).collect()
    }
}

/// Restores the node, also after a failure, which would fail the next tests on these nodes.
impl Drop for Host {
    fn drop(&mut self) {
        self.agent.kill();
        clean_up(|| self.restore());
    }
}

impl Host {
    fn restore(&self) {
        let api = Nodes::shared().api();
        let mut command =
            self.machine.agent(&["--label-sink=node", "--cleanup", "--node-name", self.name]);
        let cleaned = command.arg("--kubeconfig").arg(api.kubeconfig()).finish();
        let untainted = api.try_kubectl(&["taint", "node", self.name, &format!("{TAINT}-")]);
        let none = "--for=jsonpath={.status.allocatable.nvidia\\.com/gpu}=0";
        let withdrawn = api.try_kubectl(&["wait", "node", self.name, none, "--timeout=300s"]);
        for output in [cleaned, untainted, withdrawn] {
            assert!(output.status.success(), "{output:?}");
        }
    }
}

/// Cleans up in a `drop`. A second panic during a failure would abort all tests, so it is ignored then.
fn clean_up(clean: impl FnOnce()) {
    if thread::panicking() {
        let _ignored = catch_unwind(AssertUnwindSafe(clean));
    } else {
        clean();
    }
}

/// A namespace that is deleted with its pods.
struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        clean_up(|| {
            let api = Nodes::shared().api();
            api.kubectl(&["delete", "namespace", &self.0, "--timeout=300s"]);
        });
    }
}

/// A pod of a profile that prints its devices and keeps running.
fn work(profile: &Value, namespace: &str, name: &str) -> String {
    let mut pod = pod(profile, namespace, name);
    let spec = &mut pod["spec"];
    spec["terminationGracePeriodSeconds"] = json!(0);
    let main = &mut spec["containers"][0];
    main["image"] = json!(SHELL);
    main["imagePullPolicy"] = json!("Never");
    main["args"] = json!(["-c", "echo $NVIDIA_VISIBLE_DEVICES; exec sleep 100000"]);
    pod.to_string()
}

/// Creates a profile of a type from the fleet, and returns its available workloads. There may be fewer than devices,
/// because processors of the test machine are limited.
async fn made(site: &Site<'_>, namespace: &str, name: &str, host: &Host) -> (Value, usize) {
    let of = host.type_name;
    let draft = format!("/api/v1/profile-draft?type={of}");
    // Once the aggregator has received the complete node.
    site.until(&draft, |draft| {
        let spec = &draft["profile"]["spec"];
        let counts = spec["identifiers"].as_array().into_iter().flatten();
        let most = counts.last().map(|one| one["maxCount"].clone());
        let tolerated = &spec["scheduling"]["node"]["tolerations"][0]["key"];
        most == Some(json!(host.devices)) && *tolerated == TAINT
    })
    .await;
    site.run(&["create", "--type", of, "--name", name, "-n", namespace], 0);
    let path = format!("{namespace}/{name}");
    let profile = site.profile(&path, |one| one["reach"]["nodes"] == 1).await;
    assert_eq!((&profile["type"], words(&profile)), (&json!(of), Vec::new()));
    let room = usize::try_from(profile["available"].as_u64().unwrap()).unwrap();
    assert!((1..=host.devices).contains(&room), "{profile:#}");
    let made = object(site.api, namespace, name).unwrap();
    let node = &made["spec"]["scheduling"]["node"];
    assert_eq!(node["nodeSelector"], json!({"octavo.dev/type": of}));
    assert_eq!(node["tolerations"][0]["key"], TAINT, "{made:#}");
    (made, room)
}

/// The node of a pod, and its output.
fn runs(api: &Api, namespace: &str, name: &str) -> (String, String) {
    let pod = ["-n", namespace, &format!("pod/{name}")];
    let ready = ["wait", "--for=condition=Ready", "--timeout=300s"];
    let waited = api.try_kubectl(&[&ready[..], &pod].concat());
    let described = || api.kubectl(&[&["describe"], &pod[..]].concat());
    assert!(waited.status.success(), "{}", described());
    let node = ["get", "-o=jsonpath={.spec.nodeName}"];
    let node = api.kubectl(&[&node[..], &pod].concat());
    (node, api.output_of(namespace, name))
}

/// Waits until the scheduler reports that a pod fits nowhere.
fn waits(api: &Api, namespace: &str, name: &str) {
    let unscheduled = "--for=condition=PodScheduled=false";
    let pod = format!("pod/{name}");
    api.kubectl(&["wait", "-n", namespace, &pod, unscheduled, "--timeout=300s"]);
    let node = ["get", "-n", namespace, &pod, "-o=jsonpath={.spec.nodeName}"];
    assert_eq!(api.kubectl(&node), "", "{name}");
}

/// The predicted number of pods run on nodes of their type, each with its own device; one more stays pending, whatever
/// the other node has.
fn all_are_placed(api: &Api, namespace: &str, (profile, room): &(Value, usize), host: &Host) {
    let of = profile["metadata"]["name"].as_str().unwrap();
    let names: Vec<String> = (0..*room).map(|number| format!("{of}-{number}")).collect();
    let all: Vec<String> = names.iter().map(|name| work(profile, namespace, name)).collect();
    api.apply(&all.join("\n---\n"));
    let ran: Vec<(String, String)> = names.iter().map(|name| runs(api, namespace, name)).collect();
    assert!(ran.iter().all(|(node, _)| node == host.name), "{ran:?}");
    let allocated: BTreeSet<String> = ran.into_iter().map(|(_, uuid)| uuid).collect();
    assert_eq!(allocated.len(), *room, "{allocated:?}");
    assert!(allocated.is_subset(&host.uuids()), "{allocated:?}");
    let more = format!("{of}-more");
    api.apply(&work(profile, namespace, &more));
    waits(api, namespace, &more);
    // Each pod is annotated with its devices.
    for name in names {
        let key = "accelerator\\.opendatahub\\.io/type";
        let shown = format!("--for=jsonpath={{.metadata.annotations.{key}}}={}", host.type_name);
        let pod = format!("pod/{name}");
        api.kubectl(&["wait", "-n", namespace, &pod, &shown, "--timeout=300s"]);
    }
}

/// Workloads for a type without nodes stay pending, and every reader reports it.
async fn workload_without_nodes_stays_pending(site: &Site<'_>, namespace: &str) {
    let (_, reported) = site.run(&["create", "--type", V100, "-n", namespace], 1);
    assert!(reported.contains(V100), "{reported}");
    site.api.apply(&profile(namespace, "nowhere", ("octavo.dev/type", V100)));
    let path = format!("{namespace}/nowhere");
    let profile = site.profile(&path, |one| !words(one).is_empty()).await;
    assert!(words(&profile).contains(&"nothing-selected"), "{profile:#}");
    assert_eq!(profile["available"], 0);
    let mut nowhere = object(site.api, namespace, "nowhere").unwrap();
    nowhere["spec"]["identifiers"][0]["identifier"] = json!(GPU);
    nowhere["spec"]["identifiers"][0]["defaultCount"] = json!(1);
    site.api.apply(&work(&nowhere, namespace, "nowhere"));
    waits(site.api, namespace, "nowhere");
    let row = format!("/api/v1/availability?type={V100}");
    let list = site.until(&row, |list| list["items"][0]["pending"]["pods"] == 1).await;
    let row = &list["items"][0];
    assert_eq!(
        (&row["resource"], &row["capacity"], &row["free"]),
        (&json!(GPU), &json!(0), &json!(0))
    );
}

#[tokio::test]
async fn ac_009_scheduler_places_profile_workloads_on_their_type() {
    let _alone = Nodes::alone().await;
    let api = Nodes::shared().api();
    define(api, HARDWARE);
    let namespace = api.namespace();
    let deleted = Namespace(namespace.clone());
    api.await_account(&namespace);
    for node in ["node-1", "node-2"] {
        Nodes::shared().await_free_cpu(node);
    }
    let lease = format!("--lease-namespace={namespace}");
    let site = Site::with(api, api.kubeconfig(), &["--follow-cluster", "--annotate-pods", &lease]);
    let hosts = [
        Host::new(&site, ("node-1", "A100_80GB", A100), 2),
        Host::new(&site, ("node-2", "H100_80GB_SXM", H100), 3),
    ];
    for host in &hosts {
        host.is_ready(api);
    }
    let profiles = [
        made(&site, &namespace, "ampere", &hosts[0]).await,
        made(&site, &namespace, "hopper", &hosts[1]).await,
    ];
    for (profile, host) in profiles.iter().zip(&hosts) {
        all_are_placed(api, &namespace, profile, host);
    }
    for name in ["ampere", "hopper"] {
        let path = format!("{namespace}/{name}");
        site.profile(&path, |one| one["available"] == 0).await;
    }
    workload_without_nodes_stays_pending(&site, &namespace).await;
    // The pods end before the hosts that have their devices.
    drop(deleted);
}
