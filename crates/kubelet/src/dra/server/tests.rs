//! A kubelet that registers the driver, prepares claims and watches devices.

use std::sync::Mutex;
use std::time::Duration;

use octavo_model::claim::ClaimKey;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::transport::Channel;

use super::*;
use crate::dra::{DeviceHealth, InjectedDevice};
use crate::proto::dra::dra_plugin_client::DraPluginClient;
use crate::proto::dra::{Claim, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest};
use crate::proto::dra_health::dra_resource_health_client::DraResourceHealthClient;
use crate::proto::dra_health::{HealthStatus, NodeWatchResourcesRequest};
use crate::proto::plugin_registration::InfoRequest;
use crate::proto::plugin_registration::registration_client::RegistrationClient;
use crate::unix_channel;

const DRIVER: &str = "gpu.octavo.dev";
/// Limit of every wait; nothing here takes longer than a moment.
const LIMIT: Duration = Duration::from_secs(30);

/// Prepares every claim but those named `refused`.
#[derive(Debug, Default)]
struct RecordingHandler {
    released: Mutex<Vec<ClaimKey>>,
    registrations: Mutex<Vec<Result<(), String>>>,
}

#[tonic::async_trait]
impl ClaimHandler for RecordingHandler {
    async fn prepare(&self, claim: &ClaimKey) -> Result<Vec<InjectedDevice>, String> {
        if claim.name == "refused" {
            return Err("GPU 0 is in use".to_owned());
        }
        Ok(vec![InjectedDevice {
            requests: vec!["gpu".to_owned()],
            pool: "node-1/gpu.octavo.dev".to_owned(),
            device: "gpu-0000-1b-00-0".to_owned(),
            cdi_ids: vec![format!("octavo.dev/claim={}-gpu-0000-1b-00-0", claim.uid)],
            share: Some("1f".to_owned()),
        }])
    }

    async fn unprepare(&self, claim: &ClaimKey) -> Result<(), String> {
        self.released.lock().unwrap().push(claim.clone());
        Ok(())
    }

    fn registered(&self, result: Result<(), String>) {
        self.registrations.lock().unwrap().push(result);
    }
}

/// A running server.
struct Running {
    dir: TempDir,
    handler: Arc<RecordingHandler>,
    devices: watch::Sender<Arc<NodeDevices>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
}

fn settings(dir: &Path) -> Settings {
    Settings {
        driver: DRIVER.to_owned(),
        registry: dir.join("plugins_registry"),
        plugins: dir.join("plugins"),
    }
}

fn start() -> Running {
    let dir = tempfile::tempdir().unwrap();
    let handler = Arc::new(RecordingHandler::default());
    let (devices, receiver) = watch::channel(Arc::new(NodeDevices::default()));
    let (stop, stopped) = oneshot::channel();
    let server = DraServer::listen(settings(dir.path())).unwrap();
    let shared: Arc<dyn ClaimHandler> = Arc::clone(&handler) as _;
    let task = tokio::spawn(server.serve(shared, receiver, async {
        let _dropped = stopped.await;
    }));
    Running { dir, handler, devices, stop, task }
}

async fn connect(socket: &Path) -> Channel {
    unix_channel::connect(socket, unix_channel::endpoint()).await.unwrap()
}

fn claim(uid: &str, name: &str) -> Claim {
    Claim { namespace: "team".to_owned(), uid: uid.to_owned(), name: name.to_owned() }
}

#[tokio::test]
async fn kubelet_registers_prepares_and_releases_claims() {
    let running = start();
    let settings = settings(running.dir.path());
    let mut registration = RegistrationClient::new(connect(&settings.registration_socket()).await);
    let info = registration.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("DRAPlugin", DRIVER));
    assert_eq!(info.supported_versions, ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"]);
    let mut plugin = DraPluginClient::new(connect(Path::new(&info.endpoint)).await);
    let claims = vec![claim("uid-1", "one"), claim("uid-2", "refused"), claim("../x", "hostile")];
    let request = NodePrepareResourcesRequest { claims: claims.clone() };
    let response = plugin.node_prepare_resources(request).await.unwrap().into_inner().claims;
    // The kubelet requires an entry for each claim.
    assert_eq!(response.len(), 3);
    let devices = &response["uid-1"].devices;
    assert_eq!(devices[0].cdi_device_ids, ["octavo.dev/claim=uid-1-gpu-0000-1b-00-0"]);
    assert_eq!(devices[0].request_names, ["gpu"]);
    assert_eq!(devices[0].pool_name, "node-1/gpu.octavo.dev");
    assert_eq!(devices[0].share_id.as_deref(), Some("1f"));
    assert_eq!(response["uid-2"].error, "GPU 0 is in use");
    assert!(response["../x"].error.contains("is not the UID of a resource claim"));
    let request = NodeUnprepareResourcesRequest { claims };
    let response = plugin.node_unprepare_resources(request).await.unwrap().into_inner().claims;
    assert!(response.values().all(|one| one.error.is_empty()), "{response:?}");
    assert_eq!(response.len(), 3);
    assert_eq!(running.handler.released.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn health_stream_sends_the_complete_list_at_start_and_after_each_change() {
    let running = start();
    let socket = settings(running.dir.path()).claim_socket();
    let mut client = DraResourceHealthClient::new(connect(&socket).await);
    let stream = client.node_watch_resources(NodeWatchResourcesRequest {}).await.unwrap();
    let mut stream = stream.into_inner();
    assert_eq!(stream.next().await.unwrap().unwrap().devices, []);
    let device = |name: &str, problem: Option<&str>| DeviceHealth {
        device: name.to_owned(),
        problem: problem.map(ToOwned::to_owned),
    };
    running.devices.send_replace(Arc::new(NodeDevices {
        pool: "node-1".to_owned(),
        devices: vec![device("gpu-a", None), device("gpu-b", Some("fell off the bus"))],
        is_known: true,
        scanned_at: 1_700_000_000,
    }));
    let list = timeout(LIMIT, stream.next()).await.unwrap().unwrap().unwrap().devices;
    let health: Vec<(i32, &str)> =
        list.iter().map(|one| (one.health, one.message.as_str())).collect();
    let expected = [(HealthStatus::Healthy, ""), (HealthStatus::Unhealthy, "fell off the bus")];
    assert_eq!(health, expected.map(|(health, message)| (i32::from(health), message)));
    assert!(list.iter().all(|one| one.last_updated_time == 1_700_000_000), "{list:?}");
}

#[tokio::test]
async fn sockets_are_replaced_at_start_and_removed_at_the_end() {
    let running = start();
    let settings = settings(running.dir.path());
    let sockets = [settings.registration_socket(), settings.claim_socket()];
    assert!(sockets.iter().all(|socket| socket.exists()));
    // A later process replaces the sockets. This one must not remove them.
    let successor = DraServer::listen(settings.clone()).unwrap();
    running.stop.send(()).unwrap();
    timeout(LIMIT, running.task).await.unwrap().unwrap().unwrap();
    assert!(sockets.iter().all(|socket| socket.exists()));
    drop(successor);
    assert!(!sockets.iter().any(|socket| socket.exists()));
}

/// Sends the request of grpc-go with this authority. Returns the type of the first frame that answers the request.
async fn frame_type(socket: &Path, authority: &str) -> u8 {
    const HEADERS: u8 = 1;
    const END_HEADERS: u8 = 4;
    const DATA: u8 = 0;
    const END_STREAM: u8 = 1;
    const SETTINGS: u8 = 4;
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    // HPACK (RFC 7541): two fields of the static table, then literals without indexing.
    let headers = [
        vec![0x83, 0x86, 0x04],
        text("/pluginregistration.Registration/GetInfo"),
        vec![0x01],
        text(authority),
        vec![0x0f, 0x10],
        text("application/grpc"),
        vec![0x00],
        text("te"),
        text("trailers"),
    ];
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let request = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &[]),
        frame(HEADERS, END_HEADERS, 1, &headers.concat()),
        frame(DATA, END_STREAM, 1, &[0; 5]),
    ];
    stream.write_all(&request.concat()).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.unwrap();
        if head[8] == 1 {
            return head[3];
        }
    }
}

#[tokio::test]
async fn authority_that_the_kubelet_sends_is_accepted() {
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    let running = start();
    let socket = settings(running.dir.path()).registration_socket();
    // Source: grpc-go v1.81.1, `encodeAuthority` of the dialed path.
    let kubelet = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Foctavo@gpu.octavo.dev-reg.sock";
    assert_eq!(timeout(LIMIT, frame_type(&socket, kubelet)).await.unwrap(), HEADERS);
    // The reason for the unusual name: without it, the request is rejected before any service.
    let usual = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fgpu.octavo.dev-reg.sock";
    assert_eq!(timeout(LIMIT, frame_type(&socket, usual)).await.unwrap(), RST_STREAM);
}
