//! Observed devices in MIG mode.

use std::collections::BTreeMap;

use octavo_fleet::cluster::Amounts;
use octavo_model::catalog::ProfileCatalog;
use octavo_model::holder::Holder;
use octavo_model::inventory::{Condition, Device, GpuInstance, Inventory, Mig, MigMode, MigState};
use octavo_model::resource::ResourceName;
use octavo_model::sharing_status::{DeviceProvider, SharingStatus};
use octavo_planner::plan::is_in_use;

use crate::fleet::{Fleet, Instance, User};
use crate::geometry::{Geometry, Place};

/// Report of a node's agent.
#[derive(Debug, Clone)]
pub struct ObservedNode {
    /// Name of the node.
    pub name: String,
    /// Its devices.
    pub inventory: Inventory,
    /// Known users of its devices.
    pub holders: Vec<Holder>,
    /// Allocation of its devices.
    pub sharing: Option<SharingStatus>,
    /// True if the report is recent and lists the users of all devices.
    pub is_reliable: bool,
}

/// A device in the fleet.
#[derive(Debug, Clone)]
pub(crate) struct ObservedDevice {
    /// PCI address.
    pub(crate) pci: String,
    /// Name: `GPU 3`.
    pub(crate) name: String,
    /// Its instances before the proposals.
    pub(crate) before: Vec<Place>,
}

/// Geometries by table of profiles, because most devices are identical.
#[derive(Debug, Default)]
pub(crate) struct Models {
    known: Vec<(ProfileCatalog, Option<usize>)>,
}

impl ObservedNode {
    /// Returns whether any of its devices is in MIG mode.
    pub(crate) fn has_mig(&self) -> bool {
        self.mig_devices().next().is_some()
    }

    /// Returns whether the node would offer a new instance under this resource name, for one pod only.
    pub(crate) fn offers(&self, resource: &str) -> bool {
        let Some(sharing) = &self.sharing else { return true };
        if sharing.mode == DeviceProvider::Dra {
            return false;
        }
        let mut resources = sharing.resources.iter();
        let offered = resources.find(|offered| offered.name.as_str() == resource);
        offered.is_none_or(|offered| offered.units.iter().all(|unit| unit.replicas.is_none()))
    }

    /// Adds its devices in MIG mode to the fleet. Devices whose instances are not fully known are not added. `held` are the amounts that
    /// pods hold on the node: if they are more than the instances in use, a pod can be about to use an idle instance.
    pub(crate) fn add_to(
        &self,
        fleet: &mut Fleet,
        models: &mut Models,
        held: Option<&Amounts>,
    ) -> Vec<ObservedDevice> {
        let usage = self.used_by_resource();
        let is_expected = |geometry: &Geometry, place: Place| {
            let profile = geometry.profiles().get(place.profile);
            let resource = profile.map(|profile| ResourceName::mig(&profile.name).to_string());
            resource.is_none_or(|resource| {
                let held = held.map_or(0, |held| held.get(&resource));
                held > usage.get(&resource).copied().unwrap_or(0)
            })
        };
        let mut added = Vec::new();
        for (device, state) in self.mig_devices() {
            let Some(model) = models.of(state, fleet) else { continue };
            let Some(geometry) = fleet.geometries().get(model) else { continue };
            let instances = state.gpu_instances.iter().map(|instance| {
                let place = geometry.place(instance.profile_id, instance.placement)?;
                let is_used = is_in_use(device, &self.holders, instance)
                    || !is_offered_whole(state, instance)
                    || is_expected(geometry, place);
                Some(Instance { place, user: is_used.then_some(User::Workload) })
            });
            let Some(instances) = instances.collect::<Option<Vec<Instance>>>() else { continue };
            let before = instances.iter().map(|one| one.place).collect();
            if fleet.add_gpu(model, instances) {
                let name = device.index.map(|index| format!("GPU {index}"));
                let name = name.unwrap_or_else(|| device.pci.to_string());
                added.push(ObservedDevice { pci: device.pci.to_string(), name, before });
            }
        }
        added
    }

    /// Its working devices in MIG mode whose instances are known completely.
    fn mig_devices(&self) -> impl Iterator<Item = (&Device, &MigState)> {
        self.inventory.devices.iter().filter_map(|device| {
            let Mig::Capable(state) = &device.mig else { return None };
            let is_stable = state.current == MigMode::Enabled && state.pending == MigMode::Enabled;
            let is_usable = device.condition == Condition::Working && device.mig.is_fully_known();
            (is_stable && is_usable).then_some((device, state))
        })
    }

    /// Number of instances in use by resource.
    fn used_by_resource(&self) -> BTreeMap<String, u64> {
        let mut used: BTreeMap<String, u64> = BTreeMap::new();
        for (device, state) in self.mig_devices() {
            let instances = state.gpu_instances.iter();
            for instance in instances.filter(|one| is_in_use(device, &self.holders, one)) {
                if let Some(profile) = state.catalog.by_id(instance.profile_id) {
                    let count =
                        used.entry(ResourceName::mig(&profile.name).to_string()).or_default();
                    *count = count.saturating_add(1);
                }
            }
        }
        used
    }
}

impl Models {
    fn of(&mut self, state: &MigState, fleet: &mut Fleet) -> Option<usize> {
        let known = self.known.iter().find(|(catalog, _)| *catalog == state.catalog);
        if let Some((_, model)) = known {
            return *model;
        }
        let geometry = Geometry::new(state, |_| true).ok();
        let model = geometry.map(|geometry| fleet.add_geometry(geometry));
        self.known.push((state.catalog.clone(), model));
        model
    }
}

/// Returns whether the instance has one compute instance with all its slices, as device plugins offer it under its profile's name.
fn is_offered_whole(state: &MigState, instance: &GpuInstance) -> bool {
    let [compute] = instance.compute_instances.as_slice() else { return false };
    let Some(profile) = state.catalog.by_id(instance.profile_id) else { return false };
    let slices = compute.resources.map(|resources| resources.compute_slices);
    let slices = slices.or_else(|| compute.placement.map(|placement| placement.size));
    slices.is_none_or(|slices| slices == u32::from(profile.name.gpu_slices()))
}
