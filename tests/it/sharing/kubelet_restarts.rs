//! A restarted kubelet that does not know all its pods yet: their allocations remain.

use std::fs;

use super::plugin_mig::{HALF, HALVES, MIXED, ONE, SEVENTH, SEVENTHS, partitions};
use crate::device_plugin::{GPU, Rig, shared};
use crate::kubelet::PodListing;
use crate::record::{self, uid};
use crate::sockets::age;

const WHOLE: &str = "- {board: A100_40GB}\n";

#[test]
fn i1_pod_absent_from_restarted_kubelet_keeps_partition_until_it_ends() {
    let mut rig = Rig::new(ONE);
    let mut agent = rig.agent(HALVES, &[MIXED]);
    rig.kubelet.await_count(HALF, 2);
    let pod = rig.kubelet.admit("idle", HALF, 1).unwrap();
    rig.add_process(4711, "idle");
    agent.kill();
    // The API server is unavailable for longer than the minute in which kubelet's list is not trusted.
    rig.kubelet.set_behavior(|behavior| behavior.pod_listing = PodListing::Empty);
    rig.kubelet.restart();
    let mut agent = rig.agent(SEVENTHS, &[MIXED]);
    let line = agent.expect_log("GPU 0: blocked");
    assert!(line.contains(&format!("pod (UID {})", uid("idle"))), "{line}");
    assert!(partitions(&rig).contains(&pod.ids[0]));
    // Its checkpoint entry still exists, and its processes are gone.
    rig.remove_process(4711);
    rig.kubelet.await_count(SEVENTH, 7);
}

#[test]
fn i1_ended_pod_in_kubelet_checkpoint_is_no_holder() {
    let rig = Rig::new(ONE);
    let _agent = rig.agent(HALVES, &[MIXED]);
    rig.kubelet.await_count(HALF, 2);
    rig.kubelet.admit("train", HALF, 1).unwrap();
    rig.add_process(4711, "train");
    rig.kubelet.end_pod("train");
    rig.remove_process(4711);
    let record = fs::read_to_string(rig.directory().join(record::FILE)).unwrap();
    assert!(record.contains(&uid("train")), "{record}");
    rig.node.layouts(SEVENTHS);
    rig.kubelet.await_count(SEVENTH, 7);
}

#[test]
fn i1_checkpoint_names_pods_that_restarted_kubelet_does_not_list_yet() {
    let mut rig = Rig::new(WHOLE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.await_count(GPU, 4);
    for name in ["a", "b", "c"] {
        rig.kubelet.admit(name, GPU, 1).unwrap();
    }
    let held: Vec<String> =
        rig.kubelet.inspect(|known| known.pods.iter().flat_map(|pod| pod.ids.clone()).collect());
    agent.kill();
    rig.kubelet.set_behavior(|behavior| {
        behavior.pod_listing = PodListing::First(1);
        behavior.is_young = true;
    });
    rig.kubelet.restart();
    let mut agent = rig.agent(&shared(2), &[]);
    let line = agent.expect_log("sharing-held");
    assert!(line.contains(&uid("c")), "{line}");
    rig.kubelet.await_ids(GPU, &held);
}

#[test]
fn i1_restarted_kubelet_without_checkpoint_is_not_trusted() {
    let mut rig = Rig::new(WHOLE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.await_count(GPU, 4);
    for name in ["a", "b"] {
        rig.kubelet.admit(name, GPU, 1).unwrap();
    }
    agent.kill();
    rig.kubelet.set_behavior(|behavior| {
        behavior.pod_listing = PodListing::First(1);
        behavior.is_young = true;
    });
    rig.kubelet.restart();
    fs::remove_file(rig.directory().join(record::FILE)).unwrap();
    let mut agent = rig.agent(&shared(4), &[]);
    agent.expect_log(
        "no device is advertised yet, because the allocations are unknown: the kubelet has just started",
    );
    age(&rig.node.kubelet());
    rig.kubelet.await_count(GPU, 4);
}

#[test]
fn i1_kubelet_replaced_during_query_does_not_free_allocations() {
    let rig = Rig::new(WHOLE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.await_count(GPU, 4);
    for name in ["a", "b", "c"] {
        rig.kubelet.admit(name, GPU, 1).unwrap();
    }
    let held: Vec<String> =
        rig.kubelet.inspect(|known| known.pods.iter().flat_map(|pod| pod.ids.clone()).collect());
    fs::remove_file(rig.directory().join(record::FILE)).unwrap();
    rig.node.layouts(&shared(2));
    agent.expect_log("sharing-held");
    rig.kubelet.await_ids(GPU, &held);
    let requested = rig.kubelet.inspect(|known| known.requested);
    // From this response on it reports no pods.
    rig.kubelet.replace_on_next_query();
    rig.kubelet.wait("four questions", |known| known.requested >= requested + 4);
    rig.kubelet.await_ids(GPU, &held);
}

#[test]
fn i1_restarted_kubelet_delays_change_once_and_advertisement_stays() {
    let mut rig = Rig::new(ONE);
    let mut agent = rig.agent(HALVES, &[MIXED]);
    rig.kubelet.await_count(HALF, 2);
    agent.expect_log("sharing-in-force");
    rig.kubelet.set_behavior(|behavior| behavior.is_young = true);
    rig.kubelet.restart();
    rig.kubelet.await_count(HALF, 2);
    let lists = rig.kubelet.inspect(|known| known.resources[HALF].lists);
    rig.node.layouts(SEVENTHS);
    let line = agent.expect_log("GPU 0: blocked");
    assert!(line.contains("the kubelet has just started"), "{line}");
    // The engine queries kubelet in each of its rounds.
    let requested = rig.kubelet.inspect(|known| known.requested);
    rig.kubelet.wait("questions of many rounds", |known| known.requested >= requested + 12);
    assert_eq!(rig.kubelet.inspect(|known| known.resources[HALF].lists), lists);
    rig.kubelet.await_ids(HALF, &partitions(&rig));
    age(&rig.node.kubelet());
    rig.kubelet.await_count(SEVENTH, 7);
    let reported = agent.kill();
    let plans: Vec<&String> =
        reported.iter().filter(|line| line.contains("applying the layout")).collect();
    assert_eq!(plans.len(), 2, "{plans:?}");
    let blocked = reported.iter().filter(|line| line.contains("GPU 0: blocked"));
    assert_eq!(blocked.count(), 1, "{reported:?}");
}
