//! Who has which devices: what kubelet tells of its pods, and what it has in its record besides.
//!
//! A kubelet that was started again tells of no pod before it has heard of it from the API server, takes pods in one after another,
//! and hears of none while that server is away, be it for hours. All the while its record has what it gave to them.
//!
//! The record has pods that have ended, too: kubelet drops them from its memory when it knows all its pods, and writes the record anew
//! when it gives something out or a plugin lists something else. So what only the record has counts while kubelet is young, and after
//! that for as long as a process of its pod is there; one that idles has that of its sandbox. This ends with the pod, whatever
//! kubelet does. Source: Kubernetes, `pkg/kubelet/cm/devicemanager/manager.go`, `UpdateAllocatedDevices` and `writeCheckpoint`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::debug;

use super::device_record::{self, Entry, Record};
use super::pod_resources::{PodDevice, PodResourcesError, is_of_nvidia, is_young, list};
use crate::domain::error::chain;

/// Tells which pods live on this node.
pub trait Living: fmt::Debug + Send + Sync {
    /// UIDs of all pods that have a process now; why not all of them can be told. It may block.
    fn pods(&self) -> Result<BTreeSet<String>, String>;
}

/// Asks kubelet and its record, again and again.
#[derive(Debug)]
pub struct Asker {
    socket: PathBuf,
    /// The folder that the record is in.
    folder: PathBuf,
    living: Arc<dyn Living>,
    /// Namespace and name by UID, of pods that kubelet has told of.
    names: BTreeMap<String, (String, String)>,
}

/// Who has what, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// What containers have.
    pub given: Vec<PodDevice>,
    /// Kubelet was started just now: it may not have heard of its pods.
    pub is_young: bool,
    /// What it does not tell of its record has.
    pub is_recorded: bool,
}

/// The record, and the pods that live where somebody has to know.
type Looked = (Record, Option<Result<BTreeSet<String>, String>>);

impl Asker {
    /// Asks the kubelet at `socket`, the record in `folder`, and `living` where the two differ.
    pub fn new(socket: &Path, folder: &Path, living: Arc<dyn Living>) -> Self {
        Self {
            socket: socket.to_owned(),
            folder: folder.to_owned(),
            living,
            names: BTreeMap::new(),
        }
    }

    /// Who has what now, all within `patience` for each that is asked.
    ///
    /// # Errors
    ///
    /// Kubelet does not tell: see [`list`]. A record that cannot be read is none; where it cannot be told which pods live, all that it
    /// has counts.
    pub async fn ask(&mut self, patience: Duration) -> Result<Heard, PodResourcesError> {
        let mut given = list(&self.socket, patience).await?;
        // One that was started meanwhile is young.
        let is_young = is_young(&self.socket);
        let Some((record, living)) = self.look(&given, is_young, patience).await else {
            return Ok(Heard {
                given,
                is_young,
                is_recorded: false,
            });
        };
        self.learn(&given, &record);
        let counts = |entry: &Entry<'_>| match &living {
            Some(Ok(living)) => living.contains(entry.uid),
            Some(Err(_)) | None => true,
        };
        let more: Vec<PodDevice> = untold(&given, &record)
            .filter(counts)
            .map(|entry| self.device(entry))
            .collect();
        given.extend(more);
        Ok(Heard {
            given,
            is_young,
            is_recorded: true,
        })
    }

    /// Reads the record, and looks who lives where that decides something.
    async fn look(
        &self,
        given: &[PodDevice],
        is_young: bool,
        patience: Duration,
    ) -> Option<Looked> {
        let folder = self.folder.clone();
        let read = spawn_blocking(move || device_record::read(&folder));
        let record = match timeout(patience, read).await {
            Ok(Ok(Ok(record))) => record,
            Ok(Ok(Err(error))) => {
                debug!("kubelet's record says nothing: {}", chain(&error));
                return None;
            }
            Ok(Err(_)) | Err(_) => return None,
        };
        if is_young || untold(given, &record).next().is_none() {
            return Some((record, None));
        }
        let living = Arc::clone(&self.living);
        let living = timeout(patience, spawn_blocking(move || living.pods())).await;
        let living = match living {
            Ok(Ok(living)) => living,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_late) => Err("a process of this node does not let itself be looked at".to_owned()),
        };
        if let Err(reason) = &living {
            debug!("all that kubelet's record has counts as held: {reason}");
        }
        Some((record, Some(living)))
    }

    /// Keeps the names of those that the record has, and of no others.
    fn learn(&mut self, given: &[PodDevice], record: &Record) {
        for one in given {
            if let Some(uid) = record.name(one.clone()).uid {
                let name = (one.namespace.clone(), one.pod.clone());
                self.names.insert(uid, name);
            }
        }
        let recorded: BTreeSet<&str> = record.entries().map(|entry| entry.uid).collect();
        self.names.retain(|uid, _| recorded.contains(uid.as_str()));
    }

    fn device(&self, entry: Entry<'_>) -> PodDevice {
        let name = self.names.get(entry.uid).cloned();
        let (namespace, pod) =
            name.unwrap_or_else(|| (String::new(), format!("(UID {})", entry.uid)));
        PodDevice {
            namespace,
            pod,
            container: entry.container.to_owned(),
            resource: entry.resource.to_owned(),
            device_id: entry.id.to_owned(),
        }
    }
}

/// What the record has of NVIDIA's and kubelet tells of nobody.
fn untold<'a>(given: &[PodDevice], record: &'a Record) -> impl Iterator<Item = Entry<'a>> {
    let told: BTreeSet<(String, String)> = given
        .iter()
        .map(|one| (one.resource.clone(), one.device_id.clone()))
        .collect();
    record.entries().filter(move |entry| {
        let key = (entry.resource.to_owned(), entry.id.to_owned());
        is_of_nvidia(entry.resource) && !told.contains(&key)
    })
}
