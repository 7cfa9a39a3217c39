//! Who runs on a device and on its partitions, as far as it is known.

use super::{Condition, Device, GpuInstance, Problem, Process, Vendor};

/// Who runs on a device, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage<'a> {
    /// These processes.
    Known(&'a [Process]),
    /// The driver would not say, which must not look like idle.
    Unknown,
}

/// Whether a GPU instance is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceUse {
    /// The driver would not say, which must not look like idle.
    Unknown,
    /// Nobody runs in it, and nobody can: it has no compute instance.
    NoComputeInstance,
    /// Nobody runs in it.
    Idle,
    /// Somebody runs in it, and it is not split.
    InUse,
    /// Somebody runs in it, and of its several compute instances these are in use, by id and in its order. None of them
    /// where the driver tells the GPU instance of a process and not the compute instance.
    InUseBy(Vec<u32>),
}

impl Device {
    /// Who runs on it. AMD's driver is not asked for that, and silence must not look like idle.
    pub fn usage(&self) -> Usage<'_> {
        let untold = self.vendor == Vendor::Amd || self.condition != Condition::Working;
        if untold || self.problems.iter().any(is_about_processes) {
            Usage::Unknown
        } else {
            Usage::Known(&self.processes)
        }
    }

    /// Notes that nobody could tell who has it open, and why: then it is not known who uses it, whatever the driver says.
    pub fn users_untold(&mut self, error: String) {
        self.problems.push(Problem {
            what: "Processes that have it open".to_owned(),
            error,
        });
    }

    /// Takes in who runs on it, told by both lists of the driver just now.
    pub fn told_processes(&mut self, processes: Vec<Process>) {
        self.problems.retain(|problem| !is_about_processes(problem));
        self.processes = processes;
    }
}

/// Both nvmlDeviceGetComputeRunningProcesses and nvmlDeviceGetGraphicsRunningProcesses, and what is noted above.
fn is_about_processes(problem: &Problem) -> bool {
    problem.what.contains("Processes")
}

impl<'a> Usage<'a> {
    /// Who runs in the GPU instance with the driver's `id`; `None` when the driver would not say.
    pub fn within(self, id: u32) -> Option<Vec<&'a Process>> {
        match self {
            Self::Unknown => None,
            Self::Known(processes) => {
                let inside = |process: &&Process| process.gpu_instance == Some(id);
                Some(processes.iter().filter(inside).collect())
            }
        }
    }

    /// Whether `instance`, of the same device, is in use.
    pub fn of(self, instance: &GpuInstance) -> InstanceUse {
        let Some(here) = self.within(instance.id) else {
            return InstanceUse::Unknown;
        };
        match (here.as_slice(), instance.compute_instances.as_slice()) {
            ([], []) => InstanceUse::NoComputeInstance,
            ([], _) => InstanceUse::Idle,
            (_, [] | [_]) => InstanceUse::InUse,
            (here, several) => {
                let busy = |id| {
                    here.iter()
                        .any(|process| process.compute_instance == Some(id))
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
    use crate::domain::inventory::tests_support::{compute_instance, gpu, gpu_instance, process};

    fn problem(what: &str) -> Problem {
        Problem {
            what: what.to_owned(),
            error: "Insufficient Permissions".to_owned(),
        }
    }

    #[test]
    fn a_device_without_processes_is_idle_only_where_the_driver_told_them() {
        let mut device = gpu();
        assert_eq!(device.usage(), Usage::Known(&[]));
        device.problems = vec![problem("nvmlDeviceGetNumaNodeId")];
        assert_eq!(device.usage(), Usage::Known(&[]));
        for what in [
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetGraphicsRunningProcesses_v3",
        ] {
            device.problems = vec![problem(what)];
            assert_eq!(device.usage(), Usage::Unknown, "{what}");
        }
        device.problems.clear();
        device.users_untold("cannot read /proc/4711/fd".to_owned());
        assert_eq!(device.usage(), Usage::Unknown);
    }

    #[test]
    fn nobody_knows_who_runs_on_a_device_that_does_not_answer() {
        let mut device = gpu();
        device.processes = vec![process(7, None, None)];
        assert_eq!(device.usage(), Usage::Known(&device.processes));
        for condition in [
            Condition::Failing {
                reason: "GPU is lost".to_owned(),
            },
            Condition::PciOnly {
                kernel_driver: None,
            },
        ] {
            device.condition = condition;
            assert_eq!(device.usage(), Usage::Unknown);
        }
    }

    #[test]
    fn a_device_of_amd_s_is_never_taken_for_idle() {
        let mut device = gpu();
        device.vendor = Vendor::Amd;
        assert_eq!(device.usage(), Usage::Unknown);
    }

    #[test]
    fn processes_are_found_in_their_own_instance() {
        let processes = [
            process(10, Some(1), Some(0)),
            process(11, Some(2), Some(0)),
            process(12, None, None),
            process(13, Some(1), None),
        ];
        let within = |id| {
            let here = Usage::Known(&processes).within(id).unwrap();
            here.iter().map(|process| process.pid).collect::<Vec<_>>()
        };
        assert_eq!(within(1), [10, 13]);
        assert_eq!(within(2), [11]);
        assert!(within(3).is_empty());
        assert_eq!(Usage::Unknown.within(1), None);
    }

    #[test]
    fn the_use_of_an_instance_follows_its_processes_and_compute_instances() {
        let others = [process(1, Some(9), Some(0)), process(2, None, None)];
        let cases: [(&[u32], &[Process], InstanceUse); 9] = [
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
            (
                &[0, 1],
                &[process(3, Some(4), None)],
                InstanceUse::InUseBy(vec![]),
            ),
        ];
        for (computes, processes, expected) in cases {
            let mut instance = gpu_instance(4, 0, 4);
            instance.compute_instances = computes.iter().copied().map(compute_instance).collect();
            let found = Usage::Known(processes).of(&instance);
            assert_eq!(found, expected, "{computes:?} {processes:?}");
            assert_eq!(Usage::Unknown.of(&instance), InstanceUse::Unknown);
        }
    }
}
