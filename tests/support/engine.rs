//! HTTP estimation engines with valid and invalid responses.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use octavo_store::estimate_engine::EstimateEngine;
use serde_json::Value;
use tokio::net::TcpListener;

/// Behavior of a test engine.
#[derive(Clone)]
pub(crate) enum EngineBehavior {
    /// Responds with this text.
    Responds(String),
    /// Responds with this status.
    Fails(StatusCode),
    /// Accepts the request and never responds.
    Hangs,
    /// Starts a response and never ends it.
    Stalls,
}

/// An engine that listens, and its request count.
pub(crate) struct TestEngine {
    pub(crate) url: String,
    requested: Arc<AtomicUsize>,
    last: Arc<Mutex<Value>>,
}

impl TestEngine {
    pub(crate) async fn new(behavior: EngineBehavior) -> Self {
        let requested = Arc::new(AtomicUsize::new(0));
        let last = Arc::new(Mutex::new(Value::Null));
        let (count, received) = (Arc::clone(&requested), Arc::clone(&last));
        let answer = move |request: String| {
            let (behavior, count) = (behavior.clone(), Arc::clone(&count));
            let received = Arc::clone(&received);
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                let request: Value = serde_json::from_str(&request).unwrap();
                assert_eq!(request["kind"], "EngineQuestion");
                *received.lock().unwrap() = request;
                behavior.answer().await
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/estimate", listener.local_addr().unwrap());
        let router = Router::new().route("/estimate", post(answer));
        tokio::spawn(async { axum::serve(listener, router).await });
        Self { url, requested, last }
    }

    /// The last request.
    pub(crate) fn last_request(&self) -> Value {
        self.last.lock().unwrap().clone()
    }

    pub(crate) fn request_count(&self) -> usize {
        self.requested.load(Ordering::SeqCst)
    }
}

impl EngineBehavior {
    async fn answer(self) -> Response {
        match self {
            Self::Responds(text) => text.into_response(),
            Self::Fails(status) => status.into_response(),
            Self::Hangs => pending().await,
            Self::Stalls => {
                let first = tokio_stream::once(Ok::<_, std::io::Error>("{\"source\": \""));
                let forever = tokio_stream::StreamExt::chain(first, tokio_stream::pending());
                axum::body::Body::from_stream(forever).into_response()
            }
        }
    }
}

/// A client for the engine at `url` with this timeout.
pub(crate) fn engine_client(url: &str, timeout: Duration) -> EstimateEngine {
    EstimateEngine::new(url, timeout).unwrap()
}
