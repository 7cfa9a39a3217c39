//! Who uses a device beside the processes that its driver names.

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

/// Tells who uses devices. It is asked from several threads, right before something is destroyed, and may block.
pub trait Witness: fmt::Debug + Send + Sync {
    /// Everybody who uses one of `devices` now; why nobody can tell, which counts as everybody.
    fn holders(&self, devices: &[Device]) -> Result<Vec<Holder>, String>;

    /// Says more of those whose process id is known, for people to read.
    fn describe(&self, holders: &mut [Holder]);

    /// Nothing of these devices is given to pods until what is returned is dropped. To be called before [`Self::holders`] is asked
    /// for the last time: who was given something before that is among them. `None` where others give devices out.
    fn close(&self, _devices: &[PciAddress]) -> Option<Closed> {
        None
    }
}

/// A witness on a node where this very program gives devices to pods.
#[derive(Debug)]
pub struct Giving {
    others: Arc<dyn Witness>,
    gate: Arc<Gate>,
}

impl Giving {
    /// What `others` tell, and all that somebody has of what is given out at `gate`.
    pub fn new(others: Arc<dyn Witness>, gate: Arc<Gate>) -> Self {
        Self { others, gate }
    }
}

impl Witness for Giving {
    fn holders(&self, devices: &[Device]) -> Result<Vec<Holder>, String> {
        // In this order: what kubelet begins to tell of in between is then told twice, and not missed.
        let held = self.gate.held();
        let mut all = self.others.holders(devices)?;
        let held = holder::of_pods(&held, devices).holders;
        if held.iter().any(|holder| !all.contains(holder)) {
            // Kubelet does not tell of it now: it is released, or kubelet was started again and has not heard of its pods.
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

/// What a node tells of itself: who has a device or a partition open, by procfs, and which pods were given one, by the
/// kubelet.
#[derive(Debug)]
pub struct Node {
    proc_root: PathBuf,
    /// Absent where the settings say that there is no kubelet.
    kubelet: Option<Kubelet>,
}

/// The kubelet, whose answers are shared: it answers a few questions at once, and as many threads ask as there are devices.
#[derive(Debug)]
struct Kubelet {
    /// Whether this runs in a pod, so that there is a kubelet for certain.
    in_pod: bool,
    desk: Mutex<Desk>,
}

/// Where it is asked, by one at a time.
#[derive(Debug)]
struct Desk {
    asker: Asker,
    last: Option<Answer>,
}

/// The pods that have a process, by procfs.
#[derive(Debug)]
pub struct Processes {
    proc_root: PathBuf,
}

impl Processes {
    /// As the process file system at `proc_root` tells.
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

/// What the kubelet said, and when it began to be asked.
#[derive(Debug)]
struct Answer {
    asked: Instant,
    given: Result<Vec<PodDevice>, String>,
}

/// The kubelet answers from memory.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longer than looking through all processes takes; a file of a process that hangs may never be read.
const LONGEST_LOOK: Duration = Duration::from_secs(30);

impl Node {
    /// As `settings` say.
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
    /// Which containers were given which devices, by an answer that was begun after this was called.
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
            // Also where there is a record: it has nothing of claims.
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

/// Whether a resource is made of GPUs or partitions, by its name: NVIDIA has others, such as network cards.
fn is_of_gpus(resource: &str) -> bool {
    resource == "gpu.nvidia.com"
        || resource.starts_with("nvidia.com/gpu")
        || resource.starts_with("nvidia.com/mig-")
}

/// Everybody who uses a device of a node, whom its driver names and all others; asked on a thread where that may block. Why not
/// all of them are told, where that is so.
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
