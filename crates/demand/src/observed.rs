//! Observed devices in MIG mode.

use std::collections::{BTreeMap, BTreeSet};

use octavo_fleet::cluster::{ClusterNode, ClusterPod, PodKey};
use octavo_model::catalog::{Placement, ProfileCatalog};
use octavo_model::holder::Holder;
use octavo_model::inventory::{
    Condition, Device, DeviceProcesses, GpuInstance, Inventory, Mig, MigMode, MigState,
};
use octavo_model::resource::ResourceName;
use octavo_model::sharing_status::{DeviceProvider, SharingStatus, UnitStatus};
use octavo_node::mig_strategy::MigStrategy;
use octavo_planner::plan::is_in_use;
use octavo_planner::plan::messages::PlanFormatter;
use octavo_policy::PolicyDemand;

use crate::fleet::{Fleet, Instance, User};
use crate::geometry::{Geometry, Place};

/// Maximum number of additions to the sets of all models, because agents choose what they report. An H100 has about 7,000.
const MAX_ADDITIONS: usize = 1 << 20;
/// Maximum number of models of a node that no earlier node has.
const MAX_NEW_MODELS: usize = 4;

/// Label with the strategy of NVIDIA's device plugin.
const STRATEGY: &str = "nvidia.com/mig.strategy";
/// Prefix of the resource names of instances.
const MIG_RESOURCE: &str = "nvidia.com/mig-";

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
    /// True if the agent has not reported recently.
    pub is_stale: bool,
    /// True if `holders` lists the users of all devices.
    pub are_users_known: bool,
    /// Settings of the policy that can carry out proposals for the node; the default only reports them.
    pub demand: PolicyDemand,
    /// Pods for which its policy proposes or makes a change of the node, as `namespace/name`.
    pub changed_for: BTreeSet<String>,
    /// PCI address of the device that its policy reserves, or proposes to reserve, for such a pod.
    pub reserved_device: Option<String>,
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

/// Devices of a node that are planned.
#[derive(Debug, Default)]
pub(crate) struct ObservedDevices {
    /// The devices.
    pub(crate) devices: Vec<ObservedDevice>,
    /// True if others are in MIG mode, but cannot be planned.
    pub(crate) are_incomplete: bool,
    /// Resource names of the profiles whose instances the node offers in another way: in time slices, or under another name.
    pub(crate) shared: BTreeSet<String>,
}

/// Offered devices and partitions by UUID, with their resource.
type Units<'a> = BTreeMap<&'a str, (&'a str, &'a UnitStatus)>;

/// Geometries by table of profiles, because most devices are identical. Only devices with a requested profile have one.
#[derive(Debug)]
pub(crate) struct Models<'a> {
    requested: BTreeSet<&'a str>,
    known: Vec<(ProfileCatalog, Model)>,
    additions: usize,
}

#[derive(Debug, Clone, Copy)]
enum Model {
    /// Index in the fleet.
    Planned(usize),
    /// No pod requests one of its profiles.
    NotRequested,
    /// Its table of profiles is invalid or too large.
    Unsupported,
}

impl ObservedNode {
    /// Returns whether any of its devices is in MIG mode.
    pub(crate) fn has_mig(&self) -> bool {
        self.mig_devices().next().is_some()
    }

    /// Returns whether the node would offer new instances under the resource names of their profiles. Without any sign of the strategy
    /// `mixed`, it would not.
    pub(crate) fn offers_profiles(&self, node: &ClusterNode) -> bool {
        let strategy = node.label(STRATEGY).and_then(|word| word.parse::<MigStrategy>().ok());
        let provider = self.sharing.as_ref().and_then(|sharing| sharing.mode.known());
        if strategy == Some(MigStrategy::Single) || provider == Some(DeviceProvider::Dra) {
            return false;
        }
        let resources = self.sharing.iter().flat_map(|sharing| &sharing.resources);
        let mut names = resources.map(|resource| resource.name.as_str());
        strategy == Some(MigStrategy::Mixed)
            || provider == Some(DeviceProvider::Embedded)
            || names.any(|name| name.starts_with(MIG_RESOURCE))
            || node.allocatable.iter().any(|(name, _)| name.starts_with(MIG_RESOURCE))
    }

    /// Adds its devices in MIG mode to the fleet. `bound` are the pods on the node that request instances.
    pub(crate) fn add_to(
        &self,
        fleet: &mut Fleet,
        models: &mut Models<'_>,
        bound: &[&ClusterPod],
    ) -> ObservedDevices {
        let expected = self.expected_resources(bound);
        let units = self.units();
        let shared = self.shared_resources(&units);
        let mut found = ObservedDevices { shared, ..ObservedDevices::default() };
        let mut new_models = 0_usize;
        for (device, state) in self.mig_devices() {
            if !models.knows(state) {
                new_models = new_models.saturating_add(1);
            }
            let model = if new_models > MAX_NEW_MODELS {
                Model::Unsupported
            } else {
                models.model(state, fleet)
            };
            let index = match model {
                Model::Planned(index) => index,
                Model::NotRequested => continue,
                Model::Unsupported => {
                    found.are_incomplete = true;
                    continue;
                }
            };
            let formatter = PlanFormatter::new(&self.inventory, device.pci);
            let is_idle = |instance: &GpuInstance, resource: &str| {
                !is_in_use(device, &self.holders, instance)
                    && !expected.contains(resource)
                    && is_whole(&formatter, instance)
                    && is_offered(instance, resource, &units)
            };
            let instances = fleet.geometries().get(index).and_then(|geometry| {
                let each = state.gpu_instances.iter().map(|instance| {
                    let place = geometry.place(instance.profile_id, instance.placement)?;
                    let profile = geometry.profiles().get(place.profile)?;
                    let is_idle = is_idle(instance, ResourceName::mig(&profile.name).as_str());
                    Some(Instance { place, user: (!is_idle).then_some(User::Workload) })
                });
                each.collect::<Option<Vec<Instance>>>()
            });
            let before = instances.iter().flatten().map(|one| one.place).collect();
            let is_usable = device.condition == Condition::Working && device.mig.is_fully_known();
            let instances = instances.filter(|_| is_usable && is_stable(state));
            if instances.is_some_and(|instances| fleet.add_gpu(index, instances)) {
                let name = formatter.device(device.pci);
                found.devices.push(ObservedDevice { pci: device.pci.to_string(), name, before });
            } else {
                found.are_incomplete = true;
            }
        }
        found
    }

    /// The pod that is the only user of an instance; `None` if there is another user, or its pod is unknown.
    pub(crate) fn only_user(
        &self,
        pci: &str,
        profile: u32,
        placement: Placement,
    ) -> Option<PodKey> {
        let (device, state) =
            self.mig_devices().find(|(device, _)| device.pci.to_string() == pci)?;
        let mut instances = state.gpu_instances.iter();
        let instance =
            instances.find(|one| one.profile_id == profile && one.placement == placement)?;
        let DeviceProcesses::Known(processes) = device.usage() else { return None };
        let is_inside = |of: Option<u32>| of.is_none_or(|id| id == instance.id);
        let holders = self.holders.iter().filter(|one| one.device == device.pci);
        let holders: Vec<&Holder> = holders.filter(|one| is_inside(one.gpu_instance)).collect();
        // The agent reports the pod of each process that it can attribute.
        let known: BTreeSet<u32> = holders.iter().filter_map(|one| one.details.pid).collect();
        let mut processes = processes.iter().filter(|one| is_inside(one.gpu_instance));
        let pods: BTreeSet<Option<PodKey>> = holders.iter().map(|one| pod_key(one)).collect();
        let is_complete = processes.all(|one| known.contains(&one.pid)) && pods.len() == 1;
        pods.into_iter().next().flatten().filter(|_| is_complete)
    }

    /// Its devices in MIG mode.
    fn mig_devices(&self) -> impl Iterator<Item = (&Device, &MigState)> {
        self.inventory.devices.iter().filter_map(|device| match &device.mig {
            Mig::Capable(state) if state.current == MigMode::Enabled => Some((device, state)),
            Mig::Capable(_) | Mig::NotCapable | Mig::Unknown => None,
        })
    }

    /// Resources of bound pods whose devices are not known yet. Any idle instance of them can be that of the pod.
    fn expected_resources<'a>(&self, bound: &[&'a ClusterPod]) -> BTreeSet<&'a str> {
        let pods = self.holders.iter().filter_map(|holder| holder.details.pod.as_ref());
        let known: BTreeSet<(&str, &str)> =
            pods.filter_map(|pod| pod.namespace.as_deref().zip(pod.name.as_deref())).collect();
        let missing = bound.iter().filter(|pod| {
            let key = &pod.key;
            !known.contains(&(key.namespace.as_str(), key.name.as_str()))
        });
        let resources = missing.flat_map(|pod| pod.requirements.amounts.accelerators());
        resources.map(|(resource, _)| resource).collect()
    }

    /// Offered devices and partitions by UUID, with their resource.
    fn units(&self) -> Units<'_> {
        let resources = self.sharing.iter().flat_map(|sharing| &sharing.resources);
        let units = resources.flat_map(|resource| {
            resource.units.iter().map(|unit| (unit.uuid.as_str(), (resource.name.as_str(), unit)))
        });
        units.collect()
    }

    /// See [`ObservedDevices::shared`].
    fn shared_resources(&self, units: &Units<'_>) -> BTreeSet<String> {
        let mut shared = BTreeSet::new();
        for (_, state) in self.mig_devices() {
            for instance in &state.gpu_instances {
                let Some(profile) = state.catalog.by_id(instance.profile_id) else { continue };
                let resource = ResourceName::mig(&profile.name).to_string();
                let unit = uuid(instance).and_then(|uuid| units.get(uuid.as_str()));
                let is_exclusive =
                    unit.is_none_or(|(name, unit)| *name == resource && unit.replicas.is_none());
                if !is_exclusive {
                    shared.insert(resource);
                }
            }
        }
        shared
    }
}

impl<'a> Models<'a> {
    /// Models with any of these resources.
    pub(crate) fn new(requested: BTreeSet<&'a str>) -> Self {
        Self { requested, known: Vec::new(), additions: 0 }
    }

    fn knows(&self, state: &MigState) -> bool {
        self.known.iter().any(|(catalog, _)| *catalog == state.catalog)
    }

    fn model(&mut self, state: &MigState, fleet: &mut Fleet) -> Model {
        let known = self.known.iter().find(|(catalog, _)| *catalog == state.catalog);
        if let Some((_, model)) = known {
            return *model;
        }
        let mut names = state.catalog.profiles().iter().map(|profile| &profile.name);
        let is_requested =
            names.any(|name| self.requested.contains(ResourceName::mig(name).as_str()));
        let model = if is_requested { self.add(state, fleet) } else { Model::NotRequested };
        self.known.push((state.catalog.clone(), model));
        model
    }

    fn add(&mut self, state: &MigState, fleet: &mut Fleet) -> Model {
        if self.additions >= MAX_ADDITIONS {
            return Model::Unsupported;
        }
        let Ok(geometry) = Geometry::new(state, |_| true) else { return Model::Unsupported };
        self.additions = self.additions.saturating_add(geometry.addition_count());
        if self.additions > MAX_ADDITIONS {
            return Model::Unsupported;
        }
        Model::Planned(fleet.add_geometry(geometry))
    }
}

/// The pod of a holder, if its name is known.
fn pod_key(holder: &Holder) -> Option<PodKey> {
    let pod = holder.details.pod.as_ref()?;
    Some(PodKey { namespace: pod.namespace.clone()?, name: pod.name.clone()? })
}

fn is_stable(state: &MigState) -> bool {
    state.pending == MigMode::Enabled
}

/// UUID of the only compute instance.
fn uuid(instance: &GpuInstance) -> Option<String> {
    let [compute] = instance.compute_instances.as_slice() else { return None };
    compute.uuid.as_ref().map(ToString::to_string)
}

/// Returns whether a pod that requests the resource can be allocated the instance. Without a list of units, it is offered.
fn is_offered(instance: &GpuInstance, resource: &str, units: &Units<'_>) -> bool {
    let unit = uuid(instance).and_then(|uuid| units.get(uuid.as_str()).copied());
    match unit {
        Some((name, unit)) => {
            name == resource && unit.replicas.is_none() && unit.health.is_healthy()
        }
        None => units.is_empty(),
    }
}

/// Returns whether the instance has one compute instance with all its slices, as device plugins offer it under its profile's name.
fn is_whole(formatter: &PlanFormatter<'_>, instance: &GpuInstance) -> bool {
    let [slices] = formatter.compute_slices(instance)[..] else { return false };
    slices.is_none_or(|slices| formatter.is_whole(instance.profile_id, &[slices]))
}
