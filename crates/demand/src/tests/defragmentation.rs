//! Running pods whose restart makes room for a blocked pod.

use octavo_fleet::cluster::{
    ClusterNode, ClusterPod, ClusterSnapshot, Phase, PodOwner, Toleration,
};
use octavo_model::examples::process;
use octavo_model::holder::{Holder, HolderDetails, Pod};
use octavo_model::inventory::{Device, Mig};
use octavo_policy::{DemandMode, PodEviction, PolicyDemand};

use super::proposal::{Known, NOW, device, node, observed, only, pod};
use crate::observed::ObservedNode;
use crate::proposal::propose;
use crate::report::{DemandReport, Outcome};

/// A cluster of nodes `gpu-0`, `gpu-1`, … with running pods.
struct Cluster {
    nodes: Vec<ObservedNode>,
    objects: Vec<ClusterNode>,
    pods: Vec<ClusterPod>,
}

impl Cluster {
    /// Nodes with one device each. Each instance in use is that of a pod `run-NODE-INSTANCE`, which has run for this number of minutes.
    fn new(nodes: &[&[(Known, Option<i64>)]]) -> Self {
        let mut cluster = Self { nodes: Vec::new(), objects: Vec::new(), pods: Vec::new() };
        for (number, instances) in nodes.iter().enumerate() {
            let name = format!("gpu-{number}");
            let idle: Vec<(Known, bool)> = instances.iter().map(|(one, _)| (*one, false)).collect();
            let mut observed = observed(&name, vec![device(0, &idle)]);
            for (id, (_, minutes)) in (0..).zip(*instances) {
                let Some(minutes) = minutes else { continue };
                let profile = profile(&observed.inventory.devices[0], id);
                let pod = running(&format!("run-{number}-{id}"), &name, &profile, *minutes);
                observed.holders.push(holder(&observed.inventory.devices[0], id, &pod));
                cluster.pods.push(pod);
            }
            cluster.nodes.push(observed);
            cluster.objects.push(node(&name));
        }
        cluster
    }

    /// Proposals with these pending pods.
    fn with(&self, pending: &[ClusterPod]) -> DemandReport {
        let pods = self.pods.iter().chain(pending).cloned();
        propose(&ClusterSnapshot::new(self.objects.clone(), pods), &self.nodes, NOW).report
    }

    /// The pods that would restart for a pod with a 3g.40gb.
    fn restarts(&self) -> Vec<String> {
        let report = self.with(&[pod("train", 60, &[("3g.40gb", 1)])]);
        let found = only(&report).defragmentation.as_ref();
        found.into_iter().flat_map(|found| &found.moves).map(|one| one.pod.clone()).collect()
    }
}

fn profile(device: &Device, id: u32) -> String {
    let Mig::Capable(state) = &device.mig else { panic!("an H100") };
    let instance = &state.gpu_instances[usize::try_from(id).unwrap()];
    state.catalog.by_id(instance.profile_id).unwrap().name.to_string()
}

fn running(name: &str, node: &str, profile: &str, minutes: i64) -> ClusterPod {
    ClusterPod {
        node: Some(node.to_owned()),
        phase: Phase::Bound,
        started_at: Some(NOW - minutes * 60),
        owner: Some(PodOwner { kind: "Job".to_owned(), name: "job".to_owned() }),
        ..pod(name, minutes * 60, &[(profile, 1)])
    }
}

fn holder(device: &Device, id: u32, pod: &ClusterPod) -> Holder {
    let pod = Pod {
        namespace: Some(pod.key.namespace.clone()),
        name: Some(pod.key.name.clone()),
        ..Pod::default()
    };
    Holder {
        device: device.pci,
        gpu_instance: Some(id),
        compute_instance: Some(0),
        details: HolderDetails { pod: Some(pod), ..HolderDetails::default() },
    }
}

/// 1g.10gb at this memory slice.
fn one(start: u32) -> Known {
    (19, start, 1)
}

#[test]
fn blocked_pod_lists_a_pod_whose_restart_makes_room() {
    let cluster = Cluster::new(&[
        &[(one(0), Some(10)), (one(5), Some(10))],
        &[((9, 0, 4), Some(10)), (one(4), Some(10))],
    ]);
    let report = cluster.with(&[pod("train", 60, &[("3g.40gb", 1)])]);
    let proposal = only(&report);
    assert_eq!(proposal.outcome, Outcome::Blocked);
    assert_eq!(
        proposal.message,
        "instances that are in use or proposed for other pods leave no room on 2 nodes (8 GPU slices left; the largest instance that fits is 2g.20gb); \
         3g.40gb at slice 0 of GPU 0 on node gpu-0 fits after 1 pod restarts: team/run-0-0 with 1g.10gb at slice 5 of GPU 0 on node gpu-1"
    );
    let found = proposal.defragmentation.as_ref().unwrap();
    assert_eq!(found.moves[0].running_seconds, Some(600));
    assert!(found.fragmentation < 0.0, "{found:#?}");
    assert_eq!(report.devices, [], "nothing is changed");
}

#[test]
fn fewest_pods_restart_and_of_equally_many_those_that_have_run_shortest() {
    let long = [(one(0), Some(90)), (one(4), Some(90))];
    let short = [(one(0), Some(90)), (one(4), Some(5))];
    let two = [(one(0), Some(1)), (one(1), Some(1)), (one(4), Some(1)), (one(5), Some(1))];
    assert_eq!(Cluster::new(&[&two, &long, &short]).restarts(), ["run-2-1"]);
    // Each of two pods gets another node.
    assert_eq!(Cluster::new(&[&two, &two, &two]).restarts().len(), 2);
    assert!(Cluster::new(&[&two, &two]).restarts().is_empty());
}

#[test]
fn only_pods_that_restart_elsewhere_are_named() {
    let blocked = [(one(0), Some(10)), (one(5), Some(10))];
    let is_named = |change: fn(&mut Cluster)| {
        let mut cluster = Cluster::new(&[&blocked, &blocked]);
        change(&mut cluster);
        !cluster.restarts().is_empty()
    };
    assert!(is_named(|_| {}));
    // No controller creates them again.
    assert!(!is_named(|cluster| cluster.pods.iter_mut().for_each(|pod| pod.owner = None)));
    assert!(!is_named(|cluster| {
        for pod in &mut cluster.pods {
            pod.owner.as_mut().unwrap().kind = "DaemonSet".to_owned();
        }
    }));
    // Their users are not known.
    assert!(!is_named(|cluster| {
        for holder in cluster.nodes.iter_mut().flat_map(|node| &mut node.holders) {
            holder.details.pod.as_mut().unwrap().name = None;
        }
    }));
    // A process that no holder has.
    let add_processes = |cluster: &mut Cluster| {
        for node in &mut cluster.nodes {
            let device = &mut node.inventory.devices[0];
            device.processes = (0..2).map(|id| process(100 + id, Some(id), Some(0))).collect();
        }
    };
    let mut cluster = Cluster::new(&[&blocked, &blocked]);
    add_processes(&mut cluster);
    assert!(cluster.restarts().is_empty());
    for holder in cluster.nodes.iter_mut().flat_map(|node| &mut node.holders) {
        holder.details.pid = holder.gpu_instance.map(|id| 100 + id);
    }
    assert!(!cluster.restarts().is_empty());
    // They cannot leave, or have a higher priority.
    for change in [
        |pod: &mut ClusterPod| pod.is_terminating = true,
        |pod: &mut ClusterPod| pod.priority = 1,
        |pod: &mut ClusterPod| {
            pod.requirements.tolerations = vec![Toleration::for_key("octavo.dev/repartitioning")];
        },
    ] {
        let mut cluster = Cluster::new(&[&blocked, &blocked]);
        cluster.pods.iter_mut().for_each(change);
        assert!(cluster.restarts().is_empty());
    }
    // They have another instance, too.
    assert!(!is_named(|cluster| {
        for pod in &mut cluster.pods {
            pod.requirements.amounts =
                pod.requirements.amounts.clone().with("nvidia.com/mig-2g.20gb", 1);
        }
    }));
    // They cannot run on another node.
    assert!(!is_named(|cluster| {
        for pod in &mut cluster.pods {
            pod.requirements.selector = [("zone".to_owned(), "elsewhere".to_owned())].into();
        }
    }));
}

#[test]
fn pod_restarts_only_on_a_node_with_room_for_all_its_resources() {
    let full: Vec<(Known, Option<i64>)> = (0..7).map(|start| (one(start), Some(10))).collect();
    assert!(Cluster::new(&[&full]).restarts().is_empty());

    let first = [((9, 0, 4), Some(10)), (one(4), Some(10))];
    let second = [((14, 0, 2), Some(10)), ((14, 2, 2), Some(10)), (one(5), Some(10))];
    let with_cpu = |first_cpu: u64, second_cpu: u64| {
        let mut cluster = Cluster::new(&[&first, &second]);
        for pod in &mut cluster.pods {
            let cpu = if pod.node.as_deref() == Some("gpu-0") { first_cpu } else { second_cpu };
            pod.requirements.amounts = pod.requirements.amounts.clone().with("cpu", cpu);
        }
        cluster.restarts()
    };
    // Each node has 8 CPUs.
    assert_eq!(with_cpu(1_000, 1_000), ["run-0-1"]);
    assert_eq!(with_cpu(1_000, 2_500), ["run-1-2"]);
    assert_eq!(with_cpu(4_000, 2_500), [""; 0]);
}

#[test]
fn device_that_is_reserved_for_the_pod_is_no_target_of_a_restart() {
    let emptiest = [one(0), one(1), one(4), one(5)].map(|known| (known, Some(10)));
    let other = [((9, 0, 4), Some(10)), (one(4), Some(10))];
    let cluster = Cluster::new(&[&emptiest, &other]);
    let proposal = |age: i64| {
        let report = cluster.with(&[pod("train", age, &[("3g.40gb", 1)])]);
        let proposal = only(&report);
        (proposal.outcome.clone(), proposal.node.clone(), proposal.defragmentation.is_some())
    };
    assert_eq!(proposal(60), (Outcome::Blocked.into(), None, true));
    assert_eq!(proposal(700), (Outcome::Reserve.into(), Some("gpu-0".to_owned()), false));
}

#[test]
fn room_is_proposed_for_one_pod_at_a_time() {
    let blocked = [(one(0), Some(10)), (one(5), Some(10))];
    let cluster = Cluster::new(&[&blocked, &blocked]);
    let pending = ["old", "new"].map(|name| pod(name, 60, &[("3g.40gb", 1)]));
    let report = cluster.with(&pending);
    let found: Vec<bool> = report.items.iter().map(|one| one.defragmentation.is_some()).collect();
    assert_eq!(found, [true, false]);
}

#[test]
fn pods_for_which_no_node_is_suitable_do_not_prevent_a_proposal() {
    let blocked = [(one(0), Some(10)), (one(5), Some(10))];
    let cluster = Cluster::new(&[&blocked, &blocked]);
    let mut pending: Vec<ClusterPod> =
        (0..20).map(|number| pod(&format!("old-{number}"), 90, &[("3g.40gb", 1)])).collect();
    for pod in &mut pending {
        pod.requirements.selector = [("zone".to_owned(), "elsewhere".to_owned())].into();
    }
    pending.push(pod("train", 60, &[("3g.40gb", 1)]));
    let report = cluster.with(&pending);
    assert!(report.items.last().unwrap().defragmentation.is_some());
}

#[test]
fn change_that_evicts_a_pod_has_its_uid_and_the_instances_afterwards() {
    let blocked = [(one(0), Some(10)), (one(5), Some(10))];
    let changes = |change: fn(&mut Cluster)| {
        let mut cluster = Cluster::new(&[&blocked, &blocked]);
        for pod in &mut cluster.pods {
            pod.uid = Some(format!("uid-{}", pod.key.name));
        }
        for node in &mut cluster.nodes {
            node.demand = policy(DemandMode::Act, 1);
        }
        change(&mut cluster);
        let pods = cluster.pods.iter().cloned().chain([pod("train", 60, &[("3g.40gb", 1)])]);
        let snapshot = ClusterSnapshot::new(cluster.objects.clone(), pods);
        propose(&snapshot, &cluster.nodes, NOW).changes
    };
    let [change] = changes(|_| {}).try_into().unwrap();
    assert_eq!(change.node, "gpu-0");
    let text = "create on node gpu-0: 3g.40gb at slice 0 of GPU 0; destroy after 1 pod is evicted: 1g.10gb at slice 0";
    assert_eq!(change.pods, [("team/train".to_owned(), text.to_owned())]);
    let evicted = PodEviction { pod: "team/run-0-0".to_owned(), uid: "uid-run-0-0".to_owned() };
    assert_eq!(change.evictions, [evicted]);
    let Mig::Capable(after) = &change.inventory.devices[0].mig else { panic!("an H100") };
    let after = after.gpu_instances.iter().map(|one| (one.profile_id, one.placement.start));
    assert_eq!(after.collect::<Vec<_>>(), [(9, 0), (19, 5)]);

    // A node whose policy can evict pods comes first.
    assert_eq!(
        changes(|cluster| cluster.nodes[0].demand = policy(DemandMode::Act, 0))[0].node,
        "gpu-1"
    );
    // The other instance must be created, but no policy does it.
    assert_eq!(changes(|cluster| cluster.nodes[1].demand = policy(DemandMode::Observe, 1)), []);
    // Another pod could have the name of a pod without a UID.
    assert_eq!(changes(|cluster| cluster.pods.iter_mut().for_each(|pod| pod.uid = None)), []);
}

fn policy(mode: DemandMode, evictions_per_hour: u32) -> PolicyDemand {
    PolicyDemand { mode, evictions_per_hour, ..PolicyDemand::default() }
}

#[test]
fn no_pod_is_evicted_if_a_later_pod_gets_an_instance_of_its_old_or_new_device() {
    let blocked = [(one(0), Some(10)), (one(5), Some(10))];
    let mut cluster = Cluster::new(&[&blocked, &blocked, &blocked]);
    for pod in &mut cluster.pods {
        pod.uid = Some(format!("uid-{}", pod.key.name));
    }
    for node in &mut cluster.nodes {
        node.demand = policy(DemandMode::Act, 1);
    }
    let pending = [pod("train", 90, &[("3g.40gb", 1)]), pod("small", 20, &[("1g.10gb", 1)])];
    for (target, expected) in [("gpu-0", None), ("gpu-1", None), ("gpu-2", Some("gpu-0"))] {
        let mut objects = cluster.objects.clone();
        for node in &mut objects {
            node.labels.insert("kubernetes.io/hostname".to_owned(), node.name.clone());
        }
        let mut pending = pending.clone();
        let hostname = ("kubernetes.io/hostname".to_owned(), target.to_owned());
        pending[1].requirements.selector = [hostname].into();
        let pods = cluster.pods.iter().cloned().chain(pending);
        let changes = propose(&ClusterSnapshot::new(objects, pods), &cluster.nodes, NOW).changes;
        let mut evicting = changes.iter().filter(|change| !change.evictions.is_empty());
        let evicting = evicting.next().map(|change| change.node.as_str());
        assert_eq!(evicting, expected, "{target}");
    }
}
