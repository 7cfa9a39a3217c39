//! Tests of pending pods: what they wait for, and why.

use super::*;

fn pending(namespace: &str, name: &str, count: u64, selector: &[(&str, &str)]) -> ClusterPod {
    let mut pod = pod(name, None, GPU, count);
    pod.key.namespace = namespace.to_owned();
    pod.requirements.selector =
        selector.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    pod
}

/// Formats demands as `team-a nvidia-h200-141gb device: 2 pods 3 units: too few units are free on 1 node`.
fn words(availability: &Availability) -> Vec<String> {
    let demands = availability.demands.iter();
    let words = demands.map(|one| {
        let obstacles = one.obstacles.iter().flatten();
        let obstacles: Vec<String> =
            obstacles.map(|(obstacle, nodes)| obstacle.describe(*nodes)).collect();
        format!(
            "{} {} {}: {} pods {} units: {}",
            one.namespace,
            one.kind.as_str(),
            one.shape,
            one.pods,
            one.units,
            obstacles.join("; ")
        )
    });
    words.collect()
}

#[test]
fn pending_pods_are_grouped_by_namespace_and_obstacle() {
    let mut cordoned = node("cordoned", &[(TYPE, H200)], 8);
    cordoned.is_cordoned = true;
    let mut tainted = node("tainted", &[(TYPE, H200)], 8);
    tainted.taints = vec![taint("team-b")];
    let mut small = node("small", &[(TYPE, "nvidia-l4-24gb")], 8);
    small.allocatable = small.allocatable.with("cpu", 1000);
    let nodes = vec![node("busy", &[(TYPE, H200)], 8), cordoned, tainted, small];
    let mut hungry = pending("team-b", "hungry", 1, &[(TYPE, "nvidia-l4-24gb")]);
    hungry.requirements.amounts = hungry.requirements.amounts.with("cpu", 64_000);
    let mut gated = pending("team-c", "gated", 1, &[]);
    gated.phase = Phase::Gated;
    let pods = vec![
        pod("has", Some("busy"), GPU, 8),
        pending("team-a", "one", 1, &[(TYPE, H200)]),
        pending("team-a", "two", 1, &[(TYPE, H200)]),
        pending("team-a", "nowhere", 1, &[(TYPE, "nvidia-b200-192gb")]),
        pending("team-b", "any", 1, &[]),
        hungry,
        gated,
    ];
    let counted = counted(&[], Some(&snapshot(nodes, pods)));
    assert_eq!(
        words(&counted),
        [
            "team-a nvidia-b200-192gb device: 1 pods 1 units: the node selector or affinity excludes 4 nodes",
            "team-a nvidia-h200-141gb device: 2 pods 2 units: too few units are free on 1 node; 1 node is \
             cordoned; the pod does not tolerate a taint of 1 node; the node selector or affinity excludes 1 node",
            "team-b nvidia-l4-24gb device: 1 pods 1 units: too little CPU, memory or another resource is free on \
             1 node; the node selector or affinity excludes 3 nodes",
            "team-b unknown device: 1 pods 1 units: there is room on 1 node: the scheduler has not placed them \
             yet; too few units are free on 1 node; 1 node is cordoned; the pod does not tolerate a taint of 1 node",
        ]
    );
    assert_eq!(counted.omitted_pods, 0);
}

#[test]
fn demands_are_bounded() {
    let many = u32::try_from(MAX_DEMANDS).unwrap() + 5;
    let pods = (0..many).map(|number| pending(&format!("team-{number}"), "waits", 1, &[]));
    let counted = counted(&[], Some(&snapshot(Vec::new(), pods.collect())));
    assert_eq!((counted.demands.len(), counted.omitted_pods), (MAX_DEMANDS, 5));
    // Without cluster data, nothing is known of pods.
    assert_eq!(super::counted(&[], None).demands, []);
}

#[test]
fn requests_with_the_most_pods_are_explained() {
    let distinct = 300_u64;
    let pods = (1..=distinct).flat_map(|cpu| {
        let count = if cpu > distinct - 64 { 2 } else { 1 };
        (0..count).map(move |number| {
            let mut pod = pending("team-a", &format!("waits-{cpu}-{number}"), 1, &[(TYPE, H200)]);
            pod.requirements.amounts = pod.requirements.amounts.with("cpu", cpu);
            pod
        })
    });
    let nodes = vec![node("full", &[(TYPE, H200)], 8)];
    let mut pods: Vec<ClusterPod> = pods.collect();
    pods.push(pod("has", Some("full"), GPU, 8));
    let counted = counted(&[], Some(&snapshot(nodes, pods)));
    assert_eq!(
        words(&counted),
        [
            "team-a nvidia-h200-141gb device: 236 pods 236 units: ",
            "team-a nvidia-h200-141gb device: 128 pods 128 units: too few units are free on 1 node",
        ]
    );
}

#[test]
fn a_request_for_more_units_than_a_node_has_is_named() {
    let nodes = vec![node("node", &[(TYPE, H200)], 8)];
    let counted =
        counted(&[], Some(&snapshot(nodes, vec![pending("team-a", "big", 16, &[(TYPE, H200)])])));
    assert_eq!(
        words(&counted),
        [
            "team-a nvidia-h200-141gb device: 1 pods 16 units: 1 node has fewer units than the pod requests"
        ]
    );
}

#[test]
fn a_pod_with_several_resources_is_counted_once() {
    let mut pod = pending("team-a", "both", 1, &[]);
    pod.requirements.amounts = pod.requirements.amounts.with("nvidia.com/mig-1g.10gb", 1);
    let counted = counted(&[], Some(&snapshot(Vec::new(), vec![pod])));
    let pods = counted.demands.iter().map(|one| (one.pods, one.distinct_pods));
    assert_eq!(pods.collect::<Vec<_>>(), [(1, 1), (1, 0)]);
}
