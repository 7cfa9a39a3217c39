//! Simulated device that executes calls as a driver does, with users and injected faults. It shares no code with the
//! engine.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use octavo_model::call::{CallFailure, CallResult, DriverCall, FailureKind};
use octavo_model::catalog::Placement;
use octavo_model::holder::Holder;
use octavo_model::inventory::{
    Completeness, ComputeInstance, Device, GpuInstance, Inventory, Mig, MigMode, MigState, Process,
    ProcessKind,
};

use crate::layout::tests_support::{A100_40, node};
use crate::layout::{DeviceTarget, MigTarget, TargetScope, current_target};
use crate::plan::Policy;
use crate::reconcile::{
    ActionResult, ChangeOutcome, ChangeRequest, Limits, NextAction, ObservedUsers, Transaction,
};

/// A fault injected once, at the call with a given number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The call fails without effect.
    Fails(FailureKind),
    /// The call fails but takes effect.
    FailsLate(FailureKind),
    /// The call reports success but has no effect.
    FalseSuccess,
    /// A GPU instance is created at another placement.
    OtherPlacement,
    /// A process starts using the last instance before the query that precedes the call.
    UserAppears,
    /// Another process destroys an idle instance before the call.
    Foreign,
    /// The users cannot be determined.
    UsersUnknown,
}

pub(super) struct Hardware {
    pub(super) device: Device,
    pub(super) faults: Vec<(usize, Fault)>,
    /// Number of destroying calls that fail with "in use".
    pub(super) in_use_failures: usize,
    /// Placements that the device refuses: profile and start.
    pub(super) defects: BTreeSet<(u32, u32)>,
    pub(super) holders: Vec<Holder>,
    /// Number of readings that lack all instances.
    pub(super) partial_readings: usize,
    pub(super) calls: Vec<DriverCall>,
    /// Instances destroyed while in use: must stay empty.
    pub(super) violations: Vec<String>,
    next: u32,
}

impl Hardware {
    pub(super) fn new(instances: &[(u32, u32, &[u32])]) -> Self {
        Self::of(A100_40.with(0, instances))
    }

    pub(super) fn of(device: Device) -> Self {
        let ids = state_of(&device).gpu_instances.iter().map(|one| one.id);
        Self {
            next: ids.max().unwrap_or(0),
            device,
            faults: Vec::new(),
            in_use_failures: 0,
            defects: BTreeSet::new(),
            holders: Vec::new(),
            partial_readings: 0,
            calls: Vec::new(),
            violations: Vec::new(),
        }
    }

    pub(super) fn state(&mut self) -> &mut MigState {
        match &mut self.device.mig {
            Mig::Capable(state) => state,
            Mig::Unknown | Mig::NotCapable => panic!("it can be partitioned"),
        }
    }

    pub(super) fn used_by(mut self, gpu_instance: u32, compute_instance: u32) -> Self {
        self.device.processes.push(Process {
            pid: 4711,
            kind: ProcessKind::Compute,
            gpu_instance: Some(gpu_instance),
            compute_instance: Some(compute_instance),
            memory: None,
        });
        self
    }

    /// Profile, start and splits of the existing instances, by placement.
    pub(super) fn geometry(&self) -> Vec<(u32, u32, Vec<u32>)> {
        let mut all: Vec<_> = state_of(&self.device)
            .gpu_instances
            .iter()
            .map(|one| {
                let mut parts: Vec<u32> = one
                    .compute_instances
                    .iter()
                    .map(|part| part.resources.unwrap().compute_slices)
                    .collect();
                parts.sort_unstable_by(|a, b| b.cmp(a));
                (one.profile_id, one.placement.start, parts)
            })
            .collect();
        all.sort_by_key(|one| one.1);
        all
    }

    pub(super) fn job(&self, target: MigTarget) -> ChangeRequest {
        let inventory: Arc<Inventory> = Arc::new(Inventory {
            nvml: octavo_model::inventory::NvmlState::Ready(octavo_model::inventory::Driver {
                version: "570.133.20".parse().unwrap(),
                cuda: None,
            }),
            ..node([self.device.clone()])
        });
        ChangeRequest {
            inventory,
            target: DeviceTarget::generated(self.device.pci, target, TargetScope::Layout),
            previous: current_target(state_of(&self.device)),
            resumed: false,
            holders: Vec::new(),
            policy: Policy::default(),
            limits: Limits::default(),
        }
    }

    /// Runs a job to its end, or until this number of calls, as if the agent were killed then.
    pub(super) fn run(
        &mut self,
        job: ChangeRequest,
        kill_after: Option<usize>,
    ) -> Option<ChangeOutcome> {
        let limits = job.limits;
        let mut transaction = Transaction::new(job).unwrap();
        let mut now = Duration::ZERO;
        let mut answer = ActionResult::Start;
        for _ in 0..10_000 {
            let action = transaction.next(now, answer);
            now += Duration::from_millis(10);
            assert!(now < limits.change_timeout * 3, "I5: it does not end");
            answer = match action {
                NextAction::End(outcome) => return Some(outcome),
                NextAction::Wait(wait) => {
                    now += wait;
                    ActionResult::Waited
                }
                NextAction::FindUsers => ActionResult::UsersFound(self.users()),
                NextAction::Read => ActionResult::Read(Ok(Box::new(self.read()))),
                NextAction::Call(call) => {
                    if kill_after == Some(self.calls.len()) {
                        return None;
                    }
                    ActionResult::Called(self.call(call))
                }
            };
        }
        panic!("I5: it does not end");
    }

    fn read(&mut self) -> Device {
        let mut device = self.device.clone();
        if let (Mig::Capable(state), 1..) = (&mut device.mig, self.partial_readings) {
            self.partial_readings -= 1;
            state.gpu_instances.truncate(1);
            state.geometry = Completeness::Partial;
        }
        device
    }

    fn users(&mut self) -> Result<ObservedUsers, String> {
        if self.fault(Fault::UserAppears)
            && let Some((id, part)) = self.last_usable()
        {
            self.device.processes.push(Process {
                pid: 99,
                kind: ProcessKind::Compute,
                gpu_instance: Some(id),
                compute_instance: Some(part),
                memory: None,
            });
        }
        if self.fault(Fault::UsersUnknown) {
            return Err("users are unknown".to_owned());
        }
        Ok(ObservedUsers {
            processes: self.device.processes.clone(),
            holders: self.holders.clone(),
        })
    }

    fn last_usable(&self) -> Option<(u32, u32)> {
        let mut all = state_of(&self.device).gpu_instances.iter().rev();
        all.find_map(|one| Some((one.id, one.compute_instances.first()?.id)))
    }

    /// Returns whether this fault is due at the next call; consumes it.
    fn fault(&mut self, which: Fault) -> bool {
        let now = self.calls.len();
        let due = self.faults.iter().position(|(at, fault)| *at == now && *fault == which);
        due.map(|at| self.faults.remove(at)).is_some()
    }

    fn call(&mut self, call: DriverCall) -> Result<CallResult, CallFailure> {
        if self.fault(Fault::Foreign) {
            let used: BTreeSet<u32> =
                self.device.processes.iter().filter_map(|process| process.gpu_instance).collect();
            let state = self.state();
            if let Some(at) = state
                .gpu_instances
                .iter()
                .position(|one| !used.contains(&one.id) && !one.compute_instances.is_empty())
            {
                state.gpu_instances.remove(at);
            }
        }
        let now = self.calls.len();
        let due = self.faults.iter().position(|(at, _)| *at == now);
        let fault = due.map(|at| self.faults.remove(at).1);
        self.calls.push(call);
        let failure = |kind| CallFailure { kind, what: format!("{call:?}: {kind:?}") };
        match fault {
            Some(Fault::Fails(kind)) => return Err(failure(kind)),
            Some(Fault::FailsLate(kind)) => {
                let _done = self.execute(call);
                return Err(failure(kind));
            }
            Some(Fault::FalseSuccess) => {
                return Ok(match call {
                    DriverCall::CreateGpuInstance { placement, .. } => {
                        CallResult::Created { id: 77, placement }
                    }
                    DriverCall::DestroyComputeInstance { .. }
                    | DriverCall::DestroyGpuInstance { .. }
                    | DriverCall::CreateComputeInstance { .. }
                    | DriverCall::SetMigMode { .. } => CallResult::Completed,
                });
            }
            Some(Fault::OtherPlacement) => {
                if let DriverCall::CreateGpuInstance { profile_id, .. } = call
                    && let Some(placement) = self.free(profile_id)
                {
                    return self.execute(DriverCall::CreateGpuInstance { profile_id, placement });
                }
            }
            Some(Fault::UserAppears | Fault::Foreign | Fault::UsersUnknown) | None => {}
        }
        if call.destroys() && self.in_use_failures > 0 {
            self.in_use_failures -= 1;
            return Err(failure(FailureKind::InUse));
        }
        self.execute(call)
    }

    /// The last free placement for the profile.
    fn free(&mut self, profile_id: u32) -> Option<Placement> {
        let state = self.state();
        let profile = state.catalog.by_id(profile_id)?;
        let free = |place: &&Placement| {
            let mut all = state.gpu_instances.iter();
            all.all(|one| is_disjoint(one.placement, **place))
        };
        profile.placements.iter().rev().find(free).copied()
    }

    fn execute(&mut self, call: DriverCall) -> Result<CallResult, CallFailure> {
        let done = match call {
            DriverCall::DestroyComputeInstance { gpu_instance, compute_instance } => {
                self.destroy_compute(call, gpu_instance, compute_instance)
            }
            DriverCall::DestroyGpuInstance { gpu_instance } => self.destroy(call, gpu_instance),
            DriverCall::CreateGpuInstance { profile_id, placement } => {
                self.create(profile_id, placement)
            }
            DriverCall::CreateComputeInstance { gpu_instance, slices } => {
                self.create_compute(gpu_instance, slices)
            }
            DriverCall::SetMigMode { to } => Ok(self.set_mode(to)),
        };
        done.map_err(|kind| CallFailure { kind, what: format!("{call:?}: {kind:?}") })
    }

    /// Records an invariant violation if a call destroys an instance that is in use.
    fn check_unused(&mut self, call: DriverCall, gi: u32, ci: Option<u32>) {
        let used = self.device.processes.iter().any(|process| {
            process.gpu_instance == Some(gi) && (ci.is_none() || process.compute_instance == ci)
        });
        if used {
            self.violations.push(format!("{call:?}"));
        }
    }

    fn find(&mut self, gi: u32) -> Result<&mut GpuInstance, FailureKind> {
        let mut all = self.state().gpu_instances.iter_mut();
        all.find(|one| one.id == gi).ok_or(FailureKind::NotFound)
    }

    fn destroy_compute(
        &mut self,
        call: DriverCall,
        gi: u32,
        ci: u32,
    ) -> Result<CallResult, FailureKind> {
        self.check_unused(call, gi, Some(ci));
        self.find(gi)?.compute_instances.retain(|part| part.id != ci);
        Ok(CallResult::Completed)
    }

    fn destroy(&mut self, call: DriverCall, gi: u32) -> Result<CallResult, FailureKind> {
        self.check_unused(call, gi, None);
        if !self.find(gi)?.compute_instances.is_empty() {
            return Err(FailureKind::InUse);
        }
        self.state().gpu_instances.retain(|one| one.id != gi);
        Ok(CallResult::Completed)
    }

    fn create(&mut self, profile_id: u32, placement: Placement) -> Result<CallResult, FailureKind> {
        let defect = self.defects.contains(&(profile_id, placement.start));
        self.next += 1;
        let id = self.next;
        let state = self.state();
        let mut all = state.gpu_instances.iter();
        if defect || !all.all(|one| is_disjoint(one.placement, placement)) {
            return Err(FailureKind::InsufficientResources);
        }
        state.gpu_instances.push(GpuInstance {
            id,
            profile_id,
            placement,
            compute_instances: Vec::new(),
        });
        Ok(CallResult::Created { id, placement })
    }

    fn create_compute(&mut self, gi: u32, slices: u32) -> Result<CallResult, FailureKind> {
        let parts = &mut self.find(gi)?.compute_instances;
        let free = |id: &u32| parts.iter().all(|part| part.id != *id);
        let id = (0..8).find(free).unwrap();
        parts.push(compute(id, slices));
        Ok(CallResult::Completed)
    }

    fn set_mode(&mut self, to: MigMode) -> CallResult {
        let clients = !self.device.processes.is_empty();
        let state = self.state();
        state.pending = to;
        if state.current == to {
            return CallResult::Completed;
        }
        let why = if clients { "in use (19)" } else { "reset required (16)" };
        CallResult::Pending(why.to_owned())
    }
}

fn compute(id: u32, slices: u32) -> ComputeInstance {
    ComputeInstance {
        id,
        profile_id: slices - 1,
        placement: None,
        uuid: None,
        memory: None,
        resources: Some(octavo_model::catalog::InstanceResources {
            compute_slices: slices,
            ..Default::default()
        }),
    }
}

fn is_disjoint(one: Placement, other: Placement) -> bool {
    one.start + one.size <= other.start || other.start + other.size <= one.start
}

pub(super) fn state_of(device: &Device) -> &MigState {
    device.mig.state().unwrap()
}
