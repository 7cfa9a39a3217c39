//! Difference between the effective and the desired offer, and the faults that cause it.

use std::collections::{BTreeMap, BTreeSet};

use octavo_kubelet::device_plugin::{DevicePluginReport, KubeletReport};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, Device, Inventory, Mig, Vendor};
use octavo_model::reason::Reason;
use octavo_model::resource::ResourceName;
use octavo_model::sharing_status::{
    DeviceProvider, Health, ResourceStatus, SharingStatus, UnitStatus,
};
use octavo_node::sharing::listing::{ListedId, ListedResource, Listing};
use octavo_node::sharing::slice_length::SliceLengths;
use octavo_node::sharing::{Offer, Offers, Unit};
use octavo_planner::plan::messages::PlanFormatter;

use super::super::Observation;

/// Maximum number of pods that are named in a message; more are only counted.
const MAX_NAMED_PODS: usize = 5;

/// Everything that the status is computed from.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatusInputs<'a> {
    pub(super) observation: Observation<'a>,
    pub(super) offers: &'a Offers,
    pub(super) listing: &'a Listing,
    pub(super) report: &'a DevicePluginReport,
    pub(super) kubelet: &'a KubeletReport,
    /// Devices whose partitioning is not as desired.
    pub(super) waiting: &'a [PciAddress],
    /// The subset of `waiting` whose units are not newly offered.
    pub(super) unknown: &'a BTreeSet<PciAddress>,
    pub(super) warnings: &'a [String],
    /// Why containers would not receive their devices.
    pub(super) undelivered: Option<&'a str>,
    /// Faults that do not affect other offers: failing devices, devices that the MIG strategy excludes, and wrong time
    /// slices.
    pub(super) beside: [Option<&'a SharingFault>; 3],
    pub(super) is_decided: bool,
}

/// Reason why the desired offer is not effective.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SharingFault {
    /// Whether only others can resolve it, so that no deadline applies.
    is_external: bool,
    reason: Reason,
    message: String,
}

impl SharingFault {
    fn pending(message: String) -> Self {
        Self { is_external: false, reason: Reason::SharingPending, message }
    }

    fn external(reason: Reason, message: String) -> Self {
        Self { is_external: true, reason, message }
    }
}

/// Returns the fault of devices with wrong time slices. Everything is offered nevertheless.
pub(super) fn time_slice_fault(
    inventory: &Inventory,
    slices: &SliceLengths,
) -> Option<SharingFault> {
    let mut pending = Vec::new();
    let mut refused: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for unmet in slices.unmet() {
        let device = PlanFormatter::new(inventory, unmet.pci).device(unmet.pci);
        let length = unmet.length.map_or("the driver's default", |one| one.as_str());
        match unmet.reason {
            Some(reason) => refused.entry((length, reason)).or_default().push(device),
            None => pending.push(device),
        }
    }
    let describe = |((length, reason), devices): ((&str, &str), Vec<String>)| {
        format!(
            "cannot set the time-slice duration of {} to {length}: {reason}",
            devices.join(", ")
        )
    };
    let refused: Vec<String> = refused.into_iter().map(describe).collect();
    if !refused.is_empty() {
        let message = format!(
            "{}; the devices are allocated nevertheless, and the duration is retried within 10 minutes: check the program of \
             --nvidia-smi, or remove `slice` from the layout",
            refused.join("; ")
        );
        return Some(SharingFault::external(Reason::SharingRefused, message));
    }
    (!pending.is_empty()).then(|| {
        let message = format!("the time-slice duration is being set: {}", pending.join(", "));
        SharingFault::external(Reason::SharingPending, message)
    })
}

fn cannot_be_read(device: &Device) -> bool {
    match device.condition {
        Condition::Working => device.mig == Mig::Unknown,
        Condition::Failing { .. } => true,
        Condition::PciOnly { .. } => false,
    }
}

/// Returns the devices as users know them; `None` if there are none.
fn device_names<'a>(
    inventory: &Inventory,
    devices: impl IntoIterator<Item = &'a PciAddress>,
) -> Option<String> {
    let names = devices.into_iter().map(|pci| PlanFormatter::new(inventory, *pci).device(*pci));
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the fault of devices that cannot be allocated because they fail. The warnings contain the reason for each.
pub(super) fn failing(inventory: &Inventory) -> Option<SharingFault> {
    let devices = inventory.devices.iter();
    let failing =
        devices.filter(|device| device.vendor == Vendor::Nvidia && cannot_be_read(device));
    let names = device_names(inventory, failing.map(|device| &device.pci))?;
    let message = format!("failing devices are not allocated: {names}");
    Some(SharingFault::external(Reason::SharingNotInForce, message))
}

/// Returns the fault of devices that are not offered because the MIG strategy does not fit.
pub(super) fn unoffered(
    inventory: &Inventory,
    devices: &BTreeSet<PciAddress>,
) -> Option<SharingFault> {
    let names = device_names(inventory, devices)?;
    let message = format!(
        "these devices are not advertised, because --mig-strategy does not fit: {names}; set it to mixed (chart: \
         agent.migStrategy)"
    );
    Some(SharingFault::external(Reason::SharingNotInForce, message))
}

impl StatusInputs<'_> {
    /// Returns the most important fault.
    pub(super) fn fault(&self) -> Option<SharingFault> {
        if let Some(rival) =
            self.report.resources.values().find_map(|one| one.competing_plugin.clone())
        {
            return Some(SharingFault::external(Reason::DevicePluginConflict, rival));
        }
        if let Some(why) = self.undelivered {
            return Some(SharingFault::pending(why.to_owned()));
        }
        if !self.is_decided {
            return Some(SharingFault::pending(self.undecided()));
        }
        if let Some(error) = &self.kubelet.error {
            let what = if self.listing.places().next().is_some() {
                "advertised devices are not removed, because their allocations are unknown"
            } else {
                "no device is advertised yet, because the allocations are unknown"
            };
            return Some(SharingFault::pending(format!("{what}: {error}")));
        }
        let mut listed = self.listing.resources.iter();
        listed
            .find_map(|(name, listed)| self.missing_from_node(name, listed))
            .or_else(|| self.unknown())
            .or_else(|| self.held())
            .or_else(|| self.withheld())
            .or_else(|| self.unpartitioned())
    }

    fn undecided(&self) -> String {
        let message = "only allocated devices are advertised until the desired layout is known";
        match self.observation.status.and_then(|status| status.notice.as_ref()) {
            Some(notice) => format!("{message}: {notice}"),
            None => message.to_owned(),
        }
    }

    fn unknown(&self) -> Option<SharingFault> {
        let names = device_names(self.observation.inventory, self.unknown)?;
        let message = format!(
            "only allocated partitions and replicas are advertised until the layout is applied, because the sharing before the start of \
             this agent is unknown: {names}"
        );
        Some(SharingFault::external(Reason::SharingPending, message))
    }

    /// Returns what kubelet or the Node does not know of a resource yet.
    fn missing_from_node(
        &self,
        name: &ResourceName,
        listed: &ListedResource,
    ) -> Option<SharingFault> {
        let resource = self.report.resources.get(name);
        if let Some(error) = resource.and_then(|resource| resource.error.clone()) {
            return Some(SharingFault::pending(error));
        }
        if !resource.is_some_and(|status| status.is_registered) {
            let message = format!("{name} is not registered with the kubelet yet");
            return Some(SharingFault::pending(message));
        }
        let allocatable: BTreeSet<String> = listed.allocatable().map(ToString::to_string).collect();
        let is_known = match &self.kubelet.allocatable {
            Some(all) => {
                all.get(name.as_str()).map_or(allocatable.is_empty(), |known| *known == allocatable)
            }
            None => resource.is_some_and(|status| status.is_list_read),
        };
        if !is_known {
            let known = self.kubelet.allocatable.as_ref();
            let known = known.and_then(|all| all.get(name.as_str()));
            let known = known.map_or(0, BTreeSet::len);
            let message = format!("the kubelet lists {known} of {} {name}", allocatable.len());
            return Some(SharingFault::pending(message));
        }
        let offered = self.offered(name)?;
        let count = u64::try_from(allocatable.len()).unwrap_or(u64::MAX);
        (offered != count).then(|| {
            SharingFault::pending(format!(
                "the Node advertises {offered} of the {count} {name} that the kubelet lists"
            ))
        })
    }

    fn held(&self) -> Option<SharingFault> {
        if self.listing.retained.is_empty() {
            return None;
        }
        let all = self.listing.retained.iter();
        let mut all: Vec<String> = all
            .map(|retained| {
                let who = match retained.namespace.as_str() {
                    "" => retained.pod.clone(),
                    namespace => {
                        format!("{namespace}/{} (container {})", retained.pod, retained.container)
                    }
                };
                format!("{} {} by {who}", retained.resource, retained.id)
            })
            .collect();
        let more = all.len().saturating_sub(MAX_NAMED_PODS);
        all.truncate(MAX_NAMED_PODS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let message = format!("retained until released: {}{more}", all.join("; "));
        Some(SharingFault::external(Reason::SharingHeld, message))
    }

    fn withheld(&self) -> Option<SharingFault> {
        let names = device_names(self.observation.inventory, &self.listing.withheld)?;
        let message = format!(
            "idle partitions and replicas are withheld from allocation until the layout is applied: {names}"
        );
        Some(SharingFault::external(Reason::SharingHeld, message))
    }

    fn unpartitioned(&self) -> Option<SharingFault> {
        let names = device_names(self.observation.inventory, self.waiting)?;
        let message = format!("the previous sharing stays until the layout is applied: {names}");
        Some(SharingFault::external(Reason::SharingPending, message))
    }

    fn offered(&self, name: &ResourceName) -> Option<u64> {
        let view = self.observation.view?;
        Some(view.allocatable.get(name.as_str()).copied().unwrap_or(0))
    }

    /// Computes the status.
    pub(super) fn status(&self, fault: Option<&SharingFault>, is_late: bool) -> SharingStatus {
        let mut all = fault.into_iter().chain(self.beside.into_iter().flatten());
        let fault = all.next();
        let more: Vec<String> = all.map(|fault| fault.message.clone()).collect();
        let (reason, message) = match fault {
            None => (Reason::SharingInForce, None),
            Some(fault) if is_late && !fault.is_external => {
                (Reason::SharingNotInForce, Some(fault.message.clone()))
            }
            Some(fault) => (fault.reason, Some(fault.message.clone())),
        };
        let warnings = self.warnings.iter().cloned();
        let all: Vec<String> = message.into_iter().chain(more).chain(warnings).collect();
        SharingStatus {
            mode: DeviceProvider::Embedded.into(),
            state: reason.into(),
            message: (!all.is_empty()).then(|| all.join("; ")),
            resources: self.resources(),
            retained: self.listing.retained.clone(),
            ..SharingStatus::default()
        }
    }

    fn resources(&self) -> Vec<ResourceStatus> {
        let status = |offer: &Offer| ResourceStatus {
            name: offer.name.clone(),
            wanted: u64::try_from(offer.count()).unwrap_or(u64::MAX),
            allocatable: self.offered(&offer.name),
            units: offer.units.iter().map(|unit| self.unit(unit)).collect(),
        };
        self.offers.resources.iter().map(status).collect()
    }

    fn unit(&self, unit: &Unit) -> UnitStatus {
        let items = self.listing.resources.values().flat_map(|one| &one.items);
        let items: Vec<&ListedId> = items.filter(|item| item.id.uuid() == unit.uuid).collect();
        let first = items.first();
        let health = first.map_or_else(|| self.unlisted_health(), |item| item.health.clone());
        // A unit's allocated replicas are not withheld.
        let is_withheld = !items.is_empty() && items.iter().all(|item| item.is_withheld);
        UnitStatus {
            uuid: unit.uuid.clone(),
            replicas: unit.replicas,
            health: if is_withheld && health.is_healthy() {
                let reason = "withheld from allocation until its layout is applied".to_owned();
                Health::Unhealthy { reason }
            } else {
                health
            },
        }
    }

    /// Returns why a unit is not listed: units that were not listed before are not listed until the allocations are
    /// known.
    fn unlisted_health(&self) -> Health {
        let why = if self.is_decided {
            "the allocations are unknown"
        } else {
            "the desired layout is unknown"
        };
        Health::Unhealthy {
            reason: format!("it is not advertised to the kubelet yet, because {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use octavo_model::resource::ShareId;

    use super::*;

    const UUID: &str = "GPU-0a0a0a0a-0000-0000-0000-000000000001";

    fn pci() -> PciAddress {
        PciAddress::new(0, 7, 0, 0).unwrap()
    }

    /// An offer of one GPU with two replicas.
    fn offer() -> Offer {
        let unit = Unit {
            uuid: UUID.to_owned(),
            pci: pci(),
            partition: None,
            replicas: Some(2),
            memory: None,
            memory_per_replica: None,
            numa_node: None,
        };
        Offer {
            name: ResourceName::gpu(),
            fail_requests_greater_than_one: false,
            units: vec![unit],
        }
    }

    /// Returns the health of that GPU in the status.
    fn health(is_decided: bool, listing: &Listing) -> Health {
        let inventory = Inventory::default();
        let offers = Offers { resources: vec![offer()] };
        let inputs = StatusInputs {
            observation: Observation {
                now: Duration::ZERO,
                inventory: &inventory,
                is_read: true,
                xids: &[],
                status: None,
                view: None,
                drained: &BTreeSet::new(),
            },
            offers: &offers,
            listing,
            report: &DevicePluginReport::default(),
            kubelet: &KubeletReport::default(),
            waiting: &[],
            unknown: &BTreeSet::new(),
            warnings: &[],
            undelivered: None,
            beside: [None; 3],
            is_decided,
        };
        inputs.resources()[0].units[0].health.clone()
    }

    #[test]
    fn unlisted_unit_is_unhealthy_with_a_reason() {
        let message = |is_decided| match health(is_decided, &Listing::default()) {
            Health::Unhealthy { reason } => reason,
            Health::Healthy => panic!("an unlisted unit is healthy"),
        };
        let listed_not = "it is not advertised to the kubelet yet, because the ";
        assert_eq!(message(true), format!("{listed_not}allocations are unknown"));
        assert_eq!(message(false), format!("{listed_not}desired layout is unknown"));
    }

    #[test]
    fn unit_is_unhealthy_only_if_entirely_withheld() {
        let listing = |withheld: [bool; 2]| {
            let item = |(replica, is_withheld)| ListedId {
                id: ShareId::replica(UUID, replica),
                health: Health::Healthy,
                is_withheld,
            };
            let listed =
                ListedResource { offer: offer(), items: (0..).zip(withheld).map(item).collect() };
            Listing {
                resources: BTreeMap::from([(ResourceName::gpu(), listed)]),
                withheld: BTreeSet::from([pci()]),
                ..Listing::default()
            }
        };
        assert_eq!(health(true, &listing([false, false])), Health::Healthy);
        // A pod holds the first.
        assert_eq!(health(true, &listing([false, true])), Health::Healthy);
        assert!(!health(true, &listing([true, true])).is_healthy());
    }
}
