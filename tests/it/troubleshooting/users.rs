//! Blockers of a layout: which process or pod, and how it is identified.

use std::fs;
use std::sync::Arc;

use nvml_sim::model::{Process, ProcessKind};

use crate::apply::pods;
use crate::node::{Node, names};
use crate::problem::Problem;
use crate::time_limits::Finish;

const SEVEN: &str =
    "- {board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb, count: 7}]}\n";

#[test]
fn blocking_client_is_named() {
    let problem = Problem::documented("pain_10");
    let node = Node::new("- {board: A100_40GB}\n");
    let process = node.machine.path().join("proc/4242");
    fs::create_dir(&process).unwrap();
    fs::write(process.join("cmdline"), "nv-hostengine\0-n\0").unwrap();
    node.machine.change(|world| {
        let gpu_uuid = world.gpus[0].uuid.clone();
        world.add_process(Process {
            pid: 4242,
            name: "nv-hostengine".to_owned(),
            gpu_uuid,
            gi: None,
            ci: None,
            memory_mib: 1,
            kind: ProcessKind::Compute,
        })
    });
    let mut agent = node.start(&["--layout=all-3g.20gb", "--interval=100ms"]);
    problem.await_log(&mut agent);
    let proc = node.machine.path().join("proc").display().to_string();
    let planned = node.command_output(&["plan", "all-3g.20gb", "--proc-root", &proc]);
    problem.assert_quoted("octavo plan", &planned);
    assert!(!node.is_partitioned(0));
    // The change continues when they exit.
    node.machine.change(|world| world.remove_process(4242));
    agent.expect_log("GPU 0: applied");
}

#[test]
fn handle_without_visible_holder_is_reported_as_leak() {
    let problem = Problem::documented("in_use_unseen");
    let node = Node::new(SEVEN);
    node.machine.faults("- {call: nvmlGpuInstanceDestroy, return: IN_USE}");
    problem.assert_quoted("log", &node.apply_once("all-7g.40gb"));
    assert_eq!(node.geometry(0).len(), 7);
}

#[test]
fn driver_without_process_list_counts_as_in_use() {
    let problem = Problem::documented("in_use_untold");
    let node = Node::new(SEVEN);
    node.machine.faults("- {call: nvmlDeviceGetComputeRunningProcesses*, return: NO_PERMISSION}");
    problem.assert_quoted("log", &node.apply_once("all-7g.40gb"));
    problem.assert_quoted("octavo plan", &node.command_output(&["plan", "all-7g.40gb"]));
    assert_eq!(node.geometry(0).len(), 7);
}

#[tokio::test]
async fn blocking_pod_is_named() {
    let problem = Problem::documented("in_use_by_a_pod");
    let node = Arc::new(Node::new(pods::GPUS));
    let held = pods::partition(&node, 1);
    let allocated = vec![("nvidia.com/mig-3g.20gb".to_owned(), held)];
    let _kubelet = pods::listen(&node, allocated);
    problem.assert_quoted("log", &pods::apply_once(&node).await);
    assert_eq!(names(&node.geometry(1)), ["3g.20gb", "3g.20gb"]);
}

#[tokio::test]
async fn unavailable_kubelet_is_awaited() {
    let problem = Problem::documented("pain_11");
    let node = Arc::new(Node::new(pods::GPUS));
    fs::create_dir_all(node.kubelet().parent().unwrap()).unwrap();
    problem.assert_quoted("log", &pods::apply_once(&node).await);
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
    // It recovers without further action.
    let _kubelet = pods::listen(&node, Vec::new());
    pods::apply_once(&node).await;
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
}

#[test]
fn kubelet_socket_invisible_to_pod_should_be_mounted() {
    let problem = Problem::documented("kubelet_not_mounted");
    let node = Node::new(SEVEN);
    let output = node
        .agent(&["--oneshot", "--layout=all-7g.40gb"])
        .env("KUBERNETES_SERVICE_HOST", "10.0.0.1")
        .finish();
    problem.assert_quoted("log", &String::from_utf8(output.stderr).unwrap());
    assert_eq!(node.geometry(0).len(), 7);
}
