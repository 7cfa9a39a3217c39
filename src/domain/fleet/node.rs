//! One node, as far as a fleet is interested in it.

use std::fmt;

use super::counts::{Counts, TypeCounts};
use super::device::{DeviceSummary, Occupancy, short};
use super::layout::LayoutSummary;
use super::sharing::{ByTurns, SharingSummary};
use crate::domain::inventory::{Neuron, NvmlState};
use crate::domain::quantity::Mebibytes;
use crate::domain::reason::Reason;

/// A node's devices taken together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSummary {
    /// By type, ordered by name.
    pub types: Vec<TypeCounts>,
    /// Of all devices that tell theirs.
    pub memory: Mebibytes,
    /// How its devices are given out.
    pub sharing: Sharing,
    /// How it is, while it is heard of.
    pub state: NodeState,
    /// Why it is not as it should be, in words for a person; parts of them are the driver's own.
    pub reason: Option<String>,
    /// Where it stands with regard to its layout; `None` where nobody asks anything of its devices.
    pub layout: Option<LayoutSummary>,
    /// How far what it gives out is what shall be; `None` where nobody says.
    pub given: Option<SharingSummary>,
}

/// How devices are given out. The words are those of the label `octavo.dev/sharing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// There is nothing to give out, or nobody can tell.
    None,
    /// Whole.
    Exclusive,
    /// In MIG partitions.
    Mig,
    /// In the parts that AMD's driver makes of a device, whatever they are called.
    Partitioned,
    /// By turns, all that is given out.
    TimeSlicing,
    /// Some of it one way, some another.
    Mixed,
}

/// How a node is, the gravest of what is to be said; ordered by gravity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    /// It has no accelerator.
    Empty,
    /// As it should be.
    Ok,
    /// No agent reports it: types and counts are those of the Node's labels.
    NoAgent,
    /// A device wants attention, and works; or it has not what its layout says, and somebody should know why.
    Attention,
    /// A device is of no use.
    Degraded,
    /// No driver speaks for its devices.
    NoDriver,
    /// The driver was there and is not any more.
    NvmlLost,
    /// The driver hangs: what is shown was read before.
    NvmlStalled,
    /// Nothing was heard of it for longer than the bound: what is shown was so then.
    Stale,
}

impl NodeSummary {
    /// Of a node with these devices.
    pub fn of(devices: &[DeviceSummary], nvml: &NvmlState, layout: Option<LayoutSummary>) -> Self {
        // A node without a device misses nothing.
        let missed = layout.as_ref().filter(|_| !devices.is_empty());
        let (mut state, mut reason) = (state(devices, nvml), reason(devices, nvml));
        if let Some(layout) = missed.filter(|layout| layout.wants_a_look()) {
            state = state.max(NodeState::Attention);
            reason = reason.or_else(|| layout.message.clone());
        }
        let memory = devices.iter().filter_map(|device| device.memory);
        let memory = memory.fold(0_u64, |sum, memory| sum.saturating_add(memory.get()));
        Self {
            types: TypeCounts::of(devices),
            memory: Mebibytes::new(memory),
            sharing: sharing(devices),
            state,
            reason,
            layout,
            given: None,
        }
    }

    /// The same of a node that says this of what it gives out.
    #[must_use]
    pub fn with_sharing(mut self, given: Option<SharingSummary>) -> Self {
        let missed = given.as_ref().filter(|_| !self.types.is_empty());
        if let Some(given) = missed.filter(|given| given.wants_a_look()) {
            self.state = self.state.max(NodeState::Attention);
            self.reason = self.reason.or_else(|| Some(given.why()));
        }
        self.sharing = match (self.sharing, given.as_ref().map(|given| given.by_turns)) {
            // Nothing is known to be there that could be given out.
            (Sharing::None, _) => Sharing::None,
            (_, Some(ByTurns::All)) => Sharing::TimeSlicing,
            (_, Some(ByTurns::Some)) => Sharing::Mixed,
            (sharing, Some(ByTurns::None) | None) => sharing,
        };
        self.given = given;
        self
    }

    /// The same of a node whose Neuron driver says this: what is wrong with none of its devices alone.
    #[must_use]
    pub fn with_neuron(mut self, neuron: Option<&Neuron>) -> Self {
        let problem = neuron.and_then(|neuron| neuron.problems.first());
        if let Some(problem) = problem {
            let said = format!("Neuron: {}: {}", problem.what, problem.error);
            self.state = self.state.max(NodeState::Attention);
            self.reason = self.reason.or_else(|| Some(short(&said)));
        }
        self
    }

    /// All devices.
    pub fn counts(&self) -> Counts {
        let types = self.types.iter().map(|one| one.counts);
        types.fold(Counts::default(), Counts::and)
    }
}

fn sharing(devices: &[DeviceSummary]) -> Sharing {
    let mut sharing = Sharing::None;
    for device in devices {
        // A driver that hangs changes nothing of how its devices are given out, and the label stays too.
        let is_there = device.occupancy != Occupancy::Unavailable;
        let Some(one) = device.given.filter(|_| is_there) else {
            continue;
        };
        sharing = match sharing {
            Sharing::None => one,
            same if same == one => one,
            Sharing::Exclusive
            | Sharing::Mig
            | Sharing::Partitioned
            | Sharing::TimeSlicing
            | Sharing::Mixed => Sharing::Mixed,
        };
    }
    sharing
}

fn state(devices: &[DeviceSummary], nvml: &NvmlState) -> NodeState {
    let of_devices = devices.iter().map(|device| device.state);
    let of_devices = of_devices.max().unwrap_or(NodeState::Empty);
    let of_nvml = match nvml {
        NvmlState::Stalled { .. } => NodeState::NvmlStalled,
        NvmlState::Lost { .. } => NodeState::NvmlLost,
        NvmlState::Absent { .. } | NvmlState::Loading | NvmlState::Ready(_) => NodeState::Empty,
    };
    of_devices.max(of_nvml)
}

/// What the driver suffers from, or the first of the devices in the gravest state and how many more are in trouble.
fn reason(devices: &[DeviceSummary], nvml: &NvmlState) -> Option<String> {
    match nvml {
        NvmlState::Stalled { call, .. } => return Some(format!("{call} does not return")),
        NvmlState::Lost { reason } => return Some(reason.clone()),
        NvmlState::Absent { .. } | NvmlState::Loading | NvmlState::Ready(_) => {}
    }
    let troubled: Vec<_> = devices
        .iter()
        .filter_map(|device| Some((device.state, device.trouble.as_deref()?)))
        .collect();
    let gravest = troubled.iter().map(|(weight, _)| *weight).max()?;
    let (_, first) = troubled.iter().find(|(weight, _)| *weight == gravest)?;
    Some(match troubled.len().saturating_sub(1) {
        0 => (*first).to_owned(),
        more => format!("{first} (and {more} more)"),
    })
}

impl Sharing {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::Exclusive,
        Self::Mig,
        Self::Partitioned,
        Self::TimeSlicing,
        Self::Mixed,
    ];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Exclusive => "exclusive",
            Self::Mig => "mig",
            Self::Partitioned => "partitioned",
            Self::TimeSlicing => "time-slicing",
            Self::Mixed => "mixed",
        }
    }
}

impl NodeState {
    /// All of them, in order of gravity.
    pub const ALL: [Self; 9] = [
        Self::Empty,
        Self::Ok,
        Self::NoAgent,
        Self::Attention,
        Self::Degraded,
        Self::NoDriver,
        Self::NvmlLost,
        Self::NvmlStalled,
        Self::Stale,
    ];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Ok => "ok",
            Self::NoAgent => "no-agent",
            Self::Attention => "attention",
            Self::Degraded => "degraded",
            Self::NoDriver => Reason::NoDriver.word(),
            Self::NvmlLost => Reason::NvmlLost.word(),
            Self::NvmlStalled => Reason::NvmlStalled.word(),
            Self::Stale => Reason::Stale.word(),
        }
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
