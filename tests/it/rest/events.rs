//! Event streams: what a reader receives when the fleet changes, and what is omitted.

use axum::body::{Body, BodyDataStream};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use serde_json::Value;
use tokio_stream::StreamExt;
use tower::ServiceExt;

use super::fleet::{Aggregator, Machines};
use crate::time_limits::{until_async, within};

/// A reader of one stream.
pub(crate) struct Reader {
    body: BodyDataStream,
    text: String,
}

/// One event.
#[derive(Debug, PartialEq)]
pub(crate) struct StreamEvent {
    pub(crate) event: String,
    pub(crate) id: String,
    pub(crate) data: Value,
}

impl StreamEvent {
    /// Event and node, such as `node gpu-1`.
    fn short(&self) -> String {
        let name = self.data["name"].as_str();
        let name = name.or_else(|| self.data["node"]["name"].as_str());
        format!("{} {}", self.event, name.unwrap_or_default())
    }
}

impl Reader {
    /// Reads the body of a streaming response.
    pub(crate) fn of(response: Response) -> Self {
        assert_eq!(response.status(), StatusCode::OK);
        let content = response.headers().get("content-type").unwrap();
        assert_eq!(content, "text/event-stream");
        Self { body: response.into_body().into_data_stream(), text: String::new() }
    }

    /// The next event. Skips comments, which keep the connection alive.
    pub(crate) async fn next(&mut self) -> StreamEvent {
        within("an event", self.read()).await
    }

    async fn read(&mut self) -> StreamEvent {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                if block.starts_with(':') {
                    continue;
                }
                let field = |name: &str| {
                    let mut lines = block.lines();
                    let value = lines.find_map(|line| line.strip_prefix(name));
                    value.map(str::to_owned)
                };
                let [event, data] = ["event: ", "data: "]
                    .map(|name| field(name).unwrap_or_else(|| panic!("no {name} in {block}")));
                return StreamEvent {
                    event,
                    // Some events have no id.
                    id: field("id: ").unwrap_or_default(),
                    data: serde_json::from_str(&data).unwrap(),
                };
            }
            let chunk = self.body.next().await;
            let chunk = chunk.unwrap_or_else(|| panic!("the stream ended")).unwrap();
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn shorts(&mut self, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(self.next().await.short());
        }
        all
    }
}

impl Aggregator {
    pub(crate) async fn follow(&self, path: &str) -> Reader {
        let request = Request::get(path).body(Body::empty()).unwrap();
        Reader::of(self.router.clone().oneshot(request).await.unwrap())
    }
}

#[tokio::test]
async fn reader_receives_whole_state_and_then_changes() {
    let machines = Machines::read().await;
    let aggregator = Aggregator::of(&machines);
    let mut reader = aggregator.follow("/api/v1/events").await;
    assert_eq!(reader.shorts(4).await, ["node bare-1", "node gpu-1", "node gpu-2", "node mixed-1"]);
    let synced = reader.next().await;
    assert_eq!((synced.event.as_str(), synced.id.as_str()), ("synced", "4"));
    assert_eq!(synced.data, serde_json::json!({"kind": "synced", "revision": 4}));

    aggregator.put("gpu-1", machines.inventory("bare-1"));
    let changed = reader.next().await;
    assert_eq!((changed.short().as_str(), changed.id.as_str()), ("node gpu-1", "5"));
    assert_eq!(changed.data["node"]["state"], "empty");

    aggregator.remove("bare-1");
    let removed = reader.next().await;
    assert_eq!(removed.data, serde_json::json!({"kind": "removed", "name": "bare-1"}));
}

#[tokio::test]
async fn becoming_stale_is_sent_and_confirmation_is_not() {
    let aggregator = Aggregator::of(&Machines::read().await);
    let mut reader = aggregator.follow("/api/v1/events?changes=only").await;
    assert_eq!(reader.next().await.event, "synced");
    aggregator.confirm("gpu-1");
    aggregator.silence("gpu-2");
    let shown = reader.next().await;
    assert_eq!(shown.short(), "node gpu-2");
    assert_eq!(shown.data["node"]["state"], "stale");
    assert_eq!(shown.data["node"]["devices"]["unknown"], 1);
}

#[tokio::test]
async fn slow_reader_skips_superseded_changes() {
    let machines = Machines::read().await;
    let aggregator = Aggregator::of(&machines);
    let mut reader = aggregator.follow("/api/v1/events?changes=only").await;
    assert_eq!(reader.next().await.event, "synced");
    // Everything runs on one thread, so no reader sees the intermediate states.
    for round in 0..1000 {
        let name = if round % 2 == 0 { "bare-1" } else { "gpu-1" };
        aggregator.put("gpu-2", machines.inventory(name));
    }
    aggregator.put("new-1", machines.inventory("gpu-1"));
    aggregator.remove("new-1");
    aggregator.remove("mixed-1");
    assert_eq!(reader.shorts(2).await, ["removed mixed-1", "node gpu-2"]);
}

#[tokio::test]
async fn number_of_streams_is_limited_and_departing_reader_frees_one() {
    let machines = Machines::read().await;
    let aggregator = Aggregator::with_streams(&machines, 1);
    let mut reader = aggregator.follow("/api/v1/events?changes=only").await;
    let synced = reader.next().await;
    let refused = aggregator.get("/api/v1/events").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers.get("retry-after").unwrap(), "10");
    assert_eq!(refused.json()["type"], "/problems/too-many-streams");
    drop(reader);
    // The task of the stream notices that when it runs next.
    let ask = async || {
        let request = Request::get("/api/v1/events?changes=only").body(Body::empty()).unwrap();
        aggregator.router.clone().oneshot(request).await.unwrap()
    };
    let is_open = |response: &Response| response.status() == StatusCode::OK;
    let mut again = Reader::of(until_async("room for a stream", ask, is_open).await);
    assert_eq!(again.next().await, synced);
}
