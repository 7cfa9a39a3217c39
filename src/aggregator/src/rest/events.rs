//! Changes of the fleet as server-sent events.
//!
//! A stream holds the fleet that its reader has received. When the reader has taken all of it, the current fleet is
//! compared with it and the difference is sent. A slow reader therefore skips intermediate states, and nothing queues
//! up for it.

use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event as Message;
use octavo_fleet::api::Event;
use octavo_fleet::problem::Problem;
use octavo_store::fleet::{Fleet, Node};
use octavo_store::view::FleetView;

use super::nodes::QueryPairs;
use super::problem::{ApiError, ProblemKind};
use super::sse::{Disconnected, EventSender, only_changes, respond};
use super::{Api, rows};

/// Watch nodes through server-sent events
///
/// The stream starts with all nodes. `node` contains a new or changed node, `removed` the name of a removed one. `synced`
/// marks the end of the initial list. The data of each event is an `Event`; its id is the revision of the fleet. A growing
/// age is not a change, but a node that becomes stale is.
#[utoipa::path(
    get,
    path = "/api/v1/events",
    tag = "fleet",
    params(("changes" = Option<String>, Query, description = "`only`: skip the initial list of nodes", example = "only")),
    responses(
        (status = 200, description = "Stream of events", body = Event, content_type = "text/event-stream"),
        (status = 400, description = "Unknown or invalid parameter", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Too many open streams", body = Problem, content_type = "application/problem+json",
            headers(("Retry-After" = u32, description = "Seconds")))
    )
)]
pub(super) async fn follow(
    State(api): State<Api>,
    QueryPairs(pairs): QueryPairs,
) -> Result<Response, ApiError> {
    let only_changes = parse(pairs)?;
    let view = api.view.clone();
    respond(&api, "/api/v1/nodes", |sender| run(view, only_changes, sender))
}

/// Parses the parameters; returns whether the stream omits the nodes that exist at its start.
fn parse(pairs: Vec<(String, String)>) -> Result<bool, ApiError> {
    let mut only = false;
    for (name, value) in pairs {
        if name != "changes" {
            let name: String = name.chars().take(64).collect();
            let detail = format!("unknown parameter {name:?}; the only parameter is changes");
            return Err(ApiError::new(ProblemKind::UnknownParameter, detail).with_parameter(&name));
        }
        only |= only_changes(&value)?;
    }
    Ok(only)
}

/// Sends events until the reader disconnects or the store is dropped.
async fn run(
    mut view: FleetView,
    only_changes: bool,
    sender: EventSender,
) -> Result<(), Disconnected> {
    let mut sent = view.listed();
    let known = if only_changes { sent.clone() } else { Fleet::default() };
    send_changes(&view, &known, &sent, &sender).await?;
    drop(known);
    let revision = sent.revision;
    send(&sender, "synced", revision, &Event::Synced { revision }).await?;
    loop {
        let changed = tokio::select! {
            changed = view.listed_changed() => changed,
            () = sender.closed() => None,
        };
        let fleet = changed.ok_or(Disconnected)?;
        send_changes(&view, &sent, &fleet, &sender).await?;
        sent = fleet;
    }
}

/// Sends the difference between two fleets.
async fn send_changes(
    view: &FleetView,
    old: &Fleet,
    new: &Fleet,
    sender: &EventSender,
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

fn changed(view: &FleetView, node: &Node) -> Event {
    let clock = view.clock();
    Event::Node { node: rows::row(node, clock, clock.now()) }
}

async fn send(
    sender: &EventSender,
    name: &str,
    revision: u64,
    event: &Event,
) -> Result<(), Disconnected> {
    let message = Message::default().event(name).id(revision.to_string()).json_data(event);
    sender.send(message).await
}
