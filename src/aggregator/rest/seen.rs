//! What of an answer its reader may see, as the gate in front of the API decided ([`access`](crate::aggregator::access)).

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::domain::access::Sight;

/// What may be seen. Nothing, where no gate was passed: an answer is never shown by mistake.
pub(in crate::aggregator) struct Seen(pub(in crate::aggregator) Sight);

impl<S: Sync> FromRequestParts<S> for Seen {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let sight = parts.extensions.get().cloned();
        Ok(Self(sight.unwrap_or_else(Sight::nothing)))
    }
}
