//! Kubelet's pod-resources socket: which container was given which device, also while it does not use it.
//!
//! Source: Kubernetes, "Device Plugins", "Monitoring device plugin resources"; `proto/kubelet`. There is no way to be told of
//! changes, so it is asked whenever somebody wants to know. Kubelet refuses more than a hundred questions a second.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

pub use crate::domain::holder::PodDevice;
use crate::domain::sharing::ledger::UNHEARD;
use crate::proto::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use crate::proto::pod_resources::{
    AllocatableResourcesRequest, ContainerResources, ListPodResourcesRequest,
    ListPodResourcesResponse,
};

/// NVIDIA's resources begin like this: `nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`.
const RESOURCES: &str = "nvidia.com/";
/// NVIDIA's driver that allocates GPUs and partitions to claims. Source: dra-driver-nvidia-gpu.
const DRIVER: &str = "gpu.nvidia.com";
/// The longest answer. A node's few hundred pods are some ten kilobytes; what is asked for is a root's socket, so this is
/// against mistakes and not against attacks.
const LONGEST_ANSWER: usize = 4 << 20;
/// What a peer may send ahead of its being read.
const WINDOW: u32 = 1 << 20;
/// Nobody reads it: a Unix socket has no name of a host.
const HOST: &str = "http://localhost";

/// What is to be said of an answer of a kubelet that [`is_young`].
pub const YOUNG: &str = "kubelet was started just now, and may not tell of all pods' devices yet";

/// Ids by the name of their resource.
pub type Allocatable = BTreeMap<String, BTreeSet<String>>;

/// Why it is not known which pod has which device.
#[derive(Debug, Error)]
pub enum PodResourcesError {
    /// There is not even the folder that the socket would be in: no kubelet ever ran here, so there is nobody to ask, and no
    /// pod.
    #[error("there is no {}", folder.display())]
    Absent {
        /// The folder.
        folder: PathBuf,
    },
    /// Nobody listens. Kubelet does not run or is being restarted, and its pods go on meanwhile.
    #[error("cannot connect to kubelet at {}", socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Whoever listens does not speak gRPC.
    #[error("whoever listens at {} does not speak as kubelet does", socket.display())]
    NotKubelet {
        /// The socket.
        socket: PathBuf,
        /// What is wrong.
        #[source]
        source: tonic::transport::Error,
    },
    /// The answer is not there in time.
    #[error("kubelet did not tell its pods' devices within {} s", deadline.as_secs_f32())]
    TimedOut {
        /// How long it had.
        deadline: Duration,
    },
    /// The answer is longer than that of any node.
    #[error("kubelet's list of its pods' devices is longer than {limit} bytes")]
    TooLarge {
        /// The most that is read.
        limit: usize,
    },
    /// Kubelet refused, or its answer cannot be read.
    #[error("kubelet did not tell its pods' devices")]
    Refused(#[source] Box<tonic::Status>),
}

/// Which containers were given NVIDIA devices, asked of the kubelet that listens at `socket`, all within `deadline`.
///
/// Resources of all names that begin with `nvidia.com/` are listed, and what claims were allocated by `gpu.nvidia.com`, the
/// ids of which are `<pool>/<device>`.
///
/// An error means that nobody knows, and what is not known counts as in use; save [`PodResourcesError::Absent`], which is what
/// a machine without kubelet answers. A socket that is missing in its folder is no such answer: kubelet removes it when it
/// ends, and its pods stay.
pub async fn list(socket: &Path, deadline: Duration) -> Result<Vec<PodDevice>, PodResourcesError> {
    timeout(deadline, ask(socket))
        .await
        .unwrap_or(Err(PodResourcesError::TimedOut { deadline }))
}

/// Whether the kubelet that listens at `socket` was started so short a time ago that it may not have heard of its pods: it answers
/// at once, and hears of them from the API server. It makes its socket anew when it starts. A clock that was set meanwhile makes a
/// kubelet old, or nobody would know anything before it is right again.
pub fn is_young(socket: &Path) -> bool {
    let made = fs::metadata(socket).and_then(|file| file.modified());
    made.is_ok_and(|made| is_recent(SystemTime::from(Timestamp::now()), made))
}

fn is_recent(now: SystemTime, made: SystemTime) -> bool {
    let apart = now.duration_since(made);
    apart.unwrap_or_else(|ahead| ahead.duration()) < UNHEARD
}

/// Which ids kubelet would give out under each of NVIDIA's names: those that a plugin says are healthy. `None` where this kubelet
/// does not tell.
pub async fn allocatable(
    socket: &Path,
    deadline: Duration,
) -> Result<Option<Allocatable>, PodResourcesError> {
    let all = allocatable_of_all(socket, deadline).await?;
    Ok(all.map(|mut all| {
        all.retain(|resource, _| is_of_nvidia(resource));
        all
    }))
}

/// The same under everybody's names.
pub async fn allocatable_of_all(
    socket: &Path,
    deadline: Duration,
) -> Result<Option<Allocatable>, PodResourcesError> {
    timeout(deadline, ask_allocatable(socket))
        .await
        .unwrap_or(Err(PodResourcesError::TimedOut { deadline }))
}

/// Whether a plugin's resource is NVIDIA's.
pub(super) fn is_of_nvidia(resource: &str) -> bool {
    resource.starts_with(RESOURCES)
}

async fn ask_allocatable(socket: &Path) -> Result<Option<Allocatable>, PodResourcesError> {
    let channel = connect(socket).await?;
    let mut kubelet =
        PodResourcesListerClient::new(channel).max_decoding_message_size(LONGEST_ANSWER);
    let answer = kubelet.get_allocatable_resources(AllocatableResourcesRequest {});
    let answer = match answer.await {
        Ok(answer) => answer.into_inner(),
        Err(status) if status.code() == Code::Unimplemented => return Ok(None),
        Err(status) => return Err(PodResourcesError::Refused(Box::new(status))),
    };
    let mut all = Allocatable::new();
    for devices in answer.devices {
        let known = all.entry(devices.resource_name).or_default();
        known.extend(devices.device_ids);
    }
    Ok(Some(all))
}

async fn ask(socket: &Path) -> Result<Vec<PodDevice>, PodResourcesError> {
    let channel = connect(socket).await?;
    let mut kubelet =
        PodResourcesListerClient::new(channel).max_decoding_message_size(LONGEST_ANSWER);
    match kubelet.list(ListPodResourcesRequest {}).await {
        Ok(answer) => Ok(devices(answer.into_inner())),
        // Source: tonic's decoder. Kubelet has no use for this code.
        Err(status) if status.code() == Code::OutOfRange => Err(PodResourcesError::TooLarge {
            limit: LONGEST_ANSWER,
        }),
        Err(status) => Err(PodResourcesError::Refused(Box::new(status))),
    }
}

async fn connect(socket: &Path) -> Result<Channel, PodResourcesError> {
    let stream = match UnixStream::connect(socket).await {
        Ok(stream) => stream,
        Err(source) => return Err(unreachable(socket, source)),
    };
    // One question, one connection.
    let mut stream = Some(TokioIo::new(stream));
    let connector = service_fn(move |_: Uri| {
        let stream = stream.take();
        async move { stream.ok_or_else(|| io::Error::other("the connection was used before")) }
    });
    Endpoint::from_static(HOST)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .connect_with_connector(connector)
        .await
        .map_err(|source| PodResourcesError::NotKubelet {
            socket: socket.to_owned(),
            source,
        })
}

fn unreachable(socket: &Path, source: io::Error) -> PodResourcesError {
    // A bare name is in the folder that this program runs in, which is there.
    let folder = socket
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let missing = |folder: &&Path| matches!(folder.try_exists(), Ok(false));
    match folder.filter(missing) {
        Some(folder) => PodResourcesError::Absent {
            folder: folder.to_owned(),
        },
        None => PodResourcesError::Unreachable {
            socket: socket.to_owned(),
            source,
        },
    }
}

fn devices(answer: ListPodResourcesResponse) -> Vec<PodDevice> {
    let mut all = Vec::new();
    for pod in answer.pod_resources {
        for container in pod.containers {
            let given = given(&container);
            all.extend(given.map(|(resource, device_id)| PodDevice {
                namespace: pod.namespace.clone(),
                pod: pod.name.clone(),
                container: container.name.clone(),
                resource: resource.to_owned(),
                device_id,
            }));
        }
    }
    all
}

/// Resource and id of every NVIDIA device that the container was given.
fn given(container: &ContainerResources) -> impl Iterator<Item = (&str, String)> {
    let by_plugin = container.devices.iter();
    let by_plugin = by_plugin
        .filter(|devices| is_of_nvidia(&devices.resource_name))
        .flat_map(|devices| {
            let ids = devices.device_ids.iter().cloned();
            ids.map(|id| (devices.resource_name.as_str(), id))
        });
    let claimed = container.dynamic_resources.iter();
    let claimed = claimed
        .flat_map(|resource| &resource.claim_resources)
        .filter(|claimed| claimed.driver_name == DRIVER)
        .map(|claimed| {
            let id = format!("{}/{}", claimed.pool_name, claimed.device_name);
            (claimed.driver_name.as_str(), id)
        });
    by_plugin.chain(claimed)
}

#[cfg(test)]
mod tests;
