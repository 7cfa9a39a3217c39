//! Who uses a device beside the processes that its driver names.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::error::chain;
use crate::domain::holder::{self, Holder};
use crate::domain::inventory::{Device, Inventory};
use crate::hw::holders;
use crate::k8s::pod_resources::{self, PodResourcesError};

/// Tells who uses devices. It is asked from several threads, right before something is destroyed, and may block.
pub trait Witness: fmt::Debug + Send + Sync {
    /// Everybody who uses one of `devices` now; why nobody can tell, which counts as everybody.
    fn holders(&self, devices: &[Device]) -> Result<Vec<Holder>, String>;

    /// Says more of those whose process id is known, for people to read.
    fn describe(&self, holders: &mut [Holder]);
}

/// What a node tells of itself: who has a device or a partition open, by procfs, and which pods were given one, by the
/// kubelet.
#[derive(Debug, Clone)]
pub struct Node {
    /// Where procfs of the node is mounted.
    pub proc_root: PathBuf,
    /// The kubelet's socket.
    pub pod_resources: PathBuf,
}

/// The kubelet answers from memory.
const PATIENCE: Duration = Duration::from_secs(2);

impl Witness for Node {
    fn holders(&self, devices: &[Device]) -> Result<Vec<Holder>, String> {
        let all: Vec<&Device> = devices.iter().collect();
        let mut found = holders::open(&self.proc_root, &all).map_err(|error| chain(&error))?;
        found.extend(self.pods(devices)?);
        Ok(found)
    }

    fn describe(&self, holders: &mut [Holder]) {
        holders::describe(&self.proc_root, holders);
    }
}

impl Node {
    fn pods(&self, devices: &[Device]) -> Result<Vec<Holder>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let given = match runtime.block_on(pod_resources::list(&self.pod_resources, PATIENCE)) {
            Ok(given) => given,
            Err(PodResourcesError::Absent { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(chain(&error)),
        };
        let pods = holder::of_pods(&given, devices);
        match pods.unassigned.first() {
            None => Ok(pods.holders),
            Some(one) => Err(format!(
                "pod {}/{} was given {} {}, and nobody knows what of this node that is",
                one.namespace, one.pod, one.resource, one.device_id
            )),
        }
    }
}

/// Everybody who uses a device of a node, whom its driver names and all others; asked on a thread where that may block. Why not
/// all of them are told, where that is so.
pub(super) async fn everybody(
    witness: &Arc<dyn Witness>,
    inventory: &Inventory,
) -> (Vec<Holder>, Option<String>) {
    let witness = Arc::clone(witness);
    let mut named = holder::of(inventory);
    let devices = inventory.devices.clone();
    let asked = tokio::task::spawn_blocking(move || {
        witness.describe(&mut named);
        match witness.holders(&devices) {
            Ok(others) => (holder::beside(named, others), None),
            Err(reason) => (named, Some(reason)),
        }
    });
    asked
        .await
        .unwrap_or_else(|error| (Vec::new(), Some(error.to_string())))
}
