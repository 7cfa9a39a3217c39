//! Limit of the control frames of an HTTP/2 connection, and the reason why the HTTP/2 library ends it.
//!
//! The library answers every ping and change of settings, and applies every change of a window, at any rate. It limits
//! other floods by itself, but reports the kind of flood only to the client: as the debug data of the last GOAWAY frame.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use octavo_store::peer::Peer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Connection whose control frames are counted. HTTP/1.1 passes unchanged.
#[derive(Debug)]
pub(super) struct FrameMonitor<I> {
    io: I,
    peer: Peer,
    position: Position,
    budget: Budget,
}

/// Position in the received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// After this many bytes of the client preface.
    Preface(usize),
    /// After this many bytes of the header of a frame, with the length of its payload.
    Header(usize, usize),
    /// Before this many bytes of a payload.
    Payload(usize),
    /// In a connection without frames.
    Http1,
}

/// Remaining control frames.
#[derive(Debug)]
struct Budget {
    frames: usize,
    /// Sent bytes that are not converted to frames.
    sent: usize,
    refilled: Instant,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADER_BYTES: usize = 9;
/// Types of frames that carry requests. The library limits their number and size.
const REQUEST_FRAMES: [u8; 3] = [0x0, 0x1, 0x9];
/// Control frames per [`REFILL_INTERVAL`]. A client that reads nothing needs only a few.
const MAX_CONTROL_FRAMES: usize = 1024;
const REFILL_INTERVAL: Duration = Duration::from_secs(1);
/// Sent bytes that permit one more control frame. A client that reads much returns much window; a frame of the answer to
/// a control frame is shorter.
const BYTES_PER_FRAME: usize = 128;
/// Maximum number of control frames that sent bytes permit: a client can read up to 8 MiB from its buffers much later.
const MAX_EARNED_FRAMES: usize = 65_536;
const TOO_MANY_CONTROL_FRAMES: &str = "too_many_control_frames";
/// Kinds of floods that end a connection. The others are the debug data of h2 0.4 in a GOAWAY frame with
/// `ENHANCE_YOUR_CALM`.
pub const FLOODS: [&str; 6] = [
    TOO_MANY_CONTROL_FRAMES,
    "too_many_resets",
    "too_many_internal_resets",
    "too_many_continuations",
    "too_many_data_frames",
    "header_list_way_too_large",
];
/// Length of the last stream and the error code in a GOAWAY frame.
const GOAWAY_FIELDS: usize = 8;

impl<I> FrameMonitor<I> {
    /// Monitors the connection of `peer`.
    pub(super) fn new(io: I, peer: Peer) -> Self {
        let budget = Budget { frames: MAX_CONTROL_FRAMES, sent: 0, refilled: Instant::now() };
        Self { io, peer, position: Position::Preface(0), budget }
    }

    fn record_sent(&mut self, last: &[u8], sent: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(sent)) = sent {
            self.budget.earn(*sent);
        }
        if let Some(reason) = FLOODS.into_iter().find(|reason| is_goaway(last, reason)) {
            self.peer.record_flood(reason);
        }
    }
}

/// Returns whether `sent` ends with a GOAWAY frame with this debug data.
fn is_goaway(sent: &[u8], reason: &str) -> bool {
    let Some(rest) = sent.strip_suffix(reason.as_bytes()) else {
        return false;
    };
    let length = u8::try_from(GOAWAY_FIELDS + reason.len()).unwrap_or(u8::MAX);
    let header = [0, 0, length, 0x7, 0, 0, 0, 0, 0];
    let start = rest.len().checked_sub(HEADER_BYTES + GOAWAY_FIELDS);
    start.and_then(|start| rest.get(start..)).is_some_and(|frame| frame.starts_with(&header))
}

impl Position {
    const FRAME: Self = Self::Header(0, 0);

    /// Continues with these bytes and returns the number of control frames among them.
    fn advance(&mut self, mut bytes: &[u8]) -> usize {
        let mut frames = 0;
        while *self != Self::Http1
            && let Some((&byte, rest)) = bytes.split_first()
        {
            *self = match *self {
                Self::Preface(at) if PREFACE.get(at) != Some(&byte) => Self::Http1,
                Self::Preface(at) if at + 1 == PREFACE.len() => Self::FRAME,
                Self::Preface(at) => Self::Preface(at + 1),
                Self::Header(at @ ..3, length) => {
                    Self::Header(at + 1, (length << 8) | usize::from(byte))
                }
                Self::Header(at, length) => {
                    frames += usize::from(at == 3 && !REQUEST_FRAMES.contains(&byte));
                    if at + 1 == HEADER_BYTES {
                        (bytes, *self) = Self::skip(rest, length);
                        continue;
                    }
                    Self::Header(at + 1, length)
                }
                Self::Payload(length) => {
                    (bytes, *self) = Self::skip(bytes, length);
                    continue;
                }
                Self::Http1 => Self::Http1,
            };
            bytes = rest;
        }
        frames
    }

    /// Skips a payload, and returns the bytes after it.
    fn skip(bytes: &[u8], length: usize) -> (&[u8], Self) {
        match bytes.get(length..) {
            Some(rest) => (rest, Self::FRAME),
            None => (&[], Self::Payload(length.saturating_sub(bytes.len()))),
        }
    }
}

impl Budget {
    fn earn(&mut self, sent: usize) {
        let sent = self.sent.saturating_add(sent);
        self.sent = sent % BYTES_PER_FRAME;
        self.frames = self.frames.saturating_add(sent / BYTES_PER_FRAME).min(MAX_EARNED_FRAMES);
    }

    /// Takes this many frames, and returns whether there were enough.
    fn spend(&mut self, frames: usize) -> bool {
        // The clock is read only when the budget is used up, at most once in a thousand frames.
        if frames > self.frames && self.refilled.elapsed() >= REFILL_INTERVAL {
            self.refilled = Instant::now();
            self.frames = MAX_CONTROL_FRAMES;
        }
        let left = self.frames.checked_sub(frames);
        self.frames = left.unwrap_or_default();
        left.is_some()
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for FrameMonitor<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buffer))?;
        let received = buffer.filled().get(before..).unwrap_or_default();
        let frames = this.position.advance(received);
        if this.budget.spend(frames) {
            return Poll::Ready(Ok(()));
        }
        this.peer.record_flood(TOO_MANY_CONTROL_FRAMES);
        Poll::Ready(Err(io::Error::other("too many HTTP/2 control frames")))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for FrameMonitor<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.record_sent(bytes, &sent);
        sent
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = Pin::new(&mut this.io).poll_write_vectored(cx, parts);
        let last = parts.iter().rfind(|part| !part.is_empty());
        this.record_sent(last.map(|part| &**part).unwrap_or_default(), &sent);
        sent
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::advance;

    use super::*;

    const DATA: u8 = 0x0;
    const PING: u8 = 0x6;

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        let header = [0, 0, length, kind, 0, 0, 0, 0, 1];
        header.into_iter().chain(std::iter::repeat_n(kind, usize::from(length))).collect()
    }

    proptest! {
        #[test]
        fn control_frames_are_counted_wherever_reads_end(
            frames in prop::collection::vec((0_u8..12, 0_u8..40), 0..40),
            reads in prop::collection::vec(1_usize..60, 1..200),
        ) {
            let bytes = frames.iter().flat_map(|(kind, length)| frame(*kind, *length));
            let bytes: Vec<u8> = PREFACE.iter().copied().chain(bytes).collect();
            let (mut rest, mut counted) = (&bytes[..], 0);
            let mut position = Position::Preface(0);
            for read in reads.into_iter().chain([bytes.len()]) {
                let (now, later) = rest.split_at(read.min(rest.len()));
                counted += position.advance(now);
                rest = later;
            }
            let expected = frames.iter().filter(|(kind, _)| !REQUEST_FRAMES.contains(kind)).count();
            prop_assert_eq!(counted, expected);
            prop_assert_eq!(position, Position::FRAME);
        }
    }

    #[test]
    fn http1_has_no_frames() {
        let mut position = Position::Preface(0);
        assert_eq!(position.advance(b"POST / HTTP/1.1\r\n\r\n"), 0);
        assert_eq!(position.advance(&frame(PING, 8)), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn control_frames_are_limited_by_time_and_by_what_the_client_reads() {
        let mut budget = Budget { frames: MAX_CONTROL_FRAMES, sent: 0, refilled: Instant::now() };
        assert!(budget.spend(MAX_CONTROL_FRAMES) && !budget.spend(1));
        budget.earn(BYTES_PER_FRAME - 1);
        assert!(!budget.spend(1));
        budget.earn(1);
        assert!(budget.spend(1) && !budget.spend(1));
        advance(REFILL_INTERVAL).await;
        assert!(budget.spend(MAX_CONTROL_FRAMES) && !budget.spend(1));
    }

    #[test]
    fn reason_is_read_only_from_goaway_frame() {
        let reason = "too_many_resets";
        let mut goaway = frame(DATA, 3);
        goaway.extend([0, 0, 23, 7, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 11]);
        goaway.extend(reason.as_bytes());
        assert!(is_goaway(&goaway, reason));
        let at = goaway.len() - reason.len() - GOAWAY_FIELDS - HEADER_BYTES;
        for byte in at..at + HEADER_BYTES {
            let mut other = goaway.clone();
            other[byte] ^= 1;
            assert!(!is_goaway(&other, reason), "{byte}");
        }
        assert!(!is_goaway(reason.as_bytes(), reason));
    }
}
