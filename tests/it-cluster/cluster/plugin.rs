//! A device plugin for the kubelets of the test cluster, which advertises devices to pods.
//!
//! It uses the same sockets as NVIDIA's; only the devices are simulated. A restarted kubelet forgets its plugins and
//! this one does not register again, so no test restarts one.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{cmp, fs};

use nvml_sim::model::World;
use nvml_sim::store::Store;
use octavo_kubelet::proto::device_plugin::device_plugin_server::{
    DevicePlugin, DevicePluginServer,
};
use octavo_kubelet::proto::device_plugin::registration_client::RegistrationClient;
use octavo_kubelet::proto::{
    device_plugin as api,
    device_plugin::{
        AllocateRequest, AllocateResponse, ContainerAllocateResponse,
        ContainerPreferredAllocationRequest, ContainerPreferredAllocationResponse,
        DevicePluginOptions, Empty, ListAndWatchResponse, PreStartContainerRequest,
        PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse,
        RegisterRequest,
    },
};
use tokio::net::UnixListener;
use tokio::sync::{oneshot, watch};
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::time_limits::TIME_LIMIT;

/// The only version. Source: k8s.io/kubelet, `deviceplugin/v1beta1/constants.go`, also for the health value.
const VERSION: &str = "v1beta1";
const HEALTHY: &str = "Healthy";
/// Poll interval of the simulated machine, which reports no changes.
const PACE: Duration = Duration::from_millis(100);

/// A device that can be allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// UUID of the GPU or of the MIG device.
    pub(crate) id: String,
    /// Index of the GPU.
    pub(crate) gpu: usize,
}

/// All MIG devices of a profile on a machine.
pub(crate) fn partitions(world: &World, profile: &str) -> Vec<Device> {
    let all = world.gpus.iter().enumerate().flat_map(|(index, gpu)| {
        let of_profile = gpu.profiles.iter().filter(|known| known.name == profile);
        let ids: Vec<u32> = of_profile.map(|known| known.id).collect();
        let instances = gpu.mig.iter().flat_map(|mig| &mig.instances);
        let instances = instances.filter(move |one| ids.contains(&one.profile_id));
        // A GPU instance without a compute instance is no device.
        let compute = instances.flat_map(|one| &one.compute);
        compute.map(move |one| Device { id: one.uuid.clone(), gpu: index })
    });
    all.collect()
}

/// Advertises devices until it is dropped.
pub(crate) struct Plugin {
    socket: PathBuf,
    over: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Plugin {
    /// Advertises the devices that `which` finds on the machine, as a resource of the kubelet in a directory. Returns
    /// when the kubelet has accepted the registration; the Node is updated later.
    #[track_caller]
    pub(crate) fn offer(
        kubelet: &Path,
        resource: &str,
        machine: Store,
        which: impl Fn(&World) -> Vec<Device> + Send + 'static,
    ) -> Self {
        // There is no device file, so the container only gets the environment variable.
        Self::offer_with(kubelet, resource, (machine, which), |ids| ContainerAllocateResponse {
            envs: [("NVIDIA_VISIBLE_DEVICES".to_owned(), ids.join(","))].into(),
            ..ContainerAllocateResponse::default()
        })
    }

    /// The same, with a response for the device ids of a container.
    #[track_caller]
    pub(crate) fn offer_with(
        kubelet: &Path,
        resource: &str,
        (machine, which): (Store, impl Fn(&World) -> Vec<Device> + Send + 'static),
        respond: impl Fn(&[String]) -> ContainerAllocateResponse + Send + Sync + 'static,
    ) -> Self {
        let directory = kubelet.join("device-plugins");
        let endpoint = format!("{}.sock", resource.replace('/', "-"));
        let socket = directory.join(&endpoint);
        let register = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint,
            resource_name: resource.to_owned(),
            options: Some(OPTIONS),
        };
        let (over, end) = oneshot::channel();
        let (sender, reported) = mpsc::channel();
        let at = socket.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            // Dropping the runtime ends its tasks.
            runtime.unwrap().block_on(async {
                let look = move || which(&machine.read().unwrap());
                let (devices, offered) = watch::channel(look());
                tokio::spawn(follow(look, devices));
                let service = Service { offered, respond: Box::new(respond) };
                let listener = UnixListener::bind(&at).unwrap();
                let server = Server::builder()
                    .add_service(DevicePluginServer::new(service))
                    .serve_with_incoming(UnixListenerStream::new(listener));
                let server = tokio::spawn(server);
                // Kubelet calls back before it answers, so the server must already listen.
                introduce(&directory, register).await;
                sender.send(()).unwrap();
                tokio::select! {
                    _shown = end => {}
                    ended = server => panic!("the plugin has ended: {ended:?}"),
                }
            });
        });
        // If it fails, the panic of the thread has the reason.
        reported.recv_timeout(TIME_LIMIT).unwrap();
        Self { socket, over: Some(over), thread: Some(thread) }
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        drop(self.over.take());
        let _its_panic_was_seen = self.thread.take().map(JoinHandle::join);
        let _gone_already = fs::remove_file(&self.socket);
    }
}

/// Registers the plugin with a kubelet.
async fn introduce(directory: &Path, register: RegisterRequest) {
    let kubelet = format!("unix://{}", directory.join("kubelet.sock").display());
    let channel = Endpoint::try_from(kubelet).unwrap().connect().await;
    let mut client = RegistrationClient::new(channel.unwrap());
    client.register(register).await.unwrap();
}

/// Keeps the advertised devices equal to those of the machine.
async fn follow(look: impl Fn() -> Vec<Device>, devices: watch::Sender<Vec<Device>>) {
    let mut pace = tokio::time::interval(PACE);
    while !devices.is_closed() {
        pace.tick().await;
        let now = look();
        devices.send_if_modified(|before| {
            let differ = *before != now;
            *before = now;
            differ
        });
    }
}

const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: true };

/// Response for the device ids of a container.
type Respond = Box<dyn Fn(&[String]) -> ContainerAllocateResponse + Send + Sync>;

struct Service {
    offered: watch::Receiver<Vec<Device>>,
    respond: Respond,
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        // Each message contains the complete list.
        let lists = WatchStream::new(self.offered.clone()).map(|devices| {
            let devices = devices.into_iter().map(|device| api::Device {
                id: device.id,
                health: HEALTHY.to_owned(),
                topology: None,
            });
            Ok(ListAndWatchResponse { devices: devices.collect() })
        });
        Ok(Response::new(Box::pin(lists)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let offered = self.offered.borrow();
        let requests = request.into_inner().container_requests.into_iter();
        let responses = requests.map(|request| ContainerPreferredAllocationResponse {
            device_i_ds: spread(&offered, request),
        });
        Ok(Response::new(PreferredAllocationResponse { container_responses: responses.collect() }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests.into_iter();
        let responses = requests.map(|request| (self.respond)(&request.devices_ids));
        Ok(Response::new(AllocateResponse { container_responses: responses.collect() }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Err(Status::unimplemented("not requested in the options"))
    }
}

/// Preferred allocation: the first devices of the GPU with most free ones, so that tests can predict it.
fn spread(offered: &[Device], request: ContainerPreferredAllocationRequest) -> Vec<String> {
    let mut chosen = request.must_include_device_i_ds;
    let wanted = usize::try_from(request.allocation_size).unwrap();
    let mut free: Vec<&Device> = offered
        .iter()
        .filter(|device| request.available_device_i_ds.contains(&device.id))
        .filter(|device| !chosen.contains(&device.id))
        .collect();
    while chosen.len() < wanted && !free.is_empty() {
        let left = |gpu: usize| free.iter().filter(|device| device.gpu == gpu).count();
        let best = free
            .iter()
            .min_by_key(|device| (cmp::Reverse(left(device.gpu)), device.gpu))
            .map(|device| device.id.clone());
        free.retain(|device| Some(&device.id) != best.as_ref());
        chosen.extend(best);
    }
    chosen
}

#[cfg(test)]
mod tests;
