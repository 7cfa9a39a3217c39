//! Authentication (`TokenReview`) and authorization (`SubjectAccessReview`) of clients through the API server.
//! [`octavo_fleet::access`] decides on the results. Used by the aggregator's access control for users
//! and programs.

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use octavo_fleet::access::{AccessReview, Caller};
use octavo_fleet::credential::Audience;
use tokio::time::timeout;

use super::token_review::{REVIEW_TIMEOUT, ReviewError, TokenReviewer};

/// Client for reviews of users and programs.
#[derive(Debug, Clone)]
pub struct AccessReviewer {
    /// Reviews their tokens.
    pub tokens: TokenReviewer,
    access_reviews: Api<SubjectAccessReview>,
}

impl AccessReviewer {
    /// Creates a reviewer. Tokens must be for `audience` or, without it, for the API server.
    pub fn new(client: Client, audience: Option<Audience>) -> Self {
        Self {
            tokens: TokenReviewer::new(client.clone(), audience),
            access_reviews: Api::all(client),
        }
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
            let (group, version, plural) = resource.api();
            spec.resource_attributes = Some(ResourceAttributes {
                verb: Some(verb.to_string()),
                group: Some(group.to_owned()),
                version: version.map(str::to_owned),
                resource: Some(plural.to_owned()),
                namespace: namespace.clone(),
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
    use serde_json::{json, to_value};

    use super::*;

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
