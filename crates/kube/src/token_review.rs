//! Token authentication through the API server (`TokenReview`). [`AcceptanceRule::authenticate`] decides on the result.
//!
//! [`AcceptanceRule::authenticate`]: octavo_fleet::credential::AcceptanceRule::authenticate

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use octavo_fleet::credential::{AgentTokenReview, Audience, NODE_CLAIM, Token};
use thiserror::Error;
use tokio::time::timeout;

use super::client::{ConnectError, Program, connect};

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
    #[error("the API server does not review tokens")]
    Api(#[source] Box<kube::Error>),
    /// The API server cannot be reached or does not permit access reviews.
    #[error("the API server does not say what somebody may do")]
    Access(#[source] Box<kube::Error>),
    /// No response in time.
    #[error("the API server has not answered within {REVIEW_TIMEOUT:?}")]
    TimedOut,
    /// The response has no status.
    #[error("the API server answered without saying what it was asked")]
    NoStatus,
}

impl TokenReviewer {
    /// Connects to the cluster of `kubeconfig`, or to the one of the current pod. Sends no request yet.
    pub async fn connect(
        kubeconfig: Option<&Path>,
        audience: Audience,
    ) -> Result<Self, ConnectError> {
        let client: Client = connect(kubeconfig, Program::Aggregator).await?;
        Ok(Self {
            reviews: Api::all(client),
            audience,
        })
    }

    /// Reviews a token, with one request and no retries.
    pub async fn review(&self, token: &Token) -> Result<AgentTokenReview, ReviewError> {
        let asked = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.expose().to_owned()),
                audiences: Some(vec![self.audience.as_str().to_owned()]),
            },
            ..TokenReview::default()
        };
        let options = PostParams::default();
        let answer = timeout(REVIEW_TIMEOUT, self.reviews.create(&options, &asked))
            .await
            .map_err(|_late| ReviewError::TimedOut)?
            .map_err(|error| ReviewError::Api(Box::new(error)))?;
        answer
            .status
            .map(review_from_status)
            .ok_or(ReviewError::NoStatus)
    }
}

impl std::fmt::Debug for TokenReviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reviewer")
            .field("audience", &self.audience)
            .finish_non_exhaustive()
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
        assert_eq!(
            review_from_status(TokenReviewStatus::default()),
            AgentTokenReview::default()
        );
    }
}
