//! Proposals for pending pods of small clusters and random ones.

use std::collections::{BTreeMap, BTreeSet};

use octavo_fleet::cluster::{
    Amounts, ClusterNode, ClusterPod, ClusterSnapshot, Effect, Phase, PodKey, PodRequirements,
    Readiness, Taint,
};
use octavo_model::catalog::Placement;
use octavo_model::examples::{compute_instance, gpu, h100, process};
use octavo_model::id::{MigUuid, PciAddress};
use octavo_model::inventory::{ComputeInstance, Condition, Device, GpuInstance, Inventory, Mig};
use octavo_model::resource::ResourceName;
use octavo_model::sharing_status::{Health, ResourceStatus, SharingStatus, UnitStatus};
use octavo_policy::PolicyDemand;
use proptest::prelude::*;

use crate::geometry::Geometry;
use crate::observed::ObservedNode;
use crate::proposal::{DemandPlan, propose};
use crate::report::{DemandReport, Obstacle, Outcome, PodProposal};

pub(super) const NOW: i64 = 1_800_000_000;

/// Profile id, first memory slice, number of memory slices.
pub(super) type Known = (u32, u32, u32);

const ONE: Known = (19, 0, 1);
const THREE: Known = (9, 4, 4);

/// An H100 in MIG mode with these instances, of which the flagged ones have a process.
pub(super) fn device(number: u32, instances: &[(Known, bool)]) -> Device {
    let mut device = gpu();
    device.index = Some(number);
    device.pci = PciAddress::new(0, u8::try_from(number).unwrap(), 0, 0).unwrap();
    let mut state = h100();
    for (id, ((profile_id, start, size), is_used)) in (0..).zip(instances) {
        state.gpu_instances.push(GpuInstance {
            id,
            profile_id: *profile_id,
            placement: Placement { start: *start, size: *size },
            compute_instances: vec![ComputeInstance {
                uuid: Some(uuid(number, id)),
                ..compute_instance(0)
            }],
        });
        if *is_used {
            device.processes.push(process(100 + id, Some(id), Some(0)));
        }
    }
    device.mig = Mig::Capable(state);
    device
}

pub(super) fn observed(name: &str, devices: Vec<Device>) -> ObservedNode {
    ObservedNode {
        name: name.to_owned(),
        inventory: Inventory { devices, ..Inventory::default() },
        holders: Vec::new(),
        sharing: None,
        is_stale: false,
        are_users_known: true,
        demand: PolicyDemand::default(),
        changed_for: BTreeSet::new(),
        reserved_device: None,
    }
}

pub(super) fn node(name: &str) -> ClusterNode {
    ClusterNode {
        name: name.to_owned(),
        readiness: Readiness::Ready,
        labels: BTreeMap::from([("nvidia.com/mig.strategy".to_owned(), "mixed".to_owned())]),
        allocatable: Amounts::default().with("cpu", 8_000).with("pods", 100),
        ..ClusterNode::default()
    }
}

pub(super) fn pod(name: &str, age: i64, requests: &[(&str, u64)]) -> ClusterPod {
    let amounts = requests.iter().fold(Amounts::default(), |amounts, (profile, count)| {
        amounts.with(&format!("nvidia.com/mig-{profile}"), *count)
    });
    ClusterPod {
        key: PodKey { namespace: "team".to_owned(), name: name.to_owned() },
        requirements: PodRequirements { amounts, ..PodRequirements::default() },
        created_at: Some(NOW - age),
        ..ClusterPod::default()
    }
}

/// Proposals for these pods on nodes `gpu-0`, `gpu-1`, … with these devices.
pub(super) fn proposals(nodes: Vec<Vec<Device>>, pods: Vec<ClusterPod>) -> DemandReport {
    plan(nodes, pods).report
}

fn plan(nodes: Vec<Vec<Device>>, pods: Vec<ClusterPod>) -> DemandPlan {
    let nodes: Vec<ObservedNode> = (0..)
        .zip(nodes)
        .map(|(number, devices)| observed(&format!("gpu-{number}"), devices))
        .collect();
    let cluster = nodes.iter().map(|observed| node(&observed.name));
    propose(&ClusterSnapshot::new(cluster, pods), &nodes, NOW)
}

pub(super) fn only(report: &DemandReport) -> &PodProposal {
    let [proposal] = report.items.as_slice() else { panic!("{report:#?}") };
    proposal
}

fn obstacles(proposal: &PodProposal) -> Vec<(Obstacle, usize)> {
    proposal.obstacles.iter().map(|one| (one.reason.known().unwrap(), one.nodes)).collect()
}

#[test]
fn idle_instance_is_preferred_then_free_slices_then_replacement() {
    let request = || vec![pod("train", 60, &[("3g.40gb", 1)])];
    let report =
        proposals(vec![vec![device(0, &[])], vec![device(0, &[(THREE, false)])]], request());
    let proposal = only(&report);
    assert_eq!(proposal.outcome, Outcome::Available);
    assert_eq!(
        proposal.message,
        "idle on node gpu-1: 3g.40gb at slice 4 of GPU 0; the Node does not offer them to the scheduler; check its device plugin"
    );
    assert_eq!(report.devices, []);

    let report = proposals(vec![vec![device(0, &[(ONE, true)])]], request());
    assert_eq!(
        only(&report).message,
        "create on node gpu-0: 3g.40gb at slice 4 of GPU 0; no instance is destroyed"
    );

    let idle = (19, 5, 1);
    let report = proposals(vec![vec![device(0, &[(ONE, true), (idle, false)])]], request());
    let proposal = only(&report);
    assert_eq!(
        proposal.message,
        "create on node gpu-0: 3g.40gb at slice 4 of GPU 0; destroy idle: 1g.10gb at slice 5 of GPU 0"
    );
    assert_eq!((&proposal.outcome, proposal.waiting_seconds), (&Outcome::Replace.into(), Some(60)));
    let [changed] = report.devices.as_slice() else { panic!("{report:#?}") };
    assert_eq!(changed.before, BTreeMap::from([("1g.10gb".to_owned(), 2)]));
    let after = [("1g.10gb".to_owned(), 1), ("3g.40gb".to_owned(), 1)];
    assert_eq!(changed.after, BTreeMap::from(after));
    assert_eq!((changed.creates.len(), changed.destroys.len(), changed.pods), (1, 1, 1));
}

#[test]
fn instances_in_use_block_a_request_with_the_room_that_remains() {
    let used = [((19, 1, 1), true), ((19, 5, 1), true)];
    let report = proposals(vec![vec![device(0, &used)]], vec![pod("train", 60, &[("3g.40gb", 1)])]);
    let proposal = only(&report);
    assert_eq!(proposal.outcome, Outcome::Blocked);
    assert_eq!(
        proposal.message,
        "instances that are in use or proposed for other pods leave no room on 1 node (5 GPU slices left; the largest instance that fits is 2g.20gb)"
    );
}

#[test]
fn pods_that_have_waited_longest_are_planned_first_and_a_device_is_reserved_for_them() {
    let used = || device(0, &[((19, 6, 1), true)]);
    let pods = vec![
        pod("young", 30, &[("1g.10gb", 1)]),
        pod("whole", 600, &[("7g.80gb", 1)]),
        pod("newest", 9, &[("1g.10gb", 1)]),
    ];
    let report = proposals(vec![vec![used()]], pods.clone());
    let [whole, young] = report.items.as_slice() else { panic!("{report:#?}") };
    assert_eq!((&whole.outcome, whole.node.as_deref()), (&Outcome::Reserve.into(), Some("gpu-0")));
    assert!(
        whole.message.contains("other pods would not get its 6 GPU slices that are not in use")
    );
    assert_eq!(
        (&young.outcome, obstacles(young)),
        (&Outcome::Blocked.into(), vec![(Obstacle::Reserved, 1)])
    );
    assert_eq!(report.recent_pods, 1);

    let report = proposals(vec![vec![used()], vec![device(0, &[])]], pods);
    assert_eq!(report.items[0].node.as_deref(), Some("gpu-1"));
    assert_eq!(report.items[1].node.as_deref(), Some("gpu-0"));
}

#[test]
fn all_instances_of_a_pod_are_on_one_node() {
    let request = || vec![pod("both", 60, &[("3g.40gb", 2), ("1g.10gb", 1)])];
    let apart = vec![vec![device(0, &[])], vec![device(0, &[])]];
    assert_eq!(obstacles(only(&proposals(apart, request()))), [(Obstacle::TooSmall, 2)]);
    let report = proposals(vec![vec![device(0, &[]), device(1, &[])]], request());
    let proposal = only(&report);
    assert_eq!((&proposal.outcome, proposal.instances.len()), (&Outcome::Create.into(), 3));
    assert_eq!(report.devices.iter().map(|one| one.pods).sum::<usize>(), report.devices.len());
}

#[test]
fn better_node_is_chosen_and_the_other_one_explained() {
    let conflict = vec![device(0, &[((0, 0, 8), false)])];
    let report =
        proposals(vec![conflict, vec![device(0, &[])]], vec![pod("a", 60, &[("3g.40gb", 1)])]);
    let proposal = only(&report);
    assert_eq!(proposal.node.as_deref(), Some("gpu-1"));
    let [other] = proposal.alternatives.as_slice() else { panic!("{proposal:#?}") };
    assert_eq!(
        (other.node.as_str(), other.message.as_str()),
        ("gpu-0", "1 more operation to create and destroy instances")
    );
}

#[test]
fn unsuitable_nodes_are_counted_by_obstacle() {
    let cases: [(&str, Change, Obstacle); 10] = [
        ("cordoned", |node, _| node.is_cordoned = true, Obstacle::Unschedulable),
        ("not ready", |node, _| node.readiness = Readiness::NotReady, Obstacle::Unschedulable),
        ("tainted", |node, _| node.taints.push(taint()), Obstacle::Tainted),
        ("no CPU", |node, _| node.allocatable = Amounts::default(), Obstacle::OtherResources),
        ("stale", |_, observed| observed.is_stale = true, Obstacle::Stale),
        ("unknown users", |_, observed| observed.are_users_known = false, Obstacle::Unknown),
        ("lost GPU", |_, observed| lose(observed), Obstacle::Unknown),
        ("no strategy", |node, _| node.labels.clear(), Obstacle::NotOffered),
        ("time slices", |_, observed| share(observed), Obstacle::NotOffered),
        ("other profile", |_, observed| without_profile(observed), Obstacle::NoProfile),
    ];
    for (name, change, expected) in cases {
        let (mut node, mut seen) = (node("gpu-0"), observed("gpu-0", vec![device(0, &[])]));
        change(&mut node, &mut seen);
        let snapshot = ClusterSnapshot::new([node], [pod("a", 60, &[("1g.10gb", 1)])]);
        let report = propose(&snapshot, &[seen], NOW).report;
        assert_eq!(obstacles(only(&report)), [(expected, 1)], "{name}");
        assert_eq!(only(&report).outcome, Outcome::Blocked, "{name}");
    }
    let mut single = node("gpu-0");
    single.labels.insert("nvidia.com/mig.strategy".to_owned(), "single".to_owned());
    let snapshot = ClusterSnapshot::new([single], [pod("a", 60, &[("1g.10gb", 1)])]);
    let report = propose(&snapshot, &[observed("gpu-0", vec![device(0, &[])])], NOW).report;
    assert_eq!(obstacles(only(&report)), [(Obstacle::NotOffered, 1)]);
    let report = proposals(vec![vec![gpu()]], vec![pod("a", 60, &[("1g.10gb", 1)])]);
    assert_eq!(only(&report).message, "no agent reports a GPU in MIG mode");
}

#[test]
fn only_instances_that_the_node_offers_for_the_profile_are_available() {
    let name = "nvidia.com/mig-1g.10gb";
    let unhealthy = Health::Unhealthy { reason: "Xid 79".to_owned() };
    for (offer, expected) in [
        (offer(name, None, Health::Healthy), Outcome::Available),
        (offer(name, None, unhealthy), Outcome::Create),
        (offer("nvidia.com/gpu", None, Health::Healthy), Outcome::Blocked),
    ] {
        let mut seen = observed("gpu-0", vec![device(0, &[(ONE, false)])]);
        seen.sharing = Some(offer);
        let mut node = node("gpu-0");
        node.allocatable = node.allocatable.with(name, 1);
        let snapshot = ClusterSnapshot::new([node], [pod("a", 60, &[("1g.10gb", 1)])]);
        let report = propose(&snapshot, &[seen], NOW).report;
        let proposal = only(&report);
        assert_eq!(proposal.outcome, expected, "{proposal:#?}");
        let is_placeable = proposal.message.contains("the scheduler can place the pod");
        assert_eq!(is_placeable, expected == Outcome::Available, "{}", proposal.message);
    }
}

#[test]
fn pods_of_other_namespaces_are_planned_before_the_65th_pod_of_a_namespace() {
    let many = (0..300).map(|number| pod(&format!("pod-{number}"), 90, &[("7g.80gb", 9)]));
    let mut other = pod("other", 60, &[("1g.10gb", 1)]);
    other.key.namespace = "other".to_owned();
    let report = proposals(vec![vec![device(0, &[])]], many.chain([other]).collect());
    let position = report.items.iter().position(|one| one.namespace == "other");
    assert_eq!(position, Some(64));
    assert_eq!(report.items[64].outcome, Outcome::Create);
}

#[test]
fn idle_instance_that_a_bound_pod_can_be_about_to_use_is_not_replaced() {
    let mut bound = pod("starts", 60, &[("1g.10gb", 1)]);
    (bound.phase, bound.node) = (Phase::Bound, Some("gpu-0".to_owned()));
    let pods = vec![bound, pod("whole", 60, &[("7g.80gb", 1)])];
    let report = proposals(vec![vec![device(0, &[(ONE, false)])]], pods);
    assert_eq!(only(&report).outcome, Outcome::Blocked);
}

#[test]
fn time_slices_of_instances_are_no_demand() {
    let pods = vec![pod("slice", 60, &[("1g.10gb.shared", 1)])];
    assert_eq!(proposals(vec![vec![device(0, &[])]], pods).items, []);
}

#[test]
fn pods_with_costly_requests_are_omitted() {
    let devices = || (0..8).map(|number| device(number, &[((0, 0, 8), true)])).collect();
    let nodes = (0..100).map(|_| devices()).collect();
    let pods =
        (0..40).map(|number| pod(&format!("pod-{number}"), 60, &[("1g.10gb", 100 - number)]));
    let report = proposals(nodes, pods.collect());
    assert!((1..40).contains(&report.items.len()), "{}", report.items.len());
    assert_eq!(report.items.len() + report.omitted_pods, 40);
}

#[test]
fn pods_beyond_the_limit_are_counted() {
    let pods = (0..300).map(|number| pod(&format!("pod-{number}"), 60, &[("1g.10gb", 1)]));
    let report = proposals(vec![vec![device(0, &[])]], pods.collect());
    assert_eq!((report.items.len(), report.omitted_pods), (256, 44));
    let placed = report.items.iter().filter(|one| one.outcome == Outcome::Create).count();
    assert_eq!((placed, report.devices[0].pods), (7, 7));
}

type Change = fn(&mut ClusterNode, &mut ObservedNode);

fn taint() -> Taint {
    Taint { key: "gpu".into(), value: "mig".into(), effect: Effect::NoSchedule }
}

/// Every instance of 1g.10gb has replicas under another name.
fn share(observed: &mut ObservedNode) {
    observed.inventory.devices = vec![device(0, &[(ONE, false)])];
    observed.sharing = Some(offer("nvidia.com/mig-1g.10gb.shared", Some(4), Health::Healthy));
}

/// The status of a node that offers the first instance of the first device in this way.
fn offer(name: &str, replicas: Option<u32>, health: Health) -> SharingStatus {
    let unit = UnitStatus { uuid: uuid(0, 0).to_string(), replicas, health };
    let name = name.parse().unwrap();
    let resource = ResourceStatus { name, wanted: 1, allocatable: None, units: vec![unit] };
    SharingStatus { resources: vec![resource], ..SharingStatus::default() }
}

fn uuid(device: u32, instance: u32) -> MigUuid {
    format!("MIG-5fd4087b-86f3-7a43-b711-{device:06}{instance:06}").parse().unwrap()
}

fn lose(observed: &mut ObservedNode) {
    let reason = "GPU is lost".to_owned();
    observed.inventory.devices[0].condition = Condition::Failing { reason };
}

fn without_profile(observed: &mut ObservedNode) {
    let Mig::Capable(state) = &mut observed.inventory.devices[0].mig else { panic!("an H100") };
    let profiles =
        state.catalog.profiles().iter().filter(|profile| profile.id != 19).cloned().collect();
    state.catalog = octavo_model::catalog::ProfileCatalog::new(profiles);
}

/// Instances that fit on an H100, each of them in use or not.
fn arrangement() -> impl Strategy<Value = Vec<(Known, bool)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..8).prop_map(|picks| {
        let geometry = Geometry::new(&h100(), |_| true).unwrap();
        let (mut set, mut instances) = (Geometry::EMPTY, Vec::new());
        for (pick, is_used) in picks {
            let additions = geometry.additions(set);
            if additions.is_empty() {
                break;
            }
            let addition = pick.get(additions);
            let place = addition.place;
            let id = geometry.profiles()[place.profile].id;
            instances.push(((id, place.placement.start, place.placement.size), is_used));
            set = addition.to;
        }
        instances
    })
}

fn requests() -> impl Strategy<Value = Vec<(usize, u64, i64)>> {
    prop::collection::vec((0..7_usize, 1..3_u64, 0..1_200_i64), 0..20)
}

/// The instances after the changes are those of the report, and the instances in use are unchanged.
fn check_changes(plan: &DemandPlan, nodes: &[Vec<Vec<(Known, bool)>>]) {
    let changed: BTreeSet<&str> =
        plan.report.devices.iter().map(|device| device.node.as_str()).collect();
    let with_change: Vec<&str> = plan.changes.iter().map(|change| change.node.as_str()).collect();
    assert_eq!(with_change, changed.into_iter().collect::<Vec<_>>());
    for change in &plan.changes {
        assert_eq!(change.evictions, []);
        assert!(!change.pods.is_empty());
        assert!(change.pods.iter().all(|(_, instances)| instances.contains(&change.node)));
        let number: usize = change.node.strip_prefix("gpu-").unwrap().parse().unwrap();
        for (at, arrangement) in (0..).zip(&nodes[number]) {
            let before = device(at, arrangement);
            let after = change.inventory.devices.iter().find(|after| after.pci == before.pci);
            let (Mig::Capable(before), Mig::Capable(after)) = (&before.mig, &after.unwrap().mig)
            else {
                panic!("an H100")
            };
            for (instance, (_, is_used)) in before.gpu_instances.iter().zip(arrangement) {
                assert!(!is_used || after.gpu_instances.contains(instance));
            }
            let mut profiles: BTreeMap<String, usize> = BTreeMap::new();
            for instance in &after.gpu_instances {
                assert_eq!(instance.compute_instances.len(), 1);
                let name = after.catalog.by_id(instance.profile_id).unwrap().name.to_string();
                *profiles.entry(name).or_default() += 1;
            }
            let name = format!("GPU {at}");
            let mut reported = plan.report.devices.iter();
            let reported = reported.find(|one| one.node == change.node && one.device_name == name);
            assert!(reported.is_none_or(|reported| reported.after == profiles));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// I1: on random fleets, instances in use are neither destroyed nor allocated, the instances of each device fit together after all
    /// proposals, and every pod has an explanation.
    #[test]
    fn i1_proposals_leave_instances_in_use_alone_and_explain_every_pod(
        nodes in prop::collection::vec(prop::collection::vec(arrangement(), 1..4), 1..4),
        requests in requests(),
    ) {
        let geometry = Geometry::new(&h100(), |_| true).unwrap();
        let pods: Vec<ClusterPod> = (0..).zip(&requests).map(|(number, (profile, count, age))| {
            let name = ResourceName::mig(&geometry.profiles()[*profile].name).to_string();
            let name = name.strip_prefix("nvidia.com/mig-").unwrap().to_owned();
            pod(&format!("pod-{number}"), *age, &[(name.as_str(), *count)])
        }).collect();
        let devices = |arrangements: &Vec<Vec<(Known, bool)>>| {
            (0..).zip(arrangements).map(|(number, one)| device(number, one)).collect()
        };
        let plan = plan(nodes.iter().map(devices).collect(), pods.clone());
        check_changes(&plan, &nodes);
        let report = plan.report;
        prop_assert_eq!(report.items.len() + report.recent_pods, pods.len());
        let mut taken: Vec<(&str, &str, Placement)> = Vec::new();
        for proposal in &report.items {
            prop_assert!(!proposal.message.is_empty());
            let is_placed = matches!(proposal.outcome.known().unwrap(), Outcome::Available | Outcome::Create | Outcome::Replace);
            let wanted: u64 = proposal.resources.values().sum();
            prop_assert_eq!(proposal.instances.len() as u64, if is_placed { wanted } else { 0 });
            prop_assert_eq!(is_placed || !proposal.obstacles.is_empty(), true);
            for instance in &proposal.instances {
                let key = (proposal.node.as_deref().unwrap(), instance.device_name.as_str(), instance.instance.placement);
                prop_assert!(!taken.contains(&key), "{:?} is proposed twice", key);
                taken.push(key);
            }
        }
        for (number, arrangements) in nodes.iter().enumerate() {
            for (index, instances) in arrangements.iter().enumerate() {
                let (node, name) = (format!("gpu-{number}"), format!("GPU {index}"));
                let changed = report.devices.iter().find(|one| one.node == node && one.device_name == name);
                let used: Vec<Placement> = instances.iter().filter(|(_, is_used)| *is_used)
                    .map(|((_, start, size), _)| Placement { start: *start, size: *size }).collect();
                for placement in &used {
                    prop_assert!(!taken.iter().any(|(of, on, at)| *of == node && *on == name && at == placement));
                }
                let Some(changed) = changed else { continue };
                prop_assert!(changed.destroys.iter().all(|one| !used.contains(&one.placement)));
                let idle = instances.iter().map(|((id, start, size), _)| (*id, Placement { start: *start, size: *size }));
                let retained = idle.filter(|(_, placement)| !changed.destroys.iter().any(|one| one.placement == *placement));
                let created = changed.creates.iter().map(|one| {
                    let profiles = geometry.profiles().iter();
                    let id = profiles.filter(|profile| profile.name.to_string() == one.profile).map(|profile| profile.id).next().unwrap();
                    (id, one.placement)
                });
                let places: Vec<_> = retained.chain(created).map(|(id, at)| geometry.place(id, at).unwrap()).collect();
                prop_assert!(geometry.set_of(&places).is_some(), "{:#?}", changed);
            }
        }
    }
}
