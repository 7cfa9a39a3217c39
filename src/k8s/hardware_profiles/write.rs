//! A new profile, applied on the server's side as the person who asks; one that somebody else made is never touched.

use std::path::Path;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use thiserror::Error;
use tokio::time::timeout;

use crate::domain::hardware_profile::{ProfileKey, ProfileKind};
use crate::k8s::client::{ConnectError, REQUEST, connect, told};
use crate::wire::hardware_profiles::differences;

/// Who we are among those who write profiles.
pub const MANAGER: &str = "octavo-profiles";

/// Whether the API server only says what it would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRun {
    /// It does it.
    No,
    /// It checks everything and changes nothing.
    Server,
}

/// Makes profiles in a cluster.
#[derive(Clone)]
pub struct Writer {
    client: Client,
}

/// Why a profile was not made.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The cluster knows no profiles.
    #[error("this cluster has no HardwareProfiles: OpenDataHub's operator brings them")]
    NoKind,
    /// Somebody else made one of this name.
    #[error("there is a profile {key} already, made by {by}{}", listed(.differences))]
    Taken {
        /// Which.
        key: ProfileKey,
        /// Who manages it.
        by: String,
        /// What would become another.
        differences: Vec<String>,
    },
    /// The API server refused it or could not be reached.
    #[error("profile {key}: {}", told(.source))]
    Refused {
        /// Which.
        key: ProfileKey,
        /// Why.
        source: Box<kube::Error>,
    },
    /// No answer came.
    #[error("profile {0}: the API server does not answer within {REQUEST:?}")]
    Late(ProfileKey),
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Writer")
    }
}

impl Writer {
    /// For the cluster of `kubeconfig`, or for the one whose pod this is. Nothing is asked yet.
    pub async fn connect(kubeconfig: Option<&Path>) -> Result<Self, ConnectError> {
        Ok(Self::new(connect(kubeconfig).await?))
    }

    /// The same with a client that is there.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Who the API server says that we are; `None` where it does not say.
    pub async fn user(&self) -> Option<String> {
        let reviews: Api<SelfSubjectReview> = Api::all(self.client.clone());
        let (params, asked) = (PostParams::default(), SelfSubjectReview::default());
        let review = timeout(REQUEST, reviews.create(&params, &asked)).await;
        let user = review.ok()?.ok()?.status?.user_info?;
        user.username
    }

    /// Makes the profile be what `object` says, and gives it as the server has it then; whether it was there before, too.
    pub async fn apply(&self, object: &Value, dry: DryRun) -> Result<(Value, bool), WriteError> {
        let key = key(object);
        let api = self.api(&key);
        let there = timeout(REQUEST, api.get_opt(&key.name)).await;
        let there = answered(&key, there)?;
        if let Some(there) = &there
            && !is_ours(there)
        {
            return Err(WriteError::Taken {
                by: managers(there),
                differences: differences(&value(there), object),
                key,
            });
        }
        let mut params = PatchParams::apply(MANAGER);
        params.dry_run = dry == DryRun::Server;
        params.field_validation = Some(kube::api::ValidationDirective::Strict);
        let patch = Patch::Apply(object);
        let answer = timeout(REQUEST, api.patch(&key.name, &params, &patch)).await;
        let made = answered(&key, answer)?;
        Ok((value(&made), there.is_some()))
    }

    fn api(&self, key: &ProfileKey) -> Api<DynamicObject> {
        let (group, version, name, plural) = ProfileKind::Hardware.api();
        let kind = GroupVersionKind::gvk(group, version, name);
        let kind = ApiResource::from_gvk_with_plural(&kind, plural);
        Api::namespaced_with(self.client.clone(), &key.namespace, &kind)
    }
}

fn key(object: &Value) -> ProfileKey {
    let of = |field| {
        let text = object
            .get("metadata")
            .and_then(|metadata| metadata.get(field));
        let text = text.and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    ProfileKey {
        namespace: of("namespace"),
        name: of("name"),
    }
}

fn answered<T, E>(key: &ProfileKey, answer: Result<kube::Result<T>, E>) -> Result<T, WriteError> {
    match answer {
        Ok(Ok(object)) => Ok(object),
        // A patch finds no object only where there is no such kind: of a missing one it makes one.
        Ok(Err(kube::Error::Api(status)))
            if status.code == 404 && !status.message.contains("namespaces") =>
        {
            Err(WriteError::NoKind)
        }
        Ok(Err(error)) => Err(WriteError::Refused {
            key: key.clone(),
            source: Box::new(error),
        }),
        Err(_late) => Err(WriteError::Late(key.clone())),
    }
}

/// Ours is only what we applied.
fn is_ours(object: &DynamicObject) -> bool {
    object.managed_fields().iter().any(|entry| {
        entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply")
    })
}

fn managers(object: &DynamicObject) -> String {
    let entries = object.managed_fields().iter();
    let mut names: Vec<&str> = entries
        .filter_map(|entry| entry.manager.as_deref())
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return "somebody else".to_owned();
    }
    names.join(", ")
}

/// The object without what only the server wants to know.
fn value(object: &DynamicObject) -> Value {
    let mut object = object.clone();
    object.metadata.managed_fields = None;
    serde_json::to_value(&object).unwrap_or_default()
}

fn listed(differences: &[String]) -> String {
    const SHOWN: usize = 40;
    if differences.is_empty() {
        return ", and it says the same: there is nothing to do".to_owned();
    }
    let shown: Vec<&str> = differences.iter().take(SHOWN).map(String::as_str).collect();
    let more = differences.len().saturating_sub(SHOWN);
    let more = if more == 0 {
        String::new()
    } else {
        format!("\n  and {more} more lines")
    };
    format!(
        "; it is left alone. It would become:\n  {}{more}",
        shown.join("\n  ")
    )
}
