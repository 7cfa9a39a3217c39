//! JSON bodies of requests, limited in length and parsed strictly.

use std::error::Error;

use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header;
use serde::de::DeserializeOwned;

use super::problem::{ApiError, ProblemKind};
use super::strict_json;
use crate::serve::SlowBody;

/// Maximum length of a body; a thousand measurements are shorter.
const MAX_BODY_BYTES: usize = 256 << 10;

pub(super) struct JsonBody<T>(pub(super) T);

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        // A form on another site cannot send this header without a preflight request by the browser.
        let media_type = request.headers().get(header::CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok());
        let is_json = media_type.is_some_and(|text| {
            let bare = text.split(';').next().unwrap_or_default();
            bare.trim().eq_ignore_ascii_case("application/json")
        });
        if !is_json {
            let detail = "send a JSON body with the header Content-Type: application/json";
            return Err(ApiError::new(ProblemKind::WrongMediaType, detail));
        }
        let encoding = request.headers().get(header::CONTENT_ENCODING);
        if encoding.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity")) {
            let detail = "send the body uncompressed, without Content-Encoding";
            return Err(ApiError::new(ProblemKind::WrongEncoding, detail));
        }
        let body = to_bytes(request.into_body(), MAX_BODY_BYTES).await;
        let body = body.map_err(|error| read_error(&error))?;
        // The error message contains the field or the unexpected value, with line and column.
        strict_json::from_slice(&body).map(Self).map_err(|error| {
            let detail = truncate_message(&error.inner().to_string());
            let problem = ApiError::new(ProblemKind::InvalidBody, detail);
            match error.path().iter().next() {
                Some(_) if error.inner().is_data() => {
                    problem.with_parameter(&error.path().to_string())
                }
                Some(_) | None => problem,
            }
        })
    }
}

/// Reason why a body could not be read completely.
fn read_error(error: &axum::Error) -> ApiError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<SlowBody>() {
            let detail =
                "the request body arrived too slowly; send it without pauses at 4 KiB/s or faster";
            return ApiError::new(ProblemKind::BodyTooSlow, detail);
        }
        cause = error.source();
    }
    let detail = format!("the request body exceeds the limit of {} KiB", MAX_BODY_BYTES >> 10);
    ApiError::new(ProblemKind::BodyTooLong, detail)
}

fn truncate_message(text: &str) -> String {
    const LONGEST: usize = 400;
    match text.char_indices().nth(LONGEST) {
        // The message ends with the position.
        Some((cut, _)) => {
            let (start, rest) = text.split_at(cut);
            let place = rest.rsplit_once(" at line ").map(|(_, place)| place);
            format!("{start}... at line {}", place.unwrap_or("1"))
        }
        None => text.to_owned(),
    }
}
