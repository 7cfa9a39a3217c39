//! A machine whose agent serves claims, and the kubelet that calls it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api as Objects;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nvml_sim::model::{Process, ProcessKind, World};
use octavo_dra::{DraDevice, DraDeviceKind};
use octavo_kubelet::proto::dra::dra_plugin_client::DraPluginClient;
use octavo_kubelet::proto::dra::{
    Claim as ApiClaim, Device, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
};
use octavo_kubelet::proto::dra_health::dra_resource_health_client::DraResourceHealthClient;
use octavo_kubelet::proto::dra_health::{HealthStatus, NodeWatchResourcesRequest};
use octavo_model::inventory::Inventory;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio_stream::StreamExt;
use tonic::transport::{Channel, Endpoint};

use crate::cdi_runtime::RUNTIME;
use crate::cluster::Api;
use crate::cluster::nodes::Nodes;
use crate::cluster::objects::{TestNode, TokenKubeconfig};
use crate::fleet_api::Api as HttpApi;
use crate::node::Node;
use crate::process::Program;
use crate::record;
use crate::time_limits::{Finish, TIME_LIMIT, until};

/// A GPU with MIG mode on and no instance.
pub(crate) const ONE: &str = "- {board: A100_40GB, mig: enabled}\n";
/// Logged when the kubelet can call.
pub(crate) const SERVING: &str = "serving resource claims";

/// A claim of the API server.
#[derive(Clone)]
pub(crate) struct Claim {
    pub(crate) uid: String,
    pub(crate) name: String,
}

impl Claim {
    /// File name of its CDI specification.
    pub(crate) fn spec(&self) -> String {
        format!("octavo.dev-claim_{}.json", self.uid)
    }
}

/// A machine and its Node.
pub(crate) struct ClaimRig {
    pub(crate) api: &'static Api,
    node: String,
    /// The kubelet's directory.
    kubelet: PathBuf,
    machine: Node,
    namespace: String,
    pub(crate) runtime: Runtime,
    claims: Objects<ResourceClaim>,
    /// The Node, if no real kubelet has one.
    _node: Option<TestNode>,
}

impl ClaimRig {
    pub(crate) fn new(api: &'static Api, gpus: &str) -> Self {
        let node = api.node("claims");
        let machine = Node::new(gpus);
        let kubelet = machine.machine.path().join("kubelet-dir");
        let name = node.name().to_owned();
        Self::build(api, (name, kubelet, Some(node)), machine)
    }

    /// A simulated machine whose agent serves the real kubelet of a node.
    pub(crate) fn with_kubelet(nodes: &'static Nodes, node: &str, gpus: &str) -> Self {
        Self::build(nodes.api(), (node.to_owned(), nodes.kubelet(node), None), Node::new(gpus))
    }

    fn build(
        api: &'static Api,
        (node, kubelet, object): (String, PathBuf, Option<TestNode>),
        machine: Node,
    ) -> Self {
        let proc = machine.machine.path().join("proc");
        record::show_all(&proc);
        let devices = "Character devices:\n195 nvidia\n195 nvidiactl\n235 nvidia-caps\n\nBlock devices:\n  8 sd\n";
        fs::write(proc.join("devices"), devices).unwrap();
        // Source: the driver's file, which has all instances whether or not they exist.
        let parts = (0..8).flat_map(|gpu| (0..15).map(move |instance| (gpu, instance)));
        let instances = parts.map(|(gpu, instance)| {
            let (part, minor) = (format!("gpu{gpu}/gi{instance}"), 3 + gpu * 135 + instance * 9);
            format!("{part}/access {minor}\n{part}/ci0/access {}\n", minor + 1)
        });
        let table = format!("config 1\nmonitor 2\n{}", instances.collect::<String>());
        fs::create_dir_all(proc.join("driver/nvidia-caps")).unwrap();
        fs::write(proc.join("driver/nvidia-caps/mig-minors"), table).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let namespace = api.namespace();
        let client = runtime.block_on(async { api.client() });
        let claims = Objects::namespaced(client, &namespace);
        Self { api, node, kubelet, machine, namespace, runtime, claims, _node: object }
    }

    pub(crate) fn machine(&self) -> &Node {
        &self.machine
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    fn path(&self) -> &Path {
        self.machine.machine.path()
    }

    pub(crate) fn cdi_dir(&self) -> PathBuf {
        self.path().join("cdi")
    }

    pub(crate) fn pool(&self) -> String {
        format!("{}/gpu.octavo.dev", self.node)
    }

    /// File names in the directory of CDI specifications.
    pub(crate) fn specs(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.cdi_dir()).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// The agent, not started.
    pub(crate) fn agent(&self, arguments: &[&str]) -> Command {
        self.agent_as(self.api.kubeconfig(), arguments)
    }

    /// The agent with other credentials, not started.
    pub(crate) fn agent_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Command {
        let mut command = self.machine.agent(&["--interval=1s", "--follow-node", "--dra"]);
        command.arg("--kubeconfig").arg(kubeconfig).arg("--node-name").arg(&self.node);
        command.args(arguments).arg("--kubelet-dir").arg(&self.kubelet);
        command.arg("--cdi-dir").arg(self.cdi_dir());
        command
    }

    /// The agent once it serves the kubelet.
    pub(crate) fn start(&self, arguments: &[&str]) -> Program {
        let mut agent = Program::start(&mut self.agent(arguments));
        agent.expect_log(SERVING);
        agent
    }

    /// Credentials with the permissions of the chart, except for the status of claims.
    pub(crate) fn account_without_status(&self) -> TokenKubeconfig {
        let namespace = self.namespace();
        self.api.await_account(namespace);
        let user = format!("system:serviceaccount:{namespace}:default");
        let role = format!("{namespace}-without-status");
        let allow = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        let all = ["get", "list", "watch", "create", "patch", "delete"];
        self.api.create(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": role},
            "rules": [
                allow("", "nodes", &["get", "list", "watch", "patch"]),
                allow("resource.k8s.io", "resourceslices", &all),
                allow("resource.k8s.io", "resourceclaims", &["get"]),
            ],
        }));
        let role_of = format!("--clusterrole={role}");
        let user = format!("--user={user}");
        self.api.kubectl(&["create", "clusterrolebinding", &role, &role_of, &user]);
        let token = self.api.kubectl(&["create", "token", "default", "-n", namespace]);
        self.api.kubeconfig_with_token(token.trim_end())
    }

    /// The taints of a published device, as `key=value`.
    pub(crate) fn taints(&self, device: &str) -> Vec<String> {
        let of = format!("--field-selector=spec.nodeName={}", self.node);
        let text = self.api.kubectl(&["get", "resourceslices", &of, "-o", "json"]);
        let list: Value = serde_json::from_str(&text).unwrap();
        let slices = list["items"].as_array().unwrap().iter();
        let mut devices =
            slices.flat_map(|slice| slice["spec"]["devices"].as_array().into_iter().flatten());
        let found = devices.find(|one| one["name"] == device).unwrap();
        let taints = found["taints"].as_array().into_iter().flatten();
        let text = |of: &Value| of.as_str().unwrap().to_owned();
        taints.map(|taint| format!("{}={}", text(&taint["key"]), text(&taint["value"]))).collect()
    }

    /// The agent once it serves the kubelet, with usage by pod, and its metrics.
    pub(crate) fn start_with_metrics(&self) -> (Program, HttpApi) {
        let arguments = ["--usage-interval=1s", "--metrics-listen=127.0.0.1:0"];
        let mut agent = Program::start(&mut self.agent(&arguments));
        let http = HttpApi::at(agent.metrics());
        agent.expect_log(SERVING);
        (agent, http)
    }

    pub(crate) fn inventory(&self) -> Inventory {
        self.runtime.block_on(self.machine.machine.observe())
    }

    fn device_where(&self, gpu: usize, which: impl Fn(&DraDevice) -> bool) -> String {
        let inventory = self.inventory();
        let devices = octavo_dra::devices(&inventory, &BTreeSet::new());
        let mut devices =
            devices.into_iter().filter(|device| device.pci == inventory.devices[gpu].pci);
        devices.find(which).unwrap().name().to_string()
    }

    /// Name of the device of this profile at this slice of a GPU.
    pub(crate) fn device_on(&self, gpu: usize, name: &str, start: u32) -> String {
        self.device_where(gpu, |device| {
            matches!(&device.what, DraDeviceKind::Partition { profile, placement, .. }
                if profile.to_string() == name && placement.start == start)
        })
    }

    /// The same of the first GPU.
    pub(crate) fn device(&self, name: &str, start: u32) -> String {
        self.device_on(0, name, start)
    }

    /// Name of the whole GPU.
    pub(crate) fn whole_device(&self) -> String {
        self.device_where(0, |device| device.what == DraDeviceKind::Gpu)
    }

    /// Creates a claim that is allocated these devices of this node.
    pub(crate) fn claim(&self, name: &str, devices: &[&str]) -> Claim {
        self.claim_in_pool(name, &self.pool(), devices)
    }

    pub(crate) fn claim_in_pool(&self, name: &str, pool: &str, devices: &[&str]) -> Claim {
        let results = devices.iter().map(|device| {
            json!({"request": "gpu", "driver": "gpu.octavo.dev", "pool": pool, "device": device})
        });
        self.allocated(name, &json!({"results": results.collect::<Vec<_>>()}))
    }

    /// Creates a claim that is allocated a share of this device.
    pub(crate) fn claim_share(&self, name: &str, device: &str, share: &str) -> Claim {
        self.claim_with(name, device, &json!({"shareID": share}), &json!([]))
    }

    /// Creates a claim that is allocated this device, with these fields of the result and this configuration.
    pub(crate) fn claim_with(
        &self,
        name: &str,
        device: &str,
        fields: &Value,
        config: &Value,
    ) -> Claim {
        let mut result = json!({
            "request": "gpu", "driver": "gpu.octavo.dev", "pool": self.pool(), "device": device,
        });
        result.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.allocated(name, &json!({"results": [result], "config": config}))
    }

    /// Creates a claim with this allocation.
    fn allocated(&self, name: &str, allocation: &Value) -> Claim {
        let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.octavo.dev"}});
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"devices": {"requests": [request]}},
        });
        let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
        let params = PostParams::default();
        let created = self.claims.create(&params, &claim);
        let created = self.runtime.block_on(created).unwrap();
        if allocation["results"] != json!([]) {
            self.allocate(name, &json!({"devices": allocation}));
        }
        Claim { uid: created.metadata.uid.unwrap(), name: name.to_owned() }
    }

    /// Sets the allocation of a claim, as the scheduler does.
    fn allocate(&self, name: &str, allocation: &Value) {
        let status = Patch::Merge(json!({"status": {"allocation": allocation}}));
        let params = PatchParams::default();
        let patched = self.claims.patch_status(name, &params, &status);
        self.runtime.block_on(patched).unwrap();
    }

    /// Deletes a claim.
    pub(crate) fn delete(&self, claim: &Claim) {
        self.allocate(&claim.name, &Value::Null);
        let params = DeleteParams::default();
        let deleted = self.claims.delete(&claim.name, &params);
        self.runtime.block_on(deleted).unwrap();
    }

    fn api_claim(&self, claim: &Claim) -> ApiClaim {
        ApiClaim {
            namespace: self.namespace.clone(),
            uid: claim.uid.clone(),
            name: claim.name.clone(),
        }
    }

    async fn connect(&self) -> Option<Channel> {
        let socket = self.kubelet.join("plugins/gpu.octavo.dev/dra.sock");
        let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
        endpoint.timeout(TIME_LIMIT).connect().await.ok()
    }

    /// Calls Prepare. `None` if the agent ends before it answers.
    pub(crate) fn try_prepare(&self, claim: &Claim) -> Option<Result<Vec<Device>, String>> {
        let request = NodePrepareResourcesRequest { claims: vec![self.api_claim(claim)] };
        let response = self.runtime.block_on(async {
            let mut client = DraPluginClient::new(self.connect().await?);
            client.node_prepare_resources(request).await.ok()
        });
        let mut claims = response?.into_inner().claims;
        let one = claims.remove(&claim.uid).unwrap();
        Some(if one.error.is_empty() { Ok(one.devices) } else { Err(one.error) })
    }

    #[track_caller]
    pub(crate) fn prepare(&self, claim: &Claim) -> Result<Vec<Device>, String> {
        self.try_prepare(claim).unwrap()
    }

    /// Calls Unprepare. `None` if the agent ends before it answers.
    pub(crate) fn try_unprepare(&self, claim: &Claim) -> Option<Result<(), String>> {
        let request = NodeUnprepareResourcesRequest { claims: vec![self.api_claim(claim)] };
        let response = self.runtime.block_on(async {
            let mut client = DraPluginClient::new(self.connect().await?);
            client.node_unprepare_resources(request).await.ok()
        });
        let error = response?.into_inner().claims.remove(&claim.uid).unwrap().error;
        Some(if error.is_empty() { Ok(()) } else { Err(error) })
    }

    #[track_caller]
    pub(crate) fn unprepare(&self, claim: &Claim) -> Result<(), String> {
        self.try_unprepare(claim).unwrap()
    }

    /// The devices of the first health message, and whether each is healthy.
    pub(crate) fn health(&self) -> Vec<(String, bool)> {
        let first = self.runtime.block_on(async {
            let mut client = DraResourceHealthClient::new(self.connect().await?);
            let stream = client.node_watch_resources(NodeWatchResourcesRequest {}).await.ok()?;
            stream.into_inner().next().await?.ok()
        });
        let devices = first.unwrap().devices.into_iter().map(|one| {
            (one.device.unwrap().device_name, one.health == i32::from(HealthStatus::Healthy))
        });
        devices.collect()
    }

    /// The container that a runtime creates with these CDI devices.
    #[track_caller]
    pub(crate) fn container(&self, ids: &[String]) -> Value {
        let output = Command::new(RUNTIME.build()).arg(self.cdi_dir()).args(ids).finish();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub(crate) fn has_spec(&self, claim: &Claim) -> bool {
        self.specs().contains(&claim.spec())
    }

    /// Waits until the Node reports this state of its layout.
    #[track_caller]
    pub(crate) fn await_state(&self, wanted: &str) {
        let path = "-o=jsonpath={.metadata.annotations.octavo\\.dev/status}";
        let state = || {
            let text = self.api.kubectl(&["get", "node", &self.node, path]);
            serde_json::from_str::<Value>(&text).ok().map(|status| status["state"].clone())
        };
        until("the state of the layout", state, |state| *state == Some(json!(wanted)));
    }

    /// The instances of the GPU, with their first slice.
    pub(crate) fn geometry(&self) -> Vec<(String, u32)> {
        self.machine.geometry(0)
    }

    #[track_caller]
    pub(crate) fn await_geometry(&self, wanted: &[&str]) {
        self.machine.await_geometry(0, wanted);
    }

    /// UUIDs of the MIG devices.
    pub(crate) fn uuids(&self) -> Vec<String> {
        let inventory = self.inventory();
        let parts = inventory.devices[0].mig.compute_instances();
        parts.map(|(_, one)| one.uuid.as_ref().unwrap().to_string()).collect()
    }

    pub(crate) fn add_process(&self, pid: u32) {
        let process = process(&self.inventory(), pid);
        self.machine.machine.change(|world| world.add_process(process));
    }

    pub(crate) fn remove_process(&self, pid: u32) {
        self.machine.machine.change(|world| world.remove_process(pid));
    }

    /// Restarts the machine. MIG mode of this board survives, instances and the runtime's directory do not.
    pub(crate) fn reboot(&self) {
        self.machine.machine.change(|world: &mut World| {
            world.reboot();
            Ok(())
        });
        // Absent before the first claim.
        let _absent = fs::remove_dir_all(self.cdi_dir());
    }
}

/// A process in the first instance of the first GPU.
fn process(inventory: &Inventory, pid: u32) -> Process {
    let gpu = &inventory.devices[0];
    let (instance, compute) = gpu.mig.compute_instances().next().unwrap();
    Process {
        pid,
        name: "train".to_owned(),
        gpu_uuid: gpu.uuid.as_ref().unwrap().to_string(),
        gi: Some(instance.id),
        ci: Some(compute.id),
        memory_mib: 100,
        kind: ProcessKind::Compute,
    }
}
