//! Calls between plugins and a kubelet, and the listing of pods.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use octavo_kubelet::proto::device_plugin::device_plugin_client::DevicePluginClient;
use octavo_kubelet::proto::device_plugin::registration_server::Registration;
use octavo_kubelet::proto::device_plugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, Empty, ListAndWatchResponse, PreferredAllocationRequest,
    RegisterRequest,
};
use octavo_kubelet::proto::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use octavo_kubelet::proto::pod_resources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices,
    ContainerResources, ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

use super::{PodListing, Resource, SharedState};
use crate::sockets::listen_as_old;

/// The registration service.
pub(super) struct CallHandler {
    pub(super) directory: PathBuf,
    pub(super) state: Arc<SharedState>,
}

#[tonic::async_trait]
impl Registration for CallHandler {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        let (registration, refuses) = self.state.change(|known| {
            known.registrations += 1;
            (known.registrations, known.behavior.refuses.clone())
        });
        if let Some(reason) = refuses {
            return Err(Status::unknown(reason));
        }
        assert_eq!(request.version, "v1beta1");
        // Kubelet calls back first: a plugin must serve when it registers.
        let mut plugin = connect(self.directory.join(&request.endpoint)).await?;
        let lists = plugin.list_and_watch(Empty {}).await?.into_inner();
        let name = request.resource_name;
        self.state.change(|known| {
            let resource = Resource {
                endpoint: request.endpoint,
                is_connected: true,
                registration,
                ..Resource::default()
            };
            known.resources.insert(name.clone(), resource);
        });
        tokio::spawn(read(Arc::clone(&self.state), name, registration, lists));
        Ok(Response::new(Empty {}))
    }
}

/// Reads lists until the stream ends; then all devices are unhealthy.
async fn read(
    state: Arc<SharedState>,
    name: String,
    registration: u64,
    mut lists: Streaming<ListAndWatchResponse>,
) {
    loop {
        // Unread lists stay in the connection.
        loop {
            let changed = state.changed.notified();
            if !state.known.lock().unwrap().behavior.reads_no_lists {
                break;
            }
            changed.await;
        }
        let Ok(Some(list)) = lists.message().await else {
            break;
        };
        of(&state, &name, registration, |resource| {
            resource.lists += 1;
            resource.devices =
                list.devices.iter().map(|one| (one.id.clone(), one.health == "Healthy")).collect();
            let healthy = resource.devices.iter().filter(|(_, healthy)| **healthy);
            resource.ever_healthy.extend(healthy.map(|(id, _)| id.clone()));
            resource.numa = list
                .devices
                .iter()
                .filter_map(|one| {
                    let node = one.topology.as_ref()?.nodes.first()?;
                    Some((one.id.clone(), node.id))
                })
                .collect();
        });
    }
    of(&state, &name, registration, |resource| {
        resource.is_connected = false;
        resource.devices.values_mut().for_each(|healthy| *healthy = false);
    });
}

/// Changes the resource of this registration, unless it was replaced.
fn of(state: &SharedState, name: &str, registration: u64, what: impl FnOnce(&mut Resource)) {
    state.change(|known| {
        let resource = known.resources.get_mut(name);
        let ours = resource.filter(|one| one.registration == registration);
        if let Some(resource) = ours {
            what(resource);
        }
    });
}

async fn connect(socket: PathBuf) -> Result<DevicePluginClient<Channel>, Status> {
    let channel = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
    let channel = channel.connect().await;
    let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
    Ok(DevicePluginClient::new(channel))
}

pub(super) async fn allocate(
    socket: PathBuf,
    ids: Vec<String>,
) -> Result<ContainerAllocateResponse, Status> {
    let request =
        AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_ids: ids }] };
    let answer = connect(socket).await?.allocate(request).await?;
    Ok(answer.into_inner().container_responses.remove(0))
}

pub(super) async fn prefer(
    socket: PathBuf,
    available: Vec<String>,
    must: Vec<String>,
    size: i32,
) -> Result<Vec<String>, Status> {
    let request = PreferredAllocationRequest {
        container_requests: vec![ContainerPreferredAllocationRequest {
            available_device_i_ds: available,
            must_include_device_i_ds: must,
            allocation_size: size,
        }],
    };
    let mut plugin = connect(socket).await?;
    let answer = plugin.get_preferred_allocation(request).await?;
    let mut answer = answer.into_inner().container_responses;
    Ok(answer.remove(0).device_i_ds)
}

/// The pod-resources service.
#[derive(Clone)]
pub(super) struct Lister {
    state: Arc<SharedState>,
    socket: PathBuf,
}

impl Lister {
    pub(super) fn new(state: &Arc<SharedState>, socket: &Path) -> Self {
        Self { state: Arc::clone(state), socket: socket.to_owned() }
    }

    /// Serves at its socket, replacing any other server.
    pub(super) fn listen(&self) {
        let is_young = self.state.change(|known| known.behavior.is_young);
        let listener = if is_young {
            UnixListener::bind(&self.socket).unwrap()
        } else {
            listen_as_old(&self.socket)
        };
        let incoming = UnixListenerStream::new(listener);
        let lister = PodResourcesListerServer::new(self.clone());
        tokio::spawn(Server::builder().add_service(lister).serve_with_incoming(incoming));
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        if self.state.change(|known| std::mem::take(&mut known.replace_on_next_query)) {
            self.listen();
        }
        let (behavior, pods) = self.state.change(|known| {
            known.requested += 1;
            (known.behavior.clone(), known.pods.clone())
        });
        if behavior.pod_listing == PodListing::Never {
            pending::<()>().await;
        }
        let count = match behavior.pod_listing {
            PodListing::All => pods.len(),
            PodListing::Empty | PodListing::Never => 0,
            PodListing::First(count) => count,
        };
        let pods = pods.into_iter().take(count);
        let pods = pods.map(|pod| PodResources {
            name: pod.name,
            namespace: "team-a".to_owned(),
            containers: vec![ContainerResources {
                name: "main".to_owned(),
                devices: vec![ContainerDevices {
                    resource_name: pod.resource,
                    device_ids: pod.ids,
                }],
                dynamic_resources: Vec::new(),
            }],
        });
        Ok(Response::new(ListPodResourcesResponse { pod_resources: pods.collect() }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        let known = self.state.known.lock().unwrap();
        if known.behavior.is_old {
            return Err(Status::unimplemented("an old kubelet"));
        }
        let devices = known.resources.keys().map(|name| {
            let others = known.behavior.others.get(name).into_iter().flatten();
            ContainerDevices {
                resource_name: name.clone(),
                device_ids: known.healthy(name).chain(others).cloned().collect(),
            }
        });
        Ok(Response::new(AllocatableResourcesResponse { devices: devices.collect() }))
    }
}
