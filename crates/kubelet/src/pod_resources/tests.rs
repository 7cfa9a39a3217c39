//! Tests with a scripted kubelet at a real socket.

use std::error::Error;
use std::future::pending;
use std::io;

use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::*;
use crate::proto::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use crate::proto::pod_resources::{ClaimResource, ContainerDevices, DynamicResource, PodResources};

/// Long enough for a loaded machine; elapses only if a test fails.
const PATIENCE: Duration = Duration::from_mins(2);
/// For calls that must time out.
const SHORT: Duration = Duration::from_millis(50);

enum Kubelet {
    Says(ListPodResourcesResponse),
    Refuses(Status),
    Hangs,
}

#[tonic::async_trait]
impl PodResourcesLister for Kubelet {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        match self {
            Self::Says(answer) => Ok(Response::new(answer.clone())),
            Self::Refuses(status) => Err(status.clone()),
            Self::Hangs => pending().await,
        }
    }
}

/// A directory with a socket, and the server that listens until it is dropped.
struct Node {
    directory: TempDir,
    listening: JoinSet<()>,
}

impl Node {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), listening: JoinSet::new() }
    }

    fn with(kubelet: Kubelet) -> Self {
        let mut node = Self::new();
        let incoming = UnixListenerStream::new(node.listener());
        let server = Server::builder().add_service(PodResourcesListerServer::new(kubelet));
        node.listening.spawn(async move {
            server.serve_with_incoming(incoming).await.unwrap();
        });
        node
    }

    fn listener(&self) -> UnixListener {
        UnixListener::bind(self.socket()).unwrap()
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("kubelet.sock")
    }

    async fn list(&self, deadline: Duration) -> Result<Vec<DeviceAllocation>, PodResourcesError> {
        list(&self.socket(), deadline).await
    }
}

fn container(name: &str, devices: &[(&str, &[&str])]) -> ContainerResources {
    let devices = devices.iter().map(|(resource, ids)| ContainerDevices {
        resource_name: (*resource).to_owned(),
        device_ids: ids.iter().map(ToString::to_string).collect(),
    });
    ContainerResources {
        name: name.to_owned(),
        devices: devices.collect(),
        dynamic_resources: Vec::new(),
    }
}

fn pod(name: &str, containers: Vec<ContainerResources>) -> PodResources {
    PodResources { name: name.to_owned(), namespace: "team-a".to_owned(), containers }
}

#[tokio::test]
async fn only_nvidia_allocations_are_listed() {
    let claim = |driver: &str| ClaimResource {
        driver_name: driver.to_owned(),
        pool_name: "node-1".to_owned(),
        device_name: "gpu-0".to_owned(),
    };
    let mut claimed = container("main", &[]);
    claimed.dynamic_resources = vec![DynamicResource {
        claim_name: "train".to_owned(),
        claim_namespace: "team-a".to_owned(),
        claim_resources: ["gpu.nvidia.com", "net.example.com", "gpu.octavo.dev"].map(claim).into(),
    }];
    let shared: &[&str] = &["MIG-a::0", "MIG-a::1"];
    let first = vec![
        container(
            "main",
            &[
                ("nvidia.com/mig-1g.10gb", shared),
                ("example.com/nic", &["eth1"]),
                ("nvidia.company/gpu", &["1"]),
            ],
        ),
        container("side", &[("nvidia.com/gpu", &["GPU-b"])]),
    ];
    let pods = vec![
        pod("train-0", first),
        pod("idle", vec![container("main", &[])]),
        pod("claims", vec![claimed]),
    ];
    let node = Node::with(Kubelet::Says(ListPodResourcesResponse { pod_resources: pods }));
    let found = node.list(PATIENCE).await.unwrap();
    let allocations: Vec<String> = found
        .iter()
        .map(|one| {
            let DeviceAllocation { namespace, pod, container, resource, device_id, claim } = one;
            let claim = claim.as_ref().map(|claim| format!(" {claim}")).unwrap_or_default();
            format!("{namespace}/{pod}/{container} {resource} {device_id}{claim}")
        })
        .collect();
    let expected = [
        "team-a/train-0/main nvidia.com/mig-1g.10gb MIG-a::0",
        "team-a/train-0/main nvidia.com/mig-1g.10gb MIG-a::1",
        "team-a/train-0/side nvidia.com/gpu GPU-b",
        "team-a/claims/main gpu.nvidia.com node-1/gpu-0 team-a/train",
        "team-a/claims/main gpu.octavo.dev node-1/gpu-0 team-a/train",
    ];
    assert_eq!(allocations, expected);
}

#[tokio::test]
async fn absent_kubelet_differs_from_unreachable_one() {
    let node = Node::new();
    let nowhere = node.directory.path().join("pod-resources");
    let error = list(&nowhere.join("kubelet.sock"), PATIENCE).await;
    assert!(
        matches!(&error, Err(PodResourcesError::Absent { directory }) if *directory == nowhere),
        "{error:?}"
    );
    // Not yet started, or shut down.
    let error = node.list(PATIENCE).await;
    assert!(
        matches!(error, Err(PodResourcesError::Connect(ConnectError::Unreachable { .. }))),
        "{error:?}"
    );
    // Killed: the socket exists, but no process listens.
    drop(node.listener());
    let error = node.list(PATIENCE).await;
    assert!(
        matches!(&error, Err(PodResourcesError::Connect(ConnectError::Unreachable { source, .. }))
            if source.kind() == io::ErrorKind::ConnectionRefused),
        "{error:?}"
    );
}

#[tokio::test]
async fn deadline_covers_connection_and_response() {
    let silent = Node::new();
    let _listener = silent.listener();
    for node in [Node::with(Kubelet::Hangs), silent] {
        let error = node.list(SHORT).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the kubelet did not list the devices of its pods within 0.05 s"
        );
    }
}

#[tokio::test]
async fn response_size_is_limited() {
    let of_length = |length: usize| {
        let id = "x".repeat(length);
        let container = container("main", &[("nvidia.com/gpu", &[&id])]);
        Kubelet::Says(ListPodResourcesResponse {
            pod_resources: vec![pod("train-0", vec![container])],
        })
    };
    let node = Node::with(of_length(10 << 20));
    let error = node.list(PATIENCE).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the list of pod devices from the kubelet is longer than 4194304 bytes"
    );
    let node = Node::with(of_length(3 << 20));
    assert_eq!(node.list(PATIENCE).await.unwrap().len(), 1);
}

#[tokio::test]
async fn refusal_and_invalid_response_are_errors() {
    let status = Status::resource_exhausted("rejected by rate limit");
    let node = Node::with(Kubelet::Refuses(status));
    let error = node.list(PATIENCE).await.unwrap_err();
    assert!(matches!(error, PodResourcesError::Refused(_)), "{error:?}");
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("rejected by rate limit"), "{cause}");

    // Not gRPC: the socket of another program.
    let mut node = Node::new();
    let listener = node.listener();
    node.listening.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The client may have disconnected already.
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n\xff\xff\xff").await;
        }
    });
    let error = node.list(PATIENCE).await.unwrap_err();
    assert!(
        matches!(
            error,
            PodResourcesError::Refused(_)
                | PodResourcesError::Connect(ConnectError::NotKubelet { .. })
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn truncated_message_is_an_error() {
    // Valid gRPC with a message that ends in the middle of a field.
    let app = axum::Router::new().fallback(|| async {
        let body: &[u8] = &[0, 0, 0, 0, 2, 0x0a, 0x7f];
        ([("content-type", "application/grpc")], body)
    });
    let mut node = Node::new();
    let listener = node.listener();
    node.listening.spawn(async move {
        let server =
            hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
        let (stream, _) = listener.accept().await.unwrap();
        let service = hyper_util::service::TowerToHyperService::new(app);
        let _ = server.serve_connection(TokioIo::new(stream), service).await;
    });
    let error = node.list(PATIENCE).await.unwrap_err();
    assert!(matches!(error, PodResourcesError::Refused(_)), "{error:?}");
}

#[test]
fn kubelet_is_young_for_one_minute_unless_clock_was_set() {
    let made = SystemTime::from(Timestamp::now());
    let (second, hour) = (Duration::from_secs(1), Duration::from_hours(1));
    assert!(is_recent(made, made));
    assert!(is_recent(made + RESTART_TIMEOUT - second, made));
    assert!(!is_recent(made + RESTART_TIMEOUT, made));
    assert!(is_recent(made - second, made));
    assert!(!is_recent(made - hour, made));
    assert!(!started_recently(Path::new("/nowhere/kubelet.sock")));
}
