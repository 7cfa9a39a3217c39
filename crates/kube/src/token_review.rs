//! Token authentication through the API server (`TokenReview`). [`AcceptanceRule::authenticate`] decides on the result.
//!
//! [`AcceptanceRule::authenticate`]: octavo_fleet::credential::AcceptanceRule::authenticate

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use octavo_fleet::credential::{AgentTokenReview, Audience, NODE_CLAIM, Token};
use thiserror::Error;
use tokio::time::timeout;

/// Timeout of a review. An agent waits for it while it connects.
pub const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Reviews tokens for one audience.
#[derive(Clone)]
pub struct TokenReviewer {
    reviews: Api<TokenReview>,
    audience: Audience,
}

/// Reason why a review failed, which does not mean that the token is invalid.
#[derive(Debug, Error)]
pub enum ReviewError {
    /// The API server cannot be reached or does not permit token reviews.
    #[error("cannot review the token with the API server")]
    Api(#[source] Box<kube::Error>),
    /// The API server cannot be reached or does not permit access reviews.
    #[error("cannot review access with the API server")]
    Access(#[source] Box<kube::Error>),
    /// No response in time.
    #[error("no response from the API server within {REVIEW_TIMEOUT:?}")]
    TimedOut,
    /// The response has no status.
    #[error("the review returned by the API server has no status")]
    NoStatus,
}

impl TokenReviewer {
    /// Creates a reviewer of tokens for this audience.
    pub fn new(client: Client, audience: Audience) -> Self {
        Self { reviews: Api::all(client), audience }
    }

    /// Reviews a token, with one request and no retries.
    pub async fn review(&self, token: &Token) -> Result<AgentTokenReview, ReviewError> {
        let audiences = vec![self.audience.as_str().to_owned()];
        review(&self.reviews, token, Some(audiences)).await.map(review_from_status)
    }
}

/// Reviews a token for these audiences or, without them, for the API server.
pub(crate) async fn review(
    reviews: &Api<TokenReview>,
    token: &Token,
    audiences: Option<Vec<String>>,
) -> Result<TokenReviewStatus, ReviewError> {
    let review = TokenReview {
        spec: TokenReviewSpec { token: Some(token.expose().to_owned()), audiences },
        ..TokenReview::default()
    };
    let options = PostParams::default();
    let result = timeout(REVIEW_TIMEOUT, reviews.create(&options, &review))
        .await
        .map_err(|_late| ReviewError::TimedOut)?
        .map_err(|error| ReviewError::Api(Box::new(error)))?;
    result.status.ok_or(ReviewError::NoStatus)
}

impl std::fmt::Debug for TokenReviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenReviewer").field("audience", &self.audience).finish_non_exhaustive()
    }
}

/// Converts the API server's response. Missing fields get default values.
fn review_from_status(status: TokenReviewStatus) -> AgentTokenReview {
    let user = status.user.unwrap_or_default();
    let mut extra = user.extra.unwrap_or_default();
    AgentTokenReview {
        authenticated: status.authenticated.unwrap_or_default(),
        error: status.error.unwrap_or_default(),
        username: user.username.unwrap_or_default(),
        audiences: status.audiences.unwrap_or_default(),
        nodes: extra.remove(NODE_CLAIM).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn token_review_status_is_converted() {
        let status: TokenReviewStatus = from_value(json!({
            "authenticated": true,
            "user": {
                "username": "system:serviceaccount:octavo-system:octavo-agent",
                "groups": ["system:serviceaccounts", "system:authenticated"],
                "extra": {
                    "authentication.kubernetes.io/node-name": ["node-a"],
                    "authentication.kubernetes.io/node-uid": ["4e1d"],
                    "authentication.kubernetes.io/pod-name": ["octavo-agent-x"],
                },
            },
            "audiences": ["octavo"],
        }))
        .unwrap();
        let review = AgentTokenReview {
            authenticated: true,
            error: String::new(),
            username: "system:serviceaccount:octavo-system:octavo-agent".to_owned(),
            audiences: vec!["octavo".to_owned()],
            nodes: vec!["node-a".to_owned()],
        };
        assert_eq!(review_from_status(status), review);
        assert_eq!(review_from_status(TokenReviewStatus::default()), AgentTokenReview::default());
    }
}
