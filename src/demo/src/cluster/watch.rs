//! Watches: a stream of changes after a resource version, with bookmarks.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep_until};
use tokio_stream::wrappers::ReceiverStream;

use super::kinds::Kind;
use super::objects::{Change, Objects, set_metadata};
use super::selector::Selector;
use super::status::Refusal;

/// Interval of bookmarks. The API server sends one per minute; a shorter one shows a demo's age earlier.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(10);
/// Duration of a watch without `timeoutSeconds`.
const DEFAULT_DURATION: Duration = Duration::from_mins(30);
/// Number of events that wait for a slow client.
const CAPACITY: usize = 64;

/// A requested watch.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) kind: Kind,
    /// The namespace; empty for all.
    pub(super) namespace: String,
    pub(super) selector: Selector,
    /// The last known resource version; `None` to begin with all objects.
    pub(super) version: Option<u64>,
    pub(super) bookmarks: bool,
    pub(super) duration: Option<Duration>,
}

/// The sender of events. An error means that the client has gone.
type Events = mpsc::Sender<Result<String, Infallible>>;

impl Watch {
    /// Returns the response body, and the task that fills it.
    pub(super) fn start(self, objects: Arc<Objects>) -> (Body, impl Future<Output = ()>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let task = async move {
            // The client has gone.
            let _ = self.send_events(&objects, &sender).await;
        };
        (Body::from_stream(ReceiverStream::new(receiver)), task)
    }

    async fn send_events(self, objects: &Objects, events: &Events) -> Result<(), Gone> {
        let mut changes = objects.changes();
        let end = Instant::now() + self.duration.unwrap_or(DEFAULT_DURATION).min(DEFAULT_DURATION);
        let mut version = match self.version {
            Some(version) => version,
            None => self.send_all(objects, events).await?,
        };
        let mut bookmarks = interval(BOOKMARK_INTERVAL);
        bookmarks.reset();
        loop {
            changes.borrow_and_update();
            let Some((latest, found)) = objects.changes_after(self.kind, version) else {
                let status = Refusal::expired(version).status();
                return send(events, "ERROR", &status).await;
            };
            for change in &found {
                if let Some((name, object)) = self.event(change) {
                    send(events, name, &object).await?;
                }
            }
            version = latest;
            tokio::select! {
                result = changes.changed() => if result.is_err() {
                    return Ok(());
                },
                _ = bookmarks.tick() => self.bookmark(version, events).await?,
                () = sleep_until(end) => return self.bookmark(version, events).await,
                () = events.closed() => return Ok(()),
            }
        }
    }

    async fn send_all(&self, objects: &Objects, events: &Events) -> Result<u64, Gone> {
        let (version, all) = objects.list(self.kind, &self.namespace);
        for object in all.iter().filter(|object| self.selector.matches(object)) {
            send(events, "ADDED", object).await?;
        }
        Ok(version)
    }

    async fn bookmark(&self, version: u64, events: &Events) -> Result<(), Gone> {
        if !self.bookmarks {
            return Ok(());
        }
        let (api_version, _) = self.kind.api();
        let metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
        let object =
            json!({"kind": self.kind.name(), "apiVersion": api_version, "metadata": metadata});
        send(events, "BOOKMARK", &object).await
    }

    /// Returns the event of a change. An object that leaves the selection is deleted for the client.
    fn event(&self, change: &Change) -> Option<(&'static str, Value)> {
        let selected = |object: &Option<Arc<Value>>| {
            object.as_deref().filter(|object| self.is_selected(object)).cloned()
        };
        match (selected(&change.before), selected(&change.after)) {
            (None, Some(object)) => Some(("ADDED", object)),
            (Some(_), Some(object)) => Some(("MODIFIED", object)),
            (Some(object), None) => {
                let mut last = object;
                let version = json!(change.version.to_string());
                set_metadata(&mut last, "resourceVersion", version);
                Some(("DELETED", last))
            }
            (None, None) => None,
        }
    }

    fn is_selected(&self, object: &Value) -> bool {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        let is_there = self.namespace.is_empty() || namespace == Some(self.namespace.as_str());
        is_there && self.selector.matches(object)
    }
}

/// The client has closed the connection.
#[derive(Debug)]
struct Gone;

async fn send(events: &Events, name: &str, object: &Value) -> Result<(), Gone> {
    let line = format!("{}\n", json!({"type": name, "object": object}));
    events.send(Ok(line)).await.map_err(|_closed| Gone)
}
