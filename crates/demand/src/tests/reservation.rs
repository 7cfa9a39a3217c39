//! Devices that are reserved for a pod that has waited for a long time.

use octavo_fleet::cluster::{ClusterPod, ClusterSnapshot};
use octavo_model::inventory::Mig;
use octavo_model::reported::Reported;
use octavo_policy::{DemandMode, Period, PolicyDemand};

use super::proposal::{Known, NOW, device, node, observed, pod};
use crate::observed::ObservedNode;
use crate::proposal::{DemandPlan, NodeChange, propose};
use crate::report::Outcome;

const MINUTE: i64 = 60;

fn one(start: u32) -> Known {
    (19, start, 1)
}

fn reserving(name: &str, devices: &[&[(Known, bool)]]) -> ObservedNode {
    let devices = (0..).zip(devices).map(|(number, instances)| device(number, instances));
    let demand = PolicyDemand {
        mode: DemandMode::Act,
        reserve_after: Some(Period::from_mins(20)),
        ..PolicyDemand::default()
    };
    ObservedNode { demand, ..observed(name, devices.collect()) }
}

fn plan(nodes: &[ObservedNode], pods: impl IntoIterator<Item = ClusterPod>) -> DemandPlan {
    let objects = nodes.iter().map(|observed| node(&observed.name));
    propose(&ClusterSnapshot::new(objects, pods), nodes, NOW)
}

/// A pod that needs a whole GPU and waits for this number of minutes.
fn whole(minutes: i64) -> ClusterPod {
    pod("whole", minutes * MINUTE, &[("7g.80gb", 1)])
}

fn reserved(change: &NodeChange) -> (&str, Option<&str>) {
    (&change.node, change.reserved_device.as_deref())
}

#[test]
fn change_of_a_reservation_has_the_instances_that_exist_once_the_pods_have_ended() {
    let busy = [(one(0), true), (one(1), true), (one(2), false)];
    let nodes = [reserving("gpu-0", &[&busy])];
    assert_eq!(plan(&nodes, [whole(19)]).changes, []);

    let after = plan(&nodes, [whole(20), pod("small", 30, &[("1g.10gb", 1)])]);
    let outcomes: Vec<_> = after.report.items.iter().map(|item| item.outcome.clone()).collect();
    assert_eq!(outcomes, [Reported::from(Outcome::Reserve), Outcome::Blocked.into()]);
    let [change] = after.changes.as_slice() else { panic!("{:?}", after.changes) };
    assert_eq!(reserved(change), ("gpu-0", Some("0000:00:00.0")));
    let text = "reserve GPU 0 of node gpu-0: create 7g.80gb at slice 0 when 2 instances are no longer in use: 1g.10gb at slice 0, 1g.10gb at slice 1; until then, other pods do not get its 5 GPU slices that are not in use";
    assert_eq!(change.pods, [("team/whole".to_owned(), text.to_owned())]);
    assert_eq!(change.evictions, []);
    let Mig::Capable(state) = &change.inventory.devices[0].mig else { panic!("an H100") };
    let instances: Vec<u32> = state.gpu_instances.iter().map(|one| one.profile_id).collect();
    assert_eq!(instances, [0]);
}

#[test]
fn reservation_takes_the_place_with_the_fewest_slices_in_use() {
    let busy = [(one(0), true), (one(1), true), (one(2), true), ((14, 4, 2), true)];
    let nodes = [reserving("gpu-0", &[&busy])];
    let [change] =
        plan(&nodes, [pod("three", 1_200, &[("3g.40gb", 1)])]).changes.try_into().unwrap();
    let Mig::Capable(state) = &change.inventory.devices[0].mig else { panic!("an H100") };
    let starts: Vec<u32> = state.gpu_instances.iter().map(|one| one.placement.start).collect();
    assert_eq!(starts, [0, 1, 2, 4], "{}", change.pods[0].1);
}

#[test]
fn gpu_of_a_policy_that_reserves_is_preferred_and_a_reserved_one_stays() {
    let (busy, busier) = ([(one(0), true)], [(one(0), true), (one(1), true)]);
    let mut nodes = [
        ObservedNode { demand: PolicyDemand::default(), ..reserving("gpu-0", &[&busy]) },
        reserving("gpu-1", &[&busier, &busy, &busier]),
    ];
    let changes = |nodes: &[ObservedNode]| plan(nodes, [whole(30)]).changes;
    assert_eq!(
        changes(&nodes).iter().map(reserved).collect::<Vec<_>>(),
        [("gpu-1", Some("0000:01:00.0"))]
    );
    nodes[1].reserved_device = Some("0000:02:00.0".to_owned());
    assert_eq!(reserved(&changes(&nodes)[0]), ("gpu-1", Some("0000:01:00.0")), "of another pod");
    nodes[1].changed_for.insert("team/whole".to_owned());
    assert_eq!(reserved(&changes(&nodes)[0]), ("gpu-1", Some("0000:02:00.0")));
    // A policy that only observes reserves nothing.
    nodes[1].demand.mode = DemandMode::Observe;
    assert_eq!(changes(&nodes), []);
}

/// A node that changes for another pod is not reserved in the same step.
#[test]
fn reservation_waits_for_other_changes_of_its_node() {
    let nodes = [reserving("gpu-0", &[&[(one(0), true)], &[(one(0), true), (one(1), true)]])];
    let pods = [whole(30), pod("small", 30, &[("2g.20gb", 1)])];
    let changes = plan(&nodes, pods).changes;
    assert_eq!(changes.iter().map(reserved).collect::<Vec<_>>(), [("gpu-0", None)]);
}
