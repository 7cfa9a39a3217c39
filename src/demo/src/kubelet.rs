//! A simulated kubelet of a machine: its device plugin and pod-resources sockets, its checkpoint, its Node, and the
//! processes of its pods in a `/proc` of files.
//!
//! The machine that the demo runs on has no kubelet for them, so it is simulated like the hardware. The agent's device
//! plugin registers at the socket, and its lists determine what the Node offers. Pods come from the simulated API
//! server. Each pod gets devices that its workload names, and a process on each.

mod processes;
mod services;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

pub(super) use self::processes::Hardware;
use self::processes::RunningPod;
use crate::cluster::{Kind, ObjectKey, Objects};
use crate::servers::Servers;
use crate::workloads::{CONTAINER, NodeDetails, Workloads};

/// Label of a Node that names its desired layout.
pub(super) const LAYOUT_LABEL: &str = "octavo.dev/layout";

/// Resources of a node beside its devices.
const CPUS: u32 = 128;
const MEMORY: &str = "2Ti";
const MAX_PODS: u32 = 110;

/// Health of each device of a resource, by ID.
type Devices = BTreeMap<String, bool>;

/// A kubelet.
#[derive(Debug)]
pub(super) struct Kubelet {
    directory: PathBuf,
    shared: Arc<Shared>,
}

/// State that its services use as well.
#[derive(Debug)]
struct Shared {
    node: String,
    objects: Arc<Objects>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Devices by resource.
    resources: BTreeMap<String, Devices>,
    pods: BTreeMap<String, RunningPod>,
    next_pid: u32,
}

impl Kubelet {
    /// Creates a kubelet with files in `directory`.
    pub(super) fn new(node: &str, directory: &Path, objects: &Arc<Objects>) -> Self {
        // The kernel's lowest process IDs belong to the machine itself.
        let state = State { next_pid: 20_000, ..State::default() };
        let shared = Shared {
            node: node.to_owned(),
            objects: Arc::clone(objects),
            state: Mutex::new(state),
        };
        Self { directory: directory.to_owned(), shared: Arc::new(shared) }
    }

    /// Returns the process file system for the agent.
    pub(super) fn proc(&self) -> PathBuf {
        self.directory.join("proc")
    }

    /// Returns the directory of the device plugins' sockets and of the checkpoint.
    pub(super) fn plugins(&self) -> PathBuf {
        self.directory.join("kubelet")
    }

    /// Returns the socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.plugins().join("kubelet.sock")
    }

    /// Starts the services and creates the Node.
    pub(super) fn start(
        &self,
        servers: &mut Servers,
        details: &NodeDetails,
        pool: &str,
    ) -> io::Result<()> {
        self.create_proc()?;
        fs::create_dir_all(self.plugins())?;
        self.write_checkpoint()?;
        services::start(servers, (&self.plugins(), &self.socket()), &self.shared)?;
        let mut labels = json!({
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": self.shared.node,
            "kubernetes.io/os": "linux",
            "pool": pool,
        });
        if let (Some(labels), Some(layout)) = (labels.as_object_mut(), &details.layout) {
            labels.insert(LAYOUT_LABEL.to_owned(), json!(layout));
        }
        let mut spec = json!({});
        if let (Some(spec), true) = (spec.as_object_mut(), details.cordoned) {
            spec.insert("unschedulable".to_owned(), json!(true));
        }
        let node = json!({
            "metadata": {"name": self.shared.node, "labels": labels},
            "spec": spec,
            "status": self.shared.lock().node_status(),
        });
        let created = self.shared.objects.create(Kind::Node, node);
        created.map(|_| ()).map_err(io::Error::other)
    }

    /// Offers devices of a vendor whose device plugin is simulated as well.
    pub(super) fn offer(&self, resource: &str, count: u64) {
        let devices = (0..count).map(|number| (number.to_string(), true)).collect();
        self.shared.set_devices(resource, devices);
    }

    /// Returns whether the pods of the Node differ from those that run, or a process has not started.
    pub(super) fn needs_sync(&self) -> bool {
        let desired = self.desired_pods();
        let state = self.shared.lock();
        desired.keys().ne(state.pods.keys()) || state.pods.values().any(RunningPod::is_incomplete)
    }

    /// Ends the pods that were deleted. Returns the IDs of their processes.
    pub(super) fn end_pods(&self) -> io::Result<Vec<u32>> {
        let desired = self.desired_pods();
        let ended: Vec<RunningPod> = {
            let mut state = self.shared.lock();
            let gone = state.pods.keys().filter(|uid| !desired.contains_key(*uid));
            let gone: Vec<String> = gone.cloned().collect();
            gone.iter().filter_map(|uid| state.pods.remove(uid)).collect()
        };
        let pids: Vec<u32> = ended.iter().flat_map(RunningPod::pids).collect();
        for pid in &pids {
            remove_directory(&self.proc().join(pid.to_string()))?;
        }
        if !ended.is_empty() {
            self.write_checkpoint()?;
        }
        Ok(pids)
    }

    /// Allocates existing devices to the new pods, whose processes start next.
    pub(super) fn start_pods(&self, workloads: &Workloads, hardware: &Hardware) -> io::Result<()> {
        for (uid, (namespace, name)) in self.desired_pods() {
            let pod = format!("{namespace}/{name}");
            let Some(workload) = workloads.workload(&pod) else { continue };
            {
                let mut state = self.shared.lock();
                if state.pods.contains_key(&uid) {
                    continue;
                }
                let held = state.held_devices();
                let started =
                    RunningPod::start(&pod, workload, (hardware, &held), &mut state.next_pid);
                let Some(started) = started else { continue };
                state.pods.insert(uid, started);
            }
            let key = ObjectKey::new(Kind::Pod, &namespace, &name);
            let running = self.shared.objects.update(&key, |pod| {
                if let Some(pod) = pod.as_object_mut() {
                    pod.insert("status".to_owned(), processes::running_status());
                }
                Ok(())
            });
            // The pod may have been deleted meanwhile, which the next synchronization handles.
            let _ = running;
        }
        self.write_checkpoint()
    }

    /// Writes the files of the processes that have not started. Returns their IDs, and the simulator's arguments for
    /// those that the hardware does not run.
    pub(super) fn prepare_processes(
        &self,
        hardware: &Hardware,
    ) -> io::Result<Vec<(u32, Option<Vec<String>>)>> {
        let state = self.shared.lock();
        let mut prepared = Vec::new();
        for (uid, pod) in &state.pods {
            for (pid, arguments) in pod.new_processes(hardware) {
                self.write_process(pid, uid, &pod.program)?;
                prepared.push((pid, arguments));
            }
        }
        Ok(prepared)
    }

    /// Records that a process has started.
    pub(super) fn process_started(&self, pid: u32) {
        let mut state = self.shared.lock();
        state.pods.values_mut().for_each(|pod| pod.process_started(pid));
    }

    /// Returns the next load of each process, as the simulator's arguments.
    pub(super) fn next_loads(&self) -> Vec<String> {
        let mut state = self.shared.lock();
        state.pods.values_mut().flat_map(RunningPod::next_loads).collect()
    }

    /// Returns namespace and name of the pods that are bound to the Node, by UID.
    fn desired_pods(&self) -> BTreeMap<String, (String, String)> {
        let (_, pods) = self.shared.objects.list(Kind::Pod, "");
        let text = |pod: &Value, path: &str| {
            pod.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let here = pods.iter().filter(|pod| text(pod, "/spec/nodeName") == self.shared.node);
        here.map(|pod| {
            let name = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
            (text(pod, "/metadata/uid"), name)
        })
        .collect()
    }

    fn create_proc(&self) -> io::Result<()> {
        // A kernel thread: it shows the agent that it sees all of the machine's processes.
        self.write_stat(2, 2_129_984)?;
        fs::write(self.proc().join("2/cgroup"), "0::/\n")?;
        fs::write(self.proc().join("devices"), "Character devices:\n  1 mem\n")
    }

    fn write_process(&self, pid: u32, uid: &str, program: &str) -> io::Result<()> {
        self.write_stat(pid, 0)?;
        let directory = self.proc().join(pid.to_string());
        let container = processes::container_id(pid);
        let group = format!("0::/kubepods/burstable/pod{uid}/{container}\n");
        fs::write(directory.join("cgroup"), group)?;
        fs::write(directory.join("cmdline"), format!("{program}\0"))
    }

    fn write_stat(&self, pid: u32, flags: u32) -> io::Result<()> {
        let directory = self.proc().join(pid.to_string());
        fs::create_dir_all(&directory)?;
        let rest = " 0".repeat(43);
        fs::write(directory.join("stat"), format!("{pid} (x) S 0 0 0 0 -1 {flags}{rest}\n"))
    }

    /// Writes the checkpoint by a rename: a reading agent never finds half a file.
    fn write_checkpoint(&self) -> io::Result<()> {
        let entries: Vec<Value> = {
            let state = self.shared.lock();
            let pods = state.pods.iter().filter(|(_, pod)| !pod.devices.is_empty());
            pods.map(|(uid, pod)| {
                json!({
                    "PodUID": uid,
                    "ContainerName": CONTAINER,
                    "ResourceName": pod.resource,
                    "DeviceIDs": {"0": pod.devices},
                    "AllocResp": "",
                })
            })
            .collect()
        };
        let data = json!({"PodDeviceEntries": entries, "RegisteredDevices": {}});
        let text = json!({"Data": data, "Checksum": 0}).to_string();
        let draft = self.directory.join("checkpoint.draft");
        fs::write(&draft, text)?;
        fs::rename(draft, self.plugins().join("kubelet_internal_checkpoint"))
    }
}

fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the devices of a resource, and updates the Node.
    fn set_devices(&self, resource: &str, devices: Devices) {
        let status = {
            let mut state = self.lock();
            state.resources.insert(resource.to_owned(), devices);
            state.node_status()
        };
        let key = ObjectKey::new(Kind::Node, "", &self.node);
        let updated = self.objects.update(&key, |node| {
            if let Some(node) = node.as_object_mut() {
                node.insert("status".to_owned(), status);
            }
            Ok(())
        });
        // Before the Node exists, its creation contains the devices.
        let _ = updated;
    }
}

impl State {
    /// Returns the status of the Node: the capacity counts all devices, and the allocatable amounts healthy ones.
    fn node_status(&self) -> Value {
        let amounts = |counts: &dyn Fn(&bool) -> bool| {
            let devices = self.resources.iter().map(|(name, devices)| {
                let count = devices.values().filter(|healthy| counts(healthy)).count();
                (name.clone(), json!(count.to_string()))
            });
            let mut all: serde_json::Map<String, Value> = devices.collect();
            all.insert("cpu".to_owned(), json!(CPUS.to_string()));
            all.insert("memory".to_owned(), json!(MEMORY));
            all.insert("pods".to_owned(), json!(MAX_PODS.to_string()));
            Value::Object(all)
        };
        json!({
            "capacity": amounts(&|_| true),
            "allocatable": amounts(&|healthy| *healthy),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {"kubeletVersion": "v1.35.0-simulated", "operatingSystem": "linux", "architecture": "amd64"},
        })
    }

    fn held_devices(&self) -> BTreeSet<String> {
        self.pods.values().flat_map(|pod| pod.devices.iter().cloned()).collect()
    }
}
