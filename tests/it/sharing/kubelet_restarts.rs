//! A restarted kubelet that does not know all its pods yet: their earlier allocations remain.

use std::fs;

use super::plugin_mig::{HALF, HALVES, MIXED, ONE, SEVENTH, SEVENTHS, partitions};
use crate::device_plugin::{GPU, Rig, shared};
use crate::kubelet::Tells;
use crate::record::{self, uid};
use crate::sockets::age;

const WHOLE: &str = "- {board: A100_40GB}\n";

#[test]
fn i1_pod_absent_from_restarted_kubelet_keeps_partition_until_it_ends() {
    let mut rig = Rig::new(ONE);
    let mut agent = rig.agent(HALVES, &[MIXED]);
    rig.kubelet.counts(HALF, 2);
    let pod = rig.kubelet.admit("idle", HALF, 1).unwrap();
    rig.runs(4711, "idle");
    agent.kill();
    // The API server is unavailable for longer than the minute in which kubelet's list is not trusted.
    rig.kubelet.behaves(|manners| manners.tells = Tells::OfNone);
    rig.kubelet.restart();
    let mut agent = rig.agent(SEVENTHS, &[MIXED]);
    let line = agent.says("GPU 0: blocked");
    assert!(line.contains(&format!("pod (UID {})", uid("idle"))), "{line}");
    assert!(partitions(&rig).contains(&pod.ids[0]));
    // Its record still has it, and its processes are gone.
    rig.dies(4711);
    rig.kubelet.counts(SEVENTH, 7);
}

#[test]
fn i1_ended_pod_in_kubelet_checkpoint_is_no_holder() {
    let rig = Rig::new(ONE);
    let _agent = rig.agent(HALVES, &[MIXED]);
    rig.kubelet.counts(HALF, 2);
    rig.kubelet.admit("train", HALF, 1).unwrap();
    rig.runs(4711, "train");
    rig.kubelet.ended("train");
    rig.dies(4711);
    let record = fs::read_to_string(rig.directory().join(record::FILE)).unwrap();
    assert!(record.contains(&uid("train")), "{record}");
    rig.node.layouts(SEVENTHS);
    rig.kubelet.counts(SEVENTH, 7);
}

#[test]
fn i1_checkpoint_names_pods_that_restarted_kubelet_does_not_list_yet() {
    let mut rig = Rig::new(WHOLE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.counts(GPU, 4);
    for name in ["a", "b", "c"] {
        rig.kubelet.admit(name, GPU, 1).unwrap();
    }
    let held: Vec<String> =
        rig.kubelet.knows(|known| known.pods.iter().flat_map(|pod| pod.ids.clone()).collect());
    agent.kill();
    rig.kubelet.behaves(|manners| {
        manners.tells = Tells::OfFirst(1);
        manners.is_young = true;
    });
    rig.kubelet.restart();
    let mut agent = rig.agent(&shared(2), &[]);
    let line = agent.says("sharing-held");
    assert!(line.contains(&uid("c")), "{line}");
    rig.kubelet.offers(GPU, &held);
}

#[test]
fn i1_restarted_kubelet_without_checkpoint_is_not_trusted() {
    let mut rig = Rig::new(WHOLE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.counts(GPU, 4);
    for name in ["a", "b"] {
        rig.kubelet.admit(name, GPU, 1).unwrap();
    }
    agent.kill();
    rig.kubelet.behaves(|manners| {
        manners.tells = Tells::OfFirst(1);
        manners.is_young = true;
    });
    rig.kubelet.restart();
    fs::remove_file(rig.directory().join(record::FILE)).unwrap();
    let mut agent = rig.agent(&shared(4), &[]);
    agent.says(
        "no device is advertised yet, because the allocations are unknown: the kubelet has just started",
    );
    age(&rig.node.kubelet());
    rig.kubelet.counts(GPU, 4);
}

#[test]
fn i1_kubelet_replaced_during_query_does_not_free_allocations() {
    let rig = Rig::new(WHOLE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.counts(GPU, 4);
    for name in ["a", "b", "c"] {
        rig.kubelet.admit(name, GPU, 1).unwrap();
    }
    let held: Vec<String> =
        rig.kubelet.knows(|known| known.pods.iter().flat_map(|pod| pod.ids.clone()).collect());
    fs::remove_file(rig.directory().join(record::FILE)).unwrap();
    rig.node.layouts(&shared(2));
    agent.says("sharing-held");
    rig.kubelet.offers(GPU, &held);
    let requested = rig.kubelet.knows(|known| known.requested);
    // From this answer on it reports no pods.
    rig.kubelet.gives_way();
    rig.kubelet.wait("four questions", |known| known.requested >= requested + 4);
    rig.kubelet.offers(GPU, &held);
}

#[test]
fn i1_restarted_kubelet_delays_change_once_and_advertisement_stays() {
    let mut rig = Rig::new(ONE);
    let mut agent = rig.agent(HALVES, &[MIXED]);
    rig.kubelet.counts(HALF, 2);
    agent.says("sharing-in-force");
    rig.kubelet.behaves(|manners| manners.is_young = true);
    rig.kubelet.restart();
    rig.kubelet.counts(HALF, 2);
    let lists = rig.kubelet.knows(|known| known.resources[HALF].lists);
    rig.node.layouts(SEVENTHS);
    let line = agent.says("GPU 0: blocked");
    assert!(line.contains("the kubelet has just started"), "{line}");
    // The engine asks kubelet for each of its rounds.
    let requested = rig.kubelet.knows(|known| known.requested);
    rig.kubelet.wait("questions of many rounds", |known| known.requested >= requested + 12);
    assert_eq!(rig.kubelet.knows(|known| known.resources[HALF].lists), lists);
    rig.kubelet.offers(HALF, &partitions(&rig));
    age(&rig.node.kubelet());
    rig.kubelet.counts(SEVENTH, 7);
    let reported = agent.kill();
    let plans: Vec<&String> =
        reported.iter().filter(|line| line.contains("applying the layout")).collect();
    assert_eq!(plans.len(), 2, "{plans:?}");
    let blocked = reported.iter().filter(|line| line.contains("GPU 0: blocked"));
    assert_eq!(blocked.count(), 1, "{reported:?}");
}
