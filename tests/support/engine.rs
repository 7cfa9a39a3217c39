//! Engines of tests, which really listen and are really asked over HTTP: good ones, and all others.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use octavo_store::engine::EstimateEngine;
use serde_json::Value;
use tokio::net::TcpListener;

/// How an engine of a test behaves.
#[derive(Clone)]
pub(crate) enum Manner {
    /// It answers with this.
    Says(String),
    /// It answers with this status.
    Fails(StatusCode),
    /// It accepts the request and never answers.
    Hangs,
    /// It begins to answer and never ends.
    Drips,
}

/// An engine that listens, and how often it was asked.
pub(crate) struct Listening {
    pub(crate) url: String,
    requested: Arc<AtomicUsize>,
    last: Arc<Mutex<Value>>,
}

impl Listening {
    pub(crate) async fn new(manner: Manner) -> Self {
        let requested = Arc::new(AtomicUsize::new(0));
        let last = Arc::new(Mutex::new(Value::Null));
        let (count, received) = (Arc::clone(&requested), Arc::clone(&last));
        let answer = move |question: String| {
            let (manner, count) = (manner.clone(), Arc::clone(&count));
            let received = Arc::clone(&received);
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                let question: Value = serde_json::from_str(&question).unwrap();
                assert_eq!(question["kind"], "EngineQuestion");
                *received.lock().unwrap() = question;
                manner.answer().await
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/estimate", listener.local_addr().unwrap());
        let router = Router::new().route("/estimate", post(answer));
        tokio::spawn(async { axum::serve(listener, router).await });
        Self { url, requested, last }
    }

    /// What it was asked last.
    pub(crate) fn last_question(&self) -> Value {
        self.last.lock().unwrap().clone()
    }

    pub(crate) fn request_count(&self) -> usize {
        self.requested.load(Ordering::SeqCst)
    }
}

impl Manner {
    async fn answer(self) -> Response {
        match self {
            Self::Says(text) => text.into_response(),
            Self::Fails(status) => status.into_response(),
            Self::Hangs => pending().await,
            Self::Drips => {
                let first = tokio_stream::once(Ok::<_, std::io::Error>("{\"source\": \""));
                let forever = tokio_stream::StreamExt::chain(first, tokio_stream::pending());
                axum::body::Body::from_stream(forever).into_response()
            }
        }
    }
}

/// The way to the engine at `url`, that is waited for so long.
pub(crate) fn way(url: &str, timeout: Duration) -> EstimateEngine {
    EstimateEngine::new(url, timeout).unwrap()
}
