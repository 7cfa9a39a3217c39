//! Floods of HTTP/2 frames.

use super::connections::send_and_wait;
use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, connect, flood, frame, report, request, setting, split,
};
use super::{Site, Target};
use crate::time_limits::within;

/// Identifiers of HTTP/2 settings.
const MAX_CONCURRENT_STREAMS: u16 = 3;
const MAX_HEADER_LIST_SIZE: u16 = 6;

const CANCEL: [u8; 4] = 8_u32.to_be_bytes();
const LARGEST_INCREMENT: [u8; 4] = 0x7fff_ffff_u32.to_be_bytes();

/// Floods both servers, one after the other. `first` is sent once.
async fn flood_both(target: Target, first: &[u8], block: impl Fn(u32) -> Vec<u8>) {
    for address in [target.grpc, target.http] {
        flood(connect(address, &[], first).await, &block).await;
    }
}

/// Opens a stream, and sends a frame on it.
fn open_and(number: u32, kind: u8, payload: &[u8]) -> Vec<u8> {
    let stream = 2 * number + 1;
    let open = frame(HEADERS, END_HEADERS, stream, &report());
    [open, frame(kind, 0, stream, payload)].concat()
}

#[tokio::test]
async fn servers_announce_their_limits() {
    let site = Site::start(&[]).await;
    for (address, streams) in [(site.target().grpc, 8), (site.target().http, 64)] {
        let (mut frames, _writer) = split(connect(address, &[], &[]).await);
        let frame = within("settings", frames.next()).await.unwrap();
        assert_eq!(frame.kind, SETTINGS);
        let settings: Vec<&[u8]> = frame.payload.chunks(6).collect();
        for expected in
            [setting(MAX_CONCURRENT_STREAMS, streams), setting(MAX_HEADER_LIST_SIZE, 16 * 1024)]
        {
            assert!(settings.contains(&&*expected), "{settings:?}");
        }
    }
    site.finish().await;
}

#[tokio::test]
async fn i10_rapid_reset() {
    let mut site = Site::start(&[]).await;
    let counted = ["connections_cut_total{reason=\"too_many_resets\"}"];
    let attack = |target| flood_both(target, &[], |number| open_and(number, RST_STREAM, &CANCEL));
    site.withstand("Rapid Reset", &counted, attack).await;
    site.finish().await;
}

#[tokio::test]
async fn i10_made_you_reset() {
    let mut site = Site::start(&[]).await;
    let counted = ["connections_cut_total{reason=\"too_many_internal_resets\"}"];
    let block = |number| open_and(number, WINDOW_UPDATE, &LARGEST_INCREMENT);
    site.withstand("MadeYouReset", &counted, move |target| flood_both(target, &[], block)).await;
    let socket = connect(site.target().grpc, &[], &[]).await;
    let (_goaway, resets) = flood(socket, block).await;
    assert!(resets <= 140, "{resets} resets");
    site.finish().await;
}

#[tokio::test]
async fn i10_continuation_flood_and_header_bomb() {
    let mut site = Site::start(&[]).await;
    let counted = [
        "connections_cut_total{reason=\"too_many_continuations\"}",
        "connections_cut_total{reason=\"header_list_way_too_large\"}",
    ];
    site.withstand("CONTINUATION flood", &counted, async |target| {
        let open = frame(HEADERS, 0, 1, &report());
        flood_both(target, &open, |_| frame(CONTINUATION, 0, 1, &[]).repeat(100)).await;
        // A field of 4,000 bytes in the dynamic table, and references of one byte to it.
        let mut bomb = vec![0x40, 1, b'x', 0x7f, 0xa1, 0x1e];
        bomb.extend([b'v'; 4000]);
        bomb.extend([0xbe; 12_000]);
        flood_both(target, &[], |number| {
            frame(HEADERS, END_HEADERS, 2 * number + 1, &[report(), bomb.clone()].concat())
        })
        .await;
    })
    .await;
    site.finish().await;
}

#[tokio::test]
async fn i10_empty_data_flood() {
    let mut site = Site::start(&[]).await;
    let counted = ["connections_cut_total{reason=\"too_many_data_frames\"}"];
    let attack = async |target| {
        let open = frame(HEADERS, END_HEADERS, 1, &report());
        flood_both(target, &open, |_| frame(DATA, 0, 1, &[]).repeat(100)).await;
    };
    site.withstand("Empty DATA flood", &counted, attack).await;
    site.finish().await;
}

#[tokio::test]
async fn i10_control_frame_floods() {
    let mut site = Site::start(&[]).await;
    let counted = ["connections_cut_total{reason=\"too_many_control_frames\"}"];
    let ping = frame(PING, 0, 0, &[0; 8]);
    let settings = frame(SETTINGS, 0, 0, &setting(INITIAL_WINDOW_SIZE, 100));
    let priority = frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 0]);
    let unknown = frame(0xfe, 0, 0, &[0; 20]);
    for (name, frame) in [
        ("PING flood", ping),
        ("SETTINGS flood", settings),
        ("PRIORITY flood", priority),
        ("Unknown frames", unknown),
    ] {
        let attack = move |target| {
            let frame = frame.clone();
            async move { flood_both(target, &[], |_| frame.repeat(100)).await }
        };
        site.withstand(name, &counted, attack).await;
    }
    site.finish().await;
}

#[tokio::test]
async fn i10_windows_of_one_byte() {
    let mut site = Site::start(&[]).await;
    let counted = ["connections_cut_total{reason=\"too_many_control_frames\"}"];
    site.withstand("Windows of one byte", &counted, async |target| {
        let window = setting(INITIAL_WINDOW_SIZE, 1);
        let streams = || (0..64).map(|number| 2 * number + 1);
        let ends = END_HEADERS | END_STREAM;
        let open = |stream| frame(HEADERS, ends, stream, &request(b"GET", b"/api/v1/nodes"));
        let open: Vec<u8> = streams().flat_map(open).collect();
        let socket = connect(target.http, &window, &open).await;
        let one = 1_u32.to_be_bytes();
        flood(socket, |_| streams().flat_map(|at| frame(WINDOW_UPDATE, 0, at, &one)).collect())
            .await;
    })
    .await;
    site.finish().await;
}

#[tokio::test]
async fn i10_invalid_frames() {
    let mut site = Site::start(&[]).await;
    let counted = [
        "connections_cut_total{reason=\"protocol_error\"}",
        "connections_cut_total{reason=\"invalid_request\"}",
    ];
    site.withstand("Invalid frames", &counted, async |target| {
        flood_both(target, &[], |_| frame(DATA, 0, 0, b"x")).await;
        send_and_wait(target.http, b"\x16\x03\x01 no request\r\n\r\n").await;
    })
    .await;
    site.finish().await;
}
