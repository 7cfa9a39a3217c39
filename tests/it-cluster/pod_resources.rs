//! A pod-resources socket that reports the devices of pods.

use std::sync::{Arc, Mutex};
use std::{fs, thread};

use octavo_kubelet::proto::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use octavo_kubelet::proto::pod_resources::{
    ClaimResource, ContainerDevices, ContainerResources, DynamicResource, ListPodResourcesRequest,
    ListPodResourcesResponse, PodResources,
};
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::node::Node;
use crate::sockets::listen_as_old;
use crate::time_limits::TIME_LIMIT;

/// A pod and its partition.
#[derive(Clone)]
struct Allocation {
    namespace: String,
    pod: String,
    /// ID of a device plugin, or `<pool>/<device>` for a claim.
    device: String,
    /// Name of the claim.
    claim: Option<String>,
}

/// Stopped when dropped.
pub(crate) struct Kubelet {
    allocations: Arc<Mutex<Vec<Allocation>>>,
    _stop: oneshot::Sender<()>,
}

struct PodLister(Arc<Mutex<Vec<Allocation>>>);

#[tonic::async_trait]
impl PodResourcesLister for PodLister {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let allocations = self.0.lock().unwrap().clone();
        let pods = allocations.into_iter().map(|Allocation { namespace, pod, device, claim }| {
            let (devices, dynamic_resources) = if let Some(claim) = claim {
                let (pool, device) = device.rsplit_once('/').unwrap();
                let device = ClaimResource {
                    driver_name: "gpu.octavo.dev".to_owned(),
                    pool_name: pool.to_owned(),
                    device_name: device.to_owned(),
                };
                let claim = DynamicResource {
                    claim_name: claim,
                    claim_namespace: namespace.clone(),
                    claim_resources: vec![device],
                };
                (Vec::new(), vec![claim])
            } else {
                let resource_name = "nvidia.com/mig-3g.20gb".to_owned();
                let devices = ContainerDevices { resource_name, device_ids: vec![device] };
                (vec![devices], Vec::new())
            };
            let name = "main".to_owned();
            let container = ContainerResources { name, devices, dynamic_resources };
            PodResources { name: pod, namespace, containers: vec![container] }
        });
        Ok(Response::new(ListPodResourcesResponse { pod_resources: pods.collect() }))
    }
}

impl Kubelet {
    /// At the path that the agent of this machine uses.
    pub(crate) fn start(node: &Node) -> Self {
        let path = node.kubelet();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let allocations = Arc::new(Mutex::new(Vec::new()));
        let lister = PodResourcesListerServer::new(PodLister(Arc::clone(&allocations)));
        let (stop, stopped) = oneshot::channel::<()>();
        let (sender, listening) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let socket = listen_as_old(&path);
                sender.send(()).unwrap();
                let incoming = UnixListenerStream::new(socket);
                let server = Server::builder().add_service(lister);
                let ended = async {
                    let _dropped = stopped.await;
                };
                server.serve_with_incoming_shutdown(incoming, ended).await.unwrap();
            });
        });
        listening.recv_timeout(TIME_LIMIT).unwrap();
        Self { allocations, _stop: stop }
    }

    /// Allocates a partition to a pod.
    pub(crate) fn give(&self, namespace: &str, pod: &str, device: &str) {
        self.push(namespace, pod, device, None);
    }

    /// Lists a device of a pool for the claim of a pod.
    pub(crate) fn give_claimed(&self, namespace: &str, pod: &str, claim: &str, device: &str) {
        self.push(namespace, pod, device, Some(claim.to_owned()));
    }

    fn push(&self, namespace: &str, pod: &str, device: &str, claim: Option<String>) {
        let (namespace, pod, device) = (namespace.to_owned(), pod.to_owned(), device.to_owned());
        let allocation = Allocation { namespace, pod, device, claim };
        self.allocations.lock().unwrap().push(allocation);
    }

    /// Removes a pod.
    pub(crate) fn ended(&self, pod: &str) {
        let mut allocations = self.allocations.lock().unwrap();
        allocations.retain(|one| one.pod != pod);
    }
}
