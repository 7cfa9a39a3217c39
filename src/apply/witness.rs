//! Device usage beyond the processes that the driver lists.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::config::engine::EngineSettings;
use crate::domain::error::chain;
use crate::domain::holder::{self, Holder, PodDevice};
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Device, Inventory};
use crate::hw::holders;
use crate::k8s::device_plugin::{Closed, Gate};
use crate::k8s::pod_resources::{self, PodResourcesError};
use crate::k8s::who_has::{Asker, Living};

/// Reports the users of devices. Called from several threads immediately before an instance is destroyed; may block.
pub trait Witness: fmt::Debug + Send + Sync {
    /// Returns all current holders of `devices`. An error means that the holders are unknown, which counts as in use.
    fn holders(&self, devices: &[Device]) -> Result<Vec<Holder>, String>;

    /// Adds details, such as the program name, to holders whose process ID is known.
    fn describe(&self, holders: &mut [Holder]);

    /// Stops allocation of these devices until the returned guard is dropped. Call it before the last call of
    /// [`Self::holders`], which then includes every earlier allocation. `None` if another device plugin allocates the
    /// devices.
    fn close(&self, _devices: &[PciAddress]) -> Option<Closed> {
        None
    }
}

/// Usage on a node where the built-in device plugin allocates devices.
#[derive(Debug)]
pub struct Giving {
    others: Arc<dyn Witness>,
    gate: Arc<Gate>,
}

impl Giving {
    /// Combines the holders reported by `others` with all allocations made through `gate`.
    pub fn new(others: Arc<dyn Witness>, gate: Arc<Gate>) -> Self {
        Self { others, gate }
    }
}

impl Witness for Giving {
    fn holders(&self, devices: &[Device]) -> Result<Vec<Holder>, String> {
        // Read the gate first: an allocation that the kubelet starts to report in between is then listed twice instead
        // of missed.
        let held = self.gate.held();
        let mut all = self.others.holders(devices)?;
        let held = holder::of_pods(&held, devices).holders;
        if held.iter().any(|holder| !all.contains(holder)) {
            // The kubelet does not report this allocation now: either it was released, or the kubelet restarted and has
            // not yet loaded its pods.
            self.gate.doubt();
        }
        all.extend(held);
        all.sort();
        all.dedup();
        Ok(all)
    }

    fn describe(&self, holders: &mut [Holder]) {
        self.others.describe(holders);
    }

    fn close(&self, devices: &[PciAddress]) -> Option<Closed> {
        Some(self.gate.close(devices))
    }
}

/// Usage reported by the node: open device files from procfs, and allocations to pods from the kubelet.
#[derive(Debug)]
pub struct Node {
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
    desk: Mutex<Desk>,
}

/// The kubelet client and its last response, used by one thread at a time.
#[derive(Debug)]
struct Desk {
    asker: Asker,
    last: Option<Answer>,
}

/// The pods that have a running process, read from procfs.
#[derive(Debug)]
pub struct Processes {
    proc_root: PathBuf,
}

impl Processes {
    /// Reads the process file system at `proc_root`.
    pub fn new(proc_root: &Path) -> Self {
        Self {
            proc_root: proc_root.to_owned(),
        }
    }
}

impl Living for Processes {
    fn pods(&self) -> Result<BTreeSet<String>, String> {
        holders::pods(&self.proc_root).map_err(|error| chain(&error))
    }
}

/// A response of the kubelet, and when its query started.
#[derive(Debug)]
struct Answer {
    asked: Instant,
    given: Result<Vec<PodDevice>, String>,
}

/// Time limit of a kubelet query. The kubelet answers from memory.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time limit of a usage query, above the duration of a full procfs scan. Reading a file of a hung process may never
/// return.
const LONGEST_LOOK: Duration = Duration::from_secs(30);

impl Node {
    /// Creates a probe from `settings`.
    pub fn new(settings: &EngineSettings) -> Self {
        Self {
            proc_root: settings.proc_root().to_owned(),
            kubelet: settings.pod_resources().map(|socket| {
                let living = Arc::new(Processes::new(settings.proc_root()));
                Kubelet {
                    in_pod: settings.in_pod(),
                    desk: Mutex::new(Desk {
                        asker: Asker::new(socket, settings.device_plugins(), living),
                        last: None,
                    }),
                }
            }),
        }
    }
}

impl Witness for Node {
    fn holders(&self, devices: &[Device]) -> Result<Vec<Holder>, String> {
        let all: Vec<&Device> = devices.iter().collect();
        let mut found = holders::open(&self.proc_root, &all).map_err(|error| chain(&error))?;
        let Some(kubelet) = &self.kubelet else {
            return Ok(found);
        };
        let pods = holder::of_pods(&kubelet.given()?, devices);
        match pods.unassigned.iter().find(|one| is_of_gpus(&one.resource)) {
            None => {
                found.extend(pods.holders);
                Ok(found)
            }
            Some(one) => Err(format!(
                "pod {}/{} was given {} {}, and nobody knows what of this node that is",
                one.namespace, one.pod, one.resource, one.device_id
            )),
        }
    }

    fn describe(&self, holders: &mut [Holder]) {
        holders::describe(&self.proc_root, holders);
    }
}

impl Kubelet {
    /// Returns the allocations of containers, from a query that started after this call.
    fn given(&self) -> Result<Vec<PodDevice>, String> {
        let now = Instant::now();
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = desk.last.as_ref().filter(|answer| answer.asked >= now) {
            return answer.given.clone();
        }
        let asked = Instant::now();
        let given = self.ask(&mut desk.asker);
        desk.last = Some(Answer {
            asked,
            given: given.clone(),
        });
        given
    }

    fn ask(&self, asker: &mut Asker) -> Result<Vec<PodDevice>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        match runtime.block_on(asker.ask(PATIENCE)) {
            // Also where checkpoints exist: they do not include resource claims.
            Ok(heard) if heard.is_young => Err(pod_resources::YOUNG.to_owned()),
            Ok(heard) => Ok(heard.given),
            Err(PodResourcesError::Absent { .. }) if !self.in_pod => Ok(Vec::new()),
            Err(error @ PodResourcesError::Absent { .. }) => Err(format!(
                "{}: mount the kubelet's folder, or say --pod-resources none",
                chain(&error)
            )),
            Err(error) => Err(chain(&error)),
        }
    }
}

/// Returns whether a resource consists of GPUs or partitions, by name. NVIDIA has other resources, such as network
/// cards.
fn is_of_gpus(resource: &str) -> bool {
    resource == "gpu.nvidia.com"
        || resource.starts_with("nvidia.com/gpu")
        || resource.starts_with("nvidia.com/mig-")
}

/// Returns all users of the devices in `inventory`: the processes that the driver lists and all other holders. Queries
/// on a thread that may block. The second value is the reason why the list is incomplete.
pub(super) async fn everybody(
    witness: &Arc<dyn Witness>,
    inventory: &Inventory,
) -> (Vec<Holder>, Option<String>) {
    let witness = Arc::clone(witness);
    let named = holder::of(inventory);
    let devices = inventory.devices.clone();
    let asked = tokio::task::spawn_blocking(move || {
        let (mut all, untold) = match witness.holders(&devices) {
            Ok(others) => (holder::beside(named, others), None),
            Err(reason) => (named, Some(reason)),
        };
        witness.describe(&mut all);
        (all, untold)
    });
    match timeout(LONGEST_LOOK, asked).await {
        Ok(Ok(told)) => told,
        Ok(Err(error)) => (Vec::new(), Some(error.to_string())),
        Err(_) => {
            let reason = "a process of this node does not let itself be looked at";
            (Vec::new(), Some(reason.to_owned()))
        }
    }
}
