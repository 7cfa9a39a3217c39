//! Event streams of hardware profiles: what a reader receives while profiles and their availability change.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::json;
use tower::ServiceExt;

use super::events::StreamEvent;
use super::fleet::{Aggregator, Machines};
use super::profiles::{L4, ProfileFixture, followed, node, profile};
use crate::time_limits::until_async;

const LABEL: &str = "octavo.dev/type";

/// Event and profile, such as `profile a/large`.
fn short(shown: &StreamEvent) -> String {
    let of = match shown.event.as_str() {
        "profile" => &shown.data["profile"],
        _ => &shown.data,
    };
    let [namespace, name] = ["namespace", "name"].map(|key| of[key].as_str().unwrap_or("-"));
    format!("{} {namespace}/{name}", shown.event)
}

#[tokio::test]
async fn profile_stream_sends_profiles_changes_and_availability() {
    let (fixture, profiles) = ProfileFixture::new();
    let aggregator = Aggregator::with_profiles(&Machines::read().await, profiles);
    let mut reader = aggregator.follow("/api/v1/profile-events").await;
    for expected in ["profile a/large", "profile a/twice", "profile b/twice"] {
        let shown = reader.next().await;
        assert_eq!((short(&shown).as_str(), shown.id.as_str()), (expected, ""));
    }
    let synced = reader.next().await;
    assert_eq!((synced.event.as_str(), synced.id.is_empty()), ("synced", false));
    assert_eq!(synced.data, json!({"kind": "synced", "revision": 1}));

    // Nothing is free any more: the two profiles that reach those nodes changed, the third did not.
    fixture.cluster.send_replace(followed([]));
    for expected in ["profile a/large", "profile a/twice"] {
        let shown = reader.next().await;
        assert_eq!(short(&shown), expected);
        assert_eq!(shown.data["profile"]["available"], 0);
    }
    assert_eq!(reader.next().await.data["revision"], 2);

    fixture.write(&[profile("a", "large", LABEL, L4), profile("b", "new", LABEL, L4)]);
    let shown = [reader.next().await, reader.next().await, reader.next().await];
    assert_eq!(
        shown.each_ref().map(short),
        ["profile b/new", "removed a/twice", "removed b/twice"]
    );
    assert_eq!(
        shown[1].data,
        json!({"kind": "removed", "namespace": "a", "name": "twice", "objectKind": "hardware-profile"})
    );
    assert_eq!(reader.next().await.event, "synced");
}

#[tokio::test]
async fn reconnected_reader_does_not_receive_unchanged_nodes_again() {
    let (fixture, profiles) = ProfileFixture::new();
    let aggregator = Aggregator::with_profiles(&Machines::read().await, profiles);
    let path = "/api/v1/profile-events?namespace=a";
    let mut reader = aggregator.follow(path).await;
    let first = [reader.next().await, reader.next().await, reader.next().await];
    assert_eq!(first[2].event, "synced");
    let id = first[2].id.as_str();
    let mut again = aggregator.follow_from(path, id).await;
    assert_eq!(again.next().await, first[2]);
    // The id includes the parameters: it is not valid for other profiles.
    let mut other = aggregator.follow_from("/api/v1/profile-events", id).await;
    assert_eq!(short(&other.next().await), "profile a/large");

    fixture.cluster.send_replace(followed([]));
    let next = async || reader.next().await;
    until_async("synced", next, |shown| shown.event == "synced").await;
    let mut late = aggregator.follow_from(path, id).await;
    assert_eq!(short(&late.next().await), "profile a/large");
    let mut changes = aggregator.follow("/api/v1/profile-events?changes=only").await;
    assert_eq!(changes.next().await.event, "synced");
}

#[tokio::test]
async fn short_lived_and_filtered_changes_are_not_sent() {
    let (fixture, profiles) = ProfileFixture::new();
    let aggregator = Aggregator::with_profiles(&Machines::read().await, profiles);
    let path = format!("/api/v1/profile-events?namespace=a&type={L4}&changes=only");
    let mut reader = aggregator.follow(&path).await;
    assert_eq!(reader.next().await.event, "synced");
    // Changes outside the filter are not sent; a following one inside is.
    fixture.write(&[profile("a", "large", LABEL, L4), profile("a", "twice", LABEL, L4)]);
    aggregator.checked_again("b/twice").await;
    fixture.cluster.send_replace(followed([node("gpu-1", &[(LABEL, L4)])]));
    let shown = [reader.next().await, reader.next().await];
    assert_eq!(shown.each_ref().map(short), ["profile a/large", "profile a/twice"]);
    assert_eq!(shown[0].data["profile"]["available"], 1);
}

#[tokio::test]
async fn i10_number_of_streams_is_limited_and_invalid_parameters_are_named() {
    let (_fixture, profiles) = ProfileFixture::new();
    let aggregator = Aggregator::with_profiles(&Machines::read().await, profiles);
    for (query, parameter) in [("x=1", "x"), ("changes=some", "changes"), ("type=a&type=b", "type")]
    {
        let answer = aggregator.get(&format!("/api/v1/profile-events?{query}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}");
        assert_eq!(answer.json()["parameter"], parameter);
    }
    let few = Aggregator::with_streams(&Machines::default(), 1);
    let first = few.follow("/api/v1/profile-events").await;
    let refused = few.get("/api/v1/profile-events").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.header("retry-after"), "10");
    assert_eq!(refused.json()["type"], "/problems/too-many-streams");
    drop(first);
    let status = async || few.status_of("/api/v1/profile-events").await;
    until_async("room for a stream", status, |status| *status == StatusCode::OK).await;
}

impl Aggregator {
    /// Opens a stream from an event id.
    async fn follow_from(&self, path: &str, id: &str) -> super::events::Reader {
        let request = Request::get(path).header("last-event-id", id);
        let request = request.body(Body::empty()).unwrap();
        super::events::Reader::of(self.router.clone().oneshot(request).await.unwrap())
    }

    /// Waits until this profile is removed.
    async fn checked_again(&self, gone: &str) {
        let (namespace, name) = gone.split_once('/').unwrap();
        let path = format!("/api/v1/profiles/{namespace}/{name}");
        let status = async || self.get(&path).await.status;
        until_async(&path, status, |status| *status == StatusCode::NOT_FOUND).await;
    }

    /// The status alone, because a stream does not end.
    async fn status_of(&self, path: &str) -> StatusCode {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let router = self.router.clone();
        router.oneshot(request).await.unwrap().status()
    }
}
