//! How far what a node gives out is what shall be, as the node tells it to others.
//!
//! Modes and states are words here, as in [`super::LayoutStatus`]: a newer agent may have some that an older reader has not. Every
//! text and list has a bound, which who tells keeps to and who reads checks.

use super::layout::{LONGEST_TEXT, LONGEST_WORD, beginning, kept, word};
use crate::domain::reason::{Kind, Reason};
use crate::domain::sharing::health::Health;
use crate::domain::sharing::status::{HandOff, Kept, ResourceStatus, UnitStatus};
use crate::domain::sharing::{ResourceName, SharingStatus};

/// Most resources of a node.
pub const MOST_RESOURCES: usize = 64;
/// Most units of a resource: whole devices, or all partitions of all devices.
pub const MOST_UNITS: usize = 1024;
/// Most ids that are told to be kept for pods.
pub const MOST_KEPT: usize = 256;
/// Longest configuration of NVIDIA's plugin that is told, in bytes.
pub const LONGEST_CONFIG: usize = 32 * 1024;

/// What a node tells of how it gives its devices out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SharingReport {
    /// Who gives devices out, in a word.
    pub mode: String,
    /// How far it is, in a reason's word.
    pub state: String,
    /// Why, in words for a person.
    pub message: Option<String>,
    /// Ordered by name.
    pub resources: Vec<ResourceStatus>,
    /// What is given out otherwise than it shall be for as long as pods have it.
    pub kept: Vec<Kept>,
    /// What NVIDIA's plugin shall be told.
    pub hand_off: Option<HandOff>,
    /// The key that its plugin goes by now, and does not start without.
    pub named: Option<String>,
}

/// What a fleet keeps of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharingSummary {
    /// Who gives devices out, in a word.
    pub mode: String,
    /// How far it is, in a reason's word.
    pub state: String,
    /// Why, cut to what a list shows.
    pub message: Option<String>,
    /// Whether what is given out is shared by turns.
    pub by_turns: ByTurns,
}

/// Whether devices and partitions are given out by turns, as is known of those that are given out so now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ByTurns {
    /// None of them, or nobody knows.
    #[default]
    None,
    /// Some.
    Some,
    /// All.
    All,
}

impl SharingReport {
    /// What is told of `status`. A configuration that is too long is not told at all: half of one is another one.
    pub fn of(status: &SharingStatus) -> Self {
        let fits =
            |told: &&HandOff| told.key.len() <= LONGEST_WORD && told.config.len() <= LONGEST_CONFIG;
        let resources = status.resources.iter().take(MOST_RESOURCES);
        Self {
            mode: status.mode.as_str().to_owned(),
            state: word(status.state),
            message: status.message.as_deref().map(long),
            resources: resources.map(resource).collect(),
            kept: status.kept.iter().take(MOST_KEPT).map(keep).collect(),
            hand_off: status.hand_off.as_ref().filter(fits).cloned(),
            named: status.named.as_deref().map(word),
        }
    }

    /// Devices and partitions with the resource of each, where what the node allocates is what the layout asks for; empty otherwise.
    ///
    /// A fault of one device leaves the others as they are: then each resource counts of which the Node offers all healthy units.
    pub fn applied_units(&self) -> impl Iterator<Item = (&ResourceName, &UnitStatus)> {
        let reason = Reason::of(&self.state);
        let resources = self.resources.iter().filter(move |one| match reason {
            Some(Reason::SharingInForce | Reason::SharingHeld) => true,
            Some(Reason::SharingNotInForce) => is_offered(one),
            Some(_) | None => false,
        });
        resources.flat_map(|one| one.units.iter().map(move |unit| (&one.name, unit)))
    }

    /// Cuts lists to `few` and texts for a person to `most` bytes. What NVIDIA's plugin shall be told stays whole.
    pub fn shorten(&mut self, few: usize, most: usize) {
        self.kept.truncate(few);
        if let Some(text) = &mut self.message {
            *text = beginning(text, most);
        }
        for resource in &mut self.resources {
            resource.units.truncate(few);
            for unit in &mut resource.units {
                if let Health::Unhealthy { reason } = &mut unit.health {
                    *reason = beginning(reason, most);
                }
            }
        }
    }
}

impl SharingSummary {
    /// Of what a node tells.
    pub fn of(report: &SharingReport) -> Self {
        Self {
            mode: report.mode.clone(),
            state: report.state.clone(),
            message: report.message.as_deref().map(kept),
            by_turns: ByTurns::of(report),
        }
    }

    /// Whether somebody should look at the node for its sake. Of a state that is not known here its teller knew better.
    pub fn wants_a_look(&self) -> bool {
        Reason::of(&self.state).is_some_and(|reason| reason.kind() == Kind::Warning)
    }

    /// Why somebody should, in words for a person.
    pub fn why(&self) -> String {
        match &self.message {
            Some(message) => kept(&format!("{}: {message}", self.state)),
            None => self.state.clone(),
        }
    }
}

impl ByTurns {
    /// What shall be and is not yet does not count.
    fn of(report: &SharingReport) -> Self {
        let units = report.applied_units().map(|(_, unit)| unit);
        let (shared, alone): (Vec<_>, Vec<_>) = units.partition(|unit| unit.replicas.is_some());
        match (shared.is_empty(), alone.is_empty()) {
            (true, _) => Self::None,
            (false, false) => Self::Some,
            (false, true) => Self::All,
        }
    }
}

/// Whether the Node offers all healthy units of the resource, and there are some.
fn is_offered(resource: &ResourceStatus) -> bool {
    let healthy = resource.units.iter().filter(|one| one.health.is_healthy());
    let fit: u64 = healthy
        .map(|one| u64::from(one.replicas.unwrap_or(1)))
        .fold(0, u64::saturating_add);
    fit > 0 && resource.allocatable == Some(fit)
}

fn long(text: &str) -> String {
    beginning(text, LONGEST_TEXT)
}

fn resource(resource: &ResourceStatus) -> ResourceStatus {
    let units = resource.units.iter().take(MOST_UNITS);
    ResourceStatus {
        units: units
            .map(|unit| {
                let mut unit = unit.clone();
                unit.uuid = word(&unit.uuid);
                if let Health::Unhealthy { reason } = &mut unit.health {
                    *reason = long(reason);
                }
                unit
            })
            .collect(),
        ..resource.clone()
    }
}

/// The id of the device is not said twice.
fn keep(one: &Kept) -> Kept {
    let mut one = one.clone();
    let by = &mut one.by;
    for text in [
        &mut by.namespace,
        &mut by.pod,
        &mut by.container,
        &mut by.resource,
    ] {
        *text = word(text);
    }
    by.device_id = one.id.to_string();
    one
}
