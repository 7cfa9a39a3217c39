//! Peers that occupy connections and streams, and send or read slowly or not at all.

use std::net::SocketAddr;
use std::time::Duration;

use octavo_stream::messages::encode_from_agent;
use octavo_stream::proto::v1;
use octavo_stream::protocol::FromAgent;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::interval;

use super::frames::{
    DATA, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, PREFACE, connect, frame, report,
    request, setting,
};
use super::messages::{report_status, with_labels};
use super::{Site, Target};
use crate::agent_stream::{hello, parts};

/// Connections of each kind.
const CONNECTIONS: usize = 50;
const IDLE: usize = 300;
const MAX_CONNECTIONS: usize = 300;

/// Sends these bytes, and waits until the server closes the connection.
pub(super) async fn send_and_wait(to: SocketAddr, bytes: &[u8]) {
    let mut socket = TcpStream::connect(to).await.unwrap();
    let _closed = socket.write_all(bytes).await;
    wait(socket).await;
}

/// Waits until the server closes the connection.
async fn wait(mut socket: TcpStream) {
    let mut buffer = [0; 4096];
    while socket.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}

/// Sends a byte of `bytes` each second, and then nothing.
async fn trickle(to: SocketAddr, bytes: &[u8]) {
    let mut socket = TcpStream::connect(to).await.unwrap();
    let mut seconds = interval(Duration::from_secs(1));
    for byte in bytes {
        seconds.tick().await;
        if socket.write_all(&[*byte]).await.is_err() {
            return;
        }
    }
    wait(socket).await;
}

/// A message in the frame of gRPC.
fn framed(message: &v1::FromAgent) -> Vec<u8> {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], &message].concat()
}

/// The first frames of a report whose message is incomplete.
fn half_report() -> Vec<u8> {
    let open = frame(HEADERS, END_HEADERS, 1, &report());
    [open, frame(DATA, 0, 1, &[0, 0, 0, 1, 0, 0x0a])].concat()
}

/// Slow and silent peers on connections without TLS. Ends when the server has closed all of them.
async fn slow_peers(Target { grpc, http }: Target) {
    let mut peers = JoinSet::new();
    for _ in 0..CONNECTIONS {
        peers.spawn(send_and_wait(grpc, &PREFACE[..20]));
        peers.spawn(trickle(grpc, PREFACE));
        peers.spawn(async move { wait(connect(grpc, &[], &half_report()).await).await });
        peers.spawn(async move {
            let unknown = request(b"GET", b"/unknown");
            let unknown = frame(HEADERS, END_HEADERS | END_STREAM, 1, &unknown);
            wait(connect(grpc, &[], &unknown).await).await;
        });
        peers.spawn(trickle(http, b"GET /api/v1/nodes HTTP/1.1\r\nHost: localhost\r\n"));
        let post = b"POST /api/v1/match HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n";
        peers.spawn(send_and_wait(http, post));
    }
    for _ in 0..IDLE {
        peers.spawn(send_and_wait(grpc, b""));
    }
    while peers.join_next().await.is_some() {}
}

#[tokio::test]
async fn i10_slow_and_idle_connections() {
    let mut site = Site::start(&[&format!("--max-connections={MAX_CONNECTIONS}")]).await;
    let mut encrypted = Site::start_with_tls().await;
    let counted = [
        "connections_cut_total{reason=\"no_request\"}",
        "connections_cut_total{reason=\"no_stream\"}",
        "connections_cut_total{reason=\"slow_body\"}",
        "connections_refused_total{server=\"grpc\"}",
    ];
    let of_tls = [
        "tls_handshake_failures_total{server=\"grpc\"}",
        "tls_handshake_failures_total{server=\"http\"}",
    ];
    let handshakes = async |Target { grpc, http }: Target| {
        let mut peers = JoinSet::new();
        for to in [grpc, http] {
            for _ in 0..CONNECTIONS {
                // A record of 512 bytes with the beginning of a ClientHello.
                peers.spawn(send_and_wait(to, &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]));
                peers.spawn(trickle(to, &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]));
            }
        }
        while peers.join_next().await.is_some() {}
    };
    tokio::join!(
        site.withstand("Slow and idle connections", &counted, slow_peers),
        encrypted.withstand("Slow TLS handshakes", &of_tls, handshakes),
    );
    site.finish().await;
    encrypted.finish().await;
}

/// Opens an agent's stream that accepts no byte of an answer, and sends a status and heartbeats.
async fn unread_agent(to: SocketAddr, node: String) {
    let parts = parts(1);
    let hash = parts.hash();
    let snapshot = encode_from_agent(&FromAgent::Snapshot { seq: 1, parts });
    let heartbeat = framed(&encode_from_agent(&FromAgent::Heartbeat { seq: 1, hash }));
    let messages = [framed(&hello(&node, 1)), framed(&snapshot), heartbeat.repeat(20)].concat();
    let open = frame(HEADERS, END_HEADERS, 1, &report());
    let first = [open, frame(DATA, 0, 1, &messages)].concat();
    wait(connect(to, &setting(INITIAL_WINDOW_SIZE, 0), &first).await).await;
}

/// Opens a `Watch` stream of all nodes that accepts no byte.
async fn unread_watch(to: SocketAddr) {
    let open = frame(HEADERS, END_HEADERS, 1, &request(b"POST", b"/octavo.v1.Fleet/Watch"));
    let first = [open, frame(DATA, END_STREAM, 1, &[0; 5])].concat();
    wait(connect(to, &setting(INITIAL_WINDOW_SIZE, 0), &first).await).await;
}

/// Requests events over HTTP/1.1 and never reads.
async fn unread_events(to: SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2048).unwrap();
    let mut socket = socket.connect(to).await.unwrap();
    let request = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let _closed = socket.write_all(request).await;
    // The server closes it after a minute at the latest; the attack ends earlier.
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn i10_unread_streams() {
    let mut site = Site::start(&["--stale-after=3s"]).await;
    let counted = [
        "connections_cut_total{reason=\"silent\"}",
        "refusals_total{reason=\"too_many_watchers\"}",
    ];
    site.withstand("Unread streams", &counted, async |Target { grpc, http }| {
        let mut peers = JoinSet::new();
        for number in 0..CONNECTIONS {
            peers.spawn(unread_agent(grpc, format!("unread-{number}")));
            peers.spawn(unread_events(http));
            peers.spawn(unread_watch(grpc));
            peers.spawn(unread_watch(grpc));
        }
        while peers.join_next().await.is_some() {}
    })
    .await;
    site.finish().await;
}

#[tokio::test]
async fn i10_unread_responses_on_many_streams() {
    const UNREAD_CONNECTIONS: usize = 6;
    let mut site = Site::start(&[]).await;
    report_status(site.target(), "bomb", &with_labels(1)).await.unwrap();
    // `not_reading` is counted after 30 s: `aggregator::serve` tests it with a shorter limit.
    site.withstand("Unread responses", &[], async |Target { http, .. }| {
        let get = request(b"GET", b"/api/v1/nodes/bomb");
        let open = |number: u32| frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &get);
        let open: Vec<u8> = (0..64).flat_map(open).collect();
        let mut sockets = Vec::new();
        for _ in 0..UNREAD_CONNECTIONS {
            sockets.push(connect(http, &setting(INITIAL_WINDOW_SIZE, 1), &open).await);
        }
        for socket in sockets {
            wait(socket).await;
        }
    })
    .await;
    site.finish().await;
}
