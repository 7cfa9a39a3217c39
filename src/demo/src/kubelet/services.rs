//! The kubelet's services: registration of device plugins, and the pod-resources API.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_kubelet::proto::device_plugin::device_plugin_client::DevicePluginClient;
use octavo_kubelet::proto::device_plugin::registration_server::{Registration, RegistrationServer};
use octavo_kubelet::proto::device_plugin::{Empty, ListAndWatchResponse, RegisterRequest};
use octavo_kubelet::proto::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use octavo_kubelet::proto::pod_resources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices,
    ContainerResources, ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use tokio::net::UnixListener;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tonic::service::Routes;
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status, Streaming};

use super::{Devices, Shared};
use crate::servers::Servers;
use crate::workloads::CONTAINER;

/// Age of the kubelet. An agent does not trust a kubelet that has just started to know its pods.
const AGE: Duration = Duration::from_hours(1);

/// Starts both services at `socket`, in the directory of plugin sockets.
pub(super) fn start(
    servers: &mut Servers,
    (plugins, socket): (&Path, &Path),
    shared: &Arc<Shared>,
) -> io::Result<()> {
    // Under another name first, so that no agent observes it with a recent time.
    let draft = socket.with_extension("draft");
    let listener = UnixListener::bind(&draft)?;
    set_age(&draft)?;
    fs::rename(draft, socket)?;
    let registration = RegistrationService {
        directory: plugins.to_owned(),
        shared: Arc::clone(shared),
        lists: Mutex::default(),
    };
    let pod_resources = PodResourcesListerServer::new(PodResourcesService(Arc::clone(shared)));
    let routes = Routes::new(pod_resources).add_service(RegistrationServer::new(registration));
    servers.start(listener, routes.into_axum_router());
    Ok(())
}

fn set_age(path: &Path) -> io::Result<()> {
    let age = i64::try_from(AGE.as_secs()).unwrap_or(i64::MAX);
    let made = Timestamp::now().as_second().saturating_sub(age);
    let made = Timespec { tv_sec: made, tv_nsec: 0 };
    let times = Timestamps { last_access: made, last_modification: made };
    Ok(utimensat(CWD, path, &times, AtFlags::empty())?)
}

/// Accepts registrations of device plugins, and reads their lists.
#[derive(Debug)]
struct RegistrationService {
    directory: PathBuf,
    shared: Arc<Shared>,
    lists: Mutex<JoinSet<()>>,
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        let socket = self.directory.join(&request.endpoint);
        let failed = |error: tonic::transport::Error| Status::unavailable(error.to_string());
        let endpoint =
            Endpoint::try_from(format!("unix://{}", socket.display())).map_err(failed)?;
        let mut plugin = DevicePluginClient::new(endpoint.connect().await.map_err(failed)?);
        let list = plugin.list_and_watch(Empty {}).await?.into_inner();
        let shared = Arc::clone(&self.shared);
        let mut lists = self.lists.lock().await;
        while lists.try_join_next().is_some() {}
        lists.spawn(read(shared, request.resource_name, list));
        Ok(Response::new(Empty {}))
    }
}

/// Reads the lists of a plugin. When it ends, its devices are unhealthy until it registers again.
async fn read(shared: Arc<Shared>, resource: String, mut lists: Streaming<ListAndWatchResponse>) {
    let mut known = Devices::new();
    while let Ok(Some(list)) = lists.message().await {
        let devices = list.devices.into_iter();
        known = devices.map(|one| (one.id, one.health == "Healthy")).collect();
        shared.set_devices(&resource, known.clone());
    }
    for healthy in known.values_mut() {
        *healthy = false;
    }
    shared.set_devices(&resource, known);
}

/// Implements the `PodResources` service.
#[derive(Debug)]
struct PodResourcesService(Arc<Shared>);

#[tonic::async_trait]
impl PodResourcesLister for PodResourcesService {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let state = self.0.lock();
        let pods = state.pods.values().map(|pod| {
            let (namespace, name) = pod.name.split_once('/').unwrap_or_default();
            let devices = ContainerDevices {
                resource_name: pod.resource.clone(),
                device_ids: pod.devices.clone(),
            };
            let has_devices = !pod.devices.is_empty();
            PodResources {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
                containers: vec![ContainerResources {
                    name: CONTAINER.to_owned(),
                    devices: has_devices.then_some(devices).into_iter().collect(),
                    dynamic_resources: Vec::new(),
                }],
            }
        });
        Ok(Response::new(ListPodResourcesResponse { pod_resources: pods.collect() }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        let state = self.0.lock();
        let devices = state.resources.iter().map(|(resource, devices)| {
            let healthy = devices.iter().filter(|(_, healthy)| **healthy);
            ContainerDevices {
                resource_name: resource.clone(),
                device_ids: healthy.map(|(id, _)| id.clone()).collect(),
            }
        });
        Ok(Response::new(AllocatableResourcesResponse { devices: devices.collect() }))
    }
}
