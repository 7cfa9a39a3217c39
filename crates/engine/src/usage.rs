//! Device usage beyond the processes that the driver lists.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use octavo_hardware::holders;
use octavo_kubelet::device_plugin::{AllocationBlock, AllocationGate};
use octavo_kubelet::pod_allocations::{AllocationReader, RunningPods};
use octavo_kubelet::pod_resources::{self, PodResourcesError};
use octavo_model::holder::{self, DeviceAllocation, Holder};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, Inventory};
use octavo_settings::engine::EngineSettings;
use octavo_toolkit::error::chain;
use tokio::time::{Instant, timeout};

/// Reports the users of devices. Called from several threads immediately before an instance is destroyed; may block.
pub trait UsageProbe: fmt::Debug + Send + Sync {
    /// Returns all current holders of `devices`. An error means that the holders are unknown, which counts as in use.
    fn holders(&self, devices: &[Device]) -> Result<Vec<Holder>, String>;

    /// Adds details, such as the program name and the pod, to holders whose process ID is known.
    fn describe(&self, holders: &mut [Holder]);

    /// Stops allocation of these devices until the returned guard is dropped. Call it before the last call of
    /// [`Self::holders`], which then includes every earlier allocation. `None` if another device plugin allocates the
    /// devices.
    fn block_allocation(&self, _devices: &[PciAddress]) -> Option<AllocationBlock> {
        None
    }
}

/// Usage on a node where the built-in device plugin allocates devices.
#[derive(Debug)]
pub struct DevicePluginProbe {
    inner: Arc<dyn UsageProbe>,
    gate: Arc<AllocationGate>,
}

impl DevicePluginProbe {
    /// Combines the holders reported by `inner` with all allocations made through `gate`.
    pub fn new(inner: Arc<dyn UsageProbe>, gate: Arc<AllocationGate>) -> Self {
        Self { inner, gate }
    }
}

impl UsageProbe for DevicePluginProbe {
    fn holders(&self, devices: &[Device]) -> Result<Vec<Holder>, String> {
        // Read the gate first: an allocation that the kubelet starts to report in between is then listed twice instead
        // of missed.
        let held = self.gate.held();
        let mut all = self.inner.holders(devices)?;
        let held = holder::holders_from_allocations(&held, devices).holders;
        if held.iter().any(|holder| !all.contains(holder)) {
            // The kubelet does not report this allocation now: either it was released, or the kubelet restarted and has
            // not yet loaded its pods.
            self.gate.request_refresh();
        }
        all.extend(held);
        all.sort();
        all.dedup();
        Ok(all)
    }

    fn describe(&self, holders: &mut [Holder]) {
        self.inner.describe(holders);
    }

    fn block_allocation(&self, devices: &[PciAddress]) -> Option<AllocationBlock> {
        Some(self.gate.block(devices))
    }
}

/// Usage reported by the node: open device files from procfs, and allocations to pods from the kubelet.
#[derive(Debug)]
pub struct NodeProbe {
    proc_root: PathBuf,
    /// `None` if the settings say that there is no kubelet.
    kubelet: Option<Kubelet>,
}

/// The kubelet, whose responses are shared: it limits concurrent queries, and every device has a thread that queries
/// it.
#[derive(Debug)]
struct Kubelet {
    /// Whether this process runs in a pod, which means that a kubelet must exist.
    in_pod: bool,
    client: Mutex<KubeletClient>,
}

/// The kubelet client and its last response, used by one thread at a time.
#[derive(Debug)]
struct KubeletClient {
    reader: AllocationReader,
    last: Option<KubeletResponse>,
}

/// The pods that have a running process, read from procfs.
#[derive(Debug)]
pub struct PodProcesses {
    proc_root: PathBuf,
}

impl PodProcesses {
    /// Reads the process file system at `proc_root`.
    pub fn new(proc_root: &Path) -> Self {
        Self { proc_root: proc_root.to_owned() }
    }
}

impl RunningPods for PodProcesses {
    fn pods(&self) -> Result<BTreeSet<String>, String> {
        holders::pods(&self.proc_root).map_err(|error| chain(&error))
    }
}

/// A response of the kubelet, and when its query started.
#[derive(Debug)]
struct KubeletResponse {
    queried_at: Instant,
    allocations: Result<Vec<DeviceAllocation>, String>,
}

/// Time limit of a kubelet query. The kubelet answers from memory.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of a usage query, above the duration of a full procfs scan. Reading a file of a hung process may never
/// return.
const SCAN_TIMEOUT: Duration = Duration::from_secs(30);

impl NodeProbe {
    /// Creates a probe from `settings`.
    pub fn new(settings: &EngineSettings) -> Self {
        Self {
            proc_root: settings.proc_root.clone(),
            kubelet: settings.pod_resources().map(|socket| {
                let living = Arc::new(PodProcesses::new(&settings.proc_root));
                Kubelet {
                    in_pod: settings.in_pod(),
                    client: Mutex::new(KubeletClient {
                        reader: AllocationReader::new(socket, &settings.device_plugins(), living),
                        last: None,
                    }),
                }
            }),
        }
    }
}

impl UsageProbe for NodeProbe {
    fn holders(&self, devices: &[Device]) -> Result<Vec<Holder>, String> {
        let all: Vec<&Device> = devices.iter().collect();
        let mut found = holders::open(&self.proc_root, &all).map_err(|error| chain(&error))?;
        let Some(kubelet) = &self.kubelet else {
            return Ok(found);
        };
        let mut allocations = kubelet.allocations()?;
        octavo_dra::allocations::with_uuids(&mut allocations, devices);
        let pods = holder::holders_from_allocations(&allocations, devices);
        match pods.unassigned.iter().find(|one| is_gpu_resource(&one.resource)) {
            None => {
                found.extend(pods.holders);
                Ok(found)
            }
            Some(one) => Err(format!(
                "pod {}/{} was allocated {} {}, which matches no device of this node",
                one.namespace, one.pod, one.resource, one.device_id
            )),
        }
    }

    fn describe(&self, holders: &mut [Holder]) {
        holders::describe(&self.proc_root, holders);
        if let Some(kubelet) = &self.kubelet {
            kubelet.name_pods(holders);
        }
    }
}

impl Kubelet {
    /// Adds the names of pods that are known by UID, as of the last query.
    fn name_pods(&self, holders: &mut [Holder]) {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let pods = holders.iter_mut().filter_map(|holder| holder.details.pod.as_mut());
        for pod in pods.filter(|pod| pod.name.is_none()) {
            let name = pod.uid.as_deref().and_then(|uid| client.reader.pod_name(uid));
            if let Some((namespace, name)) = name {
                pod.namespace = Some(namespace.to_owned());
                pod.name = Some(name.to_owned());
            }
        }
    }

    /// Returns the allocations of containers, from a query that started after this call.
    fn allocations(&self) -> Result<Vec<DeviceAllocation>, String> {
        let now = Instant::now();
        let mut cache = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(allocations) = cache.last.as_ref().filter(|answer| answer.queried_at >= now) {
            return allocations.allocations.clone();
        }
        let queried_at = Instant::now();
        let allocations = self.query(&mut cache.reader);
        cache.last = Some(KubeletResponse { queried_at, allocations: allocations.clone() });
        allocations
    }

    fn query(&self, reader: &mut AllocationReader) -> Result<Vec<DeviceAllocation>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        match runtime.block_on(reader.ask(QUERY_TIMEOUT)) {
            // Also where checkpoints exist: they do not include resource claims.
            Ok(list) if list.is_young => Err(pod_resources::YOUNG_KUBELET_MESSAGE.to_owned()),
            Ok(list) => Ok(list.devices),
            Err(PodResourcesError::Absent { .. }) if !self.in_pod => Ok(Vec::new()),
            Err(error @ PodResourcesError::Absent { .. }) => Err(format!(
                "{}: mount the directory of the kubelet, or set --pod-resources none",
                chain(&error)
            )),
            Err(error) => Err(chain(&error)),
        }
    }
}

/// Returns whether a resource consists of GPUs or partitions, by name. NVIDIA has other resources, such as network
/// cards. Octavo's claims have devices at known places, so that one which does not exist is none of the others.
fn is_gpu_resource(resource: &str) -> bool {
    resource == "gpu.nvidia.com"
        || resource.starts_with("nvidia.com/gpu")
        || resource.starts_with("nvidia.com/mig-")
}

/// Returns all users of the devices in `inventory`: the processes that the driver lists and all other holders. Queries
/// on a thread that may block. The second value is the reason why the list is incomplete.
pub async fn all_holders(
    usage_probe: &Arc<dyn UsageProbe>,
    inventory: &Inventory,
) -> (Vec<Holder>, Option<String>) {
    let usage_probe = Arc::clone(usage_probe);
    let named = holder::of(inventory);
    let devices = inventory.devices.clone();
    let query = tokio::task::spawn_blocking(move || {
        let (mut all, unknown_reason) = match usage_probe.holders(&devices) {
            Ok(others) => (holder::merge_holders(named, others), None),
            Err(reason) => (named, Some(reason)),
        };
        usage_probe.describe(&mut all);
        (all, unknown_reason)
    });
    match timeout(SCAN_TIMEOUT, query).await {
        Ok(Ok(users)) => users,
        Ok(Err(error)) => (Vec::new(), Some(error.to_string())),
        Err(_) => {
            let reason = "timed out reading /proc: a process of this node blocks it";
            (Vec::new(), Some(reason.to_owned()))
        }
    }
}
