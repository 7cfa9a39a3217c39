//! A node on its way: which devices to change now, which to leave alone, and when to look again.
//!
//! It is level-triggered: every look at the hardware is held against what the node shall have, and nothing is concluded from
//! what was done before but how long to wait before it is done again. What a device has when it reached its target is kept, so
//! that a change by somebody else can be told from one that was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::ending::Ending;
use super::state::{State, wait};
use crate::domain::holder::Holder;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Condition, Device, Inventory, MigMode};
use crate::domain::layout::{MigTarget, Targets, standing};
use crate::domain::plan::{Cause, NodePlan, Outcome, Policy, Question, Step, Verdict, plan};

/// What is done about changes by somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Drift {
    /// They are undone as far as nothing is in use.
    #[default]
    Repair,
    /// They are left, and said.
    Report,
}

/// What a look at the node goes by.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The node as it was read.
    pub inventory: &'a Inventory,
    /// What it shall have.
    pub targets: &'a Targets,
    /// Who uses its devices, beside the processes that the inventory names.
    pub holders: &'a [Holder],
    /// Why not all of them are known, in words for a person: kubelet was started just now, or does not answer.
    pub untold: Option<&'a str>,
    /// What may be done.
    pub policy: &'a Policy,
    /// What is done about changes by somebody else.
    pub drift: Drift,
    /// Devices that somebody began to change and was killed, or could neither bring to their target nor back.
    pub unfinished: &'a BTreeSet<PciAddress>,
    /// The same of devices that are not there now.
    pub absent: &'a BTreeSet<PciAddress>,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// Devices to change, in the order of their addresses.
    pub change: Vec<PciAddress>,
    /// Devices that cannot have now what they shall have and are between that and what they had: when they are changed, they are
    /// brought to what was begun, or back.
    pub finish: Vec<PciAddress>,
    /// Devices of those to change on which somebody else had changed what they should have.
    pub drifted: Vec<PciAddress>,
    /// When to look again, even if nothing hints at a change; `None` where there is no reason to.
    pub again: Option<Duration>,
}

/// Between two attempts at least this long, however much changes: whoever is in the way may come and go all the time.
const BREATH: Duration = Duration::from_secs(1);
/// Interval at which the users of devices are looked up again while they are not known.
pub(super) const UNTOLD_INTERVAL: Duration = Duration::from_secs(5);

/// Remembers what was tried.
#[derive(Debug, Clone, Default)]
pub struct Node {
    devices: BTreeMap<PciAddress, Record>,
}

#[derive(Debug, Clone)]
struct Record {
    state: State,
    /// Attempts in a row that ended badly.
    failures: u32,
    /// What it looked like after the last of these, and when it is tried again.
    put_off: Option<PutOff>,
    /// What it has had since it reached its target.
    reached: Option<MigTarget>,
}

/// An attempt that ended badly.
#[derive(Debug, Clone)]
struct PutOff {
    looks: Looks,
    /// Not before this, whatever happens.
    soonest: Duration,
    /// Then at the latest.
    at: Duration,
}

/// Everything about a device that makes another attempt worth while when it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Looks {
    geometry: Option<MigTarget>,
    pending: Option<MigMode>,
    condition: Condition,
    users: BTreeSet<User>,
}

/// Somebody who may be in the way: GPU instance, compute instance, process. How much memory one has, or that a monitor opened
/// the device for a moment, is nothing to try again for.
type User = (Option<u32>, Option<u32>, Option<u32>);

impl Node {
    /// Something else is asked of these devices: they are tried at once, and what they have now is no drift.
    pub fn select(&mut self, devices: &BTreeSet<PciAddress>) {
        self.devices.retain(|pci, _| !devices.contains(pci));
    }

    /// Something else is asked of all devices.
    pub fn select_all(&mut self) {
        self.devices.clear();
    }

    /// The device was reset, and is worth another attempt now; a second reset in a row is not.
    pub fn was_reset(&mut self, pci: PciAddress) {
        if let Some(record) = self.devices.get_mut(&pci)
            && record.failures <= 1
        {
            record.put_off = None;
        }
    }

    /// Holds what is there against what shall be.
    pub fn look(&mut self, now: Duration, view: &View<'_>) -> Decision {
        let planned = plan(&Question {
            inventory: view.inventory,
            targets: view.targets,
            holders: view.holders,
            policy: view.policy,
            refused: &BTreeSet::new(),
        });
        self.select_planned(&planned, view.absent);
        // What was begun is brought to an end, and is no reason to leave the others.
        let begun = |pci: PciAddress| view.unfinished.contains(&pci);
        let mut new = planned.devices.iter().filter(|device| !begun(device.pci));
        let impossible = new.any(|device| device.verdict.outcome() == Outcome::Infeasible);
        let mut decision = Decision::default();
        let NodePlan { devices } = planned;
        for device in devices {
            let looks = looks(view.inventory, view.holders, device.pci);
            let record = self.devices.entry(device.pci).or_insert_with(Record::new);
            match device.verdict {
                Verdict::Unchanged => record.reached(looks),
                Verdict::Change(change) if !impossible => {
                    let due = record.due(now, &looks, view.drift);
                    let needs_idle = change.steps.iter().any(Step::needs_idle);
                    match view.untold.filter(|_| needs_idle && !begun(device.pci)) {
                        // Known before the plan: the change would be begun and given up, again and again.
                        Some(reason) if matches!(due, Due::Now { .. }) => {
                            record.state = State::Blocked {
                                causes: vec![Cause::Untold {
                                    reason: reason.to_owned(),
                                }],
                            };
                            decision.look_again_at(now.saturating_add(UNTOLD_INTERVAL));
                        }
                        Some(_) | None => decision.take(device.pci, &due),
                    }
                }
                // It cannot be left half-way.
                Verdict::Change(_) | Verdict::Blocked(_) | Verdict::Infeasible(_)
                    if begun(device.pci) =>
                {
                    decision.take(device.pci, &record.due(now, &looks, view.drift));
                    decision.finish.push(device.pci);
                }
                // It does not have what it had: "blocked" would say so.
                Verdict::Blocked(_) if view.absent.contains(&device.pci) => record.lost(),
                Verdict::Blocked(blocked) => {
                    record.state = match lost(view, device.pci) {
                        Some(reason) => State::Failed {
                            reason,
                            rollback: None,
                        },
                        None => State::Blocked {
                            causes: blocked.causes,
                        },
                    };
                }
                Verdict::Infeasible(infeasible) => record.state = State::Infeasible(infeasible),
                // A plan is whole before its first step.
                Verdict::Change(_) => {
                    record.state = State::Pending {
                        reason: "another device can never have what this layout asks of it"
                            .to_owned(),
                    };
                }
            }
        }
        decision
    }

    /// Drops devices without a plan. One that went away during its change stays failed, even if the layout selects only devices
    /// that are there.
    fn select_planned(&mut self, planned: &NodePlan, absent: &BTreeSet<PciAddress>) {
        let is_planned = |pci: &PciAddress| planned.devices.iter().any(|device| device.pci == *pci);
        self.devices
            .retain(|pci, _| is_planned(pci) || absent.contains(pci));
        for pci in absent.iter().filter(|pci| !is_planned(pci)) {
            let record = self.devices.entry(*pci).or_insert_with(Record::new);
            record.lost();
        }
    }

    /// The device is being changed.
    pub fn began(&mut self, pci: PciAddress) {
        let record = self.devices.entry(pci).or_insert_with(Record::new);
        record.state = State::Applying;
    }

    /// How that ended: what was read after it, and who used the node's devices then.
    pub fn ended(
        &mut self,
        now: Duration,
        (inventory, holders): (&Inventory, &[Holder]),
        pci: PciAddress,
        ending: Ending,
    ) {
        let looks = looks(inventory, holders, pci);
        let record = self.devices.entry(pci).or_insert_with(Record::new);
        if ending == Ending::Applied {
            record.reached(looks);
            return;
        }
        record.failures = record.failures.saturating_add(1);
        record.put_off = Some(PutOff {
            looks,
            soonest: now.saturating_add(BREATH),
            at: now.saturating_add(wait(record.failures)),
        });
        record.state = ending.into();
    }

    /// Where each device stands that something is asked of, in the order of their addresses.
    pub fn states(&self) -> impl Iterator<Item = (PciAddress, &State)> {
        let all = self.devices.iter();
        all.map(|(pci, record)| (*pci, &record.state))
    }

    /// The state that most needs somebody's attention.
    pub fn worst(&self) -> Option<&State> {
        let states = self.devices.values().map(|record| &record.state);
        states.max_by_key(|state| state.gravity())
    }
}

impl Record {
    fn new() -> Self {
        Self {
            state: State::Pending {
                reason: "it was not looked at yet".to_owned(),
            },
            failures: 0,
            put_off: None,
            reached: None,
        }
    }

    fn reached(&mut self, looks: Looks) {
        self.state = State::Applied;
        self.failures = 0;
        self.put_off = None;
        self.reached = looks.geometry;
    }

    /// It went away while it was being changed. Why is known best where that was seen.
    fn lost(&mut self) {
        if !matches!(self.state, State::Failed { .. }) {
            self.state = State::Failed {
                reason: "its change was interrupted, and this node has no such device now"
                    .to_owned(),
                rollback: None,
            };
        }
    }

    /// It could be changed now: unless it was tried a moment ago, or somebody else's change is to be left.
    fn due(&mut self, now: Duration, looks: &Looks, drift: Drift) -> Due {
        if let Some(then) = &self.put_off {
            let at = if then.looks == *looks {
                then.at
            } else {
                then.soonest
            };
            if now < at {
                return Due::At(at);
            }
        }
        let has = looks.geometry.as_ref();
        let reached = self.reached.as_ref();
        let drifted = reached.is_some_and(|reached| !is_lost(reached, has));
        if drifted && drift == Drift::Report {
            self.state = State::Drifted;
            return Due::Never;
        }
        Due::Now {
            drifted: drifted && self.put_off.is_none(),
        }
    }
}

/// When a device is to be changed.
enum Due {
    Now { drifted: bool },
    At(Duration),
    Never,
}

impl Decision {
    fn take(&mut self, pci: PciAddress, due: &Due) {
        match due {
            Due::Now { drifted } => {
                self.change.push(pci);
                self.drifted.extend(drifted.then_some(pci));
            }
            Due::At(at) => self.look_again_at(*at),
            Due::Never => {}
        }
    }

    fn look_again_at(&mut self, at: Duration) {
        self.again = Some(self.again.map_or(at, |again| again.min(at)));
    }
}

/// Whether a reset, a reload of the driver or a reboot took it, which leave nothing; a person leaves something, or turns MIG
/// mode on.
fn is_lost(reached: &MigTarget, now: Option<&MigTarget>) -> bool {
    match (reached, now) {
        (MigTarget::Enabled(_), None | Some(MigTarget::Disabled)) => true,
        (MigTarget::Enabled(had), Some(MigTarget::Enabled(has))) => {
            !had.is_empty() && has.is_empty()
        }
        (MigTarget::Disabled, _) => false,
    }
}

/// Why a device that the layout selects does not answer; `None` of one that answers and does not report all.
fn lost(view: &View<'_>, pci: PciAddress) -> Option<String> {
    let mut unverified = view.targets.unverified.iter();
    let unverified = unverified.find(|one| one.pci == pci)?;
    let mut devices = view.inventory.devices.iter();
    let answers = devices.any(|one| one.pci == pci && one.condition == Condition::Working);
    (!answers).then(|| format!("its state cannot be read: {}", unverified.reason))
}

fn looks(inventory: &Inventory, holders: &[Holder], pci: PciAddress) -> Looks {
    let mut devices = inventory.devices.iter();
    let device: Option<&Device> = devices.find(|device| device.pci == pci);
    let state = device.and_then(|device| device.mig.state());
    let holders = holders.iter().filter(|holder| holder.device == pci);
    let holders = holders
        .filter(|holder| holder.gpu_instance.is_some() || holder.who.kind.is_some())
        .map(|holder| (holder.gpu_instance, holder.compute_instance, holder.who.pid));
    let processes = device.into_iter().flat_map(|device| &device.processes);
    let processes = processes.map(|process| {
        (
            process.gpu_instance,
            process.compute_instance,
            Some(process.pid),
        )
    });
    Looks {
        geometry: state.and_then(standing),
        pending: state.map(|state| state.pending),
        condition: device.map_or(
            Condition::PciOnly {
                kernel_driver: None,
            },
            |device| device.condition.clone(),
        ),
        users: holders.chain(processes).collect(),
    }
}
