//! A node with configurable users, and its observer.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use nvml_sim::model::{Process, ProcessKind};
use octavo_agent::settings::AgentSettings;
use octavo_agent::usage::{UsageChannels, UsageObservation, UsageObserver};
use octavo_node::mig_strategy::MigStrategy;
use octavo_node::sharing::offer;
use octavo_node::sharing::usage::{Tenant, UnitUsage};
use octavo_planner::layout::Targets;
use tokio::time::timeout;

use super::kubelet::Kubelet;
use crate::machine::Machine;
use crate::record::{show_all, uid};
use crate::time_limits::TIME_LIMIT;

pub(crate) struct Rig {
    pub(crate) machine: Machine,
    pub(crate) kubelet: Kubelet,
}

/// A running observer with its observations.
pub(super) struct RunningObserver {
    pub(super) views: UsageChannels,
}

/// Format of a control group: both versions, by both drivers of kubelet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CgroupLayout {
    V1Cgroupfs,
    V2Cgroupfs,
    V2Systemd,
}

impl Rig {
    pub(crate) fn new(gpus: &str) -> Self {
        let machine = Machine::new(&format!("machine: node\ngpus:\n{gpus}"));
        let proc = machine.path().join("proc");
        show_all(&proc);
        let kubelet = Kubelet::start(&machine.path().join("kubelet"));
        Self { machine, kubelet }
    }

    pub(crate) fn proc(&self) -> PathBuf {
        self.machine.path().join("proc")
    }

    /// Hides the processes of the machine.
    pub(super) fn hide_processes(&self) {
        fs::remove_dir_all(self.proc().join("2")).unwrap();
    }

    /// The observer runs in its own PID namespace, with the process file system of the machine.
    pub(crate) fn restrict_pid_namespace(&self) {
        symlink("4194304", self.proc().join("self")).unwrap();
    }

    /// UUID of a GPU.
    pub(crate) fn gpu(&self, at: usize) -> String {
        self.machine.world().gpus[at].uuid.clone()
    }

    /// Assigns a process to a pod.
    pub(crate) fn assign_to_pod(&self, pid: u32, pod: &str, groups: CgroupLayout) {
        let uid = uid(pod);
        let container = format!("{pid:064x}");
        let path = match groups {
            CgroupLayout::V1Cgroupfs | CgroupLayout::V2Cgroupfs => {
                format!("/kubepods/burstable/pod{uid}/{container}")
            }
            CgroupLayout::V2Systemd => format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-{container}.scope",
                uid.replace('-', "_")
            ),
        };
        let text = match groups {
            CgroupLayout::V1Cgroupfs => {
                format!("12:devices:{path}\n3:cpu,cpuacct:{path}\n1:name=systemd:/\n0::/\n")
            }
            CgroupLayout::V2Cgroupfs | CgroupLayout::V2Systemd => format!("0::{path}\n"),
        };
        self.put(pid, &text);
    }

    /// Assigns a process to the machine itself.
    pub(crate) fn assign_to_no_pod(&self, pid: u32) {
        self.put(pid, "0::/system.slice/dcgm.service\n");
    }

    fn put(&self, pid: u32, groups: &str) {
        let directory = self.proc().join(pid.to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("stat"), format!("{pid} (x) S 1{}\n", " 0".repeat(48))).unwrap();
        fs::write(directory.join("cgroup"), groups).unwrap();
    }

    /// Starts a process on a GPU, or on one of its compute instances.
    pub(crate) fn add_process(
        &self,
        pid: u32,
        gpu: usize,
        place: Option<(u32, u32)>,
        memory_mib: u64,
    ) {
        self.machine.change(|world| {
            let gpu_uuid = world.gpus[gpu].uuid.clone();
            world.add_process(Process {
                pid,
                name: "x".to_owned(),
                gpu_uuid,
                gi: place.map(|(gi, _)| gi),
                ci: place.map(|(_, ci)| ci),
                memory_mib,
                kind: ProcessKind::Compute,
            })
        });
    }

    pub(super) fn remove_process(&self, pid: u32) {
        self.machine.change(|world| world.remove_process(pid));
        fs::remove_dir_all(self.proc().join(pid.to_string())).unwrap();
    }

    fn settings(&self) -> AgentSettings {
        let path = |name: &str| self.machine.path().join(name).display().to_string();
        AgentSettings::from_arguments([
            "octavo-agent".to_owned(),
            "--usage-interval=1s".to_owned(),
            format!("--proc-root={}", path("proc")),
            format!("--pod-resources={}", path("kubelet/kubelet.sock")),
            format!("--device-plugins={}", path("kubelet")),
        ])
        .unwrap()
    }

    /// State directory and socket of the agent.
    pub(crate) fn state(&self) -> PathBuf {
        self.machine.path().join("agent-state")
    }

    /// The shipped agent with a scan interval of one second and this sharing of whole GPUs.
    pub(crate) fn agent(&self, sharing: &str, more: &[&str]) -> Command {
        let path = self.machine.path();
        let layouts = path.join("layouts.yaml");
        let text = format!(
            "apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts:\n  shared:\n  - devices: all\n    timeSlicing: {sharing}\n"
        );
        fs::write(&layouts, text).unwrap();
        let devices = "Character devices:\n  1 mem\n\nBlock devices:\n  8 sd\n";
        fs::write(self.proc().join("devices"), devices).unwrap();
        let mut command = self.machine.command(env!("CARGO_BIN_EXE_octavo-agent"));
        command
            .args(["--interval=1s", "--usage-interval=1s", "--layout=shared"])
            .arg("--layouts")
            .arg(layouts)
            .arg("--state-dir")
            .arg(self.state())
            .arg("--proc-root")
            .arg(self.proc())
            .arg("--pod-resources")
            .arg(path.join("kubelet/kubelet.sock"))
            .arg("--device-plugins")
            .arg(path.join("kubelet"))
            .args(more);
        command
    }

    /// Starts the observer. Whole GPUs have this many replicas.
    pub(super) async fn watch(&self, replicas: Option<u32>) -> RunningObserver {
        let mut settings = self.machine.settings();
        settings.call_deadline = Duration::from_secs(4);
        let handle = crate::machine::start(&settings);
        let inventory = handle.observe().await;
        let settings = self.settings();
        let interval = settings.sharing.usage.usage_interval.unwrap();
        let (observer, views) = UsageObserver::new(handle, settings.engine, interval, None);
        let strategy = MigStrategy::Mixed;
        let mut offers = offer::compile(&inventory, &Targets::default(), strategy).offers;
        for unit in offers.resources.iter_mut().flat_map(|one| &mut one.units) {
            unit.replicas = replicas.filter(|_| unit.partition.is_none());
        }
        views.offered.send_replace(Arc::new(offers));
        tokio::spawn(observer.run());
        RunningObserver { views }
    }
}

impl RunningObserver {
    /// The first observation that satisfies `wanted`.
    #[track_caller]
    pub(super) fn until(
        &mut self,
        wanted: impl Fn(&UsageObservation) -> bool,
    ) -> impl Future<Output = Arc<UsageObservation>> {
        let caller = std::panic::Location::caller();
        async move {
            let seen = &mut self.views.seen;
            let found = timeout(TIME_LIMIT, seen.wait_for(|seen| wanted(seen))).await;
            let found = found.map(|found| Arc::clone(&found.unwrap()));
            found.unwrap_or_else(|_late| panic!("{caller}: {:#?}", seen.borrow()))
        }
    }

    /// An observation that started after this call.
    pub(super) async fn next(&mut self) -> Arc<UsageObservation> {
        let looks = self.views.seen.borrow().scans;
        // The current one may have started before.
        self.until(|seen| seen.scans >= looks + 2).await
    }
}

/// The unit of a whole GPU, or its first partition.
pub(super) fn unit(seen: &UsageObservation, gpu: usize) -> &UnitUsage {
    &seen.usage.devices[gpu].units[0]
}

/// Pods, or their UIDs, with their memory.
pub(super) fn named(unit: &UnitUsage) -> Vec<(String, Option<u64>)> {
    let name = |tenant: &Tenant| tenant.pod.clone().or_else(|| tenant.uid.clone());
    let all = unit.tenants.iter();
    all.map(|tenant| {
        let memory = tenant.memory.map(octavo_model::quantity::Mebibytes::get);
        (name(tenant).unwrap_or_default(), memory)
    })
    .collect()
}

/// Asserts that the memory of all tenants and the rest add up to what the driver reports.
#[track_caller]
pub(super) fn adds_up(seen: &UsageObservation) {
    for (device, reading) in seen.usage.devices.iter().zip(&seen.readings) {
        let all = device.units.iter().flat_map(|unit| &unit.tenants);
        let sum: u64 = all
            .filter_map(|tenant| tenant.memory)
            .map(octavo_model::quantity::Mebibytes::get)
            .sum();
        let rest = device.unattributed().unwrap().get();
        assert_eq!(device.memory, reading.memory, "the memory differs from the driver's");
        assert_eq!(sum + rest, reading.memory.unwrap().used.get(), "{device:#?}");
        let mut pids: Vec<u32> = device
            .units
            .iter()
            .flat_map(|unit| &unit.tenants)
            .flat_map(|tenant| tenant.processes.clone())
            .collect();
        let count = pids.len();
        pids.sort_unstable();
        pids.dedup();
        assert_eq!(pids.len(), count, "a process is attributed twice: {device:#?}");
    }
}
