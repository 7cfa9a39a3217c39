//! Responses of an HTTP/2 connection, of which a few at a time are created and sent.
//!
//! The client decides how much of each response it accepts. Without a limit, a client that accepts nothing could make
//! the server store a large response for each of its streams.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::SEND_BUFFER;

/// Maximum number of responses that are created or sent at the same time; further requests wait. Event streams do not
/// count once they have begun: they store few events.
const MAX_RESPONSES: usize = 4;

/// Responses of one connection.
#[derive(Debug)]
pub(super) struct Responses {
    slots: Arc<Semaphore>,
    open: AtomicUsize,
    /// Number of frames that were passed on.
    frames: AtomicUsize,
}

/// Body that occupies a slot until its last frame is passed on. Its frames are small, because the HTTP/2 library stores
/// a complete frame even if the client accepts only one byte.
#[derive(Debug)]
struct SlottedBody {
    body: Body,
    /// Received from `body` and not passed on.
    rest: Bytes,
    responses: Arc<Responses>,
    _slot: OwnedSemaphorePermit,
}

impl Responses {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            slots: Arc::new(Semaphore::new(MAX_RESPONSES)),
            open: AtomicUsize::new(0),
            frames: AtomicUsize::new(0),
        })
    }

    /// Waits for a slot. `None` never happens, because the semaphore is not closed.
    pub(super) async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).acquire_owned().await.ok()
    }

    /// Returns the number of passed frames if a response is incomplete: if it is the same later, the client reads
    /// nothing.
    pub(super) fn progress(&self) -> Option<usize> {
        let is_open = self.open.load(Ordering::Relaxed) > 0;
        is_open.then(|| self.frames.load(Ordering::Relaxed))
    }

    /// The body of a response in this slot. An event stream gets none.
    pub(super) fn body(self: Arc<Self>, body: Body, slot: Option<OwnedSemaphorePermit>) -> Body {
        match slot {
            Some(slot) => {
                self.open.fetch_add(1, Ordering::Relaxed);
                Body::new(SlottedBody { body, rest: Bytes::new(), responses: self, _slot: slot })
            }
            None => body,
        }
    }
}

impl HttpBody for SlottedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        this.responses.frames.fetch_add(1, Ordering::Relaxed);
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let later = this.rest.split_off(this.rest.len().min(SEND_BUFFER));
        Poll::Ready(Some(Ok(Frame::data(mem::replace(&mut this.rest, later)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let exact = self.body.size_hint().exact();
        exact.map_or_else(SizeHint::new, |body| SizeHint::with_exact(body.saturating_add(rest)))
    }
}

impl Drop for SlottedBody {
    fn drop(&mut self) {
        self.responses.open.fetch_sub(1, Ordering::Relaxed);
    }
}
