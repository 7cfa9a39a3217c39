//! Server-sent events that make an open page reload. Events carry no content, so one handler renders both the first
//! load and every update.
//!
//! `change` is sent at most once a second, however often the fleet changes. `beat` is sent in quiet times, so that a
//! page can tell silence from a lost connection.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use octavo_store::policies::PolicyView;
use octavo_store::task_stream::TaskStream;
use octavo_store::view::FleetView;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::PageState;

/// Minimum interval between two events.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum interval between two events, give or take a second. The script gives up on a stream after three of them.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Streams events. Responds with 503 if too many pages wait already; the page then polls instead.
pub(super) async fn stream(State(site): State<PageState>) -> Response {
    let Ok(permit) = site.streams.try_acquire_owned() else {
        let later = [(header::RETRY_AFTER, "30")];
        return (StatusCode::SERVICE_UNAVAILABLE, later).into_response();
    };
    let events = TaskStream::start(1, |sender| send_events(site.view, sender, permit));
    // A buffering proxy would make every page look disconnected.
    let unbuffered = [("x-accel-buffering", "no")];
    (unbuffered, Sse::new(events)).into_response()
}

/// Sends events until the page disconnects or the store is dropped. A page that does not read delays no other page.
async fn send_events(
    mut view: FleetView,
    events: mpsc::Sender<Result<Event, Infallible>>,
    permit: OwnedSemaphorePermit,
) {
    let mut apart = interval(MIN_INTERVAL);
    apart.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut policies = view.policies().cloned();
    loop {
        apart.tick().await;
        let changed = async {
            tokio::select! {
                revision = view.changed_or_started() => revision,
                () = policies_changed(policies.as_mut()) => Some(0),
            }
        };
        let event = match timeout(HEARTBEAT_INTERVAL, changed).await {
            Ok(Some(revision)) => Event::default().event("change").data(revision.to_string()),
            Ok(None) => break,
            Err(_) => Event::default().event("beat").data(""),
        };
        if events.send(Ok(event)).await.is_err() {
            break;
        }
    }
    drop(permit);
}

/// Waits until a policy changes; never resolves without policies.
async fn policies_changed(policies: Option<&mut PolicyView>) {
    match policies {
        Some(policies) => policies.policies_changed().await,
        None => std::future::pending().await,
    }
}
