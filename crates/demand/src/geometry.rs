//! All sets of instances that devices of one model can have.

use std::collections::{BTreeMap, VecDeque};

use octavo_model::catalog::{GpuInstanceProfile, Placement};
use octavo_model::inventory::MigState;
use octavo_model::profile::ProfileName;
use octavo_planner::plan::{Combinations, PlacementBits};
use thiserror::Error;

/// Maximum number of sets. An H100 has 723 with six profiles; every profile of every known device has fewer than 20,000.
const MAX_SETS: usize = 1 << 16;

/// Maximum number of additions to all sets.
const MAX_ADDITIONS: usize = 1 << 20;

/// The sets of instances that fit on a device, with the instances that can be added to each. Sets that differ only in the order of
/// creation are one set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    profiles: Vec<Profile>,
    sets: Vec<InstanceSet>,
    index: BTreeMap<Occupancy, SetId>,
}

/// A profile of the devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The driver's id.
    pub id: u32,
    /// Name, such as `3g.40gb`.
    pub name: ProfileName,
    /// GPU slices of an instance.
    pub slices: u32,
    /// Memory slices of an instance.
    pub memory_slices: u32,
}

/// Index of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(usize);

/// A profile at a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Index of the profile in [`Geometry::profiles`].
    pub profile: usize,
    /// Placement in memory slices.
    pub placement: Placement,
    bits: u64,
}

/// An instance that fits beside those of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addition {
    /// The instance.
    pub place: Place,
    /// The set with it.
    pub to: SetId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct InstanceSet {
    free_slices: u32,
    additions: Vec<Addition>,
}

/// What determines the instances that can be added: the occupied memory slices, and the number of instances of each profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Occupancy {
    bits: u64,
    counts: Vec<u32>,
}

/// Reason why the sets of a device cannot be enumerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// The driver reports no profile with placements.
    #[error("the device reports no MIG profiles with placements")]
    NoProfiles,
    /// The table of profiles is larger than that of any known device.
    #[error("the profiles of the device allow more combinations than any known device")]
    TooLarge,
}

impl Profile {
    /// GPU slices and memory slices of an instance.
    pub(crate) fn size(&self) -> (u32, u32) {
        (self.slices, self.memory_slices)
    }
}

impl SetId {
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

impl Place {
    /// Returns whether two instances need the same memory slice.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.bits & other.bits != 0
    }
}

impl Geometry {
    /// The set without instances.
    pub const EMPTY: SetId = SetId(0);

    /// Enumerates the sets of the device's profiles for which `includes` is true.
    pub fn new(
        state: &MigState,
        includes: impl Fn(&GpuInstanceProfile) -> bool,
    ) -> Result<Self, GeometryError> {
        let combinations = Combinations::from_state(state).ok_or(GeometryError::TooLarge)?;
        let all: Vec<(&GpuInstanceProfile, Vec<PlacementBits>)> = combinations.profiles().collect();
        let mut profiles = Vec::new();
        let mut places = Vec::new();
        // Positions of the included profiles in the driver's order, which the rules need.
        let mut positions = Vec::new();
        for (position, (source, placements)) in all.iter().enumerate() {
            if placements.is_empty() || !includes(source) {
                continue;
            }
            let profile = profiles.len();
            places.extend(placements.iter().map(|place| Place {
                profile,
                placement: place.placement,
                bits: place.bits,
            }));
            positions.push(position);
            profiles.push(Profile {
                id: source.id,
                name: source.name.clone(),
                slices: source.resources.gpu_slices,
                memory_slices: placements.iter().map(|one| one.placement.size).max().unwrap_or(0),
            });
        }
        if profiles.is_empty() {
            return Err(GeometryError::NoProfiles);
        }
        let slices = all.iter().map(|(source, _)| source.resources.gpu_slices).max().unwrap_or(0);
        let allows = |counts: &[u32]| {
            let mut by_position = vec![0; all.len()];
            for (position, count) in positions.iter().zip(counts) {
                if let Some(slot) = by_position.get_mut(*position) {
                    *slot = *count;
                }
            }
            combinations.allows(&by_position)
        };
        let (sets, index) = enumerate(&profiles, &places, slices, allows)?;
        Ok(Self { profiles, sets, index })
    }

    /// The profiles, in the order of NVML's profile index.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// Index of the profile with this name.
    pub fn find(&self, name: &ProfileName) -> Option<usize> {
        self.profiles.iter().position(|profile| profile.name == *name)
    }

    /// All sets.
    pub fn sets(&self) -> impl Iterator<Item = SetId> + use<> {
        (0..self.sets.len()).map(SetId)
    }

    /// GPU slices that no instance of the set occupies.
    pub fn free_slices(&self, set: SetId) -> u32 {
        self.sets.get(set.0).map_or(0, |set| set.free_slices)
    }

    /// Instances that fit beside those of the set, ordered by profile and placement.
    pub fn additions(&self, set: SetId) -> &[Addition] {
        self.sets.get(set.0).map_or(&[], |set| &set.additions)
    }

    /// Instances of this profile that fit beside those of the set.
    pub fn additions_of(&self, set: SetId, profile: usize) -> impl Iterator<Item = &Addition> {
        self.additions(set).iter().filter(move |addition| addition.place.profile == profile)
    }

    /// Number of additions to all sets.
    pub(crate) fn addition_count(&self) -> usize {
        self.sets.iter().map(|set| set.additions.len()).fold(0, usize::saturating_add)
    }

    /// The place of an instance that the driver reports; `None` if the geometry has no such profile or placement.
    pub fn place(&self, profile_id: u32, placement: Placement) -> Option<Place> {
        let profile = self.profiles.iter().position(|profile| profile.id == profile_id)?;
        let mut additions = self.additions_of(Self::EMPTY, profile);
        additions.find(|one| one.place.placement == placement).map(|one| one.place)
    }

    /// The set of these instances; `None` if they do not fit together.
    pub fn set_of<'a>(&self, places: impl IntoIterator<Item = &'a Place>) -> Option<SetId> {
        let mut occupancy = Occupancy::empty(self.profiles.len());
        for place in places {
            if occupancy.bits & place.bits != 0 {
                return None;
            }
            occupancy.add(place);
        }
        self.index.get(&occupancy).copied()
    }
}

impl Occupancy {
    fn empty(profiles: usize) -> Self {
        Self { bits: 0, counts: vec![0; profiles] }
    }

    fn add(&mut self, place: &Place) {
        self.bits |= place.bits;
        if let Some(count) = self.counts.get_mut(place.profile) {
            *count = count.saturating_add(1);
        }
    }
}

type Sets = (Vec<InstanceSet>, BTreeMap<Occupancy, SetId>);

/// Enumerates the sets breadth first from the empty one.
fn enumerate(
    profiles: &[Profile],
    places: &[Place],
    slices: u32,
    allows: impl Fn(&[u32]) -> bool,
) -> Result<Sets, GeometryError> {
    let empty = Occupancy::empty(profiles.len());
    let mut index = BTreeMap::from([(empty.clone(), SetId(0))]);
    let mut sets = Vec::new();
    let mut addition_count = 0_usize;
    let mut queue = VecDeque::from([empty]);
    while let Some(occupancy) = queue.pop_front() {
        let mut additions = Vec::new();
        for place in places.iter().filter(|place| place.bits & occupancy.bits == 0) {
            let mut next = occupancy.clone();
            next.add(place);
            let next_id = SetId(index.len());
            let to = match index.get(&next) {
                Some(known) => *known,
                None if !allows(&next.counts) => continue,
                None => {
                    index.insert(next.clone(), next_id);
                    queue.push_back(next);
                    next_id
                }
            };
            additions.push(Addition { place: *place, to });
        }
        addition_count = addition_count.saturating_add(additions.len());
        let used = profiles.iter().zip(&occupancy.counts);
        let used = used.map(|(profile, count)| profile.slices.saturating_mul(*count));
        let used = used.fold(0_u32, u32::saturating_add);
        sets.push(InstanceSet { free_slices: slices.saturating_sub(used), additions });
        if index.len() > MAX_SETS || addition_count > MAX_ADDITIONS {
            return Err(GeometryError::TooLarge);
        }
    }
    Ok((sets, index))
}
