//! Authentication (`TokenReview`) and authorization (`SubjectAccessReview`) of clients through the API server.
//! [`octavo_fleet::access`] decides on the results. Used by the aggregator's access control for users
//! and programs.

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewStatus};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use octavo_fleet::access::{API_GROUP, AccessReview, Caller, UserTokenReview};
use octavo_fleet::credential::{Audience, Token};
use octavo_fleet::hardware_profile::ProfileKind;
use tokio::time::timeout;

use super::token_review::{REVIEW_TIMEOUT, ReviewError, review};

/// Client for reviews of users and programs.
#[derive(Clone)]
pub struct AccessReviewer {
    tokens: Api<TokenReview>,
    access_reviews: Api<SubjectAccessReview>,
    audience: Option<Audience>,
}

impl AccessReviewer {
    /// Creates a reviewer. Tokens must be for `audience` or, without it, for the API server.
    pub fn new(client: Client, audience: Option<Audience>) -> Self {
        Self { tokens: Api::all(client.clone()), access_reviews: Api::all(client), audience }
    }

    /// Reviews a token, with one request and no retries.
    pub async fn review_token(&self, token: &Token) -> Result<UserTokenReview, ReviewError> {
        let audiences = self.audience.as_ref().map(|audience| vec![audience.as_str().to_owned()]);
        review(&self.tokens, token, audiences).await.map(review_from_status)
    }

    /// Returns whether the caller is authorized, with one request and no retries.
    pub async fn is_authorized(
        &self,
        caller: &Caller,
        question: &AccessReview,
    ) -> Result<bool, ReviewError> {
        let review = SubjectAccessReview {
            spec: review_spec(caller, question),
            ..SubjectAccessReview::default()
        };
        let options = PostParams::default();
        let result = timeout(REVIEW_TIMEOUT, self.access_reviews.create(&options, &review))
            .await
            .map_err(|_late| ReviewError::TimedOut)?
            .map_err(|error| ReviewError::Access(Box::new(error)))?;
        let status = result.status.ok_or(ReviewError::NoStatus)?;
        Ok(status.allowed && status.denied != Some(true))
    }
}

impl std::fmt::Debug for AccessReviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessReviewer").field("audience", &self.audience).finish_non_exhaustive()
    }
}

/// Converts the API server's response. Missing fields get default values.
fn review_from_status(status: TokenReviewStatus) -> UserTokenReview {
    let user = status.user.unwrap_or_default();
    UserTokenReview {
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

fn review_spec(caller: &Caller, question: &AccessReview) -> SubjectAccessReviewSpec {
    let mut spec = SubjectAccessReviewSpec {
        user: Some(caller.user.clone()),
        uid: (!caller.uid.is_empty()).then(|| caller.uid.clone()),
        groups: Some(caller.groups.clone()),
        extra: (!caller.extra.is_empty()).then(|| caller.extra.clone()),
        ..SubjectAccessReviewSpec::default()
    };
    match question {
        AccessReview::Resource { verb, resource, namespace, name } => {
            spec.resource_attributes = Some(ResourceAttributes {
                verb: Some(verb.as_str().to_owned()),
                group: Some(API_GROUP.to_owned()),
                resource: Some(resource.as_str().to_owned()),
                namespace: namespace.clone(),
                name: name.clone(),
                ..ResourceAttributes::default()
            });
        }
        AccessReview::Profile { verb, namespace, name } => {
            let (group, version, _, plural) = ProfileKind::Hardware.api();
            spec.resource_attributes = Some(ResourceAttributes {
                verb: Some(verb.as_str().to_owned()),
                group: Some(group.to_owned()),
                version: Some(version.to_owned()),
                resource: Some(plural.to_owned()),
                namespace: Some(namespace.clone()),
                name: name.clone(),
                ..ResourceAttributes::default()
            });
        }
        AccessReview::Path(path) => {
            spec.non_resource_attributes = Some(NonResourceAttributes {
                verb: Some("get".to_owned()),
                path: Some((*path).to_owned()),
            });
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn token_review_status_is_converted() {
        let status: TokenReviewStatus = from_value(json!({
            "authenticated": true,
            "user": {
                "username": "ada", "uid": "4e1d", "groups": ["team-a"],
                "extra": {"scopes.authorization.openshift.io": ["user:full"]},
            },
            "audiences": ["octavo"],
        }))
        .unwrap();
        let proof = review_from_status(status);
        assert!(proof.authenticated);
        assert_eq!(proof.audiences, ["octavo"]);
        assert_eq!((proof.caller.user.as_str(), proof.caller.uid.as_str()), ("ada", "4e1d"));
        assert_eq!(proof.caller.groups, ["team-a"]);
        assert_eq!(proof.caller.extra.len(), 1);
        assert_eq!(review_from_status(TokenReviewStatus::default()), UserTokenReview::default());
    }

    #[test]
    fn access_review_names_caller_and_one_action() {
        let mut caller = Caller::from_forwarded("ada", &["team-a"]).unwrap();
        caller.uid = "4e1d".to_owned();
        caller.extra.insert("a".to_owned(), vec!["b".to_owned()]);
        let spec = review_spec(&caller, &AccessReview::usage(Some("team-a")));
        let expected = json!({
            "user": "ada", "uid": "4e1d", "groups": ["system:authenticated", "team-a"], "extra": {"a": ["b"]},
            "resourceAttributes": {"verb": "list", "group": "octavo.dev", "resource": "usage", "namespace": "team-a"},
        });
        assert_eq!(to_value(spec).unwrap(), expected);
        let spec = review_spec(&Caller::default(), &AccessReview::create_profile("team-a"));
        let expected = json!({
            "user": "", "groups": [],
            "resourceAttributes": {
                "verb": "create", "group": "infrastructure.opendatahub.io", "version": "v1", "resource": "hardwareprofiles",
                "namespace": "team-a",
            },
        });
        assert_eq!(to_value(spec).unwrap(), expected);
        let spec = review_spec(&Caller::default(), &AccessReview::Path("/metrics"));
        let expected = json!({
            "user": "", "groups": [], "nonResourceAttributes": {"verb": "get", "path": "/metrics"},
        });
        assert_eq!(to_value(spec).unwrap(), expected);
    }
}
