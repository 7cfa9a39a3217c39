//! The Service of the replicas: forwards connections to the pod with the label of the leader, as kube-proxy does.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use octavo_kube::client::{Program, connect};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;

use crate::time_limits::TIME_LIMIT;

/// Addresses of a server for agents and HTTP clients.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    pub(super) grpc: SocketAddr,
    pub(super) http: SocketAddr,
}

/// The Service; stopped when dropped.
pub(super) struct Service {
    pub(super) addresses: Addresses,
    /// Largest number of pods that had the label at the same time.
    most: Arc<Mutex<usize>>,
    _stop: oneshot::Sender<()>,
}

impl Service {
    /// Starts it for the pods of these names.
    pub(super) fn start(kubeconfig: &Path, pods: Vec<(String, Addresses)>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (started, addresses) = mpsc::channel();
        let most = Arc::new(Mutex::new(0));
        let (kubeconfig, seen) = (kubeconfig.to_owned(), Arc::clone(&most));
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                tokio::select! {
                    () = serve(&kubeconfig, &pods, &started, &seen) => {}
                    _gone = stopped => {}
                }
            });
        });
        Self { addresses: addresses.recv_timeout(TIME_LIMIT).unwrap(), most, _stop: stop }
    }

    /// Largest number of pods that had the label at the same time.
    pub(super) fn most(&self) -> usize {
        *self.most.lock().unwrap()
    }
}

async fn serve(
    kubeconfig: &Path,
    pods: &[(String, Addresses)],
    started: &mpsc::Sender<Addresses>,
    most: &Mutex<usize>,
) {
    let client = connect(Some(kubeconfig), Program::Agent).await.unwrap();
    let labeled = kube::Api::<Pod>::namespaced(client, "octavo-system");
    let config = watcher::Config::default().labels("octavo.dev/role=leader");
    let mut events = pin!(watcher(labeled, config).default_backoff());
    let grpc = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let [of_grpc, of_http] = [&grpc, &http].map(|listener| listener.local_addr().unwrap());
    started.send(Addresses { grpc: of_grpc, http: of_http }).unwrap();
    let mut known = BTreeSet::new();
    let mut connections = JoinSet::new();
    loop {
        let (socket, is_grpc) = tokio::select! {
            event = events.next() => {
                match event.unwrap() {
                    Ok(Event::Init) => known.clear(),
                    Ok(Event::InitApply(pod) | Event::Apply(pod)) => drop(known.insert(pod.name_any())),
                    Ok(Event::Delete(pod)) => drop(known.remove(&pod.name_any())),
                    // The API server is stopped by the test.
                    Ok(Event::InitDone) | Err(_) => {}
                }
                let mut most = most.lock().unwrap();
                *most = known.len().max(*most);
                continue;
            }
            Some(_ended) = connections.join_next() => continue,
            accepted = grpc.accept() => (accepted.unwrap().0, true),
            accepted = http.accept() => (accepted.unwrap().0, false),
        };
        // Without an endpoint, the connection is closed.
        let Some((_, to)) = pods.iter().find(|(name, _)| known.contains(name)) else { continue };
        let to = if is_grpc { to.grpc } else { to.http };
        connections.spawn(forward(socket, to));
    }
}

async fn forward(mut socket: TcpStream, to: SocketAddr) {
    if let Ok(mut server) = TcpStream::connect(to).await {
        let _closed = copy_bidirectional(&mut socket, &mut server).await;
    }
}
