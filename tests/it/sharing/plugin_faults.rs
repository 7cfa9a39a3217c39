//! What goes wrong between an agent that gives devices out and its kubelet: no hot loop, no wrong id, and a way back.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use crate::device_plugin::{GPU, Rig, shared};
use crate::kubelet::{Pod, Tells};
use crate::sockets::age;

const EIGHT: &str = "- {board: A100_40GB, count: 8}\n";
const ONE: &str = "- {board: A100_40GB}\n";

#[test]
fn a_kubelet_that_is_started_again_sixty_times_in_a_row_has_all_of_them_each_time() {
    let mut rig = Rig::new(EIGHT);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.counts(GPU, 32);
    let pod = rig.kubelet.admit("stays", GPU, 1).unwrap();
    for _ in 0..60 {
        rig.kubelet.restart();
        rig.kubelet.counts(GPU, 32);
        rig.kubelet.allocate(GPU, &pod.ids).unwrap();
    }
    let registrations = rig.kubelet.knows(|known| known.registrations);
    // One for each start; a few more where it ended while it was being told.
    assert!((61..=90).contains(&registrations), "{registrations}");
    let said = agent.kill();
    let lines = said.len();
    assert!(lines < 61 * 8, "{lines} lines: {}", said.join("\n"));
}

#[test]
fn sockets_that_are_wiped_under_a_living_kubelet_are_made_anew() {
    let rig = Rig::new(ONE);
    let _agent = rig.agent(&shared(4), &[]);
    rig.kubelet.counts(GPU, 4);
    for round in 2..=4 {
        fs::remove_file(rig.folder().join("octavo-gpu.sock")).unwrap();
        rig.kubelet.wait("another registration", |known| {
            known.registrations >= round && known.healthy(GPU).count() == 4
        });
    }
    rig.kubelet.admit("a", GPU, 1).unwrap();
}

#[test]
fn a_folder_that_is_removed_and_made_anew_is_found_again() {
    let mut rig = Rig::new(ONE);
    let _agent = rig.agent(&shared(4), &[]);
    rig.kubelet.counts(GPU, 4);
    rig.kubelet.stop();
    fs::remove_dir_all(rig.folder()).unwrap();
    rig.kubelet.restart();
    rig.kubelet.counts(GPU, 4);
}

#[test]
fn a_folder_where_nothing_can_be_made_is_told_and_tried_again_without_haste() {
    let mut rig = Rig::new(ONE);
    let place = rig.folder();
    fs::remove_file(place.join("kubelet.sock")).unwrap();
    fs::remove_dir(&place).unwrap();
    // Not even root can make a socket there.
    symlink("/proc", &place).unwrap();
    let mut agent = rig.agent(&shared(4), &[]);
    agent.says("cannot be served in");
    agent.says("sharing-pending");
    fs::remove_file(&place).unwrap();
    rig.kubelet.restart();
    rig.kubelet.counts(GPU, 4);
    let said = agent.kill();
    let complaints = said.iter().filter(|line| line.contains("cannot be served"));
    assert!(complaints.count() < 3, "{}", said.join("\n"));
}

#[test]
fn what_kubelet_refuses_is_tried_ever_more_seldom_and_a_version_it_does_not_speak_not_at_all() {
    let mut rig = Rig::new(ONE);
    rig.kubelet
        .behaves(|manners| manners.refuses = Some("not today".to_owned()));
    let mut agent = rig.agent(&shared(4), &["--sharing-deadline=3s"]);
    let line = agent.says("sharing-not-in-force");
    assert!(line.contains("not today"), "{line}");
    let before = rig.kubelet.knows(|known| known.registrations);
    assert!((2..=4).contains(&before), "{before}");
    let unsupported = "requested API version \"v1beta1\" is not supported by kubelet. Supported version is \"v2\"";
    rig.kubelet
        .behaves(|manners| manners.refuses = Some(unsupported.to_owned()));
    let line = agent.says("does not speak v1beta1");
    assert!(line.contains("v2"), "{line}");
    let before = rig.kubelet.knows(|known| known.registrations);
    // Something happens that makes it look at everything anew, more than once.
    for replicas in [5, 6] {
        rig.node.layouts(&shared(replicas));
        agent.says("layout wanted");
    }
    assert_eq!(rig.kubelet.knows(|known| known.registrations), before);
    rig.kubelet.behaves(|manners| manners.refuses = None);
    rig.kubelet.restart();
    rig.kubelet.counts(GPU, 6);
    agent.says("sharing-in-force");
}

#[test]
fn a_slow_reader_misses_lists_in_between_and_never_the_last() {
    let rig = Rig::new(EIGHT);
    let mut agent = rig.agent(&shared(2), &[]);
    rig.kubelet.counts(GPU, 16);
    let before = rig.kubelet.knows(|known| known.resources[GPU].lists);
    rig.kubelet.behaves(|manners| manners.reads_nothing = true);
    for replicas in 3..60 {
        rig.node.layouts(&shared(replicas));
        if replicas % 10 == 0 {
            agent.says("layout wanted");
        }
    }
    rig.node.layouts(&shared(7));
    rig.kubelet.behaves(|manners| manners.reads_nothing = false);
    rig.kubelet.counts(GPU, 56);
    agent.says("sharing-in-force");
    let lists = rig.kubelet.knows(|known| known.resources[GPU].lists) - before;
    assert!(lists <= 58, "{lists}");
}

#[test]
fn another_plugin_for_the_name_is_told_and_not_fought() {
    let rig = Rig::new(ONE);
    let other = UnixListener::bind(rig.folder().join("nvidia-gpu.sock")).unwrap();
    let mut agent = rig.agent(&shared(4), &[]);
    let line = agent.says("device-plugin-conflict");
    assert!(line.contains("nvidia-gpu.sock"), "{line}");
    assert_eq!(rig.kubelet.knows(|known| known.registrations), 0);
    drop(other);
    fs::remove_file(rig.folder().join("nvidia-gpu.sock")).unwrap();
    rig.kubelet.counts(GPU, 4);
    agent.says("sharing-in-force");
    // One whose socket is called otherwise: kubelet would give out what is not ours.
    let strange: BTreeSet<String> = ["GPU-strange".to_owned()].into();
    rig.kubelet
        .behaves(|manners| drop(manners.others.insert(GPU.to_owned(), strange)));
    // It asks soon only while something is awaited.
    rig.kubelet.admit("a", GPU, 1).unwrap();
    let line = agent.says("device-plugin-conflict");
    assert!(line.contains("GPU-strange"), "{line}");
    let before = rig.kubelet.knows(|known| known.registrations);
    assert_eq!(before, 1);
}

#[test]
fn while_kubelet_does_not_tell_who_has_what_nothing_is_taken_away() {
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(&shared(4), &["--sharing-deadline=3s"]);
    rig.kubelet.counts(GPU, 4);
    agent.says("sharing-in-force");
    rig.kubelet
        .behaves(|manners| manners.tells = Tells::Nothing);
    // An allocation makes it ask.
    rig.kubelet.allocate(GPU, &rig.replicas(0, &[3])).unwrap();
    let line = agent.says("sharing-pending");
    assert!(
        line.contains("did not tell its pods' devices within 2 s"),
        "{line}"
    );
    rig.node.layouts(&shared(2));
    agent.says("sharing-not-in-force");
    rig.kubelet.counts(GPU, 4);
    let asked = rig.kubelet.knows(|known| known.asked);
    assert!(asked < 20, "{asked}");
    rig.kubelet.behaves(|manners| manners.tells = Tells::All);
    // The third of them was given out a moment ago, and kubelet has a while to tell of it: two are too many.
    rig.kubelet.offers(GPU, &rig.replicas(0, &[0, 3]));
}

#[test]
fn a_socket_in_the_place_of_ours_is_left_to_who_listens_there_and_taken_back_from_nobody() {
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.counts(GPU, 4);
    agent.says("sharing-in-force");
    let (ours, draft) = (
        rig.folder().join("octavo-gpu.sock"),
        rig.folder().join("draft"),
    );
    let other = UnixListener::bind(&draft).unwrap();
    fs::rename(&draft, &ours).unwrap();
    let line = agent.says("device-plugin-conflict");
    assert!(line.contains("octavo-gpu.sock"), "{line}");
    // It is still the other's.
    std::os::unix::net::UnixStream::connect(&ours).unwrap();
    other.accept().unwrap();
    drop(other);
    agent.says("sharing-in-force");
    rig.kubelet.admit("a", GPU, 1).unwrap();
}

#[test]
fn a_second_agent_of_a_node_leaves_the_sockets_to_the_first_until_that_ends() {
    let rig = Rig::new(ONE);
    let first = rig.agent(&shared(4), &[]);
    rig.kubelet.counts(GPU, 4);
    let mut second = rig.agent(&shared(4), &[]);
    let line = second.says("only what pods have is listed: ");
    assert!(line.contains("sharing-pending"), "{line}");
    rig.kubelet.admit("a", GPU, 1).unwrap();
    assert_eq!(rig.kubelet.knows(|known| known.registrations), 1);
    drop(first);
    second.says("sharing-in-force");
    rig.kubelet.counts(GPU, 4);
}

#[test]
fn an_unknown_layout_at_the_start_takes_no_device_away() {
    let rig = Rig::new(ONE);
    let layouts = rig.node.layouts(&shared(4));
    let folder = rig.folder().display().to_string();
    let mut agent = rig.node.start(&[
        "--sharing=embedded",
        "--interval=500ms",
        "--layouts",
        &layouts,
        "--layout=unheard-of",
        "--device-plugins",
        &folder,
    ]);
    agent.says("there is no layout \"unheard-of\" for this node");
    agent.says("sharing-in-force");
    rig.kubelet.counts(GPU, 1);
}

#[test]
fn a_kubelet_that_was_started_just_now_and_knows_no_pod_is_not_believed() {
    let mut rig = Rig::new(ONE);
    rig.kubelet.behaves(|manners| manners.is_young = true);
    rig.kubelet.restart();
    let mut agent = rig.agent(&shared(4), &[]);
    agent.says(
        "nothing is listed yet, as it is not known who has what: kubelet was started just now",
    );
    age(&rig.node.kubelet());
    rig.kubelet.counts(GPU, 4);
}

#[test]
fn before_kubelet_has_told_who_has_what_nothing_is_given_out() {
    let rig = Rig::new(ONE);
    rig.kubelet
        .behaves(|manners| manners.tells = Tells::Nothing);
    let mut agent = rig.agent(&shared(4), &["--sharing-deadline=1s"]);
    agent.says("sharing-not-in-force");
    rig.kubelet.counts(GPU, 0);
    rig.kubelet.behaves(|manners| manners.tells = Tells::All);
    rig.kubelet.counts(GPU, 4);
}

#[test]
fn a_kubelet_that_was_just_started_and_knows_no_pod_yet_takes_nothing_from_those_that_run() {
    let mut rig = Rig::new(ONE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.counts(GPU, 4);
    for name in ["a", "b", "c"] {
        rig.kubelet.admit(name, GPU, 1).unwrap();
    }
    let held: Vec<String> = rig
        .kubelet
        .knows(|known| known.pods.iter().flat_map(|pod| pod.ids.clone()).collect());
    rig.node.layouts(&shared(2));
    agent.says("sharing-held");
    rig.kubelet.offers(GPU, &held);
    rig.kubelet.behaves(|manners| manners.tells = Tells::OfNone);
    let asked = rig.kubelet.knows(|known| known.asked);
    rig.kubelet.restart();
    rig.kubelet
        .wait("three questions", |known| known.asked >= asked + 3);
    rig.kubelet.offers(GPU, &held);
}

#[test]
fn a_kubelet_that_does_not_tell_what_it_would_give_out_is_believed_when_it_has_read_the_list() {
    let rig = Rig::new(ONE);
    rig.kubelet.behaves(|manners| manners.is_old = true);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.counts(GPU, 4);
    agent.says("sharing-in-force");
}

#[test]
fn a_gpu_that_is_lost_is_not_given_out_and_comes_back_and_the_others_never_notice() {
    let rig = Rig::new("- {board: A100_40GB, count: 2}\n");
    let mut agent = rig.agent(&shared(2), &[]);
    rig.kubelet.counts(GPU, 4);
    let pod = rig.kubelet.admit("runs", GPU, 1).unwrap();
    let lost = usize::from(pod.ids[0].starts_with(&rig.uuid(1)));
    let index = u32::try_from(lost).unwrap();
    let slot = rig.node.machine.world().slot_of_index(index).unwrap();
    rig.node.machine.change(|world| world.lose_gpu(slot));
    // By a look, not only by the Xid: a device that says it fell off the bus and was never seen to be gone is watched for longer.
    agent.says("failing: ");
    rig.kubelet.offers(GPU, &rig.replicas(1 - lost, &[0, 1]));
    let ids = rig.replicas(lost, &[0, 1]);
    let known = rig
        .kubelet
        .knows(|known| known.resources[GPU].devices.clone());
    assert!(ids.iter().all(|id| known.contains_key(id)), "{known:?}");
    let error = rig.kubelet.allocate(GPU, &ids[..1]).unwrap_err();
    assert!(error.message().contains("not fit"), "{error}");
    rig.kubelet.admit("next", GPU, 1).unwrap();
    rig.node.machine.change(|world| world.return_gpu(slot));
    rig.kubelet.counts(GPU, 4);
    agent.says("device-healthy");
}

#[test]
fn a_gpu_that_is_lost_in_the_middle_of_many_requests_gives_no_wrong_id() {
    let rig = Rig::new(EIGHT);
    let _agent = rig.agent(&shared(8), &[]);
    rig.kubelet.counts(GPU, 64);
    let slot = rig.node.machine.world().slot_of_index(3).unwrap();
    let mut given: Vec<Pod> = Vec::new();
    for number in 0..60 {
        if number == 20 {
            rig.node.machine.change(|world| world.lose_gpu(slot));
        }
        match rig.kubelet.admit(&format!("pod-{number}"), GPU, 1) {
            Ok(pod) => given.push(pod),
            Err(error) => assert!(
                error.message().contains("not fit") || error.message().contains("not enough"),
                "{error}"
            ),
        }
    }
    let ids: BTreeSet<&String> = given.iter().flat_map(|pod| &pod.ids).collect();
    assert_eq!(ids.len(), given.len());
    assert!(given.len() >= 48, "{}", given.len());
}

#[test]
fn a_storm_of_xids_is_no_storm_of_lists() {
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.counts(GPU, 4);
    agent.says("sharing-in-force");
    let slot = rig.node.machine.world().slot_of_index(0).unwrap();
    for _ in 0..500 {
        // Of an application: nothing is wrong with the device. Source: NVIDIA, "Xid Errors".
        rig.node.machine.change(|world| world.xid(slot, 31, None));
    }
    rig.kubelet.admit("after", GPU, 1).unwrap();
    let lists = rig.kubelet.knows(|known| known.resources[GPU].lists);
    assert!(lists <= 3, "{lists}");
    assert_eq!(rig.kubelet.knows(|known| known.registrations), 1);
}

#[test]
fn a_thousand_pods_are_given_a_replica_each_and_no_replica_is_given_twice() {
    let rig = Rig::new(EIGHT);
    let _agent = rig.agent(&shared(128), &[]);
    rig.kubelet.counts(GPU, 1024);
    let began = tokio::time::Instant::now();
    for number in 0..1000 {
        rig.kubelet.admit(&format!("pod-{number}"), GPU, 1).unwrap();
    }
    let took = began.elapsed();
    assert!(took < Duration::from_mins(5), "{took:?}");
    let (ids, pods) = rig.kubelet.knows(|known| {
        let ids: BTreeSet<String> = known.pods.iter().flat_map(|pod| pod.ids.clone()).collect();
        (ids.len(), known.pods.len())
    });
    assert_eq!((ids, pods), (1000, 1000));
    // What they have stays, and of what nobody has so much that there are 126 of each.
    let left: usize = rig.kubelet.knows(|known| {
        let all = known.pods.iter().flat_map(|pod| &pod.ids);
        let all: Vec<&String> = all.collect();
        let of = |gpu| {
            all.iter()
                .filter(|id| id.starts_with(&rig.uuid(gpu)))
                .count()
        };
        (0..8).map(|gpu| of(gpu).max(126)).sum()
    });
    rig.node.layouts(&shared(126));
    rig.kubelet.counts(GPU, left);
}
