//! Devices with their instances, and the changes of them.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use octavo_model::profile::ProfileName;

use crate::geometry::{Geometry, Place, SetId};

/// Devices in MIG mode, whose idle instances can be replaced.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    geometries: Arc<Vec<Geometry>>,
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
    /// Its user; `None` if it is idle.
    pub user: Option<User>,
}

/// User of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// A workload that already has the instance.
    Workload,
    /// The request with this number.
    Request(usize),
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
        let geometry = self.add_geometry(geometry);
        let gpu = Gpu { geometry, in_use: Geometry::EMPTY, instances: Vec::new() };
        self.gpus.extend(std::iter::repeat_n(gpu, count));
    }

    /// Adds a model, and returns its index.
    pub(crate) fn add_geometry(&mut self, geometry: Geometry) -> usize {
        let known = self.geometries.iter().position(|known| *known == geometry);
        known.unwrap_or_else(|| {
            let geometries = Arc::make_mut(&mut self.geometries);
            geometries.push(geometry);
            geometries.len().saturating_sub(1)
        })
    }

    /// Adds a device of a model with these instances. Returns false, and changes nothing, if they do not fit together.
    pub(crate) fn add_gpu(&mut self, geometry: usize, instances: Vec<Instance>) -> bool {
        let Some(model) = self.geometries.get(geometry) else { return false };
        let mut gpu = Gpu { geometry, in_use: Geometry::EMPTY, instances };
        let in_use = model.set_of(gpu.places_in_use());
        let fits = model.set_of(gpu.instances.iter().map(|one| &one.place)).is_some();
        let Some(in_use) = in_use.filter(|_| fits) else { return false };
        gpu.in_use = in_use;
        self.gpus.push(gpu);
        true
    }

    /// These devices alone, with the same models. A reservation of another device has no effect on them.
    #[must_use]
    pub(crate) fn part(&self, gpus: Range<usize>) -> Self {
        let reservation = self.reservation.filter(|one| gpus.contains(&one.gpu));
        let reservation =
            reservation.map(|one| Reservation { gpu: one.gpu.saturating_sub(gpus.start), ..one });
        Self {
            geometries: Arc::clone(&self.geometries),
            gpus: self.gpus.get(gpus).unwrap_or_default().to_vec(),
            reservation,
        }
    }

    /// The models of the devices.
    pub fn geometries(&self) -> &[Geometry] {
        &self.geometries
    }

    /// The model of a device.
    pub(crate) fn geometry_of(&self, gpu: &Gpu) -> Option<&Geometry> {
        self.geometries.get(gpu.geometry)
    }

    /// The devices.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// The same devices without a reservation.
    #[must_use]
    pub(crate) fn without_reservation(self) -> Self {
        Self { reservation: None, ..self }
    }

    /// The same devices without instances and without a reservation.
    #[must_use]
    pub(crate) fn without_instances(mut self) -> Self {
        for gpu in &mut self.gpus {
            gpu.instances.clear();
            gpu.in_use = Geometry::EMPTY;
        }
        self.without_reservation()
    }

    /// GPU slices that no instance in use occupies.
    pub(crate) fn free_slices(&self) -> u32 {
        let free = self.gpus.iter().filter_map(|gpu| {
            self.geometries.get(gpu.geometry).map(|one| one.free_slices(gpu.in_use))
        });
        free.fold(0, u32::saturating_add)
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
            one.user.is_some() || (one.place != place && !replaced.contains(&one.place))
        });
        gpu.instances.push(Instance { place, user: Some(User::Request(holder)) });
        gpu.in_use = in_use;
        self.reservation = self.reservation.filter(|reservation| reservation.holder != holder);
        let destroyed = u32::try_from(replaced.len()).unwrap_or(u32::MAX);
        Some(Operations { created: u32::from(!exists), destroyed })
    }

    /// Releases the instances of a holder. They become idle.
    pub fn release(&mut self, gpu: usize, holder: usize) {
        self.make_idle(gpu, |one| one.user == Some(User::Request(holder)));
    }

    /// Makes the instance at this place idle, regardless of its user.
    pub(crate) fn vacate(&mut self, gpu: usize, place: Place) {
        self.make_idle(gpu, |one| one.place == place);
    }

    fn make_idle(&mut self, gpu: usize, selects: impl Fn(&Instance) -> bool) {
        let Some(gpu) = self.gpus.get_mut(gpu) else { return };
        for one in gpu.instances.iter_mut().filter(|one| selects(one)) {
            one.user = None;
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
        gpu.instances.retain(|one| one.user.is_some());
        u32::try_from(before.saturating_sub(gpu.instances.len())).unwrap_or(u32::MAX)
    }

    /// Reserves the device with the fewest slices in use that supports the profile, so that other requests no longer get instances of it.
    /// Changes nothing if a device is reserved already.
    pub fn reserve(&mut self, profile: &ProfileName, holder: usize) {
        let gpu = self.reservable(profile, |_| Some(())).first().copied();
        if let Some(gpu) = gpu.filter(|_| self.reservation.is_none()) {
            self.reserve_gpu(gpu, holder);
        }
    }

    /// The devices that support the profile, ordered by rank and then by the number of slices in use. Devices without a rank are omitted.
    pub(crate) fn reservable<Rank: Ord>(
        &self,
        profile: &ProfileName,
        rank: impl Fn(usize) -> Option<Rank>,
    ) -> Vec<usize> {
        let supporting = self.gpus.iter().enumerate().filter_map(|(index, gpu)| {
            let geometry = self.geometries.get(gpu.geometry)?;
            geometry.find(profile)?;
            Some((rank(index)?, Reverse(geometry.free_slices(gpu.in_use)), index))
        });
        let mut sorted: Vec<_> = supporting.collect();
        sorted.sort_unstable();
        sorted.into_iter().map(|(_, _, gpu)| gpu).collect()
    }

    /// Reserves a device, so that other requests no longer get instances of it.
    pub(crate) fn reserve_gpu(&mut self, gpu: usize, holder: usize) {
        self.reservation = Some(Reservation { gpu, holder });
    }

    /// The reserved device.
    pub(crate) fn reserved_gpu(&self) -> Option<usize> {
        self.reservation.map(|reservation| reservation.gpu)
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

    /// The places of its instances.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.instances.iter().map(|one| one.place).collect()
    }

    /// Returns whether an idle instance exists at this place.
    pub fn has_idle(&self, place: Place) -> bool {
        self.instances.iter().any(|one| one.user.is_none() && one.place == place)
    }

    /// Idle instances that must be destroyed for an instance at this place.
    pub fn replaced(&self, geometry: &Geometry, place: Place) -> Vec<Place> {
        let idle = self.instances.iter().filter(|one| one.user.is_none() && one.place != place);
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
        self.instances.iter().filter(|one| one.user.is_some()).map(|one| &one.place)
    }
}
