//! HTTP/2 connections, written frame by frame.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;

use crate::time_limits::within;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// Identifier of the setting.
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A received frame.
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) payload: Vec<u8>,
}

/// The frames that the server sends.
pub(super) struct Frames(BufReader<OwnedReadHalf>);

impl Frames {
    /// The next frame; `None` at the end of the connection.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(Frame { kind: head[3], payload })
    }
}

/// The bytes of a frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The bytes of a setting.
pub(super) fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// The header block of a request, without HPACK's compression.
pub(super) fn request(method: &[u8], path: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    // Indexes of the static table: :method (2), :scheme http (6), :path (4), :authority (1), content-type (31).
    for (index, value) in [(&[0x02][..], method), (&[0x04], path), (&[0x01], b"localhost")] {
        block.extend(index);
        block.push(u8::try_from(value.len()).unwrap());
        block.extend(value);
    }
    block.push(0x86);
    block.extend([0x0f, 0x10, 16]);
    block.extend(b"application/grpc");
    block
}

/// The header block of a report.
pub(super) fn report() -> Vec<u8> {
    request(b"POST", b"/octavo.v1.Fleet/Report")
}

/// Connects and sends the client preface, these settings and `first`.
pub(super) async fn connect(to: SocketAddr, settings: &[u8], first: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(to).await.unwrap();
    socket.set_nodelay(true).unwrap();
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, settings), first].concat();
    // The server may have closed the connection already.
    let _closed = socket.write_all(&opening).await;
    socket
}

/// The received frames, and the writable part of the connection.
pub(super) fn split(socket: TcpStream) -> (Frames, tokio::net::tcp::OwnedWriteHalf) {
    let (reader, writer) = socket.into_split();
    (Frames(BufReader::new(reader)), writer)
}

/// Sends `block` with increasing numbers until the server closes the connection, and reads everything. Returns the code
/// and the debug data of the GOAWAY frame if it arrives, and the number of reset streams.
pub(super) async fn flood(
    socket: TcpStream,
    mut block: impl FnMut(u32) -> Vec<u8>,
) -> (Option<(u32, String)>, usize) {
    let (mut frames, mut writer) = split(socket);
    let writing = async {
        for number in 0.. {
            if writer.write_all(&block(number)).await.is_err() {
                return;
            }
        }
    };
    let reading = async {
        let (mut goaway, mut resets) = (None, 0);
        while let Some(Frame { kind, payload }) = frames.next().await {
            match kind {
                RST_STREAM => resets += 1,
                GOAWAY => {
                    let code = u32::from_be_bytes(payload[4..8].try_into().unwrap());
                    goaway = Some((code, String::from_utf8_lossy(&payload[8..]).into_owned()));
                }
                _ => {}
            }
        }
        (goaway, resets)
    };
    within("the end of a connection", async { tokio::join!(writing, reading).1 }).await
}
