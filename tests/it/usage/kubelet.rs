//! A kubelet that lists and records the allocations of pods, and can be slow on request.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use octavo_kubelet::proto::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use octavo_kubelet::proto::pod_resources::{
    ClaimResource, ContainerDevices, ContainerResources, DynamicResource, ListPodResourcesRequest,
    ListPodResourcesResponse, PodResources,
};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::record;

/// Pods by name, each with a resource and its ids.
type Pods = BTreeMap<String, (String, Vec<String>)>;

/// Stopped when dropped.
pub(crate) struct Kubelet {
    directory: PathBuf,
    pods: Arc<Mutex<Pods>>,
    slow: watch::Sender<bool>,
    server: Option<JoinHandle<()>>,
}

struct Lister(Arc<Mutex<Pods>>, watch::Receiver<bool>);

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let mut slow = self.1.clone();
        let _ended = slow.wait_for(|slow| !slow).await;
        let pods = self.0.lock().unwrap().clone();
        let pods = pods.into_iter().map(|(name, (resource, ids))| PodResources {
            name,
            namespace: "team".to_owned(),
            containers: vec![container(&resource, ids)],
        });
        Ok(Response::new(ListPodResourcesResponse { pod_resources: pods.collect() }))
    }
}

/// A container with these ids of a resource, or with a device of the claim `train` for the name of a DRA driver.
fn container(resource: &str, ids: Vec<String>) -> ContainerResources {
    let claimed = |id: String| {
        let (pool, device) = id.rsplit_once('/').unwrap();
        ClaimResource {
            driver_name: resource.to_owned(),
            pool_name: pool.to_owned(),
            device_name: device.to_owned(),
        }
    };
    let (devices, dynamic_resources) = if resource == "gpu.octavo.dev" {
        let claim = DynamicResource {
            claim_name: "train".to_owned(),
            claim_namespace: "team".to_owned(),
            claim_resources: ids.into_iter().map(claimed).collect(),
        };
        (Vec::new(), vec![claim])
    } else {
        let resource_name = resource.to_owned();
        (vec![ContainerDevices { resource_name, device_ids: ids }], Vec::new())
    };
    ContainerResources { name: "main".to_owned(), devices, dynamic_resources }
}

impl Kubelet {
    pub(super) fn start(directory: &Path) -> Self {
        fs::create_dir_all(directory).unwrap();
        let (slow, _) = watch::channel(false);
        let mut kubelet =
            Self { directory: directory.to_owned(), pods: Arc::default(), slow, server: None };
        kubelet.listen();
        kubelet
    }

    pub(super) fn listen(&mut self) {
        let socket = UnixListener::bind(self.directory.join("kubelet.sock")).unwrap();
        let lister = Lister(Arc::clone(&self.pods), self.slow.subscribe());
        let server = Server::builder().add_service(PodResourcesListerServer::new(lister));
        self.server = Some(tokio::spawn(async move {
            let incoming = UnixListenerStream::new(socket);
            server.serve_with_incoming(incoming).await.unwrap();
        }));
    }

    /// Stops it and removes its socket.
    pub(super) fn stop(&mut self) {
        self.server.take().unwrap().abort();
        fs::remove_file(self.directory.join("kubelet.sock")).unwrap();
    }

    pub(super) fn answers_slowly(&self, slow: bool) {
        self.slow.send_replace(slow);
    }

    /// Allocates these ids to a pod and records them in the checkpoint.
    pub(crate) fn give(&self, pod: &str, resource: &str, ids: &[String]) {
        self.give_unrecorded(pod, resource, ids);
        self.record();
    }

    pub(super) fn give_unrecorded(&self, pod: &str, resource: &str, ids: &[String]) {
        let allocated = (resource.to_owned(), ids.to_vec());
        self.pods.lock().unwrap().insert(pod.to_owned(), allocated);
    }

    /// Removes a pod.
    pub(crate) fn end_pod(&self, pod: &str) {
        self.pods.lock().unwrap().remove(pod);
        self.record();
    }

    fn record(&self) {
        let pods = self.pods.lock().unwrap();
        let entries = pods.iter();
        let entries = entries
            .map(|(name, (resource, ids))| (name.as_str(), resource.as_str(), ids.as_slice()));
        record::write(&self.directory, entries);
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}
