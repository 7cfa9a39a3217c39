//! The agent as device plugin of a real kubelet: admission of pods, and what they contain.
//!
//! The agent runs beside the kubelet of node-1, on a simulated machine; sockets, kubelet, scheduler and pods are real.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use octavo_kubelet::proto::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use octavo_kubelet::proto::pod_resources::{AllocatableResourcesRequest, ListPodResourcesRequest};
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};

use super::nodes::{Nodes, root};
use crate::node::Node;
use crate::process::Program;
use crate::time_limits::{Finish, until_async};

const NODE: &str = "node-1";
const GPU: &str = "nvidia.com/gpu";
const HALF: &str = "nvidia.com/mig-3g.40gb";
const SMALL: &str = "nvidia.com/mig-1g.10gb";
const HALVES: &str = "3g.40gb: 2";
const SHELL: &str = "test.invalid/sharing:1";
const GPUS: &str = "- {board: A100_80GB, count: 2}\n";

/// Kubelet does not report changes and throttles clients.
const PACE: Duration = Duration::from_millis(200);

/// The first GPU with this many replicas, the second one in these partitions.
fn layout(replicas: u32, parts: &str) -> String {
    format!(
        "[{{devices: [0], timeSlicing: {{replicas: {replicas}, failRequestsGreaterThanOne: true}}}}, \
         {{devices: [1], mig: {{{parts}}}}}]"
    )
}

/// The node, its machine, and a namespace for pods.
struct KubeletNode {
    nodes: &'static Nodes,
    machine: Node,
    namespace: String,
}

impl KubeletNode {
    fn new() -> Self {
        let nodes = Nodes::shared();
        let machine = Node::new(GPUS);
        // The pod-resources socket of the machine's kubelet.
        let kubelet = machine.kubelet();
        symlink(nodes.kubelet(NODE).join("pod-resources"), kubelet.parent().unwrap()).unwrap();
        let tools = ["/bin/sh", "/bin/sleep"].map(|path| (Path::new(path), path));
        nodes.image(NODE, SHELL, root(&tools).path(), &["/bin/sh"]);
        let namespace = nodes.api().namespace();
        nodes.api().await_account(&namespace);
        Self { nodes, machine, namespace }
    }

    /// Shows the agent the processes of pods; otherwise pods in kubelet's checkpoint would never end.
    fn shows_processes(&self) {
        let proc = self.machine.machine.path().join("proc");
        fs::remove_dir_all(&proc).unwrap();
        symlink("/proc", proc).unwrap();
    }

    /// The agent as the device plugin of the node.
    fn start(&self, more: &[&str]) -> Program {
        let plugins = self.nodes.kubelet(NODE).join("device-plugins");
        let mut command: Command = self.machine.agent(&["--interval=500ms"]);
        command
            .args(["--sharing=embedded", "--mig-strategy=mixed"])
            .arg("--device-plugins")
            .arg(plugins)
            .args(more);
        Program::start(&mut command)
    }

    /// Waits until this many of a resource are allocatable.
    #[track_caller]
    fn await_allocatable(&self, resource: &str, count: usize) {
        let resource = resource.replace('.', "\\.");
        let allocatable = format!("--for=jsonpath={{.status.allocatable.{resource}}}={count}");
        let wait = ["wait", "node", NODE, &allocatable, "--timeout=300s"];
        self.nodes.api().kubectl(&wait);
    }

    /// Creates a pod that prints its devices and keeps running.
    fn ask(&self, name: &str, resource: &str, count: u32) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": NODE}, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "one", "image": SHELL, "imagePullPolicy": "Never",
                    "args": ["-c", "echo $NVIDIA_VISIBLE_DEVICES; exec sleep 100000"],
                    "resources": {"limits": {resource: count.to_string()}},
                }],
            },
        });
        self.nodes.api().apply(&pod.to_string());
    }

    fn pod(&self, name: &str) -> Value {
        let get = ["get", "pod", name, "-n", &self.namespace, "-o", "json"];
        serde_json::from_str(&self.nodes.api().kubectl(&get)).unwrap()
    }

    /// Output of a pod, once it runs.
    #[track_caller]
    fn shown(&self, name: &str) -> String {
        let api = self.nodes.api();
        let (pod, namespace) = (format!("pod/{name}"), &self.namespace);
        let ready = ["wait", "-n", namespace, &pod, "--for=condition=Ready", "--timeout=300s"];
        let waited = api.try_kubectl(&ready);
        let described = || api.kubectl(&["describe", "-n", namespace, &pod]);
        assert!(waited.status.success(), "{}", described());
        api.output_of(namespace, name)
    }

    /// Why kubelet did not admit a pod.
    #[track_caller]
    fn refusal(&self, name: &str) -> String {
        let (pod, namespace) = (format!("pod/{name}"), &self.namespace);
        let failed = "--for=jsonpath={.status.phase}=Failed";
        let wait = ["wait", "-n", namespace, &pod, failed, "--timeout=300s"];
        self.nodes.api().kubectl(&wait);
        let status = &self.pod(name)["status"];
        assert_eq!(status["reason"], "UnexpectedAdmissionError", "{status:#}");
        status["message"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn delete(&self, name: &str) {
        let delete = ["delete", "pod", name, "-n", &self.namespace];
        self.nodes.api().kubectl(&delete);
    }

    async fn connect(&self) -> Result<PodResourcesListerClient<Channel>, tonic::transport::Error> {
        let socket = self.nodes.kubelet(NODE).join("pod-resources/kubelet.sock");
        let socket = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
        socket.connect().await.map(PodResourcesListerClient::new)
    }

    async fn kubelet(&self) -> PodResourcesListerClient<Channel> {
        self.connect().await.unwrap()
    }

    /// The ids of each pod according to kubelet.
    async fn ids(&self) -> BTreeMap<String, Vec<String>> {
        self.ids_from(self.kubelet().await).await
    }

    async fn ids_from(
        &self,
        mut kubelet: PodResourcesListerClient<Channel>,
    ) -> BTreeMap<String, Vec<String>> {
        let answer = kubelet.list(ListPodResourcesRequest {}).await;
        let pods = answer.unwrap().into_inner().pod_resources.into_iter();
        pods.filter(|pod| pod.namespace == self.namespace)
            .map(|pod| {
                let devices = pod.containers.into_iter().flat_map(|one| one.devices);
                (pod.name, devices.flat_map(|one| one.device_ids).collect())
            })
            .collect()
    }

    /// Waits until pods have these ids: a restarted kubelet accepts no connections and does not know its pods at first.
    async fn until_ids(&self, expected: &BTreeMap<String, Vec<String>>) {
        let mut pace = tokio::time::interval(PACE);
        let ids = async || {
            pace.tick().await;
            Some(self.ids_from(self.connect().await.ok()?).await)
        };
        until_async("the ids of pods", ids, |ids| ids.as_ref() == Some(expected)).await;
    }

    /// All allocatable ids of a resource.
    async fn offered(&self, resource: &str) -> Vec<String> {
        let mut kubelet = self.kubelet().await;
        let answer = kubelet.get_allocatable_resources(AllocatableResourcesRequest {});
        let devices = answer.await.unwrap().into_inner().devices.into_iter();
        let ours = devices.filter(|one| one.resource_name == resource);
        let mut ids: Vec<String> = ours.flat_map(|one| one.device_ids).collect();
        ids.sort();
        ids
    }

    /// UUIDs of the whole GPU, and of the partitions of the other one.
    fn units(&self) -> (String, Vec<String>) {
        let world = self.machine.machine.world();
        let instances = world.gpus.iter().flat_map(|gpu| &gpu.mig);
        let instances = instances.flat_map(|mig| &mig.instances);
        let parts = instances.flat_map(|one| &one.compute);
        let mut parts: Vec<String> = parts.map(|one| one.uuid.clone()).collect();
        parts.sort();
        (world.gpus[0].uuid.clone(), parts)
    }
}

impl Drop for KubeletNode {
    fn drop(&mut self) {
        let delete = ["delete", "namespace", &self.namespace, "--wait=false"];
        let _panic_was_reported = self.nodes.api().try_kubectl(&delete);
    }
}

#[tokio::test]
async fn kubelet_allocates_replicas_and_partitions_and_pods_retain_them() {
    let _alone = Nodes::alone().await;
    let place = KubeletNode::new();
    place.shows_processes();
    let layouts = place.machine.layouts(&layout(3, HALVES));
    let mut agent = place.start(&["--layouts", &layouts, "--layout=wanted"]);
    place.await_allocatable(GPU, 3);
    place.await_allocatable(HALF, 2);
    await_registrations(&mut agent);

    two_replicas_are_refused_if_required(&place);
    pods_get_the_right_devices(&place).await;
    shrinking_waits_for_pods(&place).await;
    restarted_kubelet_gets_new_registration(&place, &mut agent).await;

    partitions_stay_while_pods_hold_them(&place, &mut agent);

    agent.stop();
    for resource in [GPU, HALF, SMALL] {
        place.await_allocatable(resource, 0);
    }
}

/// Waits until both resources are registered, in any order.
#[track_caller]
fn await_registrations(agent: &mut Program) {
    agent.expect_all_logs(&[
        "registered with the kubelet resource=nvidia.com/gpu",
        "registered with the kubelet resource=nvidia.com/mig-3g.40gb",
    ]);
}

fn two_replicas_are_refused_if_required(place: &KubeletNode) {
    place.ask("greedy", GPU, 2);
    let refusal = place.refusal("greedy");
    assert!(refusal.contains(GPU), "{refusal}");
    place.delete("greedy");
}

async fn pods_get_the_right_devices(place: &KubeletNode) {
    let (gpu, halves) = place.units();
    assert_eq!(halves.len(), 2);
    for name in ["a", "b", "c"] {
        place.ask(name, GPU, 1);
    }
    for name in ["half-1", "half-2"] {
        place.ask(name, HALF, 1);
    }
    for name in ["a", "b", "c"] {
        assert_eq!(place.shown(name), gpu, "{name}");
    }
    let mut shown = ["half-1", "half-2"].map(|name| place.shown(name));
    shown.sort();
    assert_eq!(shown[..], halves);
    // Each has its own replica.
    let ids = place.ids().await;
    let mut replicas: Vec<&String> = ["a", "b", "c"].iter().flat_map(|name| &ids[*name]).collect();
    replicas.sort();
    let expected: Vec<String> = (0..3).map(|number| format!("{gpu}::{number}")).collect();
    assert_eq!(replicas, expected.iter().collect::<Vec<_>>());
}

async fn shrinking_waits_for_pods(place: &KubeletNode) {
    let before = place.ids().await;
    let (gpu, _) = place.units();
    let first = format!("{gpu}::0");
    let of_first = before.iter().find(|(_, ids)| ids.contains(&first));
    let (leaver, _) = of_first.unwrap();
    place.machine.layouts(&layout(2, HALVES));
    place.delete(leaver);
    place.await_allocatable(GPU, 2);
    // Not the first two, but those that pods hold.
    let retained = [format!("{gpu}::1"), format!("{gpu}::2")];
    assert_eq!(place.offered(GPU).await, retained);
    for (name, ids) in place.ids().await {
        assert_eq!(ids, before[&name], "{name}");
        assert_eq!(place.pod(&name)["status"]["phase"], "Running", "{name}");
    }
}

async fn restarted_kubelet_gets_new_registration(place: &KubeletNode, agent: &mut Program) {
    let before = place.ids().await;
    place.nodes.restart_kubelet(NODE);
    await_registrations(agent);
    place.await_allocatable(GPU, 2);
    place.await_allocatable(HALF, 2);
    place.until_ids(&before).await;
    let (gpu, _) = place.units();
    let retained = [format!("{gpu}::1"), format!("{gpu}::2")];
    assert_eq!(place.offered(GPU).await, retained);
    for name in before.keys() {
        let status = &place.pod(name)["status"]["containerStatuses"][0];
        assert_eq!(status["restartCount"], 0, "{name}");
        // One pod continues.
        if name != "half-1" {
            place.delete(name);
        }
    }
    // Advertised devices can be allocated again.
    place.ask("next", HALF, 1);
    let (_, halves) = place.units();
    assert!(halves.contains(&place.shown("next")));
    place.delete("next");
}

fn partitions_stay_while_pods_hold_them(place: &KubeletNode, agent: &mut Program) {
    let (gpu, halves) = place.units();
    let mine = place.shown("half-1");
    place.machine.layouts(&layout(2, "1g.10gb: 7"));
    // For a minute after its restart, kubelet's list is not trusted.
    let blocked = agent.expect_log("/half-1 (container one)");
    assert!(blocked.contains("reason=blocked"), "{blocked}");
    assert_eq!(place.units(), (gpu, halves.clone()));
    assert!(halves.contains(&mine));
    place.delete("half-1");
    place.await_allocatable(SMALL, 7);
    place.await_allocatable(HALF, 0);
    place.ask("small", SMALL, 1);
    let (_, parts) = place.units();
    assert_eq!(parts.len(), 7);
    assert!(parts.contains(&place.shown("small")));
    place.delete("small");
}

/// The container that a CDI-aware runtime creates for these names.
fn runtime(directory: &Path, names: &[String]) -> Value {
    let output =
        Command::new(crate::cdi_runtime::RUNTIME.build()).arg(directory).args(names).finish();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The containerd of the tests is too old for CDI in the kubelet's protocol, so names go to the library of later
/// versions.
#[tokio::test]
async fn cdi_admits_pod_only_if_runtime_can_resolve_its_devices() {
    let _alone = Nodes::alone().await;
    let place = KubeletNode::new();
    let devices = "Character devices:\n195 nvidia\n195 nvidiactl\n235 nvidia-caps\n\nBlock devices:\n  8 sd\n";
    let proc = place.machine.machine.path().join("proc");
    fs::write(proc.join("devices"), devices).unwrap();
    fs::create_dir_all(proc.join("driver/nvidia-caps")).unwrap();
    fs::write(proc.join("driver/nvidia-caps/mig-minors"), "config 1\n").unwrap();
    let directory = place.machine.machine.path().join("cdi");
    let cdi = directory.to_str().unwrap();
    let layouts = place.machine.layouts("[{devices: all, timeSlicing: {replicas: 2}}]");
    let agent = place.start(&[
        "--layouts",
        &layouts,
        "--layout=wanted",
        "--device-list=cdi,envvar",
        "--cdi-dir",
        cdi,
    ]);
    place.await_allocatable(GPU, 4);
    // The directory does not exist.
    place.ask("early", GPU, 1);
    let refusal = place.refusal("early");
    assert!(refusal.contains("CDI") && refusal.contains(cdi), "{refusal}");
    place.delete("early");

    fs::create_dir(&directory).unwrap();
    place.ask("one", GPU, 1);
    let uuid = place.shown("one");
    let world = place.machine.machine.world();
    let gpu = world.gpus.iter().find(|gpu| gpu.uuid == uuid).unwrap();
    let container = runtime(&directory, &[format!("octavo.dev/gpu={uuid}")]);
    let file = &container["linux"]["devices"][0];
    assert_eq!(file["path"], format!("/dev/nvidia{}", gpu.minor), "{file}");
    place.delete("one");
    agent.stop();
    place.await_allocatable(GPU, 0);
}
