//! Request bodies with a deadline and a minimum rate.
//!
//! Without both, a client that announces a body and never sends it would hold its connection for as long as it likes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use thiserror::Error;
use tokio::time::{Instant, Sleep, sleep_until};

/// Minimum rate of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Time until the first bytes. Each `MIN_RATE` bytes extend it by a second.
    pub grace: Duration,
    /// Time until the last byte, at any rate.
    pub deadline: Duration,
}

/// Bytes per second below which a body is too slow.
const MIN_RATE: u32 = 4096;

/// The body did not arrive in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the request body arrived too slowly")]
pub struct SlowBody;

/// Body that ends with [`SlowBody`] if it is too slow. The time starts with the first read, so that a delay in the
/// handler does not count as the client's.
#[derive(Debug)]
pub(super) struct PacedBody<B> {
    inner: B,
    pace: Pace,
    timer: Option<Timer>,
    received: u64,
    is_late: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Timer {
    begun: Instant,
    due: Pin<Box<Sleep>>,
}

impl Pace {
    /// Time since the start after which a body with this many received bytes is too slow.
    fn allowed(&self, received: u64) -> Duration {
        let earned = Duration::from_millis(received.saturating_mul(1000) / u64::from(MIN_RATE));
        self.grace.saturating_add(earned).min(self.deadline)
    }
}

impl<B> PacedBody<B> {
    /// Limits `inner` to `pace`. Sets `is_late` if it was too slow.
    pub(super) fn new(inner: B, pace: Pace, is_late: Arc<AtomicBool>) -> Self {
        Self { inner, pace, timer: None, received: 0, is_late }
    }
}

impl<B> Body for PacedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let pace = this.pace;
        let timer = this.timer.get_or_insert_with(|| {
            let begun = Instant::now();
            let due = Box::pin(sleep_until(begun + pace.allowed(0)));
            Timer { begun, due }
        });
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) {
            if let Some(Ok(frame)) = &frame
                && let Some(data) = frame.data_ref()
            {
                let more = u64::try_from(data.len()).unwrap_or(u64::MAX);
                this.received = this.received.saturating_add(more);
                let due = timer.begun + pace.allowed(this.received);
                timer.due.as_mut().reset(due);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(timer.due.as_mut().poll(context));
        this.is_late.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(SlowBody.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt, StreamBody};
    use tokio::sync::mpsc;
    use tokio::time::{interval, sleep};
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;

    const PACE: Pace = Pace { grace: Duration::from_secs(10), deadline: Duration::from_mins(1) };

    /// Sends `bytes` bytes each second, `times` times; returns whether all were read, and the duration.
    async fn sent(bytes: usize, times: usize) -> (bool, Duration) {
        let (sender, frames) = mpsc::channel::<Result<_, Infallible>>(1);
        let is_late = Arc::new(AtomicBool::new(false));
        let body = StreamBody::new(ReceiverStream::new(frames));
        let body = PacedBody::new(body, PACE, Arc::clone(&is_late));
        let begun = Instant::now();
        let send = async {
            let mut seconds = interval(Duration::from_secs(1));
            for _ in 0..times {
                seconds.tick().await;
                let frame = Frame::data(Bytes::from(vec![b' '; bytes]));
                if sender.send(Ok(frame)).await.is_err() {
                    return;
                }
            }
            if times == 0 {
                sleep(Duration::from_hours(1)).await;
            }
            drop(sender);
        };
        let (read, ()) = tokio::join!(
            async {
                let read = body.collect().await;
                (read, begun.elapsed())
            },
            send
        );
        let (read, took) = read;
        if let Err(error) = &read {
            assert!(error.is::<SlowBody>(), "{error}");
        }
        assert_eq!(read.is_err(), is_late.load(Ordering::Relaxed));
        (read.is_ok(), took)
    }

    #[tokio::test(start_paused = true)]
    async fn slow_body_is_cut() {
        let seconds = |took: Duration| took.as_secs();
        // No data at all, and one byte per second.
        for (bytes, times) in [(0, 0), (1, 240)] {
            let (whole, took) = sent(bytes, times).await;
            assert_eq!((whole, seconds(took)), (false, 10), "{bytes}");
        }
        // At half the rate, the body is cut when the first ten seconds are used up; above the rate, only the deadline
        // ends it.
        let (whole, took) = sent(2048, 240).await;
        assert!(!whole && (18..=21).contains(&seconds(took)), "{took:?}");
        let (whole, took) = sent(8192, 240).await;
        assert_eq!((whole, seconds(took)), (false, 60));
        let (whole, took) = sent(8192, 30).await;
        assert_eq!((whole, seconds(took)), (true, 29));
    }
}
