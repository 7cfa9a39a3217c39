//! Pods with allocated devices, reported by a kubelet at a real socket.

use std::fs;
use std::sync::Arc;

use octavo_kubelet::proto::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use octavo_kubelet::proto::pod_resources::{
    ContainerDevices, ContainerResources, ListPodResourcesRequest, ListPodResourcesResponse,
    PodResources,
};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::node::{Node, names};
use crate::record;
use crate::sockets::{age, listen_as_old};
use crate::time_limits::Finish;

pub(crate) const GPUS: &str = "- {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 3g.20gb, start: 0}, {profile: 3g.20gb, start: 4}]}\n";

/// Reports one pod with these devices.
struct Kubelet(Vec<(String, String)>);

#[tonic::async_trait]
impl PodResourcesLister for Kubelet {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let devices = self.0.iter().map(|(resource, id)| ContainerDevices {
            resource_name: resource.clone(),
            device_ids: vec![id.clone()],
        });
        Ok(Response::new(ListPodResourcesResponse {
            pod_resources: vec![PodResources {
                name: "notebook-7".to_owned(),
                namespace: "team-a".to_owned(),
                containers: vec![ContainerResources {
                    name: "main".to_owned(),
                    devices: devices.collect(),
                    dynamic_resources: Vec::new(),
                }],
            }],
        }))
    }
}

pub(crate) fn listen(node: &Node, allocated: Vec<(String, String)>) -> JoinHandle<()> {
    fs::create_dir_all(node.kubelet().parent().unwrap()).unwrap();
    answer(listen_as_old(&node.kubelet()), allocated)
}

fn answer(socket: UnixListener, allocated: Vec<(String, String)>) -> JoinHandle<()> {
    let server = Server::builder().add_service(PodResourcesListerServer::new(Kubelet(allocated)));
    tokio::spawn(async move {
        let incoming = UnixListenerStream::new(socket);
        server.serve_with_incoming(incoming).await.unwrap();
    })
}

/// Applies a layout once while the kubelet on this thread answers.
pub(crate) async fn apply_once(node: &Arc<Node>) -> String {
    let node = Arc::clone(node);
    let done = tokio::task::spawn_blocking(move || node.apply_once("all-7g.40gb"));
    done.await.unwrap()
}

/// The UUID of the MIG device in the first instance of a GPU.
pub(crate) fn partition(node: &Node, gpu: usize) -> String {
    let world = node.machine.world();
    let mig = world.gpus[gpu].mig.as_ref().unwrap();
    mig.instances[0].compute[0].uuid.clone()
}

#[tokio::test]
async fn i1_partition_allocated_to_pod_stays_and_pod_is_named() {
    let node = Arc::new(Node::new(GPUS));
    let held = partition(&node, 1);
    let allocated = vec![("nvidia.com/mig-3g.20gb".to_owned(), held.clone())];
    let _kubelet = listen(&node, allocated);
    let reported = apply_once(&node).await;
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"], "{reported}");
    assert_eq!(names(&node.geometry(1)), ["3g.20gb", "3g.20gb"], "{reported}");
    assert_eq!(partition(&node, 1), held);
    assert!(
        reported.contains("GPU 1: blocked: ")
            && reported.contains("pod team-a/notebook-7 (container main)"),
        "{reported}"
    );
}

#[tokio::test]
async fn pod_with_a_process_is_named_once() {
    let process = "processes:\n- {pid: 4711, gpu: 1, gi: 1, ci: 0, memory_mib: 100}\n";
    let node = Arc::new(Node::new(&format!("{GPUS}{process}")));
    let path = node.machine.path();
    let (directory, proc) = (path.join("device-plugins"), path.join("proc"));
    fs::create_dir_all(&directory).unwrap();
    let ids = [partition(&node, 1)];
    record::write(&directory, [("notebook-7", "nvidia.com/mig-3g.20gb", &ids[..])]);
    record::show_all(&proc);
    record::add_process(&proc, 4711, "notebook-7");
    let allocated = vec![("nvidia.com/mig-3g.20gb".to_owned(), ids[0].clone())];
    let _kubelet = listen(&node, allocated);
    let output = tokio::task::spawn_blocking({
        let (node, directory) = (Arc::clone(&node), directory.display().to_string());
        move || {
            let mut agent = node.agent(&["--oneshot", "--layout", "all-7g.40gb"]);
            agent.args(["--device-plugins", &directory]).finish()
        }
    });
    let reported = String::from_utf8(output.await.unwrap().stderr).unwrap();
    let holder = "in use: pod team-a/notebook-7 (container main): pid 4711";
    assert!(reported.contains(holder), "{reported}");
    assert!(!reported.contains("with uid"), "{reported}");
    assert!(!reported.contains("(container main);"), "{reported}");
}

#[tokio::test]
async fn i1_unknown_device_id_may_be_any_device_of_its_kind() {
    let node = Arc::new(Node::new(GPUS));
    let allocated = vec![("nvidia.com/gpu".to_owned(), "0".to_owned())];
    let kubelet = listen(&node, allocated);
    let reported = apply_once(&node).await;
    assert!(reported.contains("which matches no device of this node"), "{reported}");
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
    kubelet.abort();
    fs::remove_file(node.kubelet()).unwrap();
    let _kubelet = listen(&node, vec![("nvidia.com/rdma".to_owned(), "nic-0".to_owned())]);
    apply_once(&node).await;
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
}

#[tokio::test]
async fn i1_restarted_kubelet_without_pods_may_have_allocated_any_device() {
    let node = Arc::new(Node::new(GPUS));
    fs::create_dir_all(node.kubelet().parent().unwrap()).unwrap();
    let _kubelet = answer(UnixListener::bind(node.kubelet()).unwrap(), Vec::new());
    let reported = apply_once(&node).await;
    assert!(reported.contains("the kubelet has just started"), "{reported}");
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
    age(&node.kubelet());
    apply_once(&node).await;
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
}

#[tokio::test]
async fn i1_restarted_kubelet_with_one_pod_may_have_allocated_more() {
    let node = Arc::new(Node::new(GPUS));
    fs::create_dir_all(node.kubelet().parent().unwrap()).unwrap();
    let allocated = vec![("nvidia.com/mig-3g.20gb".to_owned(), partition(&node, 1))];
    let _kubelet = answer(UnixListener::bind(node.kubelet()).unwrap(), allocated);
    let reported = apply_once(&node).await;
    assert!(reported.contains("the kubelet has just started"), "{reported}");
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
    age(&node.kubelet());
    apply_once(&node).await;
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
}

#[tokio::test]
async fn i1_allocation_only_in_checkpoint_counts_unless_its_pod_has_ended() {
    let node = Arc::new(Node::new(GPUS));
    let path = node.machine.path();
    let (directory, proc) = (path.join("device-plugins"), path.join("proc"));
    fs::create_dir_all(&directory).unwrap();
    let held = partition(&node, 1);
    let ids = [held.clone()];
    record::write(&directory, [("idle", "nvidia.com/mig-3g.20gb", &ids[..])]);
    let _kubelet = listen(&node, Vec::new());
    let look = async || {
        let (node, directory) = (Arc::clone(&node), directory.display().to_string());
        let output = tokio::task::spawn_blocking(move || {
            let mut agent = node.agent(&["--oneshot", "--layout", "all-7g.40gb"]);
            agent.args(["--device-plugins", &directory]).finish()
        });
        String::from_utf8(output.await.unwrap().stderr).unwrap()
    };
    // The processes of pods are hidden at first.
    for _ in 0..2 {
        let reported = look().await;
        let who = format!("pod (UID {}) (container main)", record::uid("idle"));
        assert!(reported.contains("GPU 1: blocked: ") && reported.contains(&who), "{reported}");
        assert_eq!(names(&node.geometry(0)), ["7g.40gb"], "{reported}");
        assert_eq!(partition(&node, 1), held);
        record::show_all(&proc);
        record::add_process(&proc, 4711, "idle");
    }
    fs::remove_dir_all(proc.join("4711")).unwrap();
    look().await;
    assert_eq!(names(&node.geometry(1)), ["7g.40gb"]);
}

#[test]
fn i1_unavailable_kubelet_may_have_allocated_any_device() {
    let node = Node::new(GPUS);
    fs::create_dir_all(node.kubelet().parent().unwrap()).unwrap();
    let reported = node.apply_once("all-7g.40gb");
    assert!(reported.contains("cannot connect to the kubelet"), "{reported}");
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
}

#[test]
fn i1_kubelet_socket_not_mounted_in_pod_is_not_treated_as_no_kubelet() {
    let node = Node::new(GPUS);
    let in_pod = |arguments: &[&str]| {
        let output = node
            .agent(&["--oneshot", "--layout", "all-7g.40gb"])
            .args(arguments)
            .env("KUBERNETES_SERVICE_HOST", "10.0.0.1")
            .finish();
        String::from_utf8(output.stderr).unwrap()
    };
    let reported = in_pod(&[]);
    assert!(reported.contains("set --pod-resources none"), "{reported}");
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
}
