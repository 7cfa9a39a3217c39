//! Serialized responses with an entity tag, and a cache of responses by result of the profile check.

use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::{Failure, Kind};
use super::profiles::Which;
use crate::aggregator::profiles::Judged;
use crate::domain::access::Types;

/// Capacity of the cache, in responses and bytes; it is emptied when exceeded.
const MOST: usize = 32;
const MOST_BYTES: usize = 8 << 20;

/// Serialized document with its entity tag.
#[derive(Debug, Clone)]
pub(super) struct Tagged {
    body: Bytes,
    tag: HeaderValue,
}

/// Inputs of a response besides the profiles.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Path of the document.
    pub(super) path: &'static str,
    /// Filter of profiles.
    pub(super) which: Which,
    /// Types that the reader is allowed to see.
    pub(super) types: Types,
    /// Why the document may be out of date.
    pub(super) notice: Option<String>,
}

/// Responses for the last result of the profile check.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Option<Of>>);

#[derive(Debug)]
struct Of {
    judged: Arc<Judged>,
    answers: Vec<(Asked, Tagged)>,
}

impl Tagged {
    /// Serializes the document as JSON.
    pub(super) fn of(document: &impl Serialize) -> Result<Self, Failure> {
        let failed = |error: String| Failure::new(Kind::Internal, error);
        let body = serde_json::to_vec(document).map_err(|error| failed(error.to_string()))?;
        let digest = digest(&SHA256, &body);
        let bytes = digest.as_ref().iter().take(16);
        let tag = bytes.fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let tag = HeaderValue::try_from(format!("\"{tag}\""));
        Ok(Self {
            body: body.into(),
            tag: tag.map_err(|error| failed(error.to_string()))?,
        })
    }

    /// Responds with 304 if the `If-None-Match` header matches, and with the document otherwise.
    pub(super) fn answer(self, headers: &HeaderMap) -> Response {
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

impl Answers {
    /// Returns the cached response for the same request and profiles, or the response that `make` creates.
    pub(super) fn answer(
        &self,
        judged: &Arc<Judged>,
        asked: Asked,
        make: impl FnOnce(&Asked) -> Result<Tagged, Failure>,
    ) -> Result<Tagged, Failure> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = match kept.take() {
            Some(same) if Arc::ptr_eq(&same.judged, judged) => kept.insert(same),
            _ => kept.insert(Of {
                judged: Arc::clone(judged),
                answers: Vec::new(),
            }),
        };
        let known = kept.answers.iter().find(|(one, _)| *one == asked);
        if let Some((_, answer)) = known {
            return Ok(answer.clone());
        }
        let answer = make(&asked)?;
        let bytes = kept.answers.iter().map(|(_, one)| one.body.len());
        let bytes = bytes.fold(answer.body.len(), usize::saturating_add);
        if kept.answers.len() >= MOST || bytes > MOST_BYTES {
            kept.answers.clear();
        }
        if answer.body.len() <= MOST_BYTES {
            kept.answers.push((asked, answer.clone()));
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(namespace: usize) -> Asked {
        Asked {
            path: "/api/v1/profiles",
            which: Which {
                type_name: None,
                namespace: Some(namespace.to_string()),
            },
            types: Types::All,
            notice: None,
        }
    }

    /// Returns whether the response was created rather than cached.
    fn is_made(answers: &Answers, judged: &Arc<Judged>, asked: Asked) -> bool {
        let mut made = false;
        let answer = answers.answer(judged, asked, |asked| {
            made = true;
            Tagged::of(&json!({"namespace": asked.which.namespace}))
        });
        assert!(answer.is_ok());
        made
    }

    #[test]
    fn an_answer_is_made_once_for_each_question_and_judgement() {
        let (answers, first) = (Answers::default(), Arc::new(Judged::default()));
        assert!(is_made(&answers, &first, asked(1)));
        assert!(!is_made(&answers, &first, asked(1)));
        let others = [
            asked(2),
            Asked {
                path: "/api/hardware-profiles",
                ..asked(1)
            },
            Asked {
                which: Which {
                    type_name: Some("nvidia-l4".to_owned()),
                    ..asked(1).which
                },
                ..asked(1)
            },
            Asked {
                types: Types::Only([].into()),
                ..asked(1)
            },
            Asked {
                notice: Some("it may be old".to_owned()),
                ..asked(1)
            },
        ];
        for other in others {
            let what = format!("{other:?}");
            assert!(is_made(&answers, &first, other), "{what}");
        }
        assert!(!is_made(&answers, &first, asked(1)));
        let second = Arc::new(Judged::default());
        assert!(is_made(&answers, &second, asked(1)));
    }

    #[test]
    fn however_much_is_asked_no_more_than_so_many_answers_are_kept() {
        let (answers, judged) = (Answers::default(), Arc::new(Judged::default()));
        for number in 0..10 * MOST {
            assert!(is_made(&answers, &judged, asked(number)));
            let kept = answers.0.lock().unwrap();
            assert!(kept.as_ref().unwrap().answers.len() <= MOST);
        }
    }

    #[test]
    fn however_long_answers_are_no_more_than_so_many_bytes_are_kept() {
        let (answers, judged) = (Answers::default(), Arc::new(Judged::default()));
        let long = |bytes: usize| move |_: &Asked| Tagged::of(&"x".repeat(bytes));
        let kept = || answers.0.lock().unwrap().as_ref().unwrap().answers.len();
        let mut sizes = Vec::new();
        for number in 0..4 {
            let half = long(MOST_BYTES / 2 - 100);
            assert!(answers.answer(&judged, asked(number), half).is_ok());
            sizes.push(kept());
        }
        assert_eq!(sizes, [1, 2, 1, 2]);
        let too_long = long(MOST_BYTES);
        assert!(answers.answer(&judged, asked(9), too_long).is_ok());
        assert_eq!(kept(), 0);
    }

    #[test]
    fn what_fails_is_not_kept() {
        let (answers, judged) = (Answers::default(), Arc::new(Judged::default()));
        let failed = answers.answer(&judged, asked(1), |_| {
            Err(Failure::new(Kind::Internal, "as a test wants it"))
        });
        assert!(failed.is_err());
        assert!(is_made(&answers, &judged, asked(1)));
    }
}
