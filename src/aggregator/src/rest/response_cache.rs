//! Serialized responses with an entity tag, and a cache of responses by result of the profile check.

use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use octavo_fleet::access::VisibleTypes;
use octavo_store::profiles::ProfileReport;
use serde::Serialize;

use super::problem::{ApiError, ProblemKind};
use super::profile_filter::ProfileFilter;

/// Capacity of the cache, in responses and bytes; it is emptied when exceeded.
const MAX_RESPONSES: usize = 32;
const MAX_BYTES: usize = 8 << 20;

/// Serialized document with its entity tag.
#[derive(Debug, Clone)]
pub(super) struct TaggedDocument {
    body: Bytes,
    tag: HeaderValue,
}

/// Inputs of a response besides the profiles.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResponseKey {
    /// Path of the document.
    pub(super) path: &'static str,
    /// Filter of profiles.
    pub(super) filter: ProfileFilter,
    /// Types that the reader is allowed to see.
    pub(super) types: VisibleTypes,
    /// Why the document may be out of date.
    pub(super) notice: Option<String>,
}

/// Responses for the last result of the profile check.
#[derive(Debug, Default)]
pub(super) struct ResponseCache(Mutex<Option<CachedResponses>>);

#[derive(Debug)]
struct CachedResponses {
    report: Arc<ProfileReport>,
    answers: Vec<(ResponseKey, TaggedDocument)>,
}

impl TaggedDocument {
    /// Serializes the document as JSON.
    pub(super) fn serialize(document: &impl Serialize) -> Result<Self, ApiError> {
        let failed = |error: String| ApiError::new(ProblemKind::Internal, error);
        let body = serde_json::to_vec(document).map_err(|error| failed(error.to_string()))?;
        let digest = digest(&SHA256, &body);
        let bytes = digest.as_ref().iter().take(16);
        let tag = bytes.fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let tag = HeaderValue::try_from(format!("\"{tag}\""));
        Ok(Self { body: body.into(), tag: tag.map_err(|error| failed(error.to_string()))? })
    }

    /// Responds with 304 if the `If-None-Match` header matches, and with the document otherwise.
    pub(super) fn into_response_for(self, headers: &HeaderMap) -> Response {
        let known = headers.get_all(header::IF_NONE_MATCH).into_iter();
        let mut known = known.filter_map(|value| value.to_str().ok());
        let is_known = known.any(|tags| {
            let mut tags = tags.split(',').map(str::trim);
            tags.any(|one| one == "*" || self.tag == one.trim_start_matches("W/"))
        });
        let mut response = if is_known {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            ([(header::CONTENT_TYPE, "application/json")], self.body).into_response()
        };
        response.headers_mut().insert(header::ETAG, self.tag);
        response
    }
}

impl ResponseCache {
    /// Returns the cached response for the same request and profiles, or the response that `make` creates.
    pub(super) fn get_or_create(
        &self,
        report: &Arc<ProfileReport>,
        key: ResponseKey,
        make: impl FnOnce(&ResponseKey) -> Result<TaggedDocument, ApiError>,
    ) -> Result<TaggedDocument, ApiError> {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = match cache.take() {
            Some(same) if Arc::ptr_eq(&same.report, report) => cache.insert(same),
            _ => cache.insert(CachedResponses { report: Arc::clone(report), answers: Vec::new() }),
        };
        let known = cache.answers.iter().find(|(one, _)| *one == key);
        if let Some((_, answer)) = known {
            return Ok(answer.clone());
        }
        let answer = make(&key)?;
        let bytes = cache.answers.iter().map(|(_, one)| one.body.len());
        let bytes = bytes.fold(answer.body.len(), usize::saturating_add);
        if cache.answers.len() >= MAX_RESPONSES || bytes > MAX_BYTES {
            cache.answers.clear();
        }
        if answer.body.len() <= MAX_BYTES {
            cache.answers.push((key, answer.clone()));
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(namespace: usize) -> ResponseKey {
        ResponseKey {
            path: "/api/v1/profiles",
            filter: ProfileFilter { type_name: None, namespace: Some(namespace.to_string()) },
            types: VisibleTypes::All,
            notice: None,
        }
    }

    /// Returns whether the response was created rather than cached.
    fn is_made(answers: &ResponseCache, report: &Arc<ProfileReport>, key: ResponseKey) -> bool {
        let mut made = false;
        let answer = answers.get_or_create(report, key, |key| {
            made = true;
            TaggedDocument::serialize(&json!({"namespace": key.filter.namespace}))
        });
        assert!(answer.is_ok());
        made
    }

    #[test]
    fn response_is_created_once_per_key_and_report() {
        let (answers, first) = (ResponseCache::default(), Arc::new(ProfileReport::default()));
        assert!(is_made(&answers, &first, key(1)));
        assert!(!is_made(&answers, &first, key(1)));
        let others = [
            key(2),
            ResponseKey { path: "/api/hardware-profiles", ..key(1) },
            ResponseKey {
                filter: ProfileFilter { type_name: Some("nvidia-l4".to_owned()), ..key(1).filter },
                ..key(1)
            },
            ResponseKey { types: VisibleTypes::Only([].into()), ..key(1) },
            ResponseKey { notice: Some("it may be old".to_owned()), ..key(1) },
        ];
        for other in others {
            let what = format!("{other:?}");
            assert!(is_made(&answers, &first, other), "{what}");
        }
        assert!(!is_made(&answers, &first, key(1)));
        let second = Arc::new(ProfileReport::default());
        assert!(is_made(&answers, &second, key(1)));
    }

    #[test]
    fn number_of_cached_responses_is_bounded() {
        let (answers, report) = (ResponseCache::default(), Arc::new(ProfileReport::default()));
        for number in 0..10 * MAX_RESPONSES {
            assert!(is_made(&answers, &report, key(number)));
            let cache = answers.0.lock().unwrap();
            assert!(cache.as_ref().unwrap().answers.len() <= MAX_RESPONSES);
        }
    }

    #[test]
    fn size_of_cached_responses_is_bounded() {
        let (answers, report) = (ResponseCache::default(), Arc::new(ProfileReport::default()));
        let long =
            |bytes: usize| move |_: &ResponseKey| TaggedDocument::serialize(&"x".repeat(bytes));
        let cache = || answers.0.lock().unwrap().as_ref().unwrap().answers.len();
        let mut sizes = Vec::new();
        for number in 0..4 {
            let half = long(MAX_BYTES / 2 - 100);
            assert!(answers.get_or_create(&report, key(number), half).is_ok());
            sizes.push(cache());
        }
        assert_eq!(sizes, [1, 2, 1, 2]);
        let too_long = long(MAX_BYTES);
        assert!(answers.get_or_create(&report, key(9), too_long).is_ok());
        assert_eq!(cache(), 0);
    }

    #[test]
    fn errors_are_not_cached() {
        let (answers, report) = (ResponseCache::default(), Arc::new(ProfileReport::default()));
        let failed = answers.get_or_create(&report, key(1), |_| {
            Err(ApiError::new(ProblemKind::Internal, "intended by the test"))
        });
        assert!(failed.is_err());
        assert!(is_made(&answers, &report, key(1)));
    }
}
