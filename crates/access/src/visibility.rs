//! Extractor of the reader's visibility, as set by the guard in front of every route ([`guard`](crate::guard)).

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use octavo_fleet::access::Visibility;

/// Visibility of the reader; nothing if the request did not pass a guard.
#[derive(Debug, Clone)]
pub struct ReaderVisibility(pub Visibility);

impl<S: Sync> FromRequestParts<S> for ReaderVisibility {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let visibility = parts.extensions.get().cloned();
        Ok(Self(visibility.unwrap_or_else(Visibility::none)))
    }
}
