//! What an engine of somebody else's is asked, and which of its answers are believed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{DevicesJson, IntervalJson, WorkloadJson};
use crate::domain::estimate::{Devices, Figure, Interval, IntervalError, Workload};
use crate::wire::api::API_VERSION;

/// What an engine is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineQuestion {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `EngineQuestion`.
    pub kind: String,
    /// What shall run.
    pub workload: WorkloadJson,
    /// On what.
    pub devices: Vec<DevicesJson>,
}

/// What an engine answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineAnswer {
    /// Who says so.
    pub source: String,
    /// What it takes for granted.
    #[serde(default)]
    pub assumptions: Vec<String>,
    /// For some or all of what was asked.
    pub items: Vec<EngineItem>,
}

/// What an engine answers for one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineItem {
    /// Which of the types that were asked for.
    #[serde(rename = "type")]
    pub type_name: String,
    /// How many of them.
    pub count: u32,
    /// The time of a training.
    #[serde(default)]
    pub seconds: Option<IntervalJson>,
    /// The speed of one sequence.
    #[serde(default)]
    pub tokens_per_second: Option<IntervalJson>,
    /// Whether it was reckoned from other measurements.
    #[serde(default)]
    pub interpolated: bool,
}

/// What an engine said, once it is believed.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// Who says so.
    pub source: String,
    /// What it takes for granted.
    pub assumptions: Vec<String>,
    /// By type and count.
    pub figures: BTreeMap<(String, u32), (Figure, bool)>,
}

/// Why an engine is not believed.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Lie {
    /// No document.
    #[error("its answer cannot be read: {0}")]
    Unreadable(String),
    /// A text longer than any honest one, or none.
    #[error("its {what} is empty or has more than {most} characters")]
    Text {
        /// Which.
        what: &'static str,
        /// The most.
        most: usize,
    },
    /// More than was asked.
    #[error("it answers more than {most} lines")]
    TooMany {
        /// The most.
        most: usize,
    },
    /// Other hardware.
    #[error("it answers for {count} x {type_name}, which was not asked")]
    NotAsked {
        /// Its type.
        type_name: String,
        /// How many.
        count: u32,
    },
    /// The same twice.
    #[error("it answers twice for {count} x {type_name}")]
    Twice {
        /// The type.
        type_name: String,
        /// How many.
        count: u32,
    },
    /// A speed for a time, or neither, or both.
    #[error("for {0} it says no {1}")]
    Figure(String, &'static str),
    /// No interval.
    #[error("for {0}: {1}")]
    Interval(String, IntervalError),
}

/// The longest name of an engine, and the longest assumption of its.
const LONGEST_TEXT: usize = 400;
/// Most assumptions that are passed on.
const MOST_ASSUMPTIONS: usize = 20;

impl EngineQuestion {
    /// What shall run on what.
    pub fn new(workload: WorkloadJson, devices: &[Devices]) -> Self {
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

/// What an engine said of `workload` on `devices`, if it can be.
pub fn believed(body: &[u8], workload: &Workload, devices: &[Devices]) -> Result<Said, Lie> {
    let answer: EngineAnswer = serde_json::from_slice(body).map_err(|error| {
        let error = error.to_string();
        Lie::Unreadable(error.chars().take(LONGEST_TEXT).collect())
    })?;
    text("source", &answer.source)?;
    for one in &answer.assumptions {
        text("assumption", one)?;
    }
    if answer.items.len() > devices.len() {
        let most = devices.len();
        return Err(Lie::TooMany { most });
    }
    let mut figures = BTreeMap::new();
    for item in answer.items {
        let asked = devices
            .iter()
            .any(|one| one.type_name.as_str() == item.type_name && one.count == item.count);
        let type_name: String = item.type_name.chars().take(80).collect();
        let count = item.count;
        if !asked {
            return Err(Lie::NotAsked { type_name, count });
        }
        let interval = |given: Option<IntervalJson>, what: &'static str| {
            let given = given.ok_or_else(|| Lie::Figure(type_name.clone(), what))?;
            Interval::new(given.low, given.high)
                .map_err(|error| Lie::Interval(type_name.clone(), error))
        };
        let figure = match (workload, item.seconds, item.tokens_per_second) {
            (Workload::Training { .. }, seconds, None) => {
                Figure::Seconds(interval(seconds, "seconds")?)
            }
            (Workload::Decoding { .. }, None, speed) => {
                Figure::TokensPerSecond(interval(speed, "tokensPerSecond")?)
            }
            (Workload::Training { .. }, _, Some(_)) => {
                return Err(Lie::Figure(type_name, "seconds alone"));
            }
            (Workload::Decoding { .. }, Some(_), _) => {
                return Err(Lie::Figure(type_name, "tokensPerSecond alone"));
            }
        };
        let key = (type_name.clone(), count);
        if figures.insert(key, (figure, item.interpolated)).is_some() {
            return Err(Lie::Twice { type_name, count });
        }
    }
    Ok(Said {
        source: answer.source,
        assumptions: answer
            .assumptions
            .into_iter()
            .take(MOST_ASSUMPTIONS)
            .collect(),
        figures,
    })
}

fn text(what: &'static str, text: &str) -> Result<(), Lie> {
    let most = LONGEST_TEXT;
    let honest =
        !text.trim().is_empty() && text.len() <= most && !text.chars().any(char::is_control);
    if honest {
        Ok(())
    } else {
        Err(Lie::Text { what, most })
    }
}
