//! Diagrams of time-sliced devices and partitions: one slot per replica, with the pod that holds it.

use octavo_model::text::count_noun;
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage};

use super::badges::{format_memory, printable};
use super::sharing::{MAX_SLOTS, holder_name, unit_name};
use super::slice_diagram::{Region, SliceDiagram};

/// Name of the parts of the diagram.
const SLOTS: &str = "Replicas";

/// One diagram for each time-sliced unit of a device.
pub(super) fn slot_diagrams(usage: &DeviceUsage) -> Vec<SliceDiagram> {
    usage.units.iter().filter_map(diagram).collect()
}

fn diagram(unit: &UnitUsage) -> Option<SliceDiagram> {
    let replicas = unit.replicas?;
    let held: usize = unit.tenants.iter().map(|tenant| tenant.ids.len()).sum();
    let all = count_noun(usize::try_from(replicas).unwrap_or(usize::MAX), "replica", "replicas");
    let is_drawn = replicas <= MAX_SLOTS;
    Some(SliceDiagram {
        what: SLOTS,
        caption: format!("Time-slicing of {}", unit_name(unit)),
        count: Some(format!("{all}, {held} allocated")),
        slices: if is_drawn { replicas } else { 0 },
        regions: (0..replicas).filter(|_| is_drawn).map(|number| slot(unit, number)).collect(),
        hidden: Vec::new(),
    })
}

fn slot(unit: &UnitUsage, number: u32) -> Region {
    let holds = |tenant: &&Tenant| tenant.ids.iter().any(|id| id.number() == Some(number));
    let holder = unit.tenants.iter().find(holds);
    let (class, name, lines) = match holder {
        None => ("is-free", "free".to_owned(), Vec::new()),
        Some(tenant) => {
            let class = if tenant.is_over_share { "is-odd" } else { "is-used" };
            (class, holder_name(tenant), lines(tenant))
        }
    };
    Region { class, slices: 1, name, lines, place: format!("replica {number}"), instance: None }
}

fn lines(tenant: &Tenant) -> Vec<String> {
    let namespace = tenant.namespace.as_deref().filter(|_| tenant.pod.is_some()).map(printable);
    let memory = tenant.memory.filter(|_| !tenant.is_without_process());
    let memory = memory.map(format_memory);
    let over = tenant.is_over_share.then(|| "over fair share".to_owned());
    namespace.into_iter().chain(memory).chain(over).collect()
}

#[cfg(test)]
mod tests {
    use octavo_model::quantity::Mebibytes;
    use octavo_model::resource::ShareId;

    use super::*;

    const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

    fn unit(replicas: u32) -> UnitUsage {
        let tenant = |pod: &str, numbers: &[u32], is_over_share| Tenant {
            namespace: Some("team-a".to_owned()),
            pod: Some(pod.to_owned()),
            ids: numbers.iter().map(|one| ShareId::replica(GPU, *one)).collect(),
            memory: Some(Mebibytes::new(10_240)),
            processes: vec![1],
            is_over_share,
            ..Tenant::default()
        };
        UnitUsage {
            uuid: GPU.to_owned(),
            replicas: Some(replicas),
            tenants: vec![tenant("greedy\u{202e}", &[2], true), tenant("big", &[0, 1], false)],
            ..UnitUsage::default()
        }
    }

    #[test]
    fn every_replica_is_a_slot_with_its_holder() {
        let diagram = diagram(&unit(4)).unwrap();
        assert_eq!(diagram.caption, "Time-slicing of the whole device");
        assert_eq!(diagram.count.as_deref(), Some("4 replicas, 3 allocated"));
        let slots: Vec<String> = diagram
            .regions
            .iter()
            .map(|slot| {
                format!("{} {} {} [{}]", slot.place, slot.class, slot.name, slot.lines.join(", "))
            })
            .collect();
        assert_eq!(
            slots,
            [
                "replica 0 is-used big [team-a, 10 GiB]",
                "replica 1 is-used big [team-a, 10 GiB]",
                "replica 2 is-odd greedy\u{fffd} [team-a, 10 GiB, over fair share]",
                "replica 3 is-free free []",
            ]
        );
    }

    #[test]
    fn many_replicas_are_counted_and_exclusive_devices_have_no_slots() {
        let many = diagram(&unit(48)).unwrap();
        assert_eq!((many.slices, many.regions.len()), (0, 0));
        assert_eq!(many.count.as_deref(), Some("48 replicas, 3 allocated"));
        assert_eq!(diagram(&UnitUsage { replicas: None, ..unit(1) }), None);
    }
}
