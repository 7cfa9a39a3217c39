//! Devices of a node for the ledger: from the report of its agent, and its Node and pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_fleet::cluster::{ClusterPod, ClusterSnapshot, PodKey};
use octavo_fleet::price::{PriceKey, PurchaseOption};
use octavo_fleet::summary::{DevicePlace, DeviceSummary};
use octavo_ledger::{Container, Device, DeviceState, parts};
use octavo_model::id::PciAddress;
use octavo_node::sharing::usage::{DeviceUsage, PastUsage, Tenant, Usage};
use octavo_store::fleet::Node;

/// Cluster, and the pod label that names the team.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodDirectory<'a> {
    pub(crate) cluster: Option<&'a ClusterSnapshot>,
    pub(crate) team_label: Option<&'a str>,
}

/// Devices of a node and their parts. Without usage by pod, all parts are unknown.
pub(crate) fn device_states(
    node: &Node,
    usage: Option<&Usage>,
    directory: PodDirectory<'_>,
) -> Vec<DeviceState> {
    let is_known = usage.is_some_and(|usage| !usage.are_allocations_unknown);
    let devices = usage.iter().filter(|_| is_known).flat_map(|usage| &usage.devices);
    let devices: BTreeMap<PciAddress, &DeviceUsage> =
        devices.map(|device| (device.pci, device)).collect();
    let states = node.devices.iter().map(|device| {
        let usage = match device.facts.place {
            DevicePlace::Pci(pci) => devices.get(&pci).copied(),
            DevicePlace::Neuron(_) => None,
        };
        let parts = parts(usage, |tenant| directory.container(node, tenant));
        DeviceState { device: directory.device(node, device), parts }
    });
    states.collect()
}

/// Devices of a node from each time on, as its agent reports the past.
pub(super) fn past_states(
    node: &Node,
    directory: PodDirectory<'_>,
) -> Vec<(i64, Vec<DeviceState>)> {
    let mut devices: BTreeMap<PciAddress, DeviceUsage> = BTreeMap::new();
    let past = node.past_usage().into_iter().map(|PastUsage { at, usage }| {
        devices.extend(usage.devices.into_iter().map(|device| (device.pci, device)));
        let all = Usage { devices: devices.values().cloned().collect(), ..usage };
        (at, device_states(node, Some(&all), directory))
    });
    past.collect()
}

impl PodDirectory<'_> {
    fn device(&self, node: &Node, device: &DeviceSummary) -> Device {
        let labels = self.cluster.and_then(|cluster| cluster.nodes.get(node.name.as_str()));
        let id = match (&device.facts.uuid, device.facts.place) {
            (Some(uuid), _) => uuid.to_string(),
            (None, DevicePlace::Pci(pci)) => pci.to_string(),
            (None, DevicePlace::Neuron(_)) => device.facts.name.clone(),
        };
        let price_key = device.type_name.clone().map(|type_name| match labels {
            Some(node) => PriceKey::on_node(type_name, &node.labels),
            None => PriceKey::new(type_name, PurchaseOption::default()),
        });
        Device { node: node.name.clone(), id, price_key }
    }

    fn container(&self, node: &Node, tenant: &Tenant) -> Container {
        // An agent can name any pod, but only one on its own node has this workload and team.
        let pod = self.pod(tenant).filter(|pod| pod.node.as_deref() == Some(node.name.as_str()));
        let team = pod.zip(self.team_label).and_then(|(pod, label)| pod.labels.get(label));
        Container {
            namespace: tenant.namespace.clone().unwrap_or_default(),
            pod: tenant.pod.clone().unwrap_or_default(),
            uid: tenant.uid.clone().or_else(|| tenant.unnamed_pod.clone()).unwrap_or_default(),
            container: tenant.container.clone().unwrap_or_default(),
            claim: tenant.claim.clone(),
            owner: pod.and_then(|pod| pod.owner.clone()),
            team: team.cloned(),
        }
    }

    fn pod(&self, tenant: &Tenant) -> Option<&Arc<ClusterPod>> {
        let (namespace, name) = (tenant.namespace.clone()?, tenant.pod.clone()?);
        self.cluster?.pods().get(&PodKey { namespace, name })
    }
}
