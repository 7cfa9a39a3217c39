//! Availability as a document of the REST API. Unknown values are omitted. Times are RFC 3339, in UTC.

use octavo_model::quantity::Mebibytes;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{Display, IntoStaticStr};
use utoipa::ToSchema;

use super::count::CountBasis;
use super::row::{Pending, Row};
use super::shape::Shape;
use super::unavailable::UnavailableReason;
use crate::startup::StartupProgress;
use crate::summary::DeviceUse;
use crate::type_source::TypeSource;
use octavo_model::reported::Reported;

/// Availability by type and resource.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AvailabilityList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `AvailabilityList`.
    pub kind: String,
    /// Revision of the fleet that was counted; increases with every change.
    pub revision: u64,
    /// Data that the counts are based on: `cluster` for Nodes, pods and agents; `agents` for agents alone, which do not
    /// know allocations to pods.
    #[schema(value_type = String)]
    pub basis: Reported<CountBasis>,
    /// Time at which the counted data was last known to be current.
    pub as_of: String,
    /// Time since then in seconds.
    pub age_seconds: u64,
    /// True if more than 60 seconds have passed since then: the counts are outdated.
    pub stale: bool,
    /// Reason why the cluster is currently not watched, for users.
    #[serde(alias = "trouble")]
    pub error: Option<String>,
    /// Present while nodes are still reconnecting after a start of the aggregator: the counts are not complete.
    pub starting: Option<StartupProgress>,
    /// Number of omitted rows, because there are too many.
    #[serde(default)]
    pub left_out: usize,
    /// The requested rows, ordered by type and resource.
    pub items: Vec<AvailabilityRow>,
}

/// Units of one type and resource. Used units, `free` and `unusable` add up to `capacity`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AvailabilityRow {
    /// The canonical name, such as `nvidia-h200-141gb`; `mixed` if a node has several and the resource does not distinguish
    /// them; `unknown` if no source reports it.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Display name of the type, such as `NVIDIA H200 141GB`.
    pub title: String,
    /// Resource that pods request, such as `nvidia.com/gpu`.
    pub resource: String,
    /// Kind of unit: `device`, `core`, `time-slice`, or the profile name of a partition.
    #[schema(value_type = String)]
    pub unit: Reported<Shape>,
    /// True if a unit is allocated exclusively.
    pub exclusive: bool,
    /// Memory of one unit; the minimum if they differ.
    #[serde(rename = "memoryMiB")]
    #[schema(value_type = Option<u64>)]
    pub memory: Option<Mebibytes>,
    /// Nodes that have some.
    pub nodes: u32,
    /// Total number of units.
    pub capacity: u64,
    /// Units that pods may be allocated.
    pub allocatable: u64,
    /// Units allocated to pods; absent without a watched cluster.
    pub requested: Option<u64>,
    /// Units observed in use; absent with a watched cluster, and if none is known and the use of some units is unknown.
    pub in_use: Option<u64>,
    /// Number of additional pods requesting one unit that would be placed; absent if none is known and the use of some
    /// units is unknown.
    pub free: Option<u64>,
    /// Units that are neither used nor free, by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unusable: Vec<UnusableUnits>,
    /// Pods that wait for these units. A pod that accepts any of several types counts for each.
    pub pending: Pending,
    /// Additional units that fit into slices without an instance, so that no instance has to be removed. Those of
    /// several shapes are alternatives.
    #[serde(default)]
    pub could_add: u64,
    /// Additional units if idle devices were repartitioned to this shape. It includes `couldAdd`.
    #[serde(default)]
    pub could_become: u64,
    /// Time until a unit is free.
    pub wait: WaitReport,
    /// Sources of the type: `agent`, the key of a label, or `nothing`.
    #[schema(value_type = Vec<String>)]
    pub sources: Vec<Reported<TypeSource>>,
}

/// Units that are unavailable for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Unusable)]
pub struct UnusableUnits {
    /// The reason: `cordoned`, `repartitioning`, `stale`, `not-ready`, `tainted`, `pods-full`, `unhealthy`,
    /// `unhealthy-advertised`, `static-layout`, `passthrough`, `plugin-missing`, `use-unknown`, `no-such-node`.
    #[schema(value_type = String)]
    pub reason: Reported<UnavailableReason>,
    /// Explanation for users, with a remedy.
    pub message: String,
    /// Number of units.
    pub count: u64,
    /// Number of nodes that have them.
    pub nodes: u32,
}

/// Time until a unit is free, from evidence only.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Wait)]
pub struct WaitReport {
    /// Evidence: `free` if a unit is free, `deadlines` of the pods that hold units, `history` of earlier pods,
    /// `history-and-deadlines` for both, `unknown` without evidence.
    #[schema(value_type = String)]
    pub basis: Reported<WaitBasis>,
    /// With `deadlines`, the earliest deadline; otherwise the median of the time at which a unit is free.
    pub from: Option<String>,
    /// With `deadlines`, the latest deadline; otherwise the 90th percentile, absent if the data does not reach that far.
    pub to: Option<String>,
    /// Number of ended pods that the estimate is based on, or of those that do not suffice yet.
    pub samples: Option<u32>,
    /// Start of the observation of ended pods.
    pub since: Option<String>,
    /// Number of holders with a deadline.
    pub of: Option<u32>,
    /// Number of holders.
    pub holders: Option<u32>,
    /// Explanation for users: the meaning, or why there is no estimate.
    pub reason: Option<String>,
}

/// Evidence for a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum WaitBasis {
    /// A unit is free.
    Free,
    /// Deadlines of the pods that hold units.
    Deadlines,
    /// Holding times of other pods.
    History,
    /// Both.
    HistoryAndDeadlines,
    /// There is no evidence.
    Unknown,
}

impl AvailabilityRow {
    /// Converts a row that was counted on the given basis.
    pub fn new(row: &Row, basis: CountBasis, wait: WaitReport) -> Self {
        let key = &row.key;
        let (requested, in_use) = match basis {
            CountBasis::Cluster => (Some(row.taken), None),
            CountBasis::Agents => {
                let is_known = row.taken > 0 || row.units_with_use(DeviceUse::Unknown) == 0;
                (None, is_known.then_some(row.taken))
            }
        };
        let unusable = row.unavailable.iter();
        Self {
            type_name: key.kind.as_str().to_owned(),
            title: key.kind.display_name(),
            resource: key.resource.clone(),
            unit: key.shape.clone().into(),
            exclusive: key.shape.is_exclusive(),
            memory: row.memory,
            nodes: row.nodes,
            capacity: row.capacity,
            allocatable: row.allocatable,
            requested,
            in_use,
            free: row.known_free(),
            unusable: unusable
                .map(|(reason, units)| UnusableUnits {
                    reason: (*reason).into(),
                    message: reason.description().to_owned(),
                    count: units.count,
                    nodes: units.nodes,
                })
                .collect(),
            pending: row.pending,
            could_add: row.could_add,
            could_become: row.potential,
            wait,
            sources: row.sources.iter().copied().map(Reported::from).collect(),
        }
    }

    /// Units that are allocated to pods, or in use if no cluster is watched; `None` if that is unknown.
    pub fn used_units(&self) -> Option<u64> {
        self.known(self.requested.or(self.in_use))
    }

    /// Free units; `None` if that is unknown.
    pub fn free_units(&self) -> Option<u64> {
        self.known(self.free)
    }

    /// `count`, unless it is the 0 of an earlier aggregator for an unknown number.
    fn known(&self, count: Option<u64>) -> Option<u64> {
        count.filter(|count| *count > 0 || self.units_with_use(DeviceUse::Unknown) == 0)
    }

    /// Units that are neither used nor free, and have this use. Reasons of a newer aggregator count as unavailable.
    pub fn units_with_use(&self, wanted: DeviceUse) -> u64 {
        let of = self.unusable.iter().filter(|one| {
            let reason = one.reason.known();
            reason.map_or(DeviceUse::Unavailable, UnavailableReason::device_use) == wanted
        });
        of.fold(0, |all, one| all.saturating_add(one.count))
    }
}

impl WaitBasis {
    /// Name in documents.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_words_match_displayed_words() {
        let same = |json: serde_json::Value, text: String| assert_eq!(json, text);
        for reason in [
            UnavailableReason::Cordoned,
            UnavailableReason::Repartitioning,
            UnavailableReason::Stale,
            UnavailableReason::NotReady,
            UnavailableReason::Tainted,
            UnavailableReason::PodsFull,
            UnavailableReason::Unhealthy,
            UnavailableReason::UnhealthyAdvertised,
            UnavailableReason::StaticLayout,
            UnavailableReason::Passthrough,
            UnavailableReason::PluginMissing,
            UnavailableReason::UseUnknown,
            UnavailableReason::NoSuchNode,
        ] {
            same(serde_json::to_value(reason).unwrap(), reason.to_string());
        }
        for basis in [CountBasis::Cluster, CountBasis::Agents] {
            same(serde_json::to_value(basis).unwrap(), basis.to_string());
        }
        for basis in [
            WaitBasis::Free,
            WaitBasis::Deadlines,
            WaitBasis::History,
            WaitBasis::HistoryAndDeadlines,
            WaitBasis::Unknown,
        ] {
            same(serde_json::to_value(basis).unwrap(), basis.to_string());
        }
    }

    #[test]
    fn word_of_newer_version_round_trips() {
        for (text, known) in [("\"deadlines\"", true), ("\"promises\"", false)] {
            let word: Reported<WaitBasis> = serde_json::from_str(text).unwrap();
            assert_eq!(word.known().is_some(), known);
            assert_eq!(serde_json::to_string(&word).unwrap(), text);
            assert_eq!(format!("\"{word}\""), text);
        }
        let earlier: Reported<UnavailableReason> = serde_json::from_str("\"set-aside\"").unwrap();
        assert_eq!(earlier, UnavailableReason::Passthrough);
        let source: Reported<TypeSource> = serde_json::from_str("\"octavo.dev/type\"").unwrap();
        assert_eq!(source, Reported::Unknown("octavo.dev/type".to_owned()));
    }
}
