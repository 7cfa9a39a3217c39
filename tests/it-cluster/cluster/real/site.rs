//! Octavo on the two real nodes, installed as documented: node-1 has two A100, node-2 an H100.
//!
//! The container runtime adds the simulated driver as it does NVIDIA's, so pods are those of the chart. [`values`] has
//! all helm values of this environment; [`service`] replaces the aggregator's service.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::{Value, json};

use super::super::Api;
use super::super::nodes::{Nodes, open_to_all};
use super::documents::Reader;
use super::service;
use crate::fleet_api::Api as Readers;
use crate::image::Images;
use crate::machine::Machine;
use crate::time_limits::TIME_LIMIT;

pub(super) const A100: &str = "node-1";
pub(super) const H100: &str = "node-2";
/// Account whose writes are counted.
pub(super) const ACCOUNT: &str = "system:serviceaccount:octavo-system:octavo-agent";
pub(super) const NAMESPACE: &str = "octavo-system";
const NAME: &str = "octavo-aggregator.octavo-system.svc";
/// The installed version, and the next one: the same under another name.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
pub(super) const NEXT: &str = "next";
const LAYOUTS: &str = "
apiVersion: octavo.dev/v1
kind: Layouts
layouts:
  halves: [{devices: all, mig: {3g.40gb: 2}}]
  small: [{devices: all, mig: {1g.10gb: 7}}]
  first-small: [{devices: 0, mig: {1g.10gb: 7}}]
  second-small: [{devices: 1, mig: {1g.10gb: 7}}]
";

/// Edits of the runtime to a container: the driver, and the matching PCI bus.
const RUNTIME: &str = r#"
.mounts += [
  {destination: "/run/nvidia/driver/usr/lib64", type: "bind", source: "MACHINE", options: ["rbind", "rw"]}
] | .process.env += ["OCTAVO_SYS_ROOT=/run/nvidia/driver/usr/lib64/sys"]
"#;

/// Values that an installation of a version needs here.
pub(super) fn values(version: &str) -> Value {
    json!({
        "image": {"registry": "", "agent": {"tag": version}, "aggregator": {"tag": version}},
        "agent": {"hostAliases": [{"ip": service::ADDRESS, "hostnames": [NAME]}]},
    })
}

/// The same with the layouts of this test.
pub(super) fn values_with_layouts(version: &str) -> Value {
    let mut values = values(version);
    values["layouts"] = json!(LAYOUTS);
    values
}

/// The cluster with Octavo in it.
pub(super) struct Site {
    nodes: &'static Nodes,
    pub(super) machine: Machine,
    /// The machine of node-2.
    pub(super) other: Machine,
    pub(super) reader: Reader,
    /// The nodes before the installation.
    before: [String; 2],
}

impl Site {
    /// State before the installation: nodes with a driver, images, and an address for the aggregator.
    pub(super) fn new() -> Self {
        let site = Self::without_service();
        service::serve(site.api());
        site
    }

    /// The same without an aggregator.
    pub(super) fn without_service() -> Self {
        let nodes = Nodes::shared();
        let api = nodes.api();
        let machines = api.directory().join("machines");
        fs::create_dir_all(&machines).unwrap();
        let machine = |node: &str, gpus: &str| {
            let text = format!("machine: {node}\nlatency: real\ngpus:\n- {gpus}\n");
            let machine = Machine::at(&machines, node, &text);
            open_to_all(machine.path());
            let runtime = RUNTIME.replace("MACHINE", machine.path().to_str().unwrap());
            fs::write(nodes.directory(node).join("nvidia.jq"), runtime).unwrap();
            machine
        };
        let first = machine(A100, "{board: A100_80GB, count: 2}");
        let other = machine(H100, "{board: H100_80GB_SXM, mig: enabled}");
        images(nodes);
        let reader = Reader::new(api);
        reader.set_values(&values(VERSION));
        // The cluster has neither the GPU Operator nor Node Feature Discovery.
        reader.run_block("get-started/install.md", "runtime-class", A100);
        for node in [A100, H100] {
            reader.run_block("get-started/install.md", "label", node);
        }
        Self {
            nodes,
            machine: first,
            other,
            reader,
            before: [A100, H100].map(|node| looks(api, node)),
        }
    }

    pub(super) fn api(&self) -> &'static Api {
        self.nodes.api()
    }

    /// Readers of the aggregator, with the authority and the account that the chart creates.
    pub(super) fn readers(&self) -> Readers {
        let trusted = ["configmap", "octavo-aggregator-ca", "-n", NAMESPACE];
        let trusted = self.get(&trusted)["data"]["ca.crt"].as_str().unwrap().to_owned();
        let file = self.api().directory().join("ca.crt");
        fs::write(&file, trusted).unwrap();
        let address = format!("{}:{}", service::ADDRESS, service::HTTPS);
        let mut readers = Readers::trusting(address.parse().unwrap(), &file);
        let token = self.api().kubectl(&["create", "token", "octavo-reader", "-n", NAMESPACE]);
        readers.headers = format!("Authorization: Bearer {}\r\n", token.trim());
        readers
    }

    /// True if the nodes are the same as before the installation.
    #[track_caller]
    pub(super) fn is_restored(&self) {
        let now = [A100, H100].map(|node| looks(self.api(), node));
        assert_eq!(now, self.before);
    }

    /// Waits until all pods of a controller are ready.
    #[track_caller]
    pub(super) fn rolled_out(&self, what: &str) {
        rolled_out(self.api(), what);
    }

    /// An object of the API server.
    #[track_caller]
    pub(super) fn get(&self, arguments: &[&str]) -> Value {
        let arguments = [&["get", "-o", "json", "--show-managed-fields"], arguments].concat();
        serde_json::from_str(&self.api().kubectl(&arguments)).unwrap()
    }

    /// The agent's pod on a node.
    #[track_caller]
    pub(super) fn pod(&self, node: &str) -> String {
        let on = format!("--field-selector=spec.nodeName={node}");
        let ours = "--selector=app.kubernetes.io/name=octavo-agent";
        let pods = self.get(&["pods", "-n", NAMESPACE, ours, &on]);
        assert_eq!(pods["items"].as_array().unwrap().len(), 1, "{pods}");
        pods["items"][0]["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// Makes an image for pods of one node.
    pub(super) fn image(&self, node: &str, name: &str, root: &Path, entrypoint: &[&str]) {
        self.nodes.image(node, name, root, entrypoint);
    }

    /// The directory of a node's kubelet.
    pub(super) fn kubelet(&self, node: &str) -> PathBuf {
        self.nodes.kubelet(node)
    }

    /// Polls a Node until it satisfies `wanted` and returns it.
    #[track_caller]
    pub(super) fn node(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut node = Value::Null;
        self.until(&format!("{name} as wanted"), || {
            node = self.get(&["node", name]);
            wanted(&node)
        });
        node
    }

    /// Polls until a condition holds.
    #[track_caller]
    pub(super) fn until(&self, what: &str, mut so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !so() {
            let is_in_time = began.elapsed() < TIME_LIMIT;
            assert!(is_in_time, "never: {what}\n{}", story(self.api()));
            // A simulated machine reports no changes, so it is polled at a pace that leaves the processor to others.
            thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// Profiles on a GPU of node-1 in order, and whether each has its compute instance.
    pub(super) fn geometry(&self, gpu: usize) -> Vec<String> {
        let world = self.machine.world();
        let gpu = &world.gpus[gpu];
        let mut all: Vec<(u32, String)> = gpu
            .mig
            .iter()
            .flat_map(|mig| &mig.instances)
            .map(|one| {
                let profile = gpu.profiles.iter().find(|known| known.id == one.profile_id);
                let mark = if one.compute.is_empty() { "!" } else { "" };
                let name = format!("{}{mark}", profile.unwrap().name);
                (one.placement.start, name)
            })
            .collect();
        all.sort();
        all.into_iter().map(|(_, name)| name).collect()
    }

    /// Processes of a pod with this name. The kubelet names the cgroups after the pod.
    pub(super) fn processes(&self, namespace: &str, pod: &str, name: &str) -> Vec<i32> {
        let pod = self.get(&["pod", "-n", namespace, pod]);
        let group = format!("pod{}/", pod["metadata"]["uid"].as_str().unwrap());
        let all = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid: i32 = entry.unwrap().file_name().to_str()?.parse().ok()?;
            let read = |file: &str| {
                fs::read_to_string(Path::new("/proc").join(pid.to_string()).join(file))
            };
            // Processes may end meanwhile.
            let is_called = read("comm").ok()?.trim_end() == name;
            (is_called && read("cgroup").ok()?.contains(&group)).then_some(pid)
        });
        all.collect()
    }

    /// True if a change on node-1 has started and neither completed nor rolled back.
    pub(super) fn is_under_way(&self) -> bool {
        self.nodes.directory(A100).join("octavo/journal").exists()
    }
}

/// A failed test must not make the next ones fail.
impl Drop for Site {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let api = self.api();
        api.try_kubectl(&["delete", "acceleratorpolicies", "--all", "--timeout=60s"]);
        api.try_kubectl(&["delete", "namespace", NAMESPACE, "--timeout=120s"]);
        for (node, before) in [A100, H100].into_iter().zip(&self.before) {
            let pods = format!("--field-selector=spec.nodeName={node}");
            api.try_kubectl(&["delete", "pods", "-A", &pods, "--timeout=60s"]);
            restore(api, node, before);
        }
    }
}

/// Gives a Node the labels, annotations and taints that [`looks`] found before.
fn restore(api: &Api, node: &str, before: &str) {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let output = api.try_kubectl(&["get", "node", node, "-o", "json"]);
    let now = parsed(&String::from_utf8_lossy(&output.stdout));
    let before = parsed(before);
    let values = |field: &str| {
        let mut values = before[field].clone();
        for key in now["metadata"][field].as_object().into_iter().flatten().map(|(key, _)| key) {
            if values.get(key).is_none() {
                values[key] = Value::Null;
            }
        }
        values
    };
    let patch = json!({
        "metadata": {"labels": values("labels"), "annotations": values("annotations")},
        "spec": {"taints": before["spec"]["taints"]},
    });
    api.try_kubectl(&["patch", "node", node, "--type=merge", "-p", &patch.to_string()]);
}

/// Logs to read after a failure.
pub(super) fn story(api: &Api) -> String {
    let ours = "--selector=app.kubernetes.io/part-of=octavo";
    let output = |arguments: &[&str]| {
        let output = api.try_kubectl(arguments);
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    [
        output(&["describe", "node", A100]),
        output(&["describe", "pods", "-n", NAMESPACE]),
        output(&["logs", "-n", NAMESPACE, ours, "--prefix", "--tail=60"]),
        output(&["get", "events", "-n", NAMESPACE]),
    ]
    .join("\n")
}

/// Prints a figure with `--nocapture`.
#[expect(
    clippy::print_stderr,
    reason = "figures are printed for the reader; no test depends on them"
)]
pub(super) fn figure(text: &str) {
    eprintln!("{text}");
}

/// Imports our images on both nodes, also under the name of the next version.
fn images(nodes: &Nodes) {
    let images = Images::shared();
    for (node, image) in
        [A100, H100].into_iter().flat_map(|node| [(node, "agent"), (node, "aggregator")])
    {
        nodes.import(node, &images.archive(image));
        let name = |version: &str| format!("docker.io/octavo/{image}:{version}");
        nodes.name(node, &name(VERSION), &name(NEXT));
    }
}

/// All fields of a Node that users and programs write.
fn looks(api: &Api, node: &str) -> String {
    let node = api.kubectl(&["get", "node", node, "-o", "json"]);
    let node: Value = serde_json::from_str(&node).unwrap();
    let metadata = &node["metadata"];
    let looks = json!({
        "labels": metadata["labels"], "annotations": metadata["annotations"],
        "finalizers": metadata["finalizers"], "spec": node["spec"],
    });
    serde_json::to_string_pretty(&looks).unwrap()
}

#[track_caller]
fn rolled_out(api: &Api, what: &str) {
    let wait = ["rollout", "status", "-n", NAMESPACE, "--timeout=180s", what];
    let waited = api.try_kubectl(&wait);
    let errors = String::from_utf8_lossy(&waited.stderr);
    assert!(waited.status.success(), "{what}: {errors}\n{}", story(api));
}
