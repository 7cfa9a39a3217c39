//! Row of the availability table: the counts of one type, resource and shape.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::quantity::Mebibytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use super::shape::Shape;
use super::unavailable::UnavailableReason;
use super::unit_type::UnitType;
use crate::cluster::ClusterNode;
use crate::summary::DeviceUse;
use crate::type_source::TypeSource;

/// Minimum number of ended workloads for an estimate.
pub(super) const MIN_ENDS: u32 = 20;

/// Identity of a row, in sort order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    /// The type.
    pub kind: UnitType,
    /// Resource that pods request.
    pub resource: String,
    /// What one unit is.
    pub shape: Shape,
}

/// Units of one type, resource and shape. `taken`, `free` and `unavailable` add up to `capacity`, unless `taken` alone
/// exceeds it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Identity of the row.
    pub key: RowKey,
    /// Memory of one unit; the minimum if they differ.
    pub memory: Option<Mebibytes>,
    /// Number of nodes that have some.
    pub nodes: u32,
    /// Total number of units.
    pub capacity: u64,
    /// Units that pods may be allocated.
    pub allocatable: u64,
    /// Units allocated to pods; without cluster data, units observed in use.
    pub taken: u64,
    /// Number of additional pods requesting one unit that would be placed.
    pub free: u64,
    /// Units that are neither allocated nor free, by reason.
    pub unavailable: BTreeMap<UnavailableReason, UnavailableUnits>,
    /// Pods that wait for these units.
    pub pending: Pending,
    /// Additional units that fit into slices without an instance.
    pub could_add: u64,
    /// Additional units if idle devices were repartitioned to this shape.
    pub potential: u64,
    /// Time until a unit is free.
    pub wait: Wait,
    /// Sources of the type.
    pub sources: BTreeSet<TypeSource>,
}

/// Nodes of each row.
pub(super) type RowNodes<'a> = BTreeMap<&'a RowKey, Vec<&'a ClusterNode>>;

/// Units to add to a row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AddedUnits {
    /// Total number of units.
    pub(super) capacity: u64,
    /// Number of additional pods requesting one unit that would be placed.
    pub(super) free: u64,
    /// Additional units that fit into slices without an instance.
    pub(super) could_add: u64,
    /// Additional units if idle devices were repartitioned to this shape.
    pub(super) could_become: u64,
}

/// Units that are unavailable for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct UnavailableUnits {
    /// Number of units.
    pub count: u64,
    /// Number of nodes.
    pub nodes: u32,
}

/// Pods that wait for units. A pod that accepts any of several types counts for each.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema,
)]
pub struct Pending {
    /// Number of pods.
    pub pods: u64,
    /// Total number of units that they request.
    pub units: u64,
}

/// Time until a unit is free, from evidence only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// A unit is free now.
    Now,
    /// Some holders have a deadline: the earliest and the latest of these, in seconds since 1970.
    Deadlines {
        /// Earliest deadline.
        earliest: i64,
        /// Latest deadline.
        latest: i64,
        /// Number of holders with a deadline.
        of: u32,
        /// Number of holders.
        holders: u32,
    },
    /// Estimate from past holding times and from the deadlines of current holders. Times are seconds since 1970.
    Likely {
        /// Median of the time at which a unit is free.
        from: i64,
        /// 90th percentile; `None` if the data does not reach that far.
        to: Option<i64>,
        /// Number of ended workloads that the estimate is based on.
        samples: u32,
        /// Time since which ends are observed.
        since: i64,
        /// Number of holders with a deadline.
        of: u32,
        /// Number of holders.
        holders: u32,
    },
    /// No estimate is possible.
    Unknown(Unknown),
}

/// Reason why no waiting time is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum Unknown {
    /// There is no cluster data.
    #[error("the cluster is not watched, so it is unknown which pods hold them")]
    NoCluster,
    /// No pod holds a unit that another pod could use afterwards.
    #[error("no pod holds a unit that another pod could use afterwards")]
    NoHolders,
    /// No holder has a deadline, and holding times were not observed.
    #[error("none of the pods that use them has a deadline")]
    NoDeadline,
    /// No holder has a deadline, and too few workloads have ended.
    #[error(
        "none of the pods that use them has a deadline, and {ended} of the {MIN_ENDS} completed pods required for an estimate \
         have been observed"
    )]
    TooFew {
        /// Number of ended workloads.
        ended: u32,
        /// Start of observation, in seconds since 1970.
        since: i64,
    },
    /// No holder has a deadline, and the current holders have held their units longer than any observed one.
    #[error(
        "none of the pods that use them has a deadline, and all have already run longer than the {samples} completed pods \
         that were observed"
    )]
    BeyondObserved {
        /// Number of ended workloads.
        samples: u32,
        /// Start of observation, in seconds since 1970.
        since: i64,
    },
}

impl Row {
    pub(super) fn new(key: RowKey) -> Self {
        Self {
            key,
            memory: None,
            nodes: 0,
            capacity: 0,
            allocatable: 0,
            taken: 0,
            free: 0,
            unavailable: BTreeMap::new(),
            pending: Pending::default(),
            could_add: 0,
            potential: 0,
            wait: Wait::Unknown(Unknown::NoHolders),
            sources: BTreeSet::new(),
        }
    }

    /// Adds units whose type comes from `source`.
    pub(super) fn add_units(
        &mut self,
        more: AddedUnits,
        memory: Option<Mebibytes>,
        source: TypeSource,
    ) {
        self.memory = [self.memory, memory].into_iter().flatten().min();
        self.sources.insert(source);
        self.add(more);
    }

    /// Adds the row of a node, `count` times. Pending pods and the waiting time are not those of nodes.
    pub(super) fn add_nodes(&mut self, node: &Self, count: u32) {
        let times = |units: u64| units.saturating_mul(u64::from(count));
        let units = AddedUnits {
            capacity: times(node.capacity),
            free: times(node.free),
            could_add: times(node.could_add),
            could_become: times(node.potential),
        };
        self.sources.extend(&node.sources);
        self.memory = [self.memory, node.memory].into_iter().flatten().min();
        self.add(units);
        self.nodes = self.nodes.saturating_add(node.nodes.saturating_mul(count));
        self.allocatable = self.allocatable.saturating_add(times(node.allocatable));
        self.taken = self.taken.saturating_add(times(node.taken));
        for (why, units) in &node.unavailable {
            let all = self.unavailable.entry(*why).or_default();
            all.count = all.count.saturating_add(times(units.count));
            all.nodes = all.nodes.saturating_add(units.nodes.saturating_mul(count));
        }
    }

    fn add(&mut self, more: AddedUnits) {
        self.capacity = self.capacity.saturating_add(more.capacity);
        self.free = self.free.saturating_add(more.free);
        self.could_add = self.could_add.saturating_add(more.could_add);
        self.potential = self.potential.saturating_add(more.could_become);
    }

    /// Adds units of one more node that are unavailable.
    pub(super) fn add_unavailable(&mut self, why: UnavailableReason, count: u64) {
        if count > 0 {
            let all = self.unavailable.entry(why).or_default();
            all.count = all.count.saturating_add(count);
            all.nodes = all.nodes.saturating_add(1);
        }
    }

    /// Returns `true` if the row changes with time alone: estimates depend on how long holders have held their units.
    pub(super) fn depends_on_time(&self) -> bool {
        match self.wait {
            Wait::Likely { .. }
            | Wait::Unknown(Unknown::BeyondObserved { .. } | Unknown::TooFew { .. }) => true,
            Wait::Now
            | Wait::Deadlines { .. }
            | Wait::Unknown(Unknown::NoCluster | Unknown::NoHolders | Unknown::NoDeadline) => false,
        }
    }

    /// Returns `true` if nodes have units of the row or pods wait for them. Other rows are only possible results of
    /// repartitioning.
    pub fn is_shown(&self) -> bool {
        self.nodes > 0 || self.pending.pods > 0
    }

    /// Number of units that are neither taken nor free.
    pub fn unavailable_units(&self) -> u64 {
        self.unavailable.values().fold(0, |all, one| all.saturating_add(one.count))
    }

    /// Number of units that are neither taken nor free, and have this use.
    pub fn units_with_use(&self, wanted: DeviceUse) -> u64 {
        let of = self.unavailable.iter().filter(|(why, _)| why.device_use() == wanted);
        of.fold(0, |all, (_, one)| all.saturating_add(one.count))
    }

    /// Number of free units; `None` if it is unknown, because none is known and the use of some units is unknown.
    pub fn known_free(&self) -> Option<u64> {
        (self.free > 0 || self.units_with_use(DeviceUse::Unknown) == 0).then_some(self.free)
    }
}

impl AddedUnits {
    pub(super) fn new(capacity: u64, free: u64) -> Self {
        Self { capacity, free, ..Self::default() }
    }
}

impl Wait {
    /// Explanation for users, without the times; `None` if a unit is free.
    pub fn description(self) -> Option<String> {
        match self {
            Self::Now => None,
            Self::Deadlines { of, holders, .. } => {
                Some(format!("{of} of {holders} pods have a deadline"))
            }
            Self::Likely { to, samples, of, holders, .. } => {
                let second = if to.is_some() { " and 90 % by the second" } else { "" };
                let also = match of {
                    0 => String::new(),
                    _ => format!("; {of} of {holders} pods have a deadline"),
                };
                Some(format!(
                    "50 % probability by the first time{second}, based on the run time of {samples} earlier \
                     pods{also}"
                ))
            }
            Self::Unknown(why) => Some(why.to_string()),
        }
    }
}

impl Unknown {
    /// Number of ended workloads observed, and the start of observation in seconds since 1970.
    pub fn observations(self) -> Option<(u32, i64)> {
        match self {
            Self::NoCluster | Self::NoHolders | Self::NoDeadline => None,
            Self::TooFew { ended: samples, since } | Self::BeyondObserved { samples, since } => {
                Some((samples, since))
            }
        }
    }
}
