//! Time-slicing of a device, as defined by the layout.

use octavo_model::profile::ProfileName;
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::ResourceName;
use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::layout::{
    ResourceRename, Share, ShareTarget, TimeSlice, TimeSlicing, UnitRef, UnitSelector,
};

/// Time-slicing of a device or its partitions.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedTimeSlicing {
    /// Replicas of every unit of the device; absent if only some units are shared, or none.
    pub replicas: Option<u32>,
    /// Whether the resource of every unit has the suffix `.shared`.
    pub rename: bool,
    /// Whether a container that requests more than one is rejected.
    pub fail_requests_greater_than_one: bool,
    /// Time slice: `short`, `medium` or `long`; absent for the driver's default.
    #[schema(value_type = Option<String>)]
    pub slice: Option<TimeSlice>,
    /// All entries. If several entries match a unit, the most specific one counts, then the first.
    #[serde(default)]
    pub shares: Vec<PlannedShare>,
}

/// Time-slicing of units of one kind.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedShare {
    /// Profile whose partitions are shared.
    #[schema(value_type = Option<String>)]
    pub profile: Option<ProfileName>,
    /// Shared resource, by its name before renaming. Without profile and resource, every unit is shared.
    #[schema(value_type = Option<String>)]
    pub resource: Option<ResourceName>,
    /// Units of the resource, by index, `index:partition` or UUID; absent for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Number of units of the resource, from the first; absent for all.
    pub first: Option<u32>,
    /// Replicas per unit.
    pub replicas: u32,
    /// New name of the resource; `.shared` for a suffix, absent if it is not renamed.
    pub renamed_to: Option<String>,
    /// Whether a container that requests more than one is rejected.
    pub fail_requests_greater_than_one: bool,
    /// Memory that each replica is expected to use at most, in MiB; absent if it is divided equally.
    #[schema(value_type = Option<u64>)]
    pub memory_per_replica_mib: Option<Mebibytes>,
}

impl From<&TimeSlicing> for PlannedTimeSlicing {
    fn from(sharing: &TimeSlicing) -> Self {
        let mut shares = sharing.shares.iter();
        let every = shares.find(|share| share.of == ShareTarget::AllUnits);
        Self {
            replicas: every.map(|share| share.replicas),
            rename: every.is_some_and(|share| share.rename != ResourceRename::No),
            fail_requests_greater_than_one: every
                .is_some_and(|share| share.fail_requests_greater_than_one),
            slice: sharing.slice,
            shares: sharing.shares.iter().map(PlannedShare::from).collect(),
        }
    }
}

impl From<&Share> for PlannedShare {
    fn from(share: &Share) -> Self {
        let (profile, resource, which) = match share.of.clone() {
            ShareTarget::AllUnits => (None, None, UnitSelector::All),
            ShareTarget::Profile(profile) => (Some(profile), None, UnitSelector::All),
            ShareTarget::Resource { name, which } => (None, Some(name), which),
        };
        let (devices, first) = match which {
            UnitSelector::All => (Vec::new(), None),
            UnitSelector::First(count) => (Vec::new(), Some(count)),
            UnitSelector::Listed(items) => (items.iter().map(UnitRef::to_string).collect(), None),
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
            memory_per_replica_mib: share.memory_per_replica,
        }
    }
}
