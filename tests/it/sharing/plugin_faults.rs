//! Faults between the built-in device plugin and its kubelet: no busy loop, no wrong id, and recovery.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use crate::device_plugin::{GPU, Rig, shared};
use crate::kubelet::{Pod, PodListing};
use crate::sockets::age;

const EIGHT: &str = "- {board: A100_40GB, count: 8}\n";
const ONE: &str = "- {board: A100_40GB}\n";

#[test]
fn plugin_reregisters_after_sixty_consecutive_kubelet_restarts() {
    let mut rig = Rig::new(EIGHT);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.await_count(GPU, 32);
    let pod = rig.kubelet.admit("stays", GPU, 1).unwrap();
    for _ in 0..60 {
        rig.kubelet.restart();
        rig.kubelet.await_count(GPU, 32);
        rig.kubelet.allocate(GPU, &pod.ids).unwrap();
    }
    let registrations = rig.kubelet.inspect(|known| known.registrations);
    // One per start; a few more if it ended during the registration.
    assert!((61..=65).contains(&registrations), "{registrations}");
    let reported = agent.kill();
    let lines = reported.len();
    assert!(lines < 61 * 8, "{lines} lines: {}", reported.join("\n"));
}

#[test]
fn sockets_deleted_under_running_kubelet_are_recreated() {
    let rig = Rig::new(ONE);
    let _agent = rig.agent(&shared(4), &[]);
    rig.kubelet.await_count(GPU, 4);
    for round in 2..=4 {
        fs::remove_file(rig.directory().join("octavo-gpu.sock")).unwrap();
        rig.kubelet.wait("another registration", |known| {
            known.registrations >= round && known.healthy(GPU).count() == 4
        });
    }
    rig.kubelet.admit("a", GPU, 1).unwrap();
}

#[test]
fn recreated_directory_is_found_again() {
    let mut rig = Rig::new(ONE);
    let _agent = rig.agent(&shared(4), &[]);
    rig.kubelet.await_count(GPU, 4);
    rig.kubelet.stop();
    fs::remove_dir_all(rig.directory()).unwrap();
    rig.kubelet.restart();
    rig.kubelet.await_count(GPU, 4);
}

#[test]
fn read_only_directory_is_reported_and_retried_with_backoff() {
    let mut rig = Rig::new(ONE);
    let place = rig.directory();
    fs::remove_file(place.join("kubelet.sock")).unwrap();
    fs::remove_dir(&place).unwrap();
    // Not even root can create a socket there.
    symlink("/proc", &place).unwrap();
    let mut agent = rig.agent(&shared(4), &[]);
    agent.expect_log("cannot serve nvidia.com/gpu");
    agent.expect_log("sharing-pending");
    fs::remove_file(&place).unwrap();
    rig.kubelet.restart();
    rig.kubelet.await_count(GPU, 4);
    let reported = agent.kill();
    let complaints = reported.iter().filter(|line| line.contains("cannot serve nvidia.com/gpu"));
    assert!(complaints.count() < 3, "{}", reported.join("\n"));
}

#[test]
fn refused_registration_backs_off_and_unsupported_version_is_not_retried() {
    let mut rig = Rig::new(ONE);
    rig.kubelet.set_behavior(|behavior| behavior.refuses = Some("not today".to_owned()));
    let mut agent = rig.agent(&shared(4), &["--sharing-deadline=3s"]);
    let line = agent.expect_log("sharing-not-in-force");
    assert!(line.contains("not today"), "{line}");
    let before = rig.kubelet.inspect(|known| known.registrations);
    assert!((2..=4).contains(&before), "{before}");
    let unsupported = "requested API version \"v1beta1\" is not supported by kubelet. Supported version is \"v2\"";
    rig.kubelet.set_behavior(|behavior| behavior.refuses = Some(unsupported.to_owned()));
    let line = agent.expect_log("does not support v1beta1");
    assert!(line.contains("v2"), "{line}");
    let before = rig.kubelet.inspect(|known| known.registrations);
    // An event triggers several readings.
    for replicas in [5, 6] {
        rig.node.layouts(&shared(replicas));
        agent.expect_log("layout resolved layout=wanted");
    }
    assert_eq!(rig.kubelet.inspect(|known| known.registrations), before);
    rig.kubelet.set_behavior(|behavior| behavior.refuses = None);
    rig.kubelet.restart();
    rig.kubelet.await_count(GPU, 6);
    agent.expect_log("sharing-in-force");
}

#[test]
fn slow_reader_skips_intermediate_lists_but_not_the_latest() {
    let rig = Rig::new(EIGHT);
    let mut agent = rig.agent(&shared(2), &[]);
    rig.kubelet.await_count(GPU, 16);
    let before = rig.kubelet.inspect(|known| known.resources[GPU].lists);
    rig.kubelet.set_behavior(|behavior| behavior.reads_no_lists = true);
    for replicas in 3..60 {
        rig.node.layouts(&shared(replicas));
        if replicas % 10 == 0 {
            agent.expect_log("layout resolved layout=wanted");
        }
    }
    rig.node.layouts(&shared(7));
    rig.kubelet.set_behavior(|behavior| behavior.reads_no_lists = false);
    rig.kubelet.await_count(GPU, 56);
    agent.expect_log("sharing-in-force");
    let lists = rig.kubelet.inspect(|known| known.resources[GPU].lists) - before;
    assert!(lists <= 58, "{lists}");
}

#[test]
fn another_plugin_for_the_resource_is_reported_and_not_replaced() {
    let rig = Rig::new(ONE);
    let other = UnixListener::bind(rig.directory().join("nvidia-gpu.sock")).unwrap();
    let mut agent = rig.agent(&shared(4), &[]);
    let line = agent.expect_log("device-plugin-conflict");
    assert!(line.contains("nvidia-gpu.sock"), "{line}");
    assert_eq!(rig.kubelet.inspect(|known| known.registrations), 0);
    drop(other);
    fs::remove_file(rig.directory().join("nvidia-gpu.sock")).unwrap();
    rig.kubelet.await_count(GPU, 4);
    agent.expect_log("sharing-in-force");
    // A plugin with another socket name: kubelet would allocate a foreign id.
    let strange: BTreeSet<String> = ["GPU-strange".to_owned()].into();
    rig.kubelet.set_behavior(|behavior| drop(behavior.others.insert(GPU.to_owned(), strange)));
    // It polls quickly only while it waits for a change.
    rig.kubelet.admit("a", GPU, 1).unwrap();
    let line = agent.expect_log("device-plugin-conflict");
    assert!(line.contains("GPU-strange"), "{line}");
    let before = rig.kubelet.inspect(|known| known.registrations);
    assert_eq!(before, 1);
}

#[test]
fn devices_stay_advertised_while_kubelet_reports_no_allocations() {
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(&shared(4), &["--sharing-deadline=3s"]);
    rig.kubelet.await_count(GPU, 4);
    agent.expect_log("sharing-in-force");
    rig.kubelet.set_behavior(|behavior| behavior.pod_listing = PodListing::Never);
    // An allocation triggers a query.
    rig.kubelet.allocate(GPU, &rig.replicas(0, &[3])).unwrap();
    let line = agent.expect_log("sharing-pending");
    assert!(line.contains("did not list the devices of its pods within 2 s"), "{line}");
    rig.node.layouts(&shared(2));
    agent.expect_log("sharing-not-in-force");
    rig.kubelet.await_count(GPU, 4);
    let requested = rig.kubelet.inspect(|known| known.requested);
    assert!(requested < 20, "{requested}");
    rig.kubelet.set_behavior(|behavior| behavior.pod_listing = PodListing::All);
    // The third was just allocated and kubelet has not reported it yet: two are too many.
    rig.kubelet.await_ids(GPU, &rig.replicas(0, &[0, 3]));
}

#[test]
fn foreign_socket_is_retained_and_stale_socket_is_replaced() {
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.await_count(GPU, 4);
    agent.expect_log("sharing-in-force");
    let (ours, draft) = (rig.directory().join("octavo-gpu.sock"), rig.directory().join("draft"));
    let other = UnixListener::bind(&draft).unwrap();
    fs::rename(&draft, &ours).unwrap();
    let line = agent.expect_log("device-plugin-conflict");
    assert!(line.contains("octavo-gpu.sock"), "{line}");
    // The socket still belongs to the other listener.
    std::os::unix::net::UnixStream::connect(&ours).unwrap();
    other.accept().unwrap();
    drop(other);
    agent.expect_log("sharing-in-force");
    rig.kubelet.admit("a", GPU, 1).unwrap();
}

#[test]
fn second_agent_leaves_sockets_to_first_until_it_exits() {
    let rig = Rig::new(ONE);
    let first = rig.agent(&shared(4), &[]);
    rig.kubelet.await_count(GPU, 4);
    let mut second = rig.agent(&shared(4), &[]);
    let line = second
        .expect_log("only allocated devices are advertised until the desired layout is known: ");
    assert!(line.contains("sharing-pending"), "{line}");
    rig.kubelet.admit("a", GPU, 1).unwrap();
    assert_eq!(rig.kubelet.inspect(|known| known.registrations), 1);
    drop(first);
    second.expect_log("sharing-in-force");
    rig.kubelet.await_count(GPU, 4);
}

#[test]
fn unknown_layout_at_start_withdraws_no_device() {
    let rig = Rig::new(ONE);
    let layouts = rig.node.layouts(&shared(4));
    let directory = rig.directory().display().to_string();
    let mut agent = rig.node.start(&[
        "--sharing=embedded",
        "--interval=500ms",
        "--layouts",
        &layouts,
        "--layout=unheard-of",
        "--device-plugins",
        &directory,
    ]);
    agent.expect_log("this node has no layout \"unheard-of\"");
    agent.expect_log("sharing-in-force");
    rig.kubelet.await_count(GPU, 1);
}

#[test]
fn restarted_kubelet_without_pods_is_not_trusted() {
    let mut rig = Rig::new(ONE);
    rig.kubelet.set_behavior(|behavior| behavior.is_young = true);
    rig.kubelet.restart();
    let mut agent = rig.agent(&shared(4), &[]);
    agent.expect_log(
        "no device is advertised yet, because the allocations are unknown: the kubelet has just started",
    );
    age(&rig.node.kubelet());
    rig.kubelet.await_count(GPU, 4);
}

#[test]
fn nothing_is_advertised_before_kubelet_reports_allocations() {
    let rig = Rig::new(ONE);
    rig.kubelet.set_behavior(|behavior| behavior.pod_listing = PodListing::Never);
    let mut agent = rig.agent(&shared(4), &["--sharing-deadline=1s"]);
    agent.expect_log("sharing-not-in-force");
    rig.kubelet.await_count(GPU, 0);
    rig.kubelet.set_behavior(|behavior| behavior.pod_listing = PodListing::All);
    rig.kubelet.await_count(GPU, 4);
}

#[test]
fn restarted_kubelet_without_pods_withdraws_no_allocated_device() {
    let mut rig = Rig::new(ONE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.await_count(GPU, 4);
    for name in ["a", "b", "c"] {
        rig.kubelet.admit(name, GPU, 1).unwrap();
    }
    let held: Vec<String> =
        rig.kubelet.inspect(|known| known.pods.iter().flat_map(|pod| pod.ids.clone()).collect());
    rig.node.layouts(&shared(2));
    agent.expect_log("sharing-held");
    rig.kubelet.await_ids(GPU, &held);
    rig.kubelet.set_behavior(|behavior| behavior.pod_listing = PodListing::Empty);
    let requested = rig.kubelet.inspect(|known| known.requested);
    rig.kubelet.restart();
    rig.kubelet.wait("three questions", |known| known.requested >= requested + 3);
    rig.kubelet.await_ids(GPU, &held);
}

#[test]
fn kubelet_without_allocatable_report_is_trusted_after_reading_the_list() {
    let rig = Rig::new(ONE);
    rig.kubelet.set_behavior(|behavior| behavior.is_old = true);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.await_count(GPU, 4);
    agent.expect_log("sharing-in-force");
}

#[test]
fn lost_gpu_is_not_advertised_until_it_returns() {
    let rig = Rig::new("- {board: A100_40GB, count: 2}\n");
    let mut agent = rig.agent(&shared(2), &[]);
    rig.kubelet.await_count(GPU, 4);
    let pod = rig.kubelet.admit("runs", GPU, 1).unwrap();
    let lost = usize::from(pod.ids[0].starts_with(&rig.uuid(1)));
    let index = u32::try_from(lost).unwrap();
    let slot = rig.node.machine.world().slot_of_index(index).unwrap();
    rig.node.machine.change(|world| world.lose_gpu(slot));
    // Both must be known before the device returns: an Xid that arrives later is a new fault, which lasts longer than
    // this test.
    agent.expect_all_logs(&["failing: ", "xid=79"]);
    rig.kubelet.await_ids(GPU, &rig.replicas(1 - lost, &[0, 1]));
    let ids = rig.replicas(lost, &[0, 1]);
    let known = rig.kubelet.inspect(|known| known.resources[GPU].devices.clone());
    assert!(ids.iter().all(|id| known.contains_key(id)), "{known:?}");
    let error = rig.kubelet.allocate(GPU, &ids[..1]).unwrap_err();
    assert!(error.message().contains("is not healthy"), "{error}");
    rig.kubelet.admit("next", GPU, 1).unwrap();
    rig.node.machine.change(|world| world.return_gpu(slot));
    rig.kubelet.await_count(GPU, 4);
    agent.expect_log("device-healthy");
}

#[test]
fn gpu_lost_during_many_requests_yields_no_wrong_id() {
    let rig = Rig::new(EIGHT);
    let _agent = rig.agent(&shared(8), &[]);
    rig.kubelet.await_count(GPU, 64);
    let slot = rig.node.machine.world().slot_of_index(3).unwrap();
    let mut allocated: Vec<Pod> = Vec::new();
    for number in 0..60 {
        if number == 20 {
            rig.node.machine.change(|world| world.lose_gpu(slot));
        }
        match rig.kubelet.admit(&format!("pod-{number}"), GPU, 1) {
            Ok(pod) => allocated.push(pod),
            Err(error) => assert!(
                error.message().contains("is not healthy")
                    || error.message().contains("not enough"),
                "{error}"
            ),
        }
    }
    let ids: BTreeSet<&String> = allocated.iter().flat_map(|pod| &pod.ids).collect();
    assert_eq!(ids.len(), allocated.len());
    assert!(allocated.len() >= 48, "{}", allocated.len());
}

#[test]
fn many_xids_cause_few_device_lists() {
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.await_count(GPU, 4);
    agent.expect_log("sharing-in-force");
    let slot = rig.node.machine.world().slot_of_index(0).unwrap();
    for _ in 0..500 {
        // An application error: the device is healthy. Source: NVIDIA, "Xid Errors".
        rig.node.machine.change(|world| world.xid(slot, 31, None));
    }
    rig.kubelet.admit("after", GPU, 1).unwrap();
    let lists = rig.kubelet.inspect(|known| known.resources[GPU].lists);
    assert!(lists <= 3, "{lists}");
    assert_eq!(rig.kubelet.inspect(|known| known.registrations), 1);
}

#[test]
fn thousand_pods_get_one_distinct_replica_each() {
    let rig = Rig::new(EIGHT);
    let _agent = rig.agent(&shared(128), &[]);
    rig.kubelet.await_count(GPU, 1024);
    for number in 0..1000 {
        rig.kubelet.admit(&format!("pod-{number}"), GPU, 1).unwrap();
    }
    let (ids, pods) = rig.kubelet.inspect(|known| {
        let ids: BTreeSet<String> = known.pods.iter().flat_map(|pod| pod.ids.clone()).collect();
        (ids.len(), known.pods.len())
    });
    assert_eq!((ids, pods), (1000, 1000));
    // Allocated ids stay, and unallocated ones up to 126 of each.
    let left: usize = rig.kubelet.inspect(|known| {
        let all = known.pods.iter().flat_map(|pod| &pod.ids);
        let all: Vec<&String> = all.collect();
        let of = |gpu| all.iter().filter(|id| id.starts_with(&rig.uuid(gpu))).count();
        (0..8).map(|gpu| of(gpu).max(126)).sum()
    });
    rig.node.layouts(&shared(126));
    rig.kubelet.await_count(GPU, left);
}
