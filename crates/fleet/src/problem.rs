//! Errors of the API as problem documents.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Error response. Source of the format: RFC 9457, `application/problem+json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Kind of error, as the address of its explanation.
    #[serde(rename = "type")]
    pub kind: String,
    /// Title of the kind.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Description of this error and its remedy.
    pub detail: String,
    /// Path of the request.
    pub instance: String,
    /// Invalid parameter, if the error concerns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
}
