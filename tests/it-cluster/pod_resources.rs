//! A pod-resources socket that reports the devices of pods.

use std::sync::{Arc, Mutex};
use std::{fs, thread};

use octavo_kubelet::proto::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use octavo_kubelet::proto::pod_resources::{
    ContainerDevices, ContainerResources, ListPodResourcesRequest, ListPodResourcesResponse,
    PodResources,
};
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::node::Node;
use crate::sockets::listen_as_old;
use crate::time_limits::TIME_LIMIT;

/// Namespace and name of a pod, and its partition.
type Allocation = (String, String, String);

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
        let pods = allocations.into_iter().map(|(namespace, name, device)| {
            let devices = vec![ContainerDevices {
                resource_name: "nvidia.com/mig-3g.20gb".to_owned(),
                device_ids: vec![device],
            }];
            let container = ContainerResources {
                name: "main".to_owned(),
                devices,
                dynamic_resources: Vec::new(),
            };
            PodResources { name, namespace, containers: vec![container] }
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
        let allocation = (namespace.to_owned(), pod.to_owned(), device.to_owned());
        self.allocations.lock().unwrap().push(allocation);
    }

    /// Removes a pod.
    pub(crate) fn ended(&self, pod: &str) {
        let mut allocations = self.allocations.lock().unwrap();
        allocations.retain(|(_, name, _)| name != pod);
    }
}
