//! The request and the answer as documents.

use octavo_model::API_VERSION;
use octavo_model::id::TypeName;
use octavo_model::reported::Reported;
use serde::{Deserialize, Serialize};
use serde_with::{DefaultOnError, serde_as, skip_serializing_none};
use utoipa::ToSchema;

use super::{CostRange, DeviceGroup, Interval, MAX_DEVICES, Workload, format};
use crate::price::PurchaseOption;
use crate::request_error::RequestError;

/// Maximum number of device lines in a request, and of types in a response for the whole fleet.
pub const MAX_ITEMS: usize = 64;

/// Request for an estimate.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EstimateRequest {
    /// The workload.
    #[serde(deserialize_with = "super::workload::from_object")]
    pub workload: Workload,
    /// The devices; one device of each type of the fleet by default.
    pub devices: Option<Vec<DeviceGroup>>,
    /// Purchase option of the price: `on-demand`, `spot` or `reserved`.
    #[schema(value_type = Option<String>)]
    pub purchase_option: Option<PurchaseOption>,
}

/// Estimates.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EstimateAnswer {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `EstimateAnswer`.
    pub kind: String,
    /// Always true: nothing here was measured on this fleet.
    pub is_estimate: bool,
    /// `estimated`, or `none` if the estimate engine is unavailable or its answer is invalid.
    #[schema(value_type = String)]
    pub times: Reported<TimesStatus>,
    /// Reason why there are none.
    pub reason: Option<String>,
    /// Provider of the estimates.
    pub source: String,
    /// Assumptions behind the estimates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumptions: Vec<String>,
    /// Estimates, in the order of the request, or by type.
    pub items: Vec<EstimateRow>,
    /// Notices about the whole answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// Availability of estimates in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimesStatus {
    /// It has estimates where figures are available.
    Estimated,
    /// It has none, because the provider failed.
    #[serde(rename = "none")]
    Unavailable,
}

/// Estimate for devices of one type. A figure that this program does not understand counts as absent.
#[serde_as]
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EstimateRow {
    /// Type of the devices.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub type_name: TypeName,
    /// Number of devices.
    pub count: u32,
    /// Duration of a training in seconds.
    #[serde(default)]
    #[serde_as(deserialize_as = "DefaultOnError")]
    #[schema(value_type = Option<Interval>)]
    pub seconds: Option<Interval>,
    /// Decoding speed of one sequence in tokens per second.
    #[serde(default)]
    #[serde_as(deserialize_as = "DefaultOnError")]
    #[schema(value_type = Option<Interval>)]
    pub tokens_per_second: Option<Interval>,
    /// Whether it was interpolated from measurements of other cases.
    pub interpolated: bool,
    /// Cost; absent without a price or a time.
    pub cost: Option<CostRange>,
    /// Reason why there is no figure.
    pub why_not: Option<String>,
}

impl EstimateRequest {
    /// Checks the ranges of all values, and sets the number of tokens of a training.
    pub fn validated(mut self) -> Result<Self, RequestError> {
        self.workload = self.workload.validated()?;
        let wrong = |problem: String| RequestError::new("devices", problem);
        let lines = self.devices.as_deref().unwrap_or_default();
        if self.devices.is_some() && !(1..=MAX_ITEMS).contains(&lines.len()) {
            return Err(wrong(format!("devices must have 1 to {MAX_ITEMS} entries")));
        }
        for (at, one) in lines.iter().enumerate() {
            if !(1..=MAX_DEVICES).contains(&one.count) {
                return Err(wrong(format!("count must be an integer from 1 to {MAX_DEVICES}")));
            }
            if lines.iter().take(at).any(|other| other == one) {
                let (count, name) = (one.count, &one.type_name);
                return Err(wrong(format!("{count} x {name} is listed twice")));
            }
        }
        Ok(self)
    }
}

impl EstimateAnswer {
    /// Creates an answer with these estimates.
    pub fn new(source: &str, items: Vec<EstimateRow>) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "EstimateAnswer".to_owned(),
            is_estimate: true,
            times: TimesStatus::Estimated.into(),
            reason: None,
            source: source.to_owned(),
            assumptions: Vec::new(),
            items,
            notices: Vec::new(),
        }
    }
}

impl EstimateRow {
    /// Creates a row without an estimate.
    pub fn new(devices: &DeviceGroup) -> Self {
        Self {
            type_name: devices.type_name.clone(),
            count: devices.count,
            seconds: None,
            tokens_per_second: None,
            interpolated: false,
            cost: None,
            why_not: None,
        }
    }

    /// Formats the time or speed for display; `None` without an estimate.
    pub fn summary(&self) -> Option<String> {
        let speed = || self.tokens_per_second.map(format::format_speed);
        self.seconds.map(format::time).or_else(speed)
    }
}
