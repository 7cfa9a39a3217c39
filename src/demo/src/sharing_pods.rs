//! Simulated pods that share a machine's GPU: kubelet's allocations of replicas, and the kernel's processes.
//!
//! The machine that the demo runs on has neither, so both are simulated like the hardware: kubelet's answers at a
//! socket, its checkpoint, and a `/proc` of files. The agent's device plugin registers at the same socket. The agent
//! itself time-slices the GPU, so its labels, the web pages and the pods all report the same.

use std::path::{Path, PathBuf};
use std::{fs, io};

use octavo_kubelet::proto::device_plugin::device_plugin_client::DevicePluginClient;
use octavo_kubelet::proto::device_plugin::registration_server::{Registration, RegistrationServer};
use octavo_kubelet::proto::device_plugin::{Empty, RegisterRequest};
use octavo_kubelet::proto::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use octavo_kubelet::proto::pod_resources::{
    ContainerDevices, ContainerResources, ListPodResourcesRequest, ListPodResourcesResponse,
    PodResources,
};
use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

/// The shared GPU, which a scenario names.
const GPU: &str = "GPU-74f4c9a6-4f0e-4d5b-9d4e-6f1b7c2a9e35";
/// The layout that shares it.
pub(super) const LAYOUT: &str = "notebooks";

const RESOURCE: &str = "nvidia.com/gpu";
const CONTAINER: &str = "main";

/// Namespace, name, UID, and PID of each pod.
const PODS: [(&str, &str, &str, u32); 2] = [
    ("serving", "triton-0", "6f0b5c0a-8a49-4c8e-9d0f-1d7a53c2e8b1", 77),
    ("research", "notebook-7", "c1d2a9f4-30e7-4f9b-8f55-7be0a4d6c913", 78),
];

/// Files and kubelet of a machine's pods. The kubelet ends when this is dropped.
#[derive(Debug)]
pub(super) struct SharingPods {
    directory: PathBuf,
    kubelet: JoinSet<Result<(), tonic::transport::Error>>,
}

impl SharingPods {
    /// Returns the pods of a machine in `directory`, if its scenario has the shared GPU.
    pub(super) fn for_scenario(scenario: &str, directory: &Path) -> Option<Self> {
        scenario
            .contains(GPU)
            .then(|| Self { directory: directory.to_owned(), kubelet: JoinSet::new() })
    }

    /// Returns the process file system for the agent.
    pub(super) fn proc(&self) -> PathBuf {
        self.directory.join("proc")
    }

    /// Returns the directory of kubelet's checkpoint.
    pub(super) fn kubelet(&self) -> PathBuf {
        self.directory.join("kubelet")
    }

    /// Returns kubelet's socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.kubelet().join("kubelet.sock")
    }

    /// Creates the pods.
    pub(super) fn create(&mut self) -> io::Result<()> {
        // A kernel thread: it shows the agent that it sees all of the machine's processes.
        self.process(2, 2_129_984, "")?;
        fs::write(self.proc().join("devices"), "Character devices:\n  1 mem\n")?;
        for (_, _, uid, pid) in PODS {
            let group = format!("0::/kubepods/burstable/pod{uid}/{pid:064x}\n");
            self.process(pid, 0, &group)?;
        }
        fs::create_dir_all(self.kubelet())?;
        let record = self.kubelet().join("kubelet_internal_checkpoint");
        fs::write(record, record_of_pods())?;
        let listener = UnixListener::bind(self.socket())?;
        let registrar = RegistrationService { directory: self.kubelet(), lists: Mutex::default() };
        let server = Server::builder()
            .add_service(PodResourcesListerServer::new(PodResourcesService))
            .add_service(RegistrationServer::new(registrar));
        self.kubelet.spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        Ok(())
    }

    fn process(&self, pid: u32, flags: u32, group: &str) -> io::Result<()> {
        let directory = self.proc().join(pid.to_string());
        fs::create_dir_all(&directory)?;
        let rest = " 0".repeat(43);
        fs::write(directory.join("stat"), format!("{pid} (x) S 0 0 0 0 -1 {flags}{rest}\n"))?;
        fs::write(directory.join("cgroup"), group)
    }
}

/// Returns each pod with the ID of its replica.
fn pods() -> impl Iterator<Item = (String, (&'static str, &'static str, &'static str))> {
    let ids = (0_u32..).map(|number| format!("{GPU}::{number}"));
    let pods = PODS.map(|(namespace, name, uid, _)| (namespace, name, uid));
    ids.zip(pods)
}

fn record_of_pods() -> String {
    let entries = pods().map(|(id, (_, _, uid))| {
        json!({"PodUID": uid, "ContainerName": CONTAINER, "ResourceName": RESOURCE, "DeviceIDs": {"0": [id]}, "AllocResp": ""})
    });
    let entries: Vec<_> = entries.collect();
    json!({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 0})
        .to_string()
}

/// Accepts registrations of device plugins, and reads their lists as kubelet does.
#[derive(Debug)]
struct RegistrationService {
    directory: PathBuf,
    lists: Mutex<JoinSet<()>>,
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let socket = self.directory.join(&request.get_ref().endpoint);
        let failed = |error: tonic::transport::Error| Status::unavailable(error.to_string());
        let endpoint =
            Endpoint::try_from(format!("unix://{}", socket.display())).map_err(failed)?;
        let mut plugin = DevicePluginClient::new(endpoint.connect().await.map_err(failed)?);
        let mut list = plugin.list_and_watch(Empty {}).await?.into_inner();
        // The content is not used: the demo's pods already hold their replicas.
        let read = async move { while let Ok(Some(_)) = list.message().await {} };
        self.lists.lock().await.spawn(read);
        Ok(Response::new(Empty {}))
    }
}

/// Implements kubelet's `PodResources` service.
#[derive(Debug)]
struct PodResourcesService;

#[tonic::async_trait]
impl PodResourcesLister for PodResourcesService {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let pods = pods().map(|(id, (namespace, name, _))| PodResources {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            containers: vec![ContainerResources {
                name: CONTAINER.to_owned(),
                devices: vec![ContainerDevices {
                    resource_name: RESOURCE.to_owned(),
                    device_ids: vec![id],
                }],
                dynamic_resources: Vec::new(),
            }],
        });
        Ok(Response::new(ListPodResourcesResponse { pod_resources: pods.collect() }))
    }
}
