//! Conversion of objects of the API server to policies.

use std::collections::BTreeSet;

use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use octavo_policy::crd::{GROUP, KIND, PLURAL, VERSION};
use octavo_policy::record::{APPROVAL_ANNOTATION, FINALIZER, ROLLBACK_ANNOTATION};
use octavo_policy::{Policy, PolicyStatus};
use serde_json::Value;

/// The kind of policies.
pub(super) fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, KIND), PLURAL)
}

/// Converts an object.
pub(super) fn policy(object: &DynamicObject) -> Policy {
    let field = |name: &str| object.data.get(name).cloned().unwrap_or(Value::Null);
    let metadata = &object.metadata;
    Policy {
        name: object.name_any(),
        uid: metadata.uid.clone().unwrap_or_default(),
        version: metadata.resource_version.clone().unwrap_or_default(),
        generation: metadata.generation.unwrap_or_default(),
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        is_deleting: metadata.deletion_timestamp.is_some(),
        has_finalizer: object.finalizers().iter().any(|one| one == FINALIZER),
        rollback_to: object.annotations().get(ROLLBACK_ANNOTATION).cloned(),
        approved: approved(object.annotations().get(APPROVAL_ANNOTATION)),
        spec: serde_path_to_error::deserialize(field("spec")).map_err(|error| located(&error)),
        // Only the controller writes the status. An unreadable one is that of another version, and is replaced.
        status: serde_json::from_value::<Option<PolicyStatus>>(field("status"))
            .ok()
            .flatten()
            .unwrap_or_default(),
    }
}

/// The error with the path of the field.
fn located(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    match error.path().to_string().as_str() {
        "." => format!("spec: {}", error.inner()),
        path => format!("spec.{path}: {}", error.inner()),
    }
}

/// The identifiers in the annotation.
fn approved(annotation: Option<&String>) -> BTreeSet<String> {
    let each = annotation.into_iter().flat_map(|text| text.split(','));
    each.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn policy_is_read_and_an_unreadable_spec_keeps_its_place() {
        let read = |spec: Value| {
            let object: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "octavo.dev/v1alpha1", "kind": KIND,
                "metadata": {
                    "name": "a", "uid": "u", "resourceVersion": "7", "generation": 3, "finalizers": [FINALIZER],
                    "annotations": {ROLLBACK_ANNOTATION: "r", APPROVAL_ANNOTATION: "b, a,"}, "creationTimestamp": "2026-01-01T00:00:00Z",
                },
                "spec": spec, "status": {"rollout": 2},
            }))
            .unwrap();
            policy(&object)
        };
        let known = read(json!({"nodeSelector": {"matchLabels": {"a": "b"}}, "layout": "serving"}));
        assert_eq!(known.spec.as_ref().unwrap().layout.as_deref(), Some("serving"));
        assert_eq!((known.generation, known.status.rollout, known.has_finalizer), (3, 2, true));
        assert!(known.approved.iter().eq(["a", "b"]));
        assert_eq!((known.rollback_to.as_deref(), known.is_deleting), (Some("r"), false));
        let invalid = read(json!({"nodeSelector": {}, "rollout": {"maxUnavailable": "all"}}));
        let error = invalid.spec.unwrap_err();
        let place = "spec.rollout.maxUnavailable: ";
        assert!(error.starts_with(place), "{error}");
        assert!(error.contains("neither a number of nodes nor a percentage"), "{error}");
        assert_eq!(read(json!({})).spec.unwrap_err(), "spec: missing field `nodeSelector`");
    }
}
