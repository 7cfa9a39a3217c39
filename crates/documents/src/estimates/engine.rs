//! Requests to an external estimation engine, and validation of its responses.

use std::collections::BTreeMap;

use octavo_fleet::estimate::{DeviceGroup, EstimateValue, Interval, IntervalError, Workload};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{DevicesJson, IntervalJson, WorkloadJson};
use crate::api::API_VERSION;

/// Request to an estimation engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineRequest {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `EngineRequest`.
    pub kind: String,
    /// The workload.
    pub workload: WorkloadJson,
    /// The devices.
    pub devices: Vec<DevicesJson>,
}

/// Response of an estimation engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineResponse {
    /// Name of the engine.
    pub source: String,
    /// Assumptions behind the estimates.
    #[serde(default)]
    pub assumptions: Vec<String>,
    /// Estimates for some or all of the requested devices.
    pub items: Vec<EngineItem>,
}

/// Estimate for one line of the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineItem {
    /// One of the requested types.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Number of devices.
    pub count: u32,
    /// Duration of a training.
    #[serde(default)]
    pub seconds: Option<IntervalJson>,
    /// Decoding speed of one sequence.
    #[serde(default)]
    pub tokens_per_second: Option<IntervalJson>,
    /// Whether the estimate was interpolated from other measurements.
    #[serde(default)]
    pub interpolated: bool,
}

/// Validated estimates of an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineEstimates {
    /// Name of the engine.
    pub source: String,
    /// Assumptions behind the estimates.
    pub assumptions: Vec<String>,
    /// Estimates by type and count, each with a flag that is set if it was interpolated.
    pub figures: BTreeMap<(String, u32), (EstimateValue, bool)>,
}

/// Why the response of an engine is rejected.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum InvalidResponse {
    /// The response cannot be parsed.
    #[error("its answer cannot be read: {0}")]
    Malformed(String),
    /// A text is empty, contains control characters or is too long.
    #[error("its {what} is empty or has more than {most} characters")]
    Text {
        /// Name of the field.
        what: &'static str,
        /// Maximum length.
        most: usize,
    },
    /// The response has more lines than the request.
    #[error("it answers more than {most} lines")]
    TooMany {
        /// Number of requested lines.
        most: usize,
    },
    /// The response contains hardware that was not requested.
    #[error("it answers for {count} x {type_name}, which was not asked")]
    NotRequested {
        /// Type of the devices.
        type_name: String,
        /// Number of devices.
        count: u32,
    },
    /// The response contains two estimates for the same devices.
    #[error("it answers twice for {count} x {type_name}")]
    Duplicate {
        /// Type of the devices.
        type_name: String,
        /// Number of devices.
        count: u32,
    },
    /// The line does not have exactly the figure of the workload: a time for training, a speed for decoding.
    #[error("for {0} it says no {1}")]
    WrongFigure(String, &'static str),
    /// The interval is invalid.
    #[error("for {0}: {1}")]
    Interval(String, IntervalError),
}

/// Maximum length of an engine's name and of each assumption.
const MAX_TEXT_BYTES: usize = 400;
/// Maximum number of assumptions that are passed on.
const MAX_ASSUMPTIONS: usize = 20;

impl EngineRequest {
    /// Creates the request for `workload` on `devices`.
    pub fn new(workload: WorkloadJson, devices: &[DeviceGroup]) -> Self {
        let devices = devices.iter().map(|one| DevicesJson {
            type_name: one.type_name.to_string(),
            count: one.count.into(),
        });
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "EngineQuestion".to_owned(),
            workload,
            devices: devices.collect(),
        }
    }
}

/// Parses and validates an engine's response for `workload` on `devices`.
pub fn validate(
    body: &[u8],
    workload: &Workload,
    devices: &[DeviceGroup],
) -> Result<EngineEstimates, InvalidResponse> {
    let answer: EngineResponse = serde_json::from_slice(body).map_err(|error| {
        let error = error.to_string();
        InvalidResponse::Malformed(error.chars().take(MAX_TEXT_BYTES).collect())
    })?;
    check_text("source", &answer.source)?;
    for one in &answer.assumptions {
        check_text("assumption", one)?;
    }
    if answer.items.len() > devices.len() {
        let most = devices.len();
        return Err(InvalidResponse::TooMany { most });
    }
    let mut figures = BTreeMap::new();
    for item in answer.items {
        let asked = devices
            .iter()
            .any(|one| one.type_name.as_str() == item.type_name && one.count == item.count);
        let type_name: String = item.type_name.chars().take(80).collect();
        let count = item.count;
        if !asked {
            return Err(InvalidResponse::NotRequested { type_name, count });
        }
        let interval = |given: Option<IntervalJson>, what: &'static str| {
            let given =
                given.ok_or_else(|| InvalidResponse::WrongFigure(type_name.clone(), what))?;
            Interval::new(given.low, given.high)
                .map_err(|error| InvalidResponse::Interval(type_name.clone(), error))
        };
        let figure = match (workload, item.seconds, item.tokens_per_second) {
            (Workload::Training { .. }, seconds, None) => {
                EstimateValue::Seconds(interval(seconds, "seconds")?)
            }
            (Workload::Decoding { .. }, None, speed) => {
                EstimateValue::TokensPerSecond(interval(speed, "tokensPerSecond")?)
            }
            (Workload::Training { .. }, _, Some(_)) => {
                return Err(InvalidResponse::WrongFigure(type_name, "seconds alone"));
            }
            (Workload::Decoding { .. }, Some(_), _) => {
                return Err(InvalidResponse::WrongFigure(
                    type_name,
                    "tokensPerSecond alone",
                ));
            }
        };
        let key = (type_name.clone(), count);
        if figures.insert(key, (figure, item.interpolated)).is_some() {
            return Err(InvalidResponse::Duplicate { type_name, count });
        }
    }
    Ok(EngineEstimates {
        source: answer.source,
        assumptions: answer
            .assumptions
            .into_iter()
            .take(MAX_ASSUMPTIONS)
            .collect(),
        figures,
    })
}

fn check_text(what: &'static str, text: &str) -> Result<(), InvalidResponse> {
    let most = MAX_TEXT_BYTES;
    let honest =
        !text.trim().is_empty() && text.len() <= most && !text.chars().any(char::is_control);
    if honest {
        Ok(())
    } else {
        Err(InvalidResponse::Text { what, most })
    }
}
