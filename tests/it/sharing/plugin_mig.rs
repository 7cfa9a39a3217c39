//! Advertised partitions that change while pods hold them.

use std::fs;
use std::time::{Duration, Instant};

use crate::device_plugin::{GPU, Rig};
use crate::kubelet::PodListing;

pub(super) const HALF: &str = "nvidia.com/mig-3g.20gb";
pub(super) const SEVENTH: &str = "nvidia.com/mig-1g.5gb";
pub(super) const ONE: &str = "- {board: A100_40GB, mig: enabled}\n";
pub(super) const HALVES: &str = "[{devices: all, mig: {3g.20gb: 2}}]";
pub(super) const SEVENTHS: &str = "[{devices: all, mig: {1g.5gb: 7}}]";
pub(super) const MIXED: &str = "--mig-strategy=mixed";

/// UUIDs of all MIG devices of the machine.
pub(super) fn partitions(rig: &Rig) -> Vec<String> {
    let world = rig.node.machine.world();
    let instances = world.gpus.iter().flat_map(|gpu| &gpu.mig);
    let instances = instances.flat_map(|mig| &mig.instances);
    instances.flat_map(|one| &one.compute).map(|one| one.uuid.clone()).collect()
}

#[test]
fn partitions_are_advertised_by_profile_and_change_without_restart() {
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(HALVES, &[MIXED]);
    rig.kubelet.await_count(HALF, 2);
    rig.kubelet.await_ids(HALF, &partitions(&rig));
    agent.expect_log("sharing-in-force");
    rig.node.layouts(SEVENTHS);
    rig.kubelet.await_count(SEVENTH, 7);
    rig.kubelet.await_ids(SEVENTH, &partitions(&rig));
    rig.kubelet.wait("the end of the old name", |known| !known.resources[HALF].is_connected);
    assert_eq!(rig.kubelet.inspect(|known| known.resources[HALF].devices.len()), 0);
}

#[test]
fn single_strategy_advertises_partitions_and_replicas_as_gpus() {
    let rig = Rig::new(ONE);
    let rules = "[{devices: all, mig: {3g.20gb: 2}, timeSlicing: {replicas: 2}}]";
    let _agent = rig.agent(rules, &["--mig-strategy=single"]);
    rig.kubelet.await_count(GPU, 4);
    let all = partitions(&rig);
    let replicas = all.iter().flat_map(|uuid| [format!("{uuid}::0"), format!("{uuid}::1")]);
    rig.kubelet.await_ids(GPU, &replicas.collect::<Vec<_>>());
}

#[test]
fn allocated_partitions_stay_listed_when_single_strategy_no_longer_fits() {
    let rig = Rig::new("- {board: A100_40GB, mig: enabled, count: 2}\n");
    let mut agent = rig.agent(HALVES, &["--mig-strategy=single"]);
    rig.kubelet.await_count(GPU, 4);
    let pod = rig.kubelet.admit("train", GPU, 1).unwrap();
    // The other GPU is repartitioned and this one is in use, so there are several profiles.
    rig.node.layouts(SEVENTHS);
    let line = agent.expect_log("sharing-held");
    assert!(line.contains("team-a/train"), "{line}");
    rig.kubelet.await_ids(GPU, &pod.ids);
    rig.kubelet.end_pod("train");
    rig.kubelet.await_count(GPU, 14);
}

#[test]
fn i1_allocated_partition_stays_until_pod_ends_and_uuid_is_not_reused() {
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(HALVES, &[MIXED]);
    rig.kubelet.await_count(HALF, 2);
    let pod = rig.kubelet.admit("train", HALF, 1).unwrap();
    let old = partitions(&rig);
    rig.node.layouts(SEVENTHS);
    let line = agent.expect_log("GPU 0: blocked");
    assert!(line.contains("pod team-a/train"), "{line}");
    assert!(partitions(&rig).contains(&pod.ids[0]));
    rig.kubelet.wait("the partition that is held", |known| {
        known.healthy(HALF).any(|id| *id == pod.ids[0])
    });
    rig.kubelet.end_pod("train");
    rig.kubelet.await_count(SEVENTH, 7);
    let now = partitions(&rig);
    assert!(now.iter().all(|uuid| !old.contains(uuid)), "{now:?}");
    rig.kubelet.await_ids(SEVENTH, &now);
}

#[test]
fn i1_new_allocation_is_not_destroyed_before_kubelet_reports_it() {
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(HALVES, &[MIXED]);
    rig.kubelet.await_count(HALF, 2);
    let given = partitions(&rig)[..1].to_vec();
    // Kubelet has requested it and has not recorded the pod.
    rig.kubelet.allocate(HALF, &given).unwrap();
    rig.node.layouts(SEVENTHS);
    let line = agent.expect_log("GPU 0: blocked");
    assert!(line.contains("being admitted"), "{line}");
    assert!(partitions(&rig).contains(&given[0]));
    // It never does: another part of kubelet refused the pod.
    rig.kubelet.await_count(SEVENTH, 7);
}

#[test]
fn i1_restarted_kubelet_without_pods_loses_no_partition_of_idle_pod() {
    let mut rig = Rig::new(ONE);
    let mut agent = rig.agent(HALVES, &[MIXED]);
    rig.kubelet.await_count(HALF, 2);
    let pod = rig.kubelet.admit("idle", HALF, 1).unwrap();
    // Kubelet has reported it, so queries are rare now.
    let requested = rig.kubelet.inspect(|known| known.requested);
    rig.kubelet.wait("two questions", |known| known.requested >= requested + 2);
    rig.kubelet.set_behavior(|behavior| behavior.pod_listing = PodListing::Empty);
    rig.kubelet.restart();
    rig.node.layouts(SEVENTHS);
    let line = agent.expect_log("GPU 0: blocked");
    assert!(line.contains("team-a/idle"), "{line}");
    assert!(partitions(&rig).contains(&pod.ids[0]));
}

#[test]
fn agent_with_unknown_previous_sharing_allocates_nothing_new() {
    let rig = Rig::new(ONE);
    let rules = "[{devices: all, mig: {3g.20gb: 2}, timeSlicing: {replicas: 2}}]";
    let mut agent = rig.agent(rules, &[MIXED]);
    rig.kubelet.await_count(HALF, 4);
    let pod = rig.kubelet.admit("train", HALF, 1).unwrap();
    agent.kill();
    fs::remove_file(rig.node.state().join("shared")).unwrap();
    let mut agent = rig.agent(SEVENTHS, &[MIXED]);
    let line = agent.expect_log("the sharing before the start of this agent is unknown");
    assert!(line.contains("GPU 0"), "{line}");
    rig.kubelet.await_ids(HALF, &pod.ids);
    rig.kubelet.end_pod("train");
    rig.kubelet.await_count(SEVENTH, 7);
}

#[test]
fn idle_devices_beside_blocking_pod_stay_advertised_after_restart() {
    let rig = Rig::new(ONE);
    let rules = "[{devices: all, mig: {3g.20gb: 2}, timeSlicing: {replicas: 2}}]";
    let mut agent = rig.agent(rules, &[MIXED]);
    rig.kubelet.await_count(HALF, 4);
    rig.kubelet.admit("train", HALF, 1).unwrap();
    rig.node.layouts(SEVENTHS);
    agent.expect_log("GPU 0: blocked");
    agent.kill();
    let mut agent = rig.agent(SEVENTHS, &[MIXED]);
    agent.expect_log("the previous sharing stays until the layout is applied");
    let all = partitions(&rig);
    let replicas = all.iter().flat_map(|uuid| [format!("{uuid}::0"), format!("{uuid}::1")]);
    rig.kubelet.await_ids(HALF, &replicas.collect::<Vec<_>>());
    // I1: a device that is allocated now is a blocker as well.
    let late = rig.kubelet.admit("late", HALF, 1).unwrap();
    rig.kubelet.end_pod("train");
    rig.kubelet.await_ids(
        HALF,
        &all.iter()
            .flat_map(|uuid| [format!("{uuid}::0"), format!("{uuid}::1")])
            .collect::<Vec<_>>(),
    );
    let uuid = late.ids[0].split("::").next().unwrap().to_owned();
    assert!(partitions(&rig).contains(&uuid));
    rig.kubelet.end_pod("late");
    rig.kubelet.await_count(SEVENTH, 7);
}

#[test]
fn device_pending_reset_is_advertised_unchanged_after_restart() {
    let rig = Rig::new("- {board: A100_40GB, count: 2}\n");
    rig.node.machine.faults("- {call: nvmlDeviceSetMigMode, activation: RESET_REQUIRED}");
    let rules = "[{devices: 0, mig: {3g.20gb: 2}}, {devices: 1, mig: disabled}]";
    let mut agent = rig.agent(rules, &[MIXED]);
    agent.expect_log("GPU 0: needs-reset");
    rig.kubelet.await_ids(GPU, &[rig.uuid(0), rig.uuid(1)]);
}

#[test]
fn sharing_and_partitioning_change_together() {
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(HALVES, &[MIXED]);
    rig.kubelet.await_count(HALF, 2);
    agent.expect_log("sharing-in-force");
    rig.kubelet.admit("train", HALF, 1).unwrap();
    let before = partitions(&rig);
    rig.node.layouts("[{devices: all, mig: {1g.5gb: 7}, timeSlicing: {replicas: 2}}]");
    agent.expect_log("GPU 0: blocked");
    let line = agent.expect_log("the previous sharing stays until the layout is applied");
    assert!(line.contains("GPU 0"), "{line}");
    rig.kubelet.await_ids(HALF, &before);
    rig.kubelet.end_pod("train");
    rig.kubelet.await_count(SEVENTH, 14);
    agent.expect_log("sharing-in-force");
}

#[test]
fn request_racing_a_change_gets_a_lasting_device_or_nothing() {
    let rig = Rig::new(ONE);
    let _agent = rig.agent(HALVES, &[MIXED]);
    rig.kubelet.await_count(HALF, 2);
    for turn in 0..4 {
        let names = [HALF, SEVENTH];
        let (old, new) = (names[turn % 2], names[(turn + 1) % 2]);
        rig.node.layouts([SEVENTHS, HALVES][turn % 2]);
        // Immediately, while the change is resolved, planned or executed.
        if let Ok(pod) = rig.kubelet.admit("quick", old, 1) {
            let requested = rig.kubelet.inspect(|known| known.requested);
            rig.kubelet.wait("two questions", |known| known.requested >= requested + 2);
            let there = partitions(&rig);
            assert!(there.contains(&pod.ids[0]), "{pod:?} of {there:?}");
            rig.kubelet.end_pod("quick");
        }
        rig.kubelet.await_count(new, if new == HALF { 2 } else { 7 });
        rig.kubelet.await_ids(new, &partitions(&rig));
    }
}

#[test]
fn partitions_are_advertised_under_their_profile_without_a_strategy() {
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(HALVES, &[]);
    rig.kubelet.await_count(HALF, 2);
    agent.expect_log("sharing-in-force");
}

#[test]
fn partitions_excluded_by_strategy_are_a_warning() {
    for strategy in ["none", "single"] {
        let rig = Rig::new("- {board: A100_40GB, mig: enabled, count: 2}\n");
        let rules = "[{devices: 0, mig: {3g.20gb: 2}}, {devices: 1, mig: {1g.5gb: 7}}]";
        let mut agent = rig.agent(rules, &[&format!("--mig-strategy={strategy}")]);
        let line = agent.expect_log("sharing-not-in-force");
        assert!(line.contains("GPU 0, GPU 1") && line.contains("agent.migStrategy"), "{line}");
    }
}

#[test]
fn blocked_gpu_is_withheld_and_its_layout_applied_despite_new_pods() {
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(HALVES, &[MIXED, "--withhold-after=1s"]);
    rig.kubelet.await_count(HALF, 2);
    for pod in ["p0", "p1"] {
        rig.kubelet.admit(pod, HALF, 1).unwrap();
    }
    rig.node.layouts(SEVENTHS);
    agent.expect_log("GPU 0: blocked");
    let end = Instant::now() + Duration::from_mins(2);
    let mut next = 2;
    // The next pod takes what the last one released; there is always one pod.
    while rig.kubelet.inspect(|known| known.healthy(SEVENTH).count()) < 7 {
        assert!(Instant::now() < end, "{next} pods");
        rig.kubelet.end_pod(&format!("p{}", next - 2));
        let _refused_or_none_is_free = rig.kubelet.admit(&format!("p{next}"), HALF, 1);
        next += 1;
        let requested = rig.kubelet.inspect(|known| known.requested);
        rig.kubelet.wait("a question", |known| known.requested > requested);
    }
    let reported = agent.kill();
    assert!(reported.iter().any(|line| line.contains("withheld from allocation")), "{reported:?}");
}

#[test]
fn withheld_gpu_is_advertised_again_when_the_choice_is_reverted() {
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(HALVES, &[MIXED, "--withhold-after=1s"]);
    rig.kubelet.await_count(HALF, 2);
    let pod = rig.kubelet.admit("train", HALF, 1).unwrap();
    let all = partitions(&rig);
    rig.node.layouts(SEVENTHS);
    agent.expect_log("idle partitions and replicas are withheld from allocation until the layout is applied: GPU 0");
    rig.kubelet.await_ids(HALF, &pod.ids);
    let idle: Vec<String> = all.iter().filter(|id| **id != pod.ids[0]).cloned().collect();
    let refused = rig.kubelet.allocate(HALF, &idle).unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    rig.node.layouts(HALVES);
    rig.kubelet.await_ids(HALF, &all);
    rig.kubelet.admit("next", HALF, 1).unwrap();
}
