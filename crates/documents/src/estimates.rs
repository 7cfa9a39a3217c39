//! The JSON of estimates: requests and responses of the REST API, and those exchanged with an external estimation
//! engine.
//!
//! User requests are parsed strictly. Responses of an engine may have additional fields and are validated: an invalid
//! figure, an interval whose bounds are reversed, or hardware that was not requested invalidates the whole response.

mod engine;
mod profile_devices;

use std::fmt;

use octavo_fleet::estimate::{
    CostRange, DeviceGroup, Interval, MAX_DEVICES, Workload, format, total_tokens, validate_batch,
    validate_model_name,
};
use octavo_fleet::matching::{RequestError, resolve_type};
use octavo_fleet::price::{self, PurchaseOption};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::engine::{
    EngineEstimates, EngineItem, EngineRequest, EngineResponse, InvalidResponse, validate,
};
pub use self::profile_devices::{ProfileDevicesError, default_count, devices_of_profile};

/// Maximum number of device lines in a request, and of types in a response for the whole fleet.
pub const MAX_ITEMS: usize = 64;

/// What shall be estimated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EstimateRequest {
    /// What shall run.
    #[serde(deserialize_with = "super::strict_json::object_only")]
    pub workload: WorkloadJson,
    /// On what; without it on one device of each type of the fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<DevicesJson>>,
    /// `on-demand`, `spot` or `reserved`: by which price a cost is reckoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purchase_option: Option<String>,
}

/// What shall run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(
    tag = "kind",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum WorkloadJson {
    /// A training from the first token to the last.
    Training {
        /// What the model is called, for engines that know it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Parameters of the model, such as 7e9.
        parameters: f64,
        /// Tokens, each time that one is seen; or else `samples`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tokens: Option<f64>,
        /// Samples, each time that one is seen, in place of `tokens`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        samples: Option<f64>,
        /// Tokens of one sample, with `samples`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tokens_per_sample: Option<f64>,
        /// Samples that one step takes, for engines that look at it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        batch: Option<f64>,
        /// `bf16`, `fp16` or `fp8`.
        precision: String,
    },
    /// The writing of one sequence, a token at a time.
    Decoding {
        /// What the model is called, for engines that know it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Parameters of the model.
        parameters: f64,
        /// What the weights are stored in: `bf16`, `fp16` or `fp8`.
        precision: String,
    },
}

/// Devices that work together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DevicesJson {
    /// Their type, or any name that means one type alone.
    #[serde(rename = "type")]
    pub type_name: String,
    /// How many.
    pub count: u64,
}

/// What was estimated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EstimateAnswer {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `EstimateAnswer`.
    pub kind: String,
    /// Always true: nothing here was measured on this fleet.
    pub is_estimate: bool,
    /// `format_estimate`, or `none` where who estimates is away or says what cannot be.
    pub times: String,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who says so.
    pub source: String,
    /// What is taken for granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumptions: Vec<String>,
    /// In the order in which it was asked, or by type.
    pub items: Vec<EstimateRow>,
    /// What to know of the whole answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// An estimate for devices of one type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EstimateRow {
    /// Their type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// How many.
    pub count: u32,
    /// How long a training takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<IntervalJson>,
    /// How fast one sequence is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<IntervalJson>,
    /// Whether it was reckoned from other measurements than of this very case.
    pub interpolated: bool,
    /// What it costs; absent without a price or a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostRangeJson>,
    /// Why there is no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// From the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct IntervalJson {
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

/// What it costs, from the least to the most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CostRangeJson {
    /// The least, a decimal.
    pub low: String,
    /// The most, a decimal.
    pub high: String,
    /// Three letters.
    pub currency: String,
    /// `run`, or `million-tokens` of one sequence after the other.
    pub per: String,
    /// How it is paid for.
    pub purchase_option: String,
}

impl EstimateRequest {
    /// Converts and validates the workload.
    pub fn workload(&self) -> Result<Workload, RequestError> {
        match &self.workload {
            WorkloadJson::Training {
                model: name,
                parameters,
                tokens,
                samples,
                tokens_per_sample,
                batch: step,
                precision,
            } => {
                name.as_deref().map(validate_model_name).transpose()?;
                step.map(validate_batch).transpose()?;
                let tokens = read_total_tokens(*tokens, *samples, *tokens_per_sample)?;
                Workload::training(*parameters, tokens, precision.parse()?)
            }
            WorkloadJson::Decoding {
                model: name,
                parameters,
                precision,
            } => {
                name.as_deref().map(validate_model_name).transpose()?;
                Workload::decoding(*parameters, precision.parse()?)
            }
        }
    }

    /// Converts and validates the requested devices, if any.
    pub fn devices(&self) -> Result<Option<Vec<DeviceGroup>>, RequestError> {
        let Some(lines) = &self.devices else {
            return Ok(None);
        };
        let wrong = |problem: String| RequestError::new("devices", problem);
        if lines.is_empty() || lines.len() > MAX_ITEMS {
            return Err(wrong(format!("devices has from 1 to {MAX_ITEMS} lines")));
        }
        let mut all: Vec<DeviceGroup> = Vec::new();
        for line in lines {
            let type_name = resolve_type(&line.type_name).map_err(wrong)?;
            let count = u32::try_from(line.count)
                .ok()
                .filter(|count| (1..=MAX_DEVICES).contains(count));
            let count = count.ok_or_else(|| wrong(format!("count is from 1 to {MAX_DEVICES}")))?;
            let one = DeviceGroup { type_name, count };
            if all.contains(&one) {
                return Err(wrong(format!("{count} x {} is there twice", one.type_name)));
            }
            all.push(one);
        }
        Ok(Some(all))
    }

    /// The purchase option used to calculate costs.
    pub fn purchase_option(&self) -> Result<PurchaseOption, RequestError> {
        let parsed = self.purchase_option.as_deref().map(str::parse).transpose();
        let parsed = parsed.map_err(|error: octavo_fleet::price::PriceError| {
            RequestError::new("purchaseOption", error.to_string())
        })?;
        Ok(parsed.unwrap_or_default())
    }
}

/// Number of tokens, given either directly or as samples times tokens per sample.
fn read_total_tokens(
    tokens: Option<f64>,
    samples: Option<f64>,
    each: Option<f64>,
) -> Result<f64, RequestError> {
    match (tokens, samples, each) {
        (Some(tokens), None, None) => Ok(tokens),
        (None, Some(samples), Some(each)) => total_tokens(samples, each),
        _ => {
            let problem = "a training has either tokens, or samples and tokensPerSample";
            Err(RequestError::new("workload.tokens", problem))
        }
    }
}

impl WorkloadJson {
    /// Sets `tokens` to the number calculated in `meant`, so that an engine does not have to derive it from samples.
    #[must_use]
    pub fn with_total_tokens(mut self, meant: &Workload) -> Self {
        if let (Self::Training { tokens, .. }, Workload::Training { tokens: all, .. }) =
            (&mut self, meant)
        {
            *tokens = Some(*all);
        }
        self
    }

    /// Lists the given fields that the built-in estimate ignores.
    pub fn ignored_fields(&self) -> Vec<&'static str> {
        let (name, step) = match self {
            Self::Training { model, batch, .. } => (model.is_some(), batch.is_some()),
            Self::Decoding { model, .. } => (model.is_some(), false),
        };
        [("the model's name", name), ("the batch", step)]
            .into_iter()
            .filter_map(|(what, is_said)| is_said.then_some(what))
            .collect()
    }
}

impl EstimateRow {
    /// Formats the time or speed for display. Returns `None` if neither is a valid interval.
    pub fn said(&self) -> Option<String> {
        let interval = |told: IntervalJson| Interval::new(told.low, told.high).ok();
        let time = self.seconds.and_then(interval).map(format::time);
        time.or_else(|| {
            self.tokens_per_second
                .and_then(interval)
                .map(format::format_speed)
        })
    }
}

/// Formats a cost such as `4,000 to 9,600 USD a run`.
impl fmt::Display for CostRangeJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = price::format_estimate(&self.low, &self.high);
        let range = format::format_range((low, &self.currency), (high, &self.currency));
        match self.per.as_str() {
            "run" => write!(f, "{range} a run"),
            "million-tokens" => write!(f, "{range} per 10^6 tokens"),
            other => write!(f, "{range} per {other}"),
        }
    }
}

impl From<Interval> for IntervalJson {
    fn from(interval: Interval) -> Self {
        Self {
            low: interval.low(),
            high: interval.high(),
        }
    }
}

impl From<CostRange> for CostRangeJson {
    fn from(cost: CostRange) -> Self {
        Self {
            low: cost.low.to_string(),
            high: cost.high.to_string(),
            currency: cost.currency.to_string(),
            per: cost.per.as_str().to_owned(),
            purchase_option: cost.option.as_str().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
