//! Running pods of a machine: their devices, and the load of their processes.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::timestamp;
use crate::workloads::Workload;

/// Largest step of the utilization between two updates, percent.
const STEP: u32 = 9;
/// Largest distance of the utilization from its mean, percent.
const SPREAD: i64 = 18;

/// GPUs of a simulated machine, as the simulator prints them.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Hardware {
    gpus: Vec<Gpu>,
    processes: Vec<Process>,
}

#[derive(Debug, Clone, Deserialize)]
struct Gpu {
    index: u32,
    uuid: String,
    lost: bool,
    instances: Vec<Instance>,
}

#[derive(Debug, Clone, Deserialize)]
struct Instance {
    id: u32,
    profile: Option<String>,
    compute: Vec<Compute>,
}

#[derive(Debug, Clone, Deserialize)]
struct Compute {
    id: u32,
    uuid: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Process {
    pid: u32,
}

/// A pod with its devices and processes.
#[derive(Debug, Clone)]
pub(super) struct RunningPod {
    /// Namespace and name.
    pub(super) name: String,
    pub(super) resource: String,
    /// IDs of its devices.
    pub(super) devices: Vec<String>,
    pub(super) program: String,
    processes: Vec<RunningProcess>,
    load: LoadRange,
}

#[derive(Debug, Clone)]
struct RunningProcess {
    pid: u32,
    /// The simulator's arguments for its device.
    device: Vec<String>,
    /// True once the hardware runs it.
    started: bool,
    percent: i64,
    random: u64,
}

/// Limits of the load of a process.
#[derive(Debug, Clone, Copy)]
struct LoadRange {
    busy: i64,
    memory: u64,
    varies: u64,
}

/// A device of a pod.
struct Allocated {
    id: String,
    /// The simulator's arguments.
    arguments: Vec<String>,
}

impl RunningPod {
    /// Starts a pod on its devices. `None` if one of them does not exist or is held by another pod.
    pub(super) fn start(
        name: &str,
        workload: &Workload,
        (hardware, held): (&Hardware, &BTreeSet<String>),
        next_pid: &mut u32,
    ) -> Option<Self> {
        let mut held = held.clone();
        let mut devices = Vec::new();
        for index in &workload.gpus {
            let device = hardware.allocate(*index, workload, &held)?;
            held.insert(device.id.clone());
            devices.push(device);
        }
        let mut pid = || {
            workload.pid.unwrap_or_else(|| {
                *next_pid = next_pid.saturating_add(1);
                *next_pid
            })
        };
        let busy = i64::from(workload.busy);
        let used = devices.iter().filter(|_| !workload.program.is_empty());
        let processes = used.map(|device| {
            let pid = pid();
            let device = device.arguments.clone();
            RunningProcess { pid, device, started: false, percent: busy, random: u64::from(pid) }
        });
        let processes = processes.collect();
        Some(Self {
            name: name.to_owned(),
            resource: workload.resource(),
            devices: devices.into_iter().map(|device| device.id).collect(),
            program: workload.program.clone(),
            processes,
            load: LoadRange { busy, memory: workload.memory, varies: workload.varies },
        })
    }

    /// Returns the IDs of its processes.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.pid).collect()
    }

    /// Returns whether one of its processes has not started.
    pub(super) fn is_incomplete(&self) -> bool {
        self.processes.iter().any(|process| !process.started)
    }

    /// Returns the IDs of the processes that have not started, with the simulator's arguments for those that the
    /// hardware does not run.
    pub(super) fn new_processes(&self, hardware: &Hardware) -> Vec<(u32, Option<Vec<String>>)> {
        let runs = |pid: u32| hardware.processes.iter().any(|process| process.pid == pid);
        let new = self.processes.iter().filter(|process| !process.started);
        new.map(|process| (process.pid, (!runs(process.pid)).then(|| self.arguments(process))))
            .collect()
    }

    fn arguments(&self, process: &RunningProcess) -> Vec<String> {
        let mut arguments = vec!["process".to_owned(), "add".to_owned()];
        arguments.extend(process.device.iter().cloned());
        for (flag, value) in [
            ("--pid", process.pid.to_string()),
            ("--name", self.program.clone()),
            ("--memory-mib", self.load.memory.to_string()),
        ] {
            arguments.extend([flag.to_owned(), value]);
        }
        arguments
    }

    /// Records that a process has started, if it belongs to this pod.
    pub(super) fn process_started(&mut self, pid: u32) {
        for process in self.processes.iter_mut().filter(|process| process.pid == pid) {
            process.started = true;
        }
    }

    /// Returns the next load of each started process, as the simulator's arguments.
    pub(super) fn next_loads(&mut self) -> Vec<String> {
        let load = self.load;
        let started = self.processes.iter_mut().filter(|process| process.started);
        started.map(|process| process.next_load(load)).collect()
    }
}

impl RunningProcess {
    /// Moves the utilization by a random step, within a distance of its mean.
    fn next_load(&mut self, load: LoadRange) -> String {
        let step = i64::try_from(self.next_random() % u64::from(2 * STEP + 1)).unwrap_or_default();
        let moved = self.percent.saturating_add(step).saturating_sub(i64::from(STEP));
        let lowest = load.busy.saturating_sub(SPREAD).max(0);
        let highest = load.busy.saturating_add(SPREAD).min(100);
        self.percent = moved.clamp(lowest, highest);
        if load.busy == 0 {
            self.percent = 0;
        }
        let more = self.next_random() % load.varies.saturating_add(1);
        let memory = load.memory.saturating_add(more);
        format!("{}={}:{memory}", self.pid, self.percent)
    }

    /// A sequence that is the same in every run.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(INCREMENT);
        mix(self.random)
    }
}

/// Returns the ID of the container of a process, which looks random and is the same in every run.
pub(super) fn container_id(pid: u32) -> String {
    let [first, second, third, fourth] =
        [1, 2, 3, 4].map(|part| mix(u64::from(pid).wrapping_add(INCREMENT.wrapping_mul(part))));
    format!("{first:016x}{second:016x}{third:016x}{fourth:016x}")
}

/// Source of the generator: Steele, Lea and Flood, "Fast splittable pseudorandom number generators".
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl Hardware {
    /// Parses the simulator's output.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Returns a free device of this GPU for a workload.
    fn allocate(
        &self,
        index: u32,
        workload: &Workload,
        held: &BTreeSet<String>,
    ) -> Option<Allocated> {
        let gpu = self.gpus.iter().find(|gpu| gpu.index == index && !gpu.lost)?;
        let Some(profile) = &workload.profile else {
            let arguments = vec![gpu.uuid.clone()];
            let id = if workload.slice {
                let mut ids = (0_u32..100).map(|slice| format!("{}::{slice}", gpu.uuid));
                ids.find(|id| !held.contains(id))?
            } else {
                gpu.uuid.clone()
            };
            return (!held.contains(&id)).then_some(Allocated { id, arguments });
        };
        let instances = gpu.instances.iter().filter(|one| one.profile.as_ref() == Some(profile));
        instances.flat_map(|one| one.compute.iter().map(|compute| (one.id, compute))).find_map(
            |(gi, compute)| {
                let id = compute.uuid.clone();
                let arguments =
                    [&gpu.uuid, "--gi", &gi.to_string(), "--ci", &compute.id.to_string()]
                        .map(ToOwned::to_owned);
                (!held.contains(&id)).then(|| Allocated { id, arguments: arguments.to_vec() })
            },
        )
    }
}

/// Returns the status of a pod that has just started.
pub(super) fn running_status() -> Value {
    json!({
        "phase": "Running",
        "startTime": timestamp(),
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "True"},
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hardware() -> Hardware {
        let text = json!({
            "gpus": [
                {"index": 0, "uuid": "GPU-0", "lost": false, "instances": [
                    {"id": 7, "profile": "1g.10gb", "compute": [{"id": 0, "uuid": "MIG-7"}]},
                    {"id": 8, "profile": "1g.10gb", "compute": [{"id": 0, "uuid": "MIG-8"}]},
                ]},
                {"index": 1, "uuid": "GPU-1", "lost": false, "instances": []},
                {"index": 2, "uuid": "GPU-2", "lost": true, "instances": []},
            ],
            "processes": [{"pid": 77}],
        });
        Hardware::parse(&text.to_string()).unwrap()
    }

    fn workload(more: &str) -> Workload {
        let text = format!("{{pod: a/b, node: n, program: vllm, memory: 1000, busy: 60, {more}}}");
        serde_saphyr::from_str(&text).unwrap()
    }

    fn start(more: &str, held: &[&str]) -> Option<RunningPod> {
        let held = held.iter().map(|&id| id.to_owned()).collect();
        RunningPod::start("a/b", &workload(more), (&hardware(), &held), &mut 100)
    }

    fn arguments(pod: &RunningPod) -> Vec<Vec<String>> {
        let new = pod.new_processes(&hardware()).into_iter();
        new.map(|(_, arguments)| arguments.unwrap()).collect()
    }

    #[test]
    fn pod_gets_free_devices_of_its_gpus_and_a_process_on_each() {
        let pod = start("gpus: [1]", &[]).unwrap();
        assert_eq!((pod.devices.as_slice(), pod.pids()), (&["GPU-1".to_owned()][..], vec![101]));
        let expected = "process add GPU-1 --pid 101 --name vllm --memory-mib 1000";
        assert_eq!(arguments(&pod)[0].join(" "), expected);
        let slice = start("gpus: [0], profile: 1g.10gb", &["MIG-7"]).unwrap();
        assert_eq!(slice.devices, ["MIG-8"]);
        assert!(arguments(&slice)[0].join(" ").contains("GPU-0 --gi 8 --ci 0"));
        let replica = start("gpus: [1], slice: true", &["GPU-1::0"]).unwrap();
        assert_eq!(replica.devices, ["GPU-1::1"]);
    }

    #[test]
    fn process_is_new_until_it_has_started_and_only_added_if_hardware_does_not_run_it() {
        let mut pod = start("gpus: [1]", &[]).unwrap();
        // A failed addition is not recorded, so the process stays new.
        for _ in 0..2 {
            assert!(pod.is_incomplete() && pod.next_loads().is_empty());
            assert_eq!(arguments(&pod)[0][..3], ["process", "add", "GPU-1"]);
        }
        pod.process_started(100);
        assert!(pod.is_incomplete());
        pod.process_started(101);
        assert!(!pod.is_incomplete() && pod.new_processes(&hardware()).is_empty());
        assert_eq!(pod.next_loads().len(), 1);
        let known = start("gpus: [1], pid: 77", &[]).unwrap();
        assert_eq!(known.new_processes(&hardware()), [(77, None)]);
    }

    #[test]
    fn pod_without_free_devices_does_not_start() {
        assert!(start("gpus: [1]", &["GPU-1"]).is_none());
        assert!(start("gpus: [2]", &[]).is_none());
        assert!(start("gpus: [9]", &[]).is_none());
        assert!(start("gpus: [0], profile: 3g.40gb", &[]).is_none());
        assert!(start("gpus: [0, 0, 0], profile: 1g.10gb", &[]).is_none());
    }

    #[test]
    fn load_varies_around_its_mean() {
        let mut pod = start("gpus: [1], varies: 50", &[]).unwrap();
        pod.process_started(101);
        let loads: Vec<String> = (0..50).flat_map(|_| pod.next_loads()).collect();
        let values = loads.iter().map(|load| {
            let (percent, memory) = load.strip_prefix("101=").unwrap().split_once(':').unwrap();
            (percent.parse::<i64>().unwrap(), memory.parse::<u64>().unwrap())
        });
        let values: Vec<(i64, u64)> = values.collect();
        assert!(values.iter().all(|(percent, memory)| {
            (42..=78).contains(percent) && (1000..=1050).contains(memory)
        }));
        let distinct: BTreeSet<i64> = values.iter().map(|(percent, _)| *percent).collect();
        assert!(distinct.len() > 5, "{distinct:?}");
    }
}
