//! Server-sent events of the API.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use octavo_store::task_stream::TaskStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Api;
use super::problem::{ApiError, ProblemKind};

/// Interval of keep-alive comments.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time limit for a reader to take an event, so that a stalled reader does not occupy a stream forever.
const SEND_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum number of buffered events.
const BUFFERED_EVENTS: usize = 16;

/// The reader disconnected.
pub(super) struct Disconnected;

/// Sends the events of one stream.
pub(super) struct EventSender(mpsc::Sender<Result<Message, axum::Error>>);

impl EventSender {
    /// Sends a message. An error of serializing it ends the stream.
    pub(super) async fn send(
        &self,
        message: Result<Message, axum::Error>,
    ) -> Result<(), Disconnected> {
        let sent = timeout(SEND_TIMEOUT, self.0.send(message)).await;
        sent.map_err(|_| Disconnected)?.map_err(|_| Disconnected)
    }

    /// Waits until the reader disconnects.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Starts a stream of the events that `run` sends until the reader disconnects. If there are too many streams, the
/// error refers to `alternative`, a path with the same data.
pub(super) fn respond<F>(
    api: &Api,
    alternative: &str,
    run: impl FnOnce(EventSender) -> F,
) -> Result<Response, ApiError>
where
    F: Future<Output = Result<(), Disconnected>> + Send + 'static,
{
    let permit = Arc::clone(&api.streams).try_acquire_owned().map_err(|_| {
        let detail = format!(
            "the limit of open event streams is reached; retry later or poll {alternative}"
        );
        ApiError::new(ProblemKind::TooManyStreams, detail)
    })?;
    let events = TaskStream::start(BUFFERED_EVENTS, |sender| {
        let events = run(EventSender(sender));
        async move {
            let _disconnected = events.await;
            drop(permit);
        }
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// Parses the value of the parameter `changes`; returns whether only changes are requested.
pub(super) fn only_changes(value: &str) -> Result<bool, ApiError> {
    match value {
        "" => Ok(false),
        "only" => Ok(true),
        other => {
            let other: String = other.chars().take(64).collect();
            let detail = format!(
                "the parameter changes cannot be {other:?}; the only valid value is `only`"
            );
            Err(ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("changes"))
        }
    }
}
