//! The service address of the aggregator without kube-proxy: connections to node-1 are forwarded to its pod.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Once;
use std::{io, thread};

use super::super::Api;
use super::site::NAMESPACE;

/// Address of node-1 for pods and tests.
pub(super) const ADDRESS: &str = "10.98.0.1";
/// The ports of the service.
pub(super) const GRPC: u16 = 7443;
pub(super) const HTTPS: u16 = 8443;

/// Serves both ports from the first call until this process ends.
pub(super) fn serve(api: &'static Api) {
    static SERVED: Once = Once::new();
    SERVED.call_once(|| listen(api));
}

fn listen(api: &'static Api) {
    for port in [GRPC, HTTPS] {
        let listener = TcpListener::bind((ADDRESS, port)).unwrap();
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                // Without a pod the connection is closed, like a service without endpoints.
                thread::spawn(move || pass(api, &client, port));
            }
        });
    }
}

fn pass(api: &Api, client: &TcpStream, port: u16) -> io::Result<()> {
    let ours = "--selector=app.kubernetes.io/name=octavo-aggregator";
    let running = "--field-selector=status.phase=Running";
    let address = "-o=jsonpath={.items[0].status.podIP}";
    let found = api.try_kubectl(&["get", "pods", "-n", NAMESPACE, ours, running, address]);
    let address = String::from_utf8_lossy(&found.stdout).into_owned();
    let pod = TcpStream::connect(format!("{address}:{port}"))?;
    thread::scope(|scope| {
        scope.spawn(|| flow(&pod, client));
        flow(client, &pod)
    })
}

/// Copies one direction until it ends.
fn flow(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let copied = io::copy(&mut from, &mut to);
    let _closed = to.shutdown(Shutdown::Write);
    copied.map(drop)
}
