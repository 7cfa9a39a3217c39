//! Client of the kubelet's pod-resources API, which reports the devices allocated to each container, used or not.
//!
//! Source: Kubernetes, "Device Plugins", "Monitoring device plugin resources"; `proto/kubelet`. The API has no change
//! notifications, so it is queried on demand. The kubelet rejects more than a hundred queries per second.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use octavo_model::claim::{ClaimRef, DRIVER};
pub use octavo_model::holder::DeviceAllocation;
use octavo_node::sharing::ledger::RESTART_TIMEOUT;
use thiserror::Error;
use tokio::time::timeout;
use tonic::Code;
use tonic::transport::Channel;

use crate::proto::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use crate::proto::pod_resources::{
    AllocatableResourcesRequest, ContainerResources, ListPodResourcesRequest,
    ListPodResourcesResponse,
};
use crate::unix_channel::{self, ConnectError};

/// Prefix of NVIDIA's resource names, such as `nvidia.com/gpu` and `nvidia.com/mig-1g.10gb`.
const NVIDIA_RESOURCE_PREFIX: &str = "nvidia.com/";
/// DRA drivers that allocate GPUs and partitions to resource claims: NVIDIA's and Octavo's. Source: dra-driver-nvidia-gpu.
const DRA_DRIVERS: [&str; 2] = ["gpu.nvidia.com", DRIVER];
/// Size limit of a response in bytes. A node's few hundred pods take some ten kilobytes. The socket belongs to root, so
/// the limit protects against errors and not against attacks.
const MAX_RESPONSE_BYTES: usize = 4 << 20;
/// Flow-control window in bytes.
const WINDOW_BYTES: u32 = 1 << 20;

/// Message for a response from a kubelet that [`started_recently`].
pub const YOUNG_KUBELET_MESSAGE: &str =
    "the kubelet has just started, and might not report the devices of all pods yet";

/// IDs by resource name.
pub type Allocatable = BTreeMap<String, BTreeSet<String>>;

/// Error that makes the allocations to pods unknown.
#[derive(Debug, Error)]
pub enum PodResourcesError {
    /// Not even the socket's directory exists: no kubelet ever ran here, so there are no pods.
    #[error("{} does not exist", directory.display())]
    Absent {
        /// The directory.
        directory: PathBuf,
    },
    /// There is no connection to the kubelet, whose pods keep running.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No response in time.
    #[error("the kubelet did not list the devices of its pods within {} s", deadline.as_secs_f32())]
    TimedOut {
        /// The timeout.
        deadline: Duration,
    },
    /// The response exceeds the size limit.
    #[error("the list of pod devices from the kubelet is longer than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The kubelet refused the query, or its response cannot be parsed.
    #[error("the kubelet did not list the devices of its pods")]
    Refused(#[source] Box<tonic::Status>),
}

/// Returns the allocations of NVIDIA devices to containers, from the kubelet that listens at `socket`, within
/// `deadline`.
///
/// Includes all resources whose names start with `nvidia.com/`, and devices that `gpu.nvidia.com` or `gpu.octavo.dev`
/// allocated to resource claims, whose IDs are `<pool>/<device>`.
///
/// An error means that the allocations are unknown, which counts as in use. The exception is
/// [`PodResourcesError::Absent`], which means a machine without a kubelet. A missing socket in an existing directory is
/// not such a case: the kubelet removes the socket when it ends, and its pods keep running.
pub async fn list(
    socket: &Path,
    deadline: Duration,
) -> Result<Vec<DeviceAllocation>, PodResourcesError> {
    timeout(deadline, query(socket)).await.unwrap_or(Err(PodResourcesError::TimedOut { deadline }))
}

/// Returns whether the kubelet that listens at `socket` started so recently that it may not have loaded its pods: it
/// responds immediately, but gets its pods from the API server. Its start time is the creation time of its socket. If
/// the clock was set in the meantime, the kubelet counts as old, because allocations would otherwise stay unknown until
/// the clock is right again.
pub fn started_recently(socket: &Path) -> bool {
    let made = fs::metadata(socket).and_then(|file| file.modified());
    made.is_ok_and(|made| is_recent(SystemTime::from(Timestamp::now()), made))
}

fn is_recent(now: SystemTime, made: SystemTime) -> bool {
    let apart = now.duration_since(made);
    apart.unwrap_or_else(|ahead| ahead.duration()) < RESTART_TIMEOUT
}

/// Returns the IDs that the kubelet may allocate under each of NVIDIA's resource names, which are those that a plugin
/// reports as healthy. `None` if this kubelet does not support the query.
pub async fn allocatable(
    socket: &Path,
    deadline: Duration,
) -> Result<Option<Allocatable>, PodResourcesError> {
    let all = allocatable_of_all_vendors(socket, deadline).await?;
    Ok(all.map(|mut all| {
        all.retain(|resource, _| is_nvidia_resource(resource));
        all
    }))
}

/// Like [`allocatable`], for the resource names of all vendors.
pub async fn allocatable_of_all_vendors(
    socket: &Path,
    deadline: Duration,
) -> Result<Option<Allocatable>, PodResourcesError> {
    timeout(deadline, query_allocatable(socket))
        .await
        .unwrap_or(Err(PodResourcesError::TimedOut { deadline }))
}

/// Returns whether a plugin's resource is NVIDIA's.
pub(super) fn is_nvidia_resource(resource: &str) -> bool {
    resource.starts_with(NVIDIA_RESOURCE_PREFIX)
}

async fn query_allocatable(socket: &Path) -> Result<Option<Allocatable>, PodResourcesError> {
    let channel = connect(socket).await?;
    let mut kubelet =
        PodResourcesListerClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
    let response = kubelet.get_allocatable_resources(AllocatableResourcesRequest {});
    let response = match response.await {
        Ok(response) => response.into_inner(),
        Err(status) if status.code() == Code::Unimplemented => return Ok(None),
        Err(status) => return Err(PodResourcesError::Refused(Box::new(status))),
    };
    let mut all = Allocatable::new();
    for devices in response.devices {
        let known = all.entry(devices.resource_name).or_default();
        known.extend(devices.device_ids);
    }
    Ok(Some(all))
}

async fn query(socket: &Path) -> Result<Vec<DeviceAllocation>, PodResourcesError> {
    let channel = connect(socket).await?;
    let mut kubelet =
        PodResourcesListerClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
    match kubelet.list(ListPodResourcesRequest {}).await {
        Ok(response) => Ok(allocations(response.into_inner())),
        // Source: tonic's decoder. The kubelet does not use this code.
        Err(status) if status.code() == Code::OutOfRange => {
            Err(PodResourcesError::TooLarge { limit: MAX_RESPONSE_BYTES })
        }
        Err(status) => Err(PodResourcesError::Refused(Box::new(status))),
    }
}

async fn connect(socket: &Path) -> Result<Channel, PodResourcesError> {
    let endpoint = unix_channel::endpoint()
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    unix_channel::connect(socket, endpoint).await.map_err(|error| {
        // A bare file name is in the current directory, which exists.
        let dir = socket.parent().filter(|dir| !dir.as_os_str().is_empty());
        let missing_dir = dir.filter(|dir| matches!(dir.try_exists(), Ok(false)));
        match (&error, missing_dir) {
            (ConnectError::Unreachable { .. }, Some(dir)) => {
                PodResourcesError::Absent { directory: dir.to_owned() }
            }
            _ => error.into(),
        }
    })
}

/// Returns the allocations of NVIDIA devices in a response.
pub fn allocations(response: ListPodResourcesResponse) -> Vec<DeviceAllocation> {
    let mut all = Vec::new();
    for pod in response.pod_resources {
        for container in pod.containers {
            let devices = allocated_devices(&container);
            all.extend(devices.map(|(resource, device_id, claim)| DeviceAllocation {
                namespace: pod.namespace.clone(),
                pod: pod.name.clone(),
                container: container.name.clone(),
                resource: resource.to_owned(),
                device_id,
                claim,
            }));
        }
    }
    all
}

/// Returns resource, ID and claim of every NVIDIA device allocated to the container.
fn allocated_devices(
    container: &ContainerResources,
) -> impl Iterator<Item = (&str, String, Option<ClaimRef>)> {
    let by_plugin = container.devices.iter();
    let by_plugin = by_plugin
        .filter(|devices| is_nvidia_resource(&devices.resource_name))
        .flat_map(|devices| {
            let ids = devices.device_ids.iter().cloned();
            ids.map(|id| (devices.resource_name.as_str(), id, None))
        });
    let claims = container.dynamic_resources.iter();
    let claimed = claims.flat_map(|claim| {
        let devices = claim.claim_resources.iter();
        let ours = devices.filter(|device| DRA_DRIVERS.contains(&device.driver_name.as_str()));
        ours.map(|device| {
            let id = format!("{}/{}", device.pool_name, device.device_name);
            let namespace = claim.claim_namespace.clone();
            let claim = ClaimRef { namespace, name: claim.claim_name.clone() };
            (device.driver_name.as_str(), id, Some(claim))
        })
    });
    by_plugin.chain(claimed)
}

#[cfg(test)]
mod tests;
