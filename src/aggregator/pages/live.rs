//! What tells an open page that there is something new: server-sent events without content, so that the page that asks is
//! also the page that answers.
//!
//! `change` comes at most once a second, however much happens; `beat` comes when nothing does, so that a page can tell
//! silence from a connection that is no more.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::ReceiverStream;

use super::Site;
use crate::aggregator::view::View;

/// Between two events at least.
const APART: Duration = Duration::from_secs(1);

/// Between two events at most, a second more or less. The script gives up on a stream after three of them.
const BEAT: Duration = Duration::from_secs(5);

/// Refused with 503 when too many pages wait already: that one asks from time to time instead.
pub(super) async fn stream(State(site): State<Site>) -> Response {
    let Ok(permit) = site.streams.try_acquire_owned() else {
        let later = [(header::RETRY_AFTER, "30")];
        return (StatusCode::SERVICE_UNAVAILABLE, later).into_response();
    };
    let (events, stream) = mpsc::channel(1);
    tokio::spawn(tell(site.view, events, permit));
    // A proxy that collects an answer before it passes it on would make every page look lost.
    let unbuffered = [("x-accel-buffering", "no")];
    (unbuffered, Sse::new(ReceiverStream::new(stream))).into_response()
}

/// Ends with the page or with the store. A page that does not read holds up nobody but itself.
async fn tell(
    mut view: View,
    events: mpsc::Sender<Result<Event, Infallible>>,
    permit: OwnedSemaphorePermit,
) {
    let mut apart = interval(APART);
    apart.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        apart.tick().await;
        let event = match timeout(BEAT, view.listed_changed()).await {
            Ok(Some(fleet)) => Event::default()
                .event("change")
                .data(fleet.revision.to_string()),
            Ok(None) => break,
            Err(_) => Event::default().event("beat").data(""),
        };
        if events.send(Ok(event)).await.is_err() {
            break;
        }
    }
    drop(permit);
}
