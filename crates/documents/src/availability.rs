//! Availability as JSON, written by the aggregator and read by the command line. Unknown values are omitted.

use jiff::Timestamp;
use octavo_fleet::availability::{CountBasis, Row, UnavailableReason, UnavailableUnits, Wait};
use octavo_fleet::type_source::TypeSource;
use octavo_model::quantity::Mebibytes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::startup::StartingJson;

/// What is to be had, by type and resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AvailabilityList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `AvailabilityList`.
    pub kind: String,
    /// Of the fleet that was counted; grows with each change.
    pub revision: u64,
    /// By what it was counted: `cluster` by nodes and pods, and by agents; `agents` by agents alone, which do not know what pods
    /// were promised.
    pub basis: String,
    /// When what was counted was last known to be current.
    pub as_of: String,
    /// How long ago that was.
    pub age_seconds: u64,
    /// Whether that is longer ago than 60 seconds: then this is what was.
    pub stale: bool,
    /// Why the cluster is not followed now, in words for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Present while nodes are still returning after a start of the aggregator: the counts are not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting: Option<StartingJson>,
    /// Rows that were counted and are not here, because there are more than any fleet has.
    #[serde(default)]
    pub left_out: usize,
    /// The rows that were asked for, ordered by type and resource.
    pub items: Vec<AvailabilityRow>,
}

/// Units of one type and resource. What is taken, `free` and `unavailable` add up to `capacity`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AvailabilityRow {
    /// The canonical name, such as `nvidia-h200-141gb`; `mixed` where a node has several and the resource does not tell them apart;
    /// `unknown` where nobody knows.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The same for people, such as `NVIDIA H200 141GB`.
    pub title: String,
    /// The resource that pods ask for, such as `nvidia.com/gpu`.
    pub resource: String,
    /// What one unit is: `device`, `core`, `turn`, or the name of a partition's profile.
    pub unit: String,
    /// Whether who has a unit has it alone.
    pub exclusive: bool,
    /// Memory of one unit; the least, should they differ.
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Nodes that have some.
    pub nodes: u32,
    /// All there are.
    pub capacity: u64,
    /// What pods may have of them.
    pub allocatable: u64,
    /// What pods have asked for and hold; absent where no cluster is followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<u64>,
    /// What is seen in use; absent where a cluster is followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<u64>,
    /// How many more pods that ask for one unit would be placed now.
    pub free: u64,
    /// What is neither taken nor free, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unusable: Vec<UnusableJson>,
    /// Pods that wait for some. One that would take any of several types is counted with each.
    pub pending: PendingJson,
    /// How many more there would be if devices that are idle now were given this shape.
    #[serde(default)]
    pub could_become: u64,
    /// How long until one is free.
    pub wait: WaitJson,
    /// Whose word the type is: `agent`, the key of a label, or `nothing`.
    pub sources: Vec<String>,
}

/// Units of no use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnusableJson {
    /// Why, in a word: `cordoned`, `repartitioning`, `stale`, `not-ready`, `tainted`, `pods-full`, `unhealthy`, `set-aside`,
    /// `plugin-missing`, `use-unknown`, `no-such-node`.
    pub reason: String,
    /// The same in words for a person, and what to do.
    pub message: String,
    /// How many.
    pub count: u64,
    /// On how many nodes.
    pub nodes: u32,
}

/// Pods that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingJson {
    /// How many.
    pub pods: u64,
    /// What they ask for together.
    pub units: u64,
}

/// How long until a unit is free, from evidence alone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitJson {
    /// From what it is known: `free` where one is, `deadlines` where pods say when they end, `history` by how long others held theirs,
    /// `history-and-deadlines` by both, `unknown` where nobody can tell.
    pub basis: String,
    /// By `deadlines`, when the first pod ends that holds some and says when, at the latest. Else when one is free as likely as not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// By `deadlines`, when the last of them ends. Else when one is free nine times in ten; absent where not so much can be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// How many have ended, of those by which it is said, or by which it cannot be said yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u32>,
    /// From when on it was watched who ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// How many pods say when they end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u32>,
    /// How many pods hold some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holders: Option<u32>,
    /// In words for a person, what it means, or why nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl AvailabilityRow {
    /// Converts a row that was counted on the given basis.
    pub fn from_row(row: &Row, basis: CountBasis) -> Self {
        let key = &row.key;
        let (requested, in_use) = match basis {
            CountBasis::Cluster => (Some(row.taken), None),
            CountBasis::Agents => (None, Some(row.taken)),
        };
        let unusable = row.unavailable.iter();
        let sources = row.sources.iter().copied();
        Self {
            type_name: key.kind.as_str().to_owned(),
            title: key.kind.display_name(),
            resource: key.resource.clone(),
            unit: key.shape.to_string(),
            exclusive: key.shape.is_exclusive(),
            memory_mib: row.memory.map(Mebibytes::get),
            nodes: row.nodes,
            capacity: row.capacity,
            allocatable: row.allocatable,
            requested,
            in_use,
            free: row.free,
            unusable: unusable.map(|(why, of)| (*why, *of).into()).collect(),
            pending: PendingJson {
                pods: row.pending.pods,
                units: row.pending.units,
            },
            could_become: row.potential,
            wait: row.wait.into(),
            sources: sources
                .map(|one: TypeSource| one.as_str().to_owned())
                .collect(),
        }
    }

    /// Units that are allocated to pods, or in use if no cluster is watched.
    pub fn used_units(&self) -> u64 {
        self.requested.or(self.in_use).unwrap_or(0)
    }

    /// Units whose use is not reported.
    pub fn unknown_units(&self) -> u64 {
        let of = self.unusable.iter();
        let unknown = of.filter(|one| one.reason == UnavailableReason::UseUnknown.as_str());
        unknown.fold(0, |all, one| all.saturating_add(one.count))
    }

    /// All unavailable units.
    pub fn unusable_units(&self) -> u64 {
        let counts = self.unusable.iter().map(|one| one.count);
        counts.fold(0, u64::saturating_add)
    }
}

impl From<(UnavailableReason, UnavailableUnits)> for UnusableJson {
    fn from((why, of): (UnavailableReason, UnavailableUnits)) -> Self {
        Self {
            reason: why.as_str().to_owned(),
            message: why.description().to_owned(),
            count: of.count,
            nodes: of.nodes,
        }
    }
}

impl From<Wait> for WaitJson {
    fn from(wait: Wait) -> Self {
        let plain = |basis: &str| Self {
            basis: basis.to_owned(),
            ..Self::default()
        };
        match wait {
            Wait::Now => plain("free"),
            Wait::Deadlines {
                earliest,
                latest,
                of,
                holders,
            } => Self {
                from: rfc3339(earliest),
                to: rfc3339(latest),
                of: Some(of),
                holders: Some(holders),
                reason: wait.description(),
                ..plain("deadlines")
            },
            Wait::Likely {
                from,
                to,
                samples,
                since,
                of,
                holders,
            } => Self {
                from: rfc3339(from),
                to: to.and_then(rfc3339),
                samples: Some(samples),
                since: rfc3339(since),
                of: (of > 0).then_some(of),
                holders: Some(holders),
                reason: wait.description(),
                ..plain(match of {
                    0 => "history",
                    _ => "history-and-deadlines",
                })
            },
            Wait::Unknown(why) => {
                let watched = why.observations();
                Self {
                    samples: watched.map(|(samples, _)| samples),
                    since: watched.and_then(|(_, since)| rfc3339(since)),
                    reason: wait.description(),
                    ..plain("unknown")
                }
            }
        }
    }
}

/// RFC 3339 time. A value outside the supported range is omitted.
fn rfc3339(seconds: i64) -> Option<String> {
    let time = Timestamp::from_second(seconds).ok()?;
    Some(time.to_string())
}
