//! Responses that outlive their authorization. A stream of events stays open for up to an hour, during which its
//! permission can be revoked. The permission is therefore checked every 30 seconds. The stream ends when the client
//! loses it or when the set of visible types changes, because the content was filtered for the old set. Grants are
//! cached for a minute, so a stream ends within 90 seconds. While the API server does not answer, the stream continues
//! under its last grant.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, Method, Uri, header};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use octavo_fleet::access::Visibility;
use tokio::time::interval;

use super::AccessError;
use super::checks::Checks;
use super::credentials::Credentials;

/// Interval between authorization checks.
const RECHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Authorization of a response, with everything needed to check it again.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) checks: Arc<Checks>,
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) shown: Result<Credentials, AccessError>,
    /// Visibility granted at the start.
    pub(super) visibility: Visibility,
}

/// Body that ends when its authorization does.
struct RevocableBody {
    body: Body,
    ends: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Grant {
    /// Returns when the authorization changes: with the refusal, or with `None` if the client may now see something
    /// else.
    pub(super) async fn revoked(self) -> Option<AccessError> {
        let mut again = interval(RECHECK_INTERVAL);
        loop {
            again.tick().await;
            match self.checks.admit(&self.method, &self.uri, &self.shown).await {
                Ok(admitted) if admitted.visibility == self.visibility => {}
                Ok(_) => return None,
                Err((_, AccessError::ReviewUnavailable)) => {}
                Err((_, refused)) => return Some(refused),
            }
        }
    }
}

/// Wraps a stream of events so that it ends with its authorization. Other responses are returned unchanged.
pub(super) fn end_on_revocation(response: Response, right: Grant) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let lasts = kind.is_some_and(|kind| kind == HeaderValue::from_static("text/event-stream"));
    if !lasts {
        return response;
    }
    let ends = async move {
        right.revoked().await;
    };
    response.map(|body| Body::new(RevocableBody { body, ends: Box::pin(ends) }))
}

impl HttpBody for RevocableBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ends.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
