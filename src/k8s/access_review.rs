//! Authentication (`TokenReview`) and authorization (`SubjectAccessReview`) of clients through the API server.
//! [`domain::access`](crate::domain::access) decides on the results. Used by the aggregator's access control for users
//! and programs.

use std::path::Path;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::timeout;

use super::client::{ConnectError, Program, connect};
use super::token_review::{DEADLINE, ReviewError};
use crate::domain::access::{Caller, GROUP, Proof, Question};
use crate::domain::credential::{Audience, Token};
use crate::domain::hardware_profile::ProfileKind;

/// Client for reviews of users and programs.
#[derive(Clone)]
pub struct Asker {
    tokens: Api<TokenReview>,
    rights: Api<SubjectAccessReview>,
    audience: Option<Audience>,
}

impl Asker {
    /// Connects to the cluster of `kubeconfig`, or to the one of the current pod. Tokens must be for `audience` or,
    /// without it, for the API server. Sends no request yet.
    pub async fn connect(
        kubeconfig: Option<&Path>,
        audience: Option<Audience>,
    ) -> Result<Self, ConnectError> {
        let client: Client = connect(kubeconfig, Program::Aggregator).await?;
        Ok(Self {
            tokens: Api::all(client.clone()),
            rights: Api::all(client),
            audience,
        })
    }

    /// Reviews a token, with one request and no retries.
    pub async fn whose(&self, token: &Token) -> Result<Proof, ReviewError> {
        let audience = self.audience.iter();
        let audiences = audience.map(|audience| audience.as_str().to_owned());
        let audiences: Vec<String> = audiences.collect();
        let asked = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.expose().to_owned()),
                audiences: (!audiences.is_empty()).then_some(audiences),
            },
            ..TokenReview::default()
        };
        let options = PostParams::default();
        let answer = timeout(DEADLINE, self.tokens.create(&options, &asked))
            .await
            .map_err(|_late| ReviewError::Late)?
            .map_err(|error| ReviewError::Api(Box::new(error)))?;
        answer.status.map(of).ok_or(ReviewError::NoStatus)
    }

    /// Returns whether the caller is authorized, with one request and no retries.
    pub async fn may(&self, caller: &Caller, question: &Question) -> Result<bool, ReviewError> {
        let asked = SubjectAccessReview {
            spec: asked(caller, question),
            ..SubjectAccessReview::default()
        };
        let options = PostParams::default();
        let answer = timeout(DEADLINE, self.rights.create(&options, &asked))
            .await
            .map_err(|_late| ReviewError::Late)?
            .map_err(|error| ReviewError::Access(Box::new(error)))?;
        let status = answer.status.ok_or(ReviewError::NoStatus)?;
        Ok(status.allowed && status.denied != Some(true))
    }
}

impl std::fmt::Debug for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asker")
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

/// Converts the API server's response. Missing fields get default values.
fn of(status: TokenReviewStatus) -> Proof {
    let user = status.user.unwrap_or_default();
    Proof {
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

fn asked(caller: &Caller, question: &Question) -> SubjectAccessReviewSpec {
    let mut spec = SubjectAccessReviewSpec {
        user: Some(caller.user.clone()),
        uid: (!caller.uid.is_empty()).then(|| caller.uid.clone()),
        groups: Some(caller.groups.clone()),
        extra: (!caller.extra.is_empty()).then(|| caller.extra.clone()),
        ..SubjectAccessReviewSpec::default()
    };
    match question {
        Question::Resource {
            verb,
            resource,
            namespace,
            name,
        } => {
            spec.resource_attributes = Some(ResourceAttributes {
                verb: Some(verb.as_str().to_owned()),
                group: Some(GROUP.to_owned()),
                resource: Some(resource.as_str().to_owned()),
                namespace: namespace.clone(),
                name: name.clone(),
                ..ResourceAttributes::default()
            });
        }
        Question::Profile {
            verb,
            namespace,
            name,
        } => {
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
        Question::Path(path) => {
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
    fn an_answer_about_a_token_is_read_whole_and_an_empty_one_says_nothing() {
        let status: TokenReviewStatus = from_value(json!({
            "authenticated": true,
            "user": {
                "username": "ada", "uid": "4e1d", "groups": ["team-a"],
                "extra": {"scopes.authorization.openshift.io": ["user:full"]},
            },
            "audiences": ["octavo"],
        }))
        .unwrap();
        let proof = of(status);
        assert!(proof.authenticated);
        assert_eq!(proof.audiences, ["octavo"]);
        assert_eq!(
            (proof.caller.user.as_str(), proof.caller.uid.as_str()),
            ("ada", "4e1d")
        );
        assert_eq!(proof.caller.groups, ["team-a"]);
        assert_eq!(proof.caller.extra.len(), 1);
        assert_eq!(of(TokenReviewStatus::default()), Proof::default());
    }

    #[test]
    fn what_is_asked_names_the_person_whole_and_one_thing_to_do() {
        let mut caller = Caller::forwarded("ada", &["team-a"]).unwrap();
        caller.uid = "4e1d".to_owned();
        caller.extra.insert("a".to_owned(), vec!["b".to_owned()]);
        let spec = asked(&caller, &Question::usage(Some("team-a")));
        let expected = json!({
            "user": "ada", "uid": "4e1d", "groups": ["system:authenticated", "team-a"], "extra": {"a": ["b"]},
            "resourceAttributes": {"verb": "list", "group": "octavo.dev", "resource": "usage", "namespace": "team-a"},
        });
        assert_eq!(to_value(spec).unwrap(), expected);
        let spec = asked(&Caller::default(), &Question::new_profile("team-a"));
        let expected = json!({
            "user": "", "groups": [],
            "resourceAttributes": {
                "verb": "create", "group": "infrastructure.opendatahub.io", "version": "v1", "resource": "hardwareprofiles",
                "namespace": "team-a",
            },
        });
        assert_eq!(to_value(spec).unwrap(), expected);
        let spec = asked(&Caller::default(), &Question::Path("/metrics"));
        let expected = json!({
            "user": "", "groups": [], "nonResourceAttributes": {"verb": "get", "path": "/metrics"},
        });
        assert_eq!(to_value(spec).unwrap(), expected);
    }
}
