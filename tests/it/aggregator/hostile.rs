//! Hostile HTTP/2 peers, written frame by frame.

use octavo_aggregator::serve::Protocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Plan, Site, TIME_LIMIT};

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_HEADERS: u8 = 4;

/// Identifiers of HTTP/2 settings.
const MAX_CONCURRENT_STREAMS: u16 = 3;
const MAX_HEADER_LIST_SIZE: u16 = 6;

const ENHANCE_YOUR_CALM: u32 = 11;

struct RawConnection(TcpStream);

struct Frame {
    kind: u8,
    payload: Vec<u8>,
}

impl RawConnection {
    /// Connects and sends the client preface.
    async fn connect(site: &Site) -> Self {
        let mut raw = Self(TcpStream::connect(site.address).await.unwrap());
        raw.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        raw.0.write_all(&frame(SETTINGS, 0, &[])(0)).await.unwrap();
        raw
    }

    async fn receive(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        timeout(TIME_LIMIT, self.0.read_exact(&mut head)).await.unwrap().ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        timeout(TIME_LIMIT, self.0.read_exact(&mut payload)).await.unwrap().ok()?;
        let kind = head[3];
        Some(Frame { kind, payload })
    }
}

/// Returns a frame for any stream.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> impl Fn(u32) -> Vec<u8> + Send + 'static {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let payload = payload.to_vec();
    move |stream| {
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(&payload);
        frame
    }
}

/// The header block of a report, without HPACK's compression.
fn report() -> Vec<u8> {
    let path = b"/octavo.v1.Fleet/Report";
    let kind = b"application/grpc";
    // :method POST and :scheme http of the static table; :path (4), :authority (1), content-type (31) with a value.
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend(path);
    block.extend([0x01, 1, b'x', 0x0f, 0x10, u8::try_from(kind.len()).unwrap()]);
    block.extend(kind);
    block
}

#[tokio::test]
async fn server_announces_its_stream_limit() {
    for (protocol, expected) in [(Protocol::Grpc, 8), (Protocol::Http, 64)] {
        let plan = Plan { protocol, ..Plan::default() };
        let site = plan.start().await;
        let frame = RawConnection::connect(&site).await.receive().await.unwrap();
        assert_eq!(frame.kind, SETTINGS);
        let settings: Vec<(u16, u32)> = frame
            .payload
            .chunks(6)
            .map(|one| {
                let value = one[2..].try_into().unwrap();
                (u16::from_be_bytes([one[0], one[1]]), u32::from_be_bytes(value))
            })
            .collect();
        assert!(settings.contains(&(MAX_CONCURRENT_STREAMS, expected)), "{settings:?}");
        assert!(settings.contains(&(MAX_HEADER_LIST_SIZE, 16 * 1024)), "{settings:?}");
    }
}

#[tokio::test]
async fn streams_that_force_server_resets_end_the_connection() {
    let site = Plan::default().start().await;
    // More than the maximum size of a window.
    let update = frame(WINDOW_UPDATE, 0, &0x7fff_ffff_u32.to_be_bytes());
    let (code, resets) = flood_with_resets(&site, update).await;
    assert_eq!(code, Some(ENHANCE_YOUR_CALM));
    assert!((100..=140).contains(&resets), "{resets} resets");
    // Other clients are still served.
    let _line = super::AgentStream::with_visible_status(&site, "n", super::parts(1)).await;
}

/// Opens a stream and sends `then` on it, up to two thousand times. Returns the code of the server's GOAWAY, and the
/// number of streams that were reset before it.
async fn flood_with_resets(
    site: &Site,
    then: impl Fn(u32) -> Vec<u8> + Send + 'static,
) -> (Option<u32>, usize) {
    let (mut reader, mut writer) = RawConnection::connect(site).await.0.into_split();
    let writing = tokio::spawn(async move {
        let open = frame(HEADERS, END_HEADERS, &report());
        for number in 0..2000_u32 {
            let stream = 2 * number + 1;
            let frames = [open(stream), then(stream)].concat();
            if writer.write_all(&frames).await.is_err() {
                return;
            }
        }
    });
    let mut bytes = Vec::new();
    // The connection may already be closed.
    let _end = timeout(TIME_LIMIT, reader.read_to_end(&mut bytes)).await.unwrap();
    writing.await.unwrap();
    read(&bytes)
}

/// Returns the code of the GOAWAY in the received bytes, and the number of streams that were reset before it.
fn read(mut bytes: &[u8]) -> (Option<u32>, usize) {
    let mut resets = 0;
    while bytes.len() >= 9 {
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
        let end = 9 + usize::try_from(length).unwrap();
        match bytes[3] {
            RST_STREAM => resets += 1,
            GOAWAY => {
                let code = bytes[13..17].try_into().unwrap();
                return (Some(u32::from_be_bytes(code)), resets);
            }
            _ => {}
        }
        bytes = &bytes[end..];
    }
    (None, resets)
}

#[tokio::test]
async fn streams_reset_immediately_after_opening_end_the_connection() {
    let site = Plan::default().start().await;
    let cancel = frame(RST_STREAM, 0, &8_u32.to_be_bytes());
    let (code, _) = flood_with_resets(&site, cancel).await;
    assert_eq!(code, Some(ENHANCE_YOUR_CALM));
}
