//! Token authentication through the API server (`TokenReview`). [`octavo_fleet::credential`] decides on the result.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{
    TokenReview as ApiTokenReview, TokenReviewSpec, TokenReviewStatus,
};
use kube::api::PostParams;
use kube::{Api, Client};
use octavo_fleet::credential::{Audience, Caller, Token, TokenReview};
use thiserror::Error;
use tokio::time::timeout;

/// Timeout of a review. An agent waits for it while it connects.
pub const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Reviews tokens.
#[derive(Debug, Clone)]
pub struct TokenReviewer {
    reviews: Api<ApiTokenReview>,
    audience: Option<Audience>,
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
    /// Creates a reviewer. Tokens must be for `audience` or, without it, for the API server.
    pub fn new(client: Client, audience: Option<Audience>) -> Self {
        Self { reviews: Api::all(client), audience }
    }

    /// Reviews a token, with one request and no retries.
    pub async fn review(&self, token: &Token) -> Result<TokenReview, ReviewError> {
        let audiences = self.audience.as_ref().map(|audience| vec![audience.as_str().to_owned()]);
        let review = ApiTokenReview {
            spec: TokenReviewSpec { token: Some(token.expose().to_owned()), audiences },
            ..ApiTokenReview::default()
        };
        let options = PostParams::default();
        let result = timeout(REVIEW_TIMEOUT, self.reviews.create(&options, &review))
            .await
            .map_err(|_late| ReviewError::TimedOut)?
            .map_err(|error| ReviewError::Api(Box::new(error)))?;
        result.status.map(review_from_status).ok_or(ReviewError::NoStatus)
    }
}

/// Converts the API server's response. Missing fields get default values.
fn review_from_status(status: TokenReviewStatus) -> TokenReview {
    let user = status.user.unwrap_or_default();
    TokenReview {
        authenticated: status.authenticated.unwrap_or_default(),
        error: status.error.unwrap_or_default(),
        audiences: status.audiences.unwrap_or_default(),
        caller: Caller {
            user: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        },
    }
}

#[cfg(test)]
mod tests {
    use octavo_fleet::credential::NODE_CLAIM;
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn token_review_status_is_converted() {
        let status: TokenReviewStatus = from_value(json!({
            "authenticated": true,
            "user": {
                "username": "system:serviceaccount:octavo-system:octavo-agent",
                "uid": "4e1d",
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
        let review = review_from_status(status);
        assert!(review.authenticated);
        assert_eq!(review.audiences, ["octavo"]);
        let Caller { user, uid, groups, extra } = review.caller;
        assert_eq!(user, "system:serviceaccount:octavo-system:octavo-agent");
        assert_eq!(uid, "4e1d");
        assert_eq!(groups, ["system:serviceaccounts", "system:authenticated"]);
        assert_eq!(extra[NODE_CLAIM], ["node-a"]);
        assert_eq!(extra.len(), 3);
        assert_eq!(review_from_status(TokenReviewStatus::default()), TokenReview::default());
    }
}
