//! Format of a rule: flat, strict, with exactly one action.
//!
//! A type of the file, not of the domain.

use serde::{Deserialize, Serialize};

use super::action::{Abort, CountScope, Hang};
use crate::model::Code;

/// A rule in the file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a key of the file; the domain has an enum"
)]
pub(super) struct RawRule {
    pub(super) id: String,
    pub(super) call: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpu: Option<GpuName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nth: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) times: Option<u64>,
    pub(super) count: CountScope,
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<Code>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hang: Option<Hang>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slow_factor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) abort: Option<Abort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) in_use_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) index_order: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) activation: Option<Code>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) lie: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) wrong_placement: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) stale_mig_handles: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) lose_gpu: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) made: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected the index or the UUID of a GPU")]
pub(super) enum GpuName {
    Index(u32),
    Uuid(String),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_false(flag: &bool) -> bool {
    !*flag
}
