//! Processes on a device and its partitions.

use super::{Condition, Device, GpuInstance, MigState, Process, ReadProblem, Vendor};

/// Processes on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceProcesses<'a> {
    /// These processes.
    Known(&'a [Process]),
    /// The driver did not report them, which must not count as idle.
    Unknown,
}

/// Use of a GPU instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceUse {
    /// The driver did not report processes, which must not count as idle.
    Unknown,
    /// No process runs in it, and none can: it has no compute instance.
    NoComputeInstance,
    /// No process runs in it.
    Idle,
    /// A process runs in it, and it has at most one compute instance.
    InUse,
    /// A process runs in it, and these of its several compute instances are in use, by id and in order. Empty if the
    /// driver reports the GPU instance of a process but not its compute instance.
    InUseBy(Vec<u32>),
}

impl Device {
    /// Processes on the device. AMD's driver is not queried for them, and missing data must not count as idle.
    pub fn usage(&self) -> DeviceProcesses<'_> {
        let is_unknown = self.vendor == Vendor::Amd || self.condition != Condition::Working;
        if is_unknown || self.problems.iter().any(is_about_processes) {
            DeviceProcesses::Unknown
        } else {
            DeviceProcesses::Known(&self.processes)
        }
    }

    /// Records that the processes with open device files are unknown: then the use of the device is unknown, whatever
    /// the driver reports.
    pub fn record_unknown_users(&mut self, error: String) {
        self.problems.push(ReadProblem { source: "Processes that have it open".to_owned(), error });
    }

    /// Replaces the processes with those that both process lists of the driver just returned.
    pub fn set_processes(&mut self, processes: Vec<Process>) {
        self.problems.retain(|problem| !is_about_processes(problem));
        self.processes = processes;
    }
}

/// Matches nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses and the problem recorded
/// above.
fn is_about_processes(problem: &ReadProblem) -> bool {
    problem.source.contains("Processes")
}

impl<'a> DeviceProcesses<'a> {
    /// Processes that run, or may run, in `instance`; `None` if the driver did not report processes. A process
    /// without an instance of `state` may run in any.
    fn within(self, instance: &GpuInstance, state: &MigState) -> Option<Vec<&'a Process>> {
        let Self::Known(processes) = self else {
            return None;
        };
        let listed = |id: u32| state.gpu_instances.iter().any(|other| other.id == id);
        let inside = |process: &&Process| match process.gpu_instance {
            Some(id) => id == instance.id || !listed(id),
            None => true,
        };
        Some(processes.iter().filter(inside).collect())
    }

    /// Use of `instance` of `state`, of the same device.
    pub fn of(self, instance: &GpuInstance, state: &MigState) -> InstanceUse {
        let Some(here) = self.within(instance, state) else {
            return InstanceUse::Unknown;
        };
        match (here.as_slice(), instance.compute_instances.as_slice()) {
            ([], []) => InstanceUse::NoComputeInstance,
            ([], _) => InstanceUse::Idle,
            (_, [] | [_]) => InstanceUse::InUse,
            (here, several) => {
                let busy = |id| {
                    here.iter().any(|process| {
                        process.gpu_instance == Some(instance.id)
                            && process.compute_instance == Some(id)
                    })
                };
                let ids = several.iter().map(|compute| compute.id);
                InstanceUse::InUseBy(ids.filter(|id| busy(*id)).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::ProfileCatalog;
    use crate::examples::{compute_instance, gpu, gpu_instance, process};
    use crate::inventory::{Completeness, MigMode};

    fn mig_of(instances: &[u32]) -> MigState {
        let instances = instances.iter().map(|id| gpu_instance(*id, 0, 1));
        MigState {
            current: MigMode::Enabled,
            pending: MigMode::Enabled,
            catalog: ProfileCatalog::new(Vec::new()),
            gpu_instances: instances.collect(),
            geometry: Completeness::Complete,
        }
    }

    fn problem(what: &str) -> ReadProblem {
        ReadProblem { source: what.to_owned(), error: "Insufficient Permissions".to_owned() }
    }

    #[test]
    fn device_without_processes_is_idle_only_if_driver_reported_them() {
        let mut device = gpu();
        assert_eq!(device.usage(), DeviceProcesses::Known(&[]));
        device.problems = vec![problem("nvmlDeviceGetNumaNodeId")];
        assert_eq!(device.usage(), DeviceProcesses::Known(&[]));
        for what in
            ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"]
        {
            device.problems = vec![problem(what)];
            assert_eq!(device.usage(), DeviceProcesses::Unknown, "{what}");
        }
        device.problems.clear();
        device.record_unknown_users("cannot read /proc/4711/fd".to_owned());
        assert_eq!(device.usage(), DeviceProcesses::Unknown);
    }

    #[test]
    fn use_of_unresponsive_device_is_unknown() {
        let mut device = gpu();
        device.processes = vec![process(7, None, None)];
        assert_eq!(device.usage(), DeviceProcesses::Known(&device.processes));
        for condition in [
            Condition::Failing { reason: "GPU is lost".to_owned() },
            Condition::PciOnly { kernel_driver: None },
        ] {
            device.condition = condition;
            assert_eq!(device.usage(), DeviceProcesses::Unknown);
        }
    }

    #[test]
    fn amd_device_is_never_idle() {
        let mut device = gpu();
        device.vendor = Vendor::Amd;
        assert_eq!(device.usage(), DeviceProcesses::Unknown);
    }

    #[test]
    fn processes_are_found_in_their_own_instance() {
        let processes = [
            process(10, Some(1), Some(0)),
            process(11, Some(2), Some(0)),
            process(12, None, None),
            process(13, Some(1), None),
            process(14, Some(8), Some(0)),
        ];
        let state = mig_of(&[1, 2, 3]);
        let within = |usage: DeviceProcesses<'_>, id| {
            let here = usage.within(&gpu_instance(id, 0, 1), &state)?;
            Some(here.iter().map(|process| process.pid).collect::<Vec<_>>())
        };
        let known = DeviceProcesses::Known(&processes);
        // Process 12 has no instance, and process 14 is in one that is not listed.
        assert_eq!(within(known, 1), Some(vec![10, 12, 13, 14]));
        assert_eq!(within(known, 2), Some(vec![11, 12, 14]));
        assert_eq!(within(known, 3), Some(vec![12, 14]));
        assert_eq!(within(DeviceProcesses::Unknown, 1), None);
    }

    #[test]
    fn instance_use_follows_its_processes_and_compute_instances() {
        let others = [process(1, Some(9), Some(0))];
        let anywhere = [process(2, None, None)];
        let cases: [(&[u32], &[Process], InstanceUse); 12] = [
            (&[], &anywhere, InstanceUse::InUse),
            (&[0], &anywhere, InstanceUse::InUse),
            (&[0, 1], &anywhere, InstanceUse::InUseBy(vec![])),
            (&[], &[], InstanceUse::NoComputeInstance),
            (&[], &others, InstanceUse::NoComputeInstance),
            (&[], &[process(3, Some(4), None)], InstanceUse::InUse),
            (&[0], &others, InstanceUse::Idle),
            (&[0], &[process(3, Some(4), Some(0))], InstanceUse::InUse),
            (&[0], &[process(3, Some(4), Some(5))], InstanceUse::InUse),
            (&[0, 1, 2], &[], InstanceUse::Idle),
            (
                &[0, 1, 2],
                &[
                    process(3, Some(4), Some(2)),
                    process(5, Some(4), Some(0)),
                    process(6, Some(4), Some(2)),
                ],
                InstanceUse::InUseBy(vec![0, 2]),
            ),
            (&[0, 1], &[process(3, Some(4), None)], InstanceUse::InUseBy(vec![])),
        ];
        for (computes, processes, expected) in cases {
            let mut instance = gpu_instance(4, 0, 4);
            instance.compute_instances = computes.iter().copied().map(compute_instance).collect();
            let state = mig_of(&[4, 9]);
            let found = DeviceProcesses::Known(processes).of(&instance, &state);
            assert_eq!(found, expected, "{computes:?} {processes:?}");
            let usage = DeviceProcesses::Unknown.of(&instance, &state);
            assert_eq!(usage, InstanceUse::Unknown);
        }
    }
}
