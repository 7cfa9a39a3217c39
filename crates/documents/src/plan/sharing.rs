//! Time-slicing of a device, as defined by the layout.

use octavo_model::quantity::Mebibytes;
use octavo_planner::layout::{
    ResourceRename, Share, ShareTarget, TimeSlicing, UnitRef, UnitSelector,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How many share one device or partition by turns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlannedTimeSlicing)]
pub struct TimeSlicingJson {
    /// How many share every unit of the device; absent where only some are shared, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Whether the resource of every unit is called `.shared`.
    pub rename: bool,
    /// Whether a container that asks for more than one of it is refused.
    pub fail_requests_greater_than_one: bool,
    /// How long a turn is: `short`, `medium` or `long`; absent where the driver chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    /// All that is said of sharing, one by one. Of several that are about one unit the most specific counts, else the first.
    #[serde(default)]
    pub shares: Vec<ShareJson>,
}

/// How units of one kind are shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlannedShare)]
pub struct ShareJson {
    /// A profile whose partitions are shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// A resource that is shared, by its name before it is renamed. Without profile and resource it is everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Which units of the resource, by index, `index:partition` or UUID; absent for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// The first so many units of the resource; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u32>,
    /// How many share a unit.
    pub replicas: u32,
    /// What the resource is called: `.shared` for its name with that behind it; absent where it keeps its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed_to: Option<String>,
    /// Whether a container that asks for more than one is refused.
    pub fail_requests_greater_than_one: bool,
    /// How much memory each shall be content with, in MiB; absent where all have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_per_replica_mib: Option<u64>,
}

impl From<&TimeSlicing> for TimeSlicingJson {
    fn from(sharing: &TimeSlicing) -> Self {
        let mut shares = sharing.shares.iter();
        let every = shares.find(|share| share.of == ShareTarget::AllUnits);
        Self {
            replicas: every.map(|share| share.replicas),
            rename: every.is_some_and(|share| share.rename != ResourceRename::No),
            fail_requests_greater_than_one: every
                .is_some_and(|share| share.fail_requests_greater_than_one),
            slice: sharing.slice.map(|slice| slice.as_str().to_owned()),
            shares: sharing.shares.iter().map(ShareJson::from).collect(),
        }
    }
}

impl From<&Share> for ShareJson {
    fn from(share: &Share) -> Self {
        let (profile, resource, which) = match &share.of {
            ShareTarget::AllUnits => (None, None, None),
            ShareTarget::Profile(profile) => (Some(profile.to_string()), None, None),
            ShareTarget::Resource { name, which } => (None, Some(name.to_string()), Some(which)),
        };
        let (devices, first) = match which {
            None | Some(UnitSelector::All) => (Vec::new(), None),
            Some(UnitSelector::First(count)) => (Vec::new(), Some(*count)),
            Some(UnitSelector::Listed(items)) => {
                (items.iter().map(UnitRef::to_string).collect(), None)
            }
        };
        Self {
            profile,
            resource,
            devices,
            first,
            replicas: share.replicas,
            renamed_to: match &share.rename {
                ResourceRename::No => None,
                ResourceRename::Shared => Some(".shared".to_owned()),
                ResourceRename::To(name) => Some(name.to_string()),
            },
            fail_requests_greater_than_one: share.fail_requests_greater_than_one,
            memory_per_replica_mib: share.memory_per_replica.map(Mebibytes::get),
        }
    }
}
