//! Profiles of `data/mig-profiles.json`.

use serde::Deserialize;

use crate::model::Placement;

/// A GPU instance profile of the file.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct GiRow {
    pub(super) id: Option<u32>,
    pub(super) name: String,
    pub(super) nvml_profile_index: u32,
    pub(super) slices: u32,
    pub(super) max_count: u32,
    pub(super) memory_mb: Option<u64>,
    pub(super) sms: Option<u32>,
    pub(super) ce: Option<u32>,
    pub(super) dec: Option<u32>,
    pub(super) enc: Option<u32>,
    pub(super) jpeg: Option<u32>,
    pub(super) ofa: Option<u32>,
    pub(super) placements: Option<Vec<Placement>>,
    pub(super) compute_instance_profiles: Option<Vec<CiRow>>,
}

/// A compute instance profile of the file.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct CiRow {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) slices: u32,
    pub(super) max_count: u32,
    pub(super) sms: u32,
}
