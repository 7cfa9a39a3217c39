//! Allocations of devices to pods, combined from the kubelet's report and its checkpoint.
//!
//! A restarted kubelet reports a pod only after it has received it from the API server, loads pods one at a time, and
//! receives none while the API server is unavailable, possibly for hours. Its checkpoint contains the allocations all
//! the while.
//!
//! The checkpoint also contains terminated pods. The kubelet removes them from memory once it has loaded all pods, and
//! rewrites the checkpoint on the next allocation or list update. Entries that are only in the checkpoint therefore
//! count while the kubelet is young, and afterwards while their pod has a process; an idle pod has its sandbox process.
//! They end with the pod, whatever the kubelet does. Source: Kubernetes, `pkg/kubelet/cm/devicemanager/manager.go`,
//! `UpdateAllocatedDevices` and `writeCheckpoint`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use octavo_toolkit::error::chain;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::debug;

use super::kubelet_checkpoint::{self, KubeletAllocation, PodUids};
use super::pod_resources::{
    DeviceAllocation, PodResourcesError, is_nvidia_resource, list, started_recently,
};

/// Reports the pods that are running on this node.
pub trait RunningPods: fmt::Debug + Send + Sync {
    /// Returns the UIDs of all pods with a process, or why they are unknown. May block.
    fn pods(&self) -> Result<BTreeSet<String>, String>;
}

/// Queries the kubelet and its checkpoint.
#[derive(Debug)]
pub struct AllocationReader {
    socket: PathBuf,
    /// The directory of the checkpoint.
    plugin_dir: PathBuf,
    running_pods: Arc<dyn RunningPods>,
    /// Namespace and name by UID, of pods that the kubelet has reported.
    names: BTreeMap<String, (String, String)>,
}

/// The known allocations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAllocations {
    /// Allocations to containers.
    pub devices: Vec<DeviceAllocation>,
    /// Whether the kubelet started recently and may not have loaded its pods.
    pub is_young: bool,
    /// Whether the checkpoint was read, so that allocations that the kubelet does not report are included.
    pub has_checkpoint: bool,
}

/// The checkpoint and, if they were needed, the running pods.
type CheckpointRead = (PodUids, Option<Result<BTreeSet<String>, String>>);

impl AllocationReader {
    /// Queries the kubelet at `socket` and the checkpoint in `plugin_dir`, and `running_pods` if the two differ.
    pub fn new(socket: &Path, plugin_dir: &Path, running_pods: Arc<dyn RunningPods>) -> Self {
        Self {
            socket: socket.to_owned(),
            plugin_dir: plugin_dir.to_owned(),
            running_pods,
            names: BTreeMap::new(),
        }
    }

    /// Returns the current allocations. Each query takes at most `limit`.
    ///
    /// # Errors
    ///
    /// Fails if the kubelet does not report its allocations: see [`list`]. An unreadable checkpoint is ignored. If the
    /// running pods are unknown, all entries of the checkpoint count.
    pub async fn ask(&mut self, limit: Duration) -> Result<PodAllocations, PodResourcesError> {
        let mut devices = list(&self.socket, limit).await?;
        // A kubelet that restarted during the query is young.
        let is_young = started_recently(&self.socket);
        let Some((checkpoint, running)) = self.read_checkpoint(&devices, is_young, limit).await
        else {
            return Ok(PodAllocations { devices, is_young, has_checkpoint: false });
        };
        self.update_names(&devices, &checkpoint);
        let counts = |entry: &KubeletAllocation<'_>| match &running {
            Some(Ok(running)) => running.contains(entry.uid),
            Some(Err(_)) | None => true,
        };
        let more: Vec<DeviceAllocation> = unreported(&devices, &checkpoint)
            .filter(counts)
            .map(|entry| self.device(entry))
            .collect();
        devices.extend(more);
        Ok(PodAllocations { devices, is_young, has_checkpoint: true })
    }

    /// Namespace and name of the pod with this UID, if the kubelet has reported it and its checkpoint has it.
    pub fn pod_name(&self, uid: &str) -> Option<(&str, &str)> {
        let (namespace, name) = self.names.get(uid)?;
        Some((namespace, name))
    }

    /// Reads the checkpoint, and the running pods if they affect the result.
    async fn read_checkpoint(
        &self,
        devices: &[DeviceAllocation],
        is_young: bool,
        limit: Duration,
    ) -> Option<CheckpointRead> {
        let plugin_dir = self.plugin_dir.clone();
        let read = spawn_blocking(move || kubelet_checkpoint::read(&plugin_dir));
        let checkpoint = match timeout(limit, read).await {
            Ok(Ok(Ok(checkpoint))) => checkpoint,
            Ok(Ok(Err(error))) => {
                debug!(error = %chain(&error), "cannot use the kubelet checkpoint");
                return None;
            }
            Ok(Err(_)) | Err(_) => return None,
        };
        if is_young || unreported(devices, &checkpoint).next().is_none() {
            return Some((checkpoint, None));
        }
        let running = Arc::clone(&self.running_pods);
        let running = timeout(limit, spawn_blocking(move || running.pods())).await;
        let running = match running {
            Ok(Ok(running)) => running,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_late) => {
                Err("timed out reading /proc: a process of this node blocks it".to_owned())
            }
        };
        if let Err(reason) = &running {
            debug!(%reason, "all entries of the kubelet checkpoint count as allocated");
        }
        Some((checkpoint, Some(running)))
    }

    /// Stores the names of pods in the checkpoint and removes all others.
    fn update_names(&mut self, devices: &[DeviceAllocation], checkpoint: &PodUids) {
        for one in devices {
            if let Some(uid) = checkpoint.name(one.clone()).uid {
                let name = (one.namespace.clone(), one.pod.clone());
                self.names.insert(uid, name);
            }
        }
        let recorded: BTreeSet<&str> = checkpoint.entries().map(|entry| entry.uid).collect();
        self.names.retain(|uid, _| recorded.contains(uid.as_str()));
    }

    fn device(&self, entry: KubeletAllocation<'_>) -> DeviceAllocation {
        let name = self.names.get(entry.uid).cloned();
        let (namespace, pod) =
            name.unwrap_or_else(|| (String::new(), format!("(UID {})", entry.uid)));
        DeviceAllocation {
            namespace,
            pod,
            container: entry.container.to_owned(),
            resource: entry.resource.to_owned(),
            device_id: entry.id.to_owned(),
            claim: None,
        }
    }
}

/// Returns NVIDIA devices that are in the checkpoint but not reported by the kubelet.
fn unreported<'a>(
    devices: &[DeviceAllocation],
    checkpoint: &'a PodUids,
) -> impl Iterator<Item = KubeletAllocation<'a>> {
    let named: BTreeSet<(String, String)> =
        devices.iter().map(|one| (one.resource.clone(), one.device_id.clone())).collect();
    checkpoint.entries().filter(move |entry| {
        let key = (entry.resource.to_owned(), entry.id.to_owned());
        is_nvidia_resource(entry.resource) && !named.contains(&key)
    })
}
