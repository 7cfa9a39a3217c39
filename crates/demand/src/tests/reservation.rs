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
    let text = "reserve GPU 0 of node gpu-0: create 7g.80gb at slice 0 when 2 instances are no longer in use: 1g.10gb at slice 0, 1g.10gb at slice 1; until then, other pods get none of the 5 GPU slices of GPU 0 that are not in use";
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
    // A pod that only other nodes can run does not prevent it.
    let mut older = pod("older", 90 * MINUTE, &[("7g.80gb", 1)]);
    older.requirements.selector =
        [("kubernetes.io/hostname".to_owned(), "gpu-0".to_owned())].into();
    let plan = plan(&nodes, [older, whole(30)]);
    assert_eq!(
        plan.changes.iter().map(reserved).collect::<Vec<_>>(),
        [("gpu-1", Some("0000:02:00.0"))]
    );
    // A policy that only observes reserves nothing.
    nodes[1].demand.mode = DemandMode::Observe;
    assert_eq!(changes(&nodes), []);
}

/// A policy that reserves a GPU of a node changes no other instances of it.
#[test]
fn younger_pod_gets_no_new_instance_of_the_node_and_an_older_one_comes_first() {
    let nodes = [reserving("gpu-0", &[&[(one(0), true)], &[(one(0), true), (one(1), true)]])];
    let changes = |age: i64| {
        let plan = plan(&nodes, [whole(30), pod("small", age, &[("2g.20gb", 1)])]);
        plan.changes.iter().map(|change| reserved(change).1.map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(changes(30), [Some("0000:00:00.0".to_owned())]);
    assert_eq!(changes(31 * MINUTE), [None]);
}

#[test]
fn search_for_restarts_retains_the_reservation_of_an_older_pod() {
    let full = [(one(0), true), (one(5), true)];
    let nodes = [reserving("gpu-0", &[&full]), reserving("gpu-1", &[&full])];
    let pods = [whole(30), pod("three", 60, &[("3g.40gb", 1)]), pod("four", 50, &[("4g.40gb", 1)])];
    let changes = plan(&nodes, pods).changes;
    assert!(changes.iter().any(|change| change.reserved_device.is_some()), "{changes:?}");
}

#[test]
fn instance_in_use_that_equals_the_needed_one_is_not_reserved() {
    let same = [((0, 0, 8), true)];
    let others = [(one(0), true), (one(1), true)];
    let nodes = [reserving("gpu-0", &[&same, &others])];
    assert_eq!(
        plan(&nodes, [whole(30)]).changes.iter().map(reserved).collect::<Vec<_>>(),
        [("gpu-0", Some("0000:01:00.0"))]
    );
    let nodes = [reserving("gpu-0", &[&same])];
    assert_eq!(plan(&nodes, [whole(30)]).changes, []);
}
