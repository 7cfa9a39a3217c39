//! Requests to an external estimation engine, and validation of its responses.

use std::collections::BTreeMap;

use octavo_fleet::estimate::{DeviceGroup, EstimateValue, Interval, Workload};
use octavo_model::API_VERSION;
use octavo_model::id::TypeName;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Request to an estimation engine.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EngineRequest<'a> {
    api_version: &'static str,
    kind: &'static str,
    workload: &'a Workload,
    devices: &'a [DeviceGroup],
}

/// Response of an estimation engine.
#[derive(Debug, Deserialize)]
struct EngineResponse {
    /// Name of the engine.
    source: String,
    /// Assumptions behind the estimates.
    #[serde(default)]
    assumptions: Vec<String>,
    /// Estimates for some or all of the requested devices.
    items: Vec<EngineItem>,
}

/// Estimate for one line of the request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EngineItem {
    /// One of the requested types.
    #[serde(rename = "type")]
    type_name: TypeName,
    /// Number of devices.
    count: u32,
    /// Duration of a training.
    seconds: Option<Interval>,
    /// Decoding speed of one sequence.
    tokens_per_second: Option<Interval>,
    /// Whether the estimate was interpolated from other measurements.
    #[serde(default)]
    interpolated: bool,
}

/// Validated estimates of an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineEstimates {
    /// Name of the engine.
    pub source: String,
    /// Assumptions behind the estimates.
    pub assumptions: Vec<String>,
    /// Estimates by type and count, each with a flag that is set if it was interpolated.
    pub figures: BTreeMap<(TypeName, u32), (EstimateValue, bool)>,
}

/// Why the response of an engine is rejected.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum InvalidResponse {
    /// The response cannot be parsed.
    #[error("cannot parse the response: {0}")]
    Malformed(String),
    /// A text is empty, contains control characters or is too long.
    #[error("the field {what} is empty or has more than {most} characters")]
    Text {
        /// Name of the field.
        what: &'static str,
        /// Maximum length.
        most: usize,
    },
    /// The response has more lines than the request.
    #[error("the response has more than the {most} requested lines")]
    TooMany {
        /// Number of requested lines.
        most: usize,
    },
    /// The response contains hardware that was not requested.
    #[error("the response contains {count} x {type_name}, which was not requested")]
    NotRequested {
        /// Type of the devices.
        type_name: TypeName,
        /// Number of devices.
        count: u32,
    },
    /// The response contains two estimates for the same devices.
    #[error("the response contains {count} x {type_name} twice")]
    Duplicate {
        /// Type of the devices.
        type_name: TypeName,
        /// Number of devices.
        count: u32,
    },
    /// The line does not have exactly the figure of the workload: a time for training, a speed for decoding.
    #[error("the line for {0} must contain {1}")]
    WrongFigure(TypeName, &'static str),
}

/// Maximum length of an engine's name and of each assumption.
const MAX_TEXT_BYTES: usize = 400;
/// Maximum number of assumptions that are passed on.
const MAX_ASSUMPTIONS: usize = 20;

impl<'a> EngineRequest<'a> {
    /// Creates the request for `workload` on `devices`.
    pub(super) fn new(workload: &'a Workload, devices: &'a [DeviceGroup]) -> Self {
        Self { api_version: API_VERSION, kind: "EngineQuestion", workload, devices }
    }
}

/// Parses and validates an engine's response for `workload` on `devices`.
pub(super) fn validate(
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
        let EngineItem { type_name, count, .. } = item;
        let is_requested = |one: &DeviceGroup| one.type_name == type_name && one.count == count;
        if !devices.iter().any(is_requested) {
            return Err(InvalidResponse::NotRequested { type_name, count });
        }
        let interval = |given: Option<Interval>, what: &'static str| {
            given.ok_or_else(|| InvalidResponse::WrongFigure(type_name.clone(), what))
        };
        let figure = match (workload, item.seconds, item.tokens_per_second) {
            (Workload::Training { .. }, seconds, None) => {
                EstimateValue::Seconds(interval(seconds, "seconds")?)
            }
            (Workload::Decoding { .. }, None, speed) => {
                EstimateValue::TokensPerSecond(interval(speed, "tokensPerSecond")?)
            }
            (Workload::Training { .. }, _, Some(_)) => {
                return Err(InvalidResponse::WrongFigure(
                    type_name,
                    "seconds and no tokensPerSecond",
                ));
            }
            (Workload::Decoding { .. }, Some(_), _) => {
                return Err(InvalidResponse::WrongFigure(
                    type_name,
                    "tokensPerSecond and no seconds",
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
        assumptions: answer.assumptions.into_iter().take(MAX_ASSUMPTIONS).collect(),
        figures,
    })
}

fn check_text(what: &'static str, text: &str) -> Result<(), InvalidResponse> {
    let most = MAX_TEXT_BYTES;
    let honest =
        !text.trim().is_empty() && text.len() <= most && !text.chars().any(char::is_control);
    if honest { Ok(()) } else { Err(InvalidResponse::Text { what, most }) }
}

#[cfg(test)]
mod tests {
    use octavo_fleet::estimate::Precision;

    use super::*;

    fn requested_devices() -> Vec<DeviceGroup> {
        let one = |name: &str, count| DeviceGroup { type_name: name.parse().unwrap(), count };
        vec![one("nvidia-h100-80gb", 8), one("nvidia-a100-80gb", 8)]
    }

    fn read(text: &str) -> Result<EngineEstimates, String> {
        let training = Workload::training(7e9, 1e12, Precision::Bf16);
        validate(text.as_bytes(), &training, &requested_devices())
            .map_err(|error| error.to_string())
    }

    fn item(rest: &str) -> String {
        format!(
            r#"{{"source": "bench", "items": [{{"type": "nvidia-h100-80gb", "count": 8, {rest}}}]}}"#
        )
    }

    #[test]
    fn valid_engine_response_is_accepted() {
        let estimates =
            read(&item(r#""seconds": {"low": 10, "high": 12.5}, "interpolated": true, "more": 1"#))
                .unwrap();
        let key = ("nvidia-h100-80gb".parse().unwrap(), 8);
        let expected = EstimateValue::Seconds(Interval::new(10.0, 12.5).unwrap());
        assert_eq!(estimates.figures.get(&key), Some(&(expected, true)));
        assert_eq!(estimates.source, "bench");
    }

    #[test]
    fn invalid_engine_responses_are_rejected_with_a_reason() {
        let seconds = |low: &str, high: &str| {
            item(&format!(r#""seconds": {{"low": {low}, "high": {high}}}"#))
        };
        let other = seconds("1", "2").replace("h100", "h900");
        let more = seconds("1", "2").replace("\"count\": 8", "\"count\": 9");
        let long = seconds("1", "2").replace("bench", &"x".repeat(1000));
        let same = r#"{"type": "nvidia-h100-80gb", "count": 8, "seconds": {"low": 1, "high": 2}}"#;
        let twice = format!(r#"{{"source": "s", "items": [{same}, {same}]}}"#);
        let many = format!(r#"{{"source": "s", "items": [{same}, {same}, {same}]}}"#);
        for (text, estimates) in [
            (seconds("NaN", "1"), "cannot parse"),
            (seconds("null", "1"), "cannot parse"),
            (seconds("1e999", "1"), "cannot parse"),
            (seconds("-1", "1"), "-1 is not a valid time"),
            (seconds("0", "1"), "0 is not a valid time"),
            (seconds("2", "1"), "from 2 to 1 is reversed"),
            (
                item(r#""tokensPerSecond": {"low": 1, "high": 2}"#),
                "must contain seconds and no tokensPerSecond",
            ),
            (item(r#""interpolated": false"#), "must contain seconds"),
            (other, "8 x nvidia-h900-80gb, which was not requested"),
            (more, "9 x nvidia-h100-80gb, which was not requested"),
            (long, "the field source is empty or has more than 400"),
            (twice, "h100-80gb twice"),
            (many, "more than the 2 requested lines"),
            ("<html>".to_owned(), "cannot parse"),
            ("{}".to_owned(), "missing field `source`"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(estimates), "{text}: {error}");
        }
    }
}
