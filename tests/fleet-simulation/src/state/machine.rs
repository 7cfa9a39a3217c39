//! A node: its GPUs, pods, disk and clock. Everything here survives the end of the agent.

use std::collections::BTreeMap;
use std::time::Duration;

use octavo_model::holder::{Holder, HolderDetails, Pod as HolderPod};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, MigState, ProcessKind};
use octavo_node::node_object::drain::Pod;
use octavo_planner::layout::MigTarget;

use super::agent::Agent;
use super::gpu::{Gpu, GpuUser};
use super::layouts::gpu_address;

/// A node of the cluster.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) name: String,
    /// True if the policy selects the node. Users choose the layouts of the others.
    pub(crate) is_in_pool: bool,
    /// Time of the next change of its pods.
    pub(crate) next_workload: Duration,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) last_pid: u32,
    /// Increases with each change of the GPUs and their users.
    pub(crate) version: u64,
    /// Time of that change.
    pub(crate) changed: Duration,
    /// State for which the labels were compared with the hardware last: versions of hardware and Node, start of the
    /// agent.
    pub(crate) checked: Option<(u64, String, Duration)>,
    /// The journal file of the state directory.
    pub(crate) journal: Option<String>,
    /// Number of boots.
    pub(crate) boot: u32,
    /// Deviation of the wall clock, in milliseconds.
    pub(crate) wall_offset: i64,
    pub(crate) agent: Option<Box<Agent>>,
    /// Number of the agent's last run.
    pub(crate) run: u32,
    /// Thousandths: probability that the agent is killed at a step of a change.
    pub(crate) kill_chance: u32,
    /// Driver calls do not return before this time.
    pub(crate) hangs_until: Duration,
    /// The kubelet does not answer before this time.
    pub(crate) kubelet_down_until: Duration,
    pub(crate) to_api: Link,
    pub(crate) to_aggregator: Link,
    /// Changes of GPUs that have begun and not ended, as an observer sees them.
    pub(crate) open_changes: BTreeMap<PciAddress, OpenChange>,
}

/// A pod, or a process outside of pods, that uses a partition.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    /// Number of the tenant, and of its process.
    pub(crate) pid: u32,
    pub(crate) user: GpuUser,
    /// `None` for a process outside of pods, which the kubelet does not know.
    pub(crate) pod: Option<Pod>,
}

/// A network link. Each direction can be interrupted on its own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Link {
    pub(crate) out_until: Duration,
    pub(crate) back_until: Duration,
}

/// The states in which a change of a GPU may end.
#[derive(Debug, Clone)]
pub(crate) struct OpenChange {
    /// The state before the first call.
    pub(crate) before: Vec<InstanceShape>,
    /// The desired states of all attempts.
    pub(crate) goals: Vec<MigTarget>,
    /// True if another program changed the GPU meanwhile.
    pub(crate) is_any_state: bool,
}

/// Profile and first slice of an instance, and its number of compute instances.
pub(crate) type InstanceShape = (u32, u32, usize);

impl OpenChange {
    /// A change of a GPU with these instances.
    pub(crate) fn new(before: Vec<InstanceShape>) -> Self {
        Self { before, goals: Vec::new(), is_any_state: false }
    }
}

impl Machine {
    /// Users of a GPU.
    pub(crate) fn users(&self, gpu: usize) -> impl Iterator<Item = &GpuUser> {
        self.tenants.iter().map(|tenant| &tenant.user).filter(move |user| user.gpu == gpu)
    }

    /// Reads a GPU.
    pub(crate) fn read(&mut self, gpu: usize) -> Device {
        let users = self.tenants.iter().map(|tenant| &tenant.user);
        self.gpus[gpu].read(users.filter(|user| user.gpu == gpu))
    }

    /// Pods to which the kubelet allocated partitions, and their processes.
    pub(crate) fn holders(&self) -> Vec<Holder> {
        let mut holders = Vec::new();
        for Tenant { user, pod, .. } in &self.tenants {
            let place = |details| Holder {
                device: gpu_address(user.gpu),
                gpu_instance: Some(user.gpu_instance),
                compute_instance: Some(user.compute_instance),
                details,
            };
            let named = pod.as_ref().map(|pod| HolderPod {
                uid: Some(pod.id.uid.clone()),
                namespace: Some(pod.id.namespace.clone()),
                name: Some(pod.id.name.clone()),
                container: None,
            });
            if let Some(pod) = named.clone() {
                let details = HolderDetails { pod: Some(pod), ..HolderDetails::default() };
                holders.push(place(details));
            }
            if user.pid.is_some() {
                let kind = Some(ProcessKind::Compute);
                let details =
                    HolderDetails { pid: user.pid, kind, pod: named, ..HolderDetails::default() };
                holders.push(place(details));
            }
        }
        holders
    }
}

/// Shapes of all instances, ordered.
pub(crate) fn shapes(state: &MigState) -> Vec<InstanceShape> {
    let all = state.gpu_instances.iter();
    let mut all: Vec<InstanceShape> =
        all.map(|one| (one.profile_id, one.placement.start, one.compute_instances.len())).collect();
    all.sort_unstable();
    all
}

/// Returns whether the instances are those of the target, each with one compute instance.
pub(crate) fn is_at(state: &MigState, target: &MigTarget) -> bool {
    let MigTarget::Enabled(wanted) = target else { return false };
    let mut left = shapes(state);
    // Instances with a required placement are matched first.
    let (placed, free): (Vec<_>, Vec<_>) =
        wanted.iter().partition(|instance| instance.placement.is_some());
    let all_found = placed.into_iter().chain(free).all(|instance| {
        let is_it = |shape: &InstanceShape| {
            let start = instance.placement.map_or(shape.1, |placement| placement.start);
            *shape == (instance.profile_id, start, instance.compute.len())
        };
        left.iter().position(is_it).map(|at| left.remove(at)).is_some()
    });
    all_found && left.is_empty()
}
