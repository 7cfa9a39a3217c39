//! Answers that last: a stream of events is open for an hour, and a role may be taken away meanwhile. So it is asked again every
//! half minute, and who may not see it any more sees its end, as does who may see other types than at its start: it was made for what
//! they could see then. An answer counts for a minute, so the end comes within a minute and a half. While nobody can say, it goes on:
//! it was good when it was asked last.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, Method, Uri, header};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::time::interval;

use super::Refused;
use super::checks::Checks;
use super::shown::Shown;
use crate::domain::access::Sight;

/// How long between one time that it is asked again and the next.
const AGAIN: Duration = Duration::from_secs(30);

/// What somebody was let in for, and what shows who they are.
#[derive(Debug)]
pub(super) struct Right {
    pub(super) checks: Arc<Checks>,
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) shown: Result<Shown, Refused>,
    /// What they may see of it.
    pub(super) sight: Sight,
}

/// A body that ends with the right to see it.
struct Lasting {
    body: Body,
    ends: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Right {
    /// Returns once it is no more what it was: why they may not see it, or nothing where they may see something else.
    pub(super) async fn ended(self) -> Option<Refused> {
        let mut again = interval(AGAIN);
        loop {
            again.tick().await;
            match self
                .checks
                .admit(&self.method, &self.uri, &self.shown)
                .await
            {
                Ok(admitted) if admitted.sight == self.sight => {}
                Ok(_) => return None,
                Err((_, Refused::Unchecked)) => {}
                Err((_, refused)) => return Some(refused),
            }
        }
    }
}

/// The same answer, which ends when whoever it is for may not see it any more, if it has no end of its own.
pub(super) fn guarded(response: Response, right: Right) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let lasts = kind.is_some_and(|kind| kind == HeaderValue::from_static("text/event-stream"));
    if !lasts {
        return response;
    }
    let ends = async move {
        right.ended().await;
    };
    response.map(|body| {
        Body::new(Lasting {
            body,
            ends: Box::pin(ends),
        })
    })
}

impl HttpBody for Lasting {
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
