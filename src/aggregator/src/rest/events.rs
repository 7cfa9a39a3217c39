//! Changes of the fleet as server-sent events.
//!
//! A stream holds the fleet that its reader has received. When the reader has taken all of it, the current fleet is
//! compared with it and the difference is sent. A slow reader therefore skips intermediate states, and nothing queues
//! up for it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use octavo_documents::api::{Event, Problem};
use octavo_store::fleet::{Fleet, Node};
use octavo_store::task_stream::TaskStream;
use octavo_store::view::View;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};
use super::{Api, rows};

/// Interval of keep-alive comments.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Time limit for a reader to take an event, so that a stalled reader does not occupy a stream forever.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_mins(1);

/// Maximum number of buffered events.
pub(super) const BUFFERED_EVENTS: usize = 16;

type Sender = mpsc::Sender<Result<Message, axum::Error>>;

/// The reader disconnected.
struct Disconnected;

/// Whether the stream begins with the current nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamStart {
    AllNodes,
    ChangesOnly,
}

/// Nodes as they change, as server-sent events
///
/// `node` has a node that is new or changed, `removed` one that is no more, `synced` says that all there was has been sent.
/// The data of each is an `Event`; its id is the revision of the fleet. That time passes is no change; becoming stale is one.
#[utoipa::path(
    get,
    path = "/api/v1/events",
    tag = "fleet",
    params(("changes" = Option<String>, Query, description = "`only` leaves out the nodes there are at the start", example = "only")),
    responses(
        (status = 200, description = "Events, without end", body = Event, content_type = "text/event-stream"),
        (status = 400, description = "A parameter is not known or cannot be as given", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Too many streams are open", body = Problem, content_type = "application/problem+json",
            headers(("Retry-After" = u32, description = "Seconds")))
    )
)]
pub(super) async fn follow(
    State(api): State<Api>,
    QueryPairs(pairs): QueryPairs,
) -> Result<impl IntoResponse, ApiError> {
    let begin = begin(pairs)?;
    let permit = Arc::clone(&api.streams).try_acquire_owned().map_err(|_| {
        let detail = "as many event streams are open as there may be; try again later, or ask for /api/v1/nodes";
        ApiError::new(ProblemKind::TooManyStreams, detail)
    })?;
    let events = TaskStream::start(BUFFERED_EVENTS, |sender| {
        run_stream(api.view, begin, sender, permit)
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(events).keep_alive(keep_alive))
}

fn begin(pairs: Vec<(String, String)>) -> Result<StreamStart, ApiError> {
    let mut begin = StreamStart::AllNodes;
    for (name, value) in pairs {
        let start = |text: &str| -> String { text.chars().take(64).collect() };
        if name != "changes" {
            let name = start(&name);
            let detail = format!("there is no parameter {name:?}; there is changes");
            return Err(ApiError::new(ProblemKind::UnknownParameter, detail).with_parameter(&name));
        }
        match value.as_str() {
            "" => {}
            "only" => begin = StreamStart::ChangesOnly,
            other => {
                let other = start(other);
                let detail = format!("the parameter changes cannot be {other:?}; it can be only");
                return Err(
                    ApiError::new(ProblemKind::InvalidParameter, detail).with_parameter("changes")
                );
            }
        }
    }
    Ok(begin)
}

/// Sends events until the reader disconnects or the store is dropped. Holds the permit for that time.
async fn run_stream(
    mut view: View,
    begin: StreamStart,
    sender: Sender,
    permit: OwnedSemaphorePermit,
) {
    let mut told = view.listed();
    let known = match begin {
        StreamStart::AllNodes => Fleet::default(),
        StreamStart::ChangesOnly => told.clone(),
    };
    let mut sent = send_changes(&view, &known, &told, &sender).await;
    if sent.is_ok() {
        let revision = told.revision;
        sent = send(&sender, "synced", revision, &Event::Synced { revision }).await;
    }
    drop(known);
    while sent.is_ok() {
        let changed = tokio::select! {
            changed = view.listed_changed() => changed,
            () = sender.closed() => None,
        };
        let Some(fleet) = changed else { break };
        sent = send_changes(&view, &told, &fleet, &sender).await;
        told = fleet;
    }
    drop(permit);
}

/// Sends the difference between two fleets.
async fn send_changes(
    view: &View,
    old: &Fleet,
    new: &Fleet,
    sender: &Sender,
) -> Result<(), Disconnected> {
    let difference = new.since(old);
    for node in difference.removed {
        let name = node.name.as_str().to_owned();
        send(sender, "removed", new.revision, &Event::Removed { name }).await?;
    }
    for node in difference.changed {
        send(sender, "node", new.revision, &changed(view, node)).await?;
    }
    Ok(())
}

fn changed(view: &View, node: &Node) -> Event {
    let clock = view.clock();
    Event::Node {
        node: rows::row(node, clock, clock.now()),
    }
}

async fn send(
    sender: &Sender,
    name: &str,
    revision: u64,
    event: &Event,
) -> Result<(), Disconnected> {
    let message = Message::default()
        .event(name)
        .id(revision.to_string())
        .json_data(event);
    let sent = tokio::time::timeout(SEND_TIMEOUT, sender.send(message)).await;
    sent.map_err(|_| Disconnected)?.map_err(|_| Disconnected)
}
