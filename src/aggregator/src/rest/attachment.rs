//! Files that are sent part by part.

use std::io;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use octavo_store::task_stream::TaskStream;

/// A part of a file. After an error, the connection is closed, so that the reader does not mistake it for a complete file.
pub(super) type Part<T> = Result<T, io::Error>;

/// A response that a browser saves as a file. `disposition` is the header with the name of the file.
pub(super) fn attachment<T: Into<Bytes> + Send + 'static>(
    media_type: &'static str,
    disposition: &'static str,
    parts: TaskStream<Part<T>>,
) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static(disposition)),
    ];
    (headers, Body::from_stream(parts)).into_response()
}
