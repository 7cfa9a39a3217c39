//! Progress of a layout change on a node's devices.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Steps of plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepsJson {
    /// Done.
    pub done: usize,
    /// All.
    pub steps: usize,
}

/// How far a device is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProgressJson {
    /// What is being done, in words for a person.
    pub doing: String,
    /// Steps of the present plan that are done.
    pub done: usize,
    /// Steps that it has.
    pub steps: usize,
    /// Whether what it had is being brought back.
    pub back: bool,
}
