//! Devices with their instances, and the changes of them.

use std::cmp::Reverse;

use octavo_model::profile::ProfileName;

use crate::geometry::{Geometry, Place, SetId};

/// Devices in MIG mode, whose idle instances can be replaced.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    geometries: Vec<Geometry>,
    gpus: Vec<Gpu>,
    reservation: Option<Reservation>,
}

/// A device from which only one request gets an instance.
#[derive(Debug, Clone, Copy)]
struct Reservation {
    gpu: usize,
    holder: usize,
}

/// A device.
#[derive(Debug, Clone)]
pub struct Gpu {
    geometry: usize,
    in_use: SetId,
    instances: Vec<Instance>,
}

/// An existing instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instance {
    /// Profile and placement.
    pub place: Place,
    /// The request that it is allocated to; `None` if it is idle.
    pub holder: Option<usize>,
}

/// Created and destroyed instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Operations {
    /// Number of created instances.
    pub created: u32,
    /// Number of destroyed instances, all of them idle.
    pub destroyed: u32,
}

impl Fleet {
    /// Adds devices of one model without instances.
    pub fn add(&mut self, geometry: Geometry, count: usize) {
        let known = self.geometries.iter().position(|known| *known == geometry);
        let geometry = known.unwrap_or_else(|| {
            self.geometries.push(geometry);
            self.geometries.len().saturating_sub(1)
        });
        let gpu = Gpu { geometry, in_use: Geometry::EMPTY, instances: Vec::new() };
        self.gpus.extend(std::iter::repeat_n(gpu, count));
    }

    /// The models of the devices.
    pub fn geometries(&self) -> &[Geometry] {
        &self.geometries
    }

    /// The devices.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// GPU slices of all devices.
    pub fn slices(&self) -> u32 {
        let slices = self.gpus.iter().filter_map(|gpu| {
            self.geometries.get(gpu.geometry).map(|one| one.free_slices(Geometry::EMPTY))
        });
        slices.fold(0, u32::saturating_add)
    }

    /// GPU slices of an instance of the profile on the first model that has it.
    pub fn slices_of(&self, profile: &ProfileName) -> Option<u32> {
        let mut found = self.geometries.iter().filter_map(|geometry| {
            geometry.find(profile).and_then(|index| geometry.profiles().get(index))
        });
        found.next().map(|profile| profile.slices)
    }

    /// Allocates an instance at this place, and creates it if none is idle there. Idle instances in conflict with it are destroyed.
    /// A reservation for the holder ends.
    ///
    /// Returns `None`, and changes nothing, if the instances in use leave no room.
    pub fn allocate(&mut self, gpu: usize, place: Place, holder: usize) -> Option<Operations> {
        let gpu = self.gpus.get_mut(gpu)?;
        let geometry = self.geometries.get(gpu.geometry)?;
        let in_use = geometry.set_of(gpu.places_in_use().chain([&place]))?;
        let replaced = gpu.replaced(geometry, place);
        let exists = gpu.has_idle(place);
        gpu.instances.retain(|one| {
            one.holder.is_some() || (one.place != place && !replaced.contains(&one.place))
        });
        gpu.instances.push(Instance { place, holder: Some(holder) });
        gpu.in_use = in_use;
        self.reservation = self.reservation.filter(|reservation| reservation.holder != holder);
        let destroyed = u32::try_from(replaced.len()).unwrap_or(u32::MAX);
        Some(Operations { created: u32::from(!exists), destroyed })
    }

    /// Releases the instances of a holder. They become idle.
    pub fn release(&mut self, gpu: usize, holder: usize) {
        let Some(gpu) = self.gpus.get_mut(gpu) else { return };
        for one in gpu.instances.iter_mut().filter(|one| one.holder == Some(holder)) {
            one.holder = None;
        }
        if let Some(geometry) = self.geometries.get(gpu.geometry) {
            // A part of a set that fits also fits.
            gpu.in_use = geometry.set_of(gpu.places_in_use()).unwrap_or(gpu.in_use);
        }
    }

    /// Destroys the idle instances of a device. Returns their number.
    pub fn destroy_idle(&mut self, gpu: usize) -> u32 {
        let Some(gpu) = self.gpus.get_mut(gpu) else { return 0 };
        let before = gpu.instances.len();
        gpu.instances.retain(|one| one.holder.is_some());
        u32::try_from(before.saturating_sub(gpu.instances.len())).unwrap_or(u32::MAX)
    }

    /// Reserves the device with the fewest slices in use that supports the profile, so that other requests no longer get instances of it.
    /// Changes nothing if a device is reserved already.
    pub fn reserve(&mut self, profile: &ProfileName, holder: usize) {
        if self.reservation.is_some() {
            return;
        }
        let supporting = self.gpus.iter().enumerate().filter_map(|(index, gpu)| {
            let geometry = self.geometries.get(gpu.geometry)?;
            geometry.find(profile)?;
            Some((index, geometry.free_slices(gpu.in_use)))
        });
        let emptiest = supporting.min_by_key(|(_, free)| Reverse(*free));
        self.reservation = emptiest.map(|(gpu, _)| Reservation { gpu, holder });
    }

    /// The holder that a device is reserved for.
    pub fn reserved_for(&self) -> Option<usize> {
        self.reservation.map(|reservation| reservation.holder)
    }

    /// Returns whether the holder may get an instance of the device.
    pub fn is_open_to(&self, gpu: usize, holder: usize) -> bool {
        self.reservation.is_none_or(|reserved| reserved.gpu != gpu || reserved.holder == holder)
    }
}

impl Gpu {
    /// Index of its model in [`Fleet::geometries`].
    pub fn geometry(&self) -> usize {
        self.geometry
    }

    /// The set of its instances in use.
    pub fn in_use(&self) -> SetId {
        self.in_use
    }

    /// Its instances.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// Returns whether an idle instance exists at this place.
    pub fn has_idle(&self, place: Place) -> bool {
        self.instances.iter().any(|one| one.holder.is_none() && one.place == place)
    }

    /// Idle instances that must be destroyed for an instance at this place.
    pub fn replaced(&self, geometry: &Geometry, place: Place) -> Vec<Place> {
        let idle = self.instances.iter().filter(|one| one.holder.is_none() && one.place != place);
        let mut retained: Vec<Place> = self.places_in_use().copied().chain([place]).collect();
        let mut replaced = Vec::new();
        for one in idle {
            // Some rules do not depend on placements, so an instance elsewhere on the device can be in conflict too.
            retained.push(one.place);
            if geometry.set_of(&retained).is_none() {
                retained.pop();
                replaced.push(one.place);
            }
        }
        replaced
    }

    fn places_in_use(&self) -> impl Iterator<Item = &Place> {
        self.instances.iter().filter(|one| one.holder.is_some()).map(|one| &one.place)
    }
}
