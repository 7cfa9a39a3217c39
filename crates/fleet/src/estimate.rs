//! Estimates of training time and decoding speed: always an interval with its source, never a guarantee.
//!
//! Used by the aggregator. The reference provider ([`roofline`]) computes estimates from vendors' published figures.
//! An external engine can be used instead; its results pass through [`Interval::new`], which rejects impossible
//! values.
//!
//! ```text
//! document.rs         request and answer
//! profile_devices.rs  the devices of a hardware profile
//! workload.rs         workload parameters, validated
//! roofline.rs         reference provider
//! circuit_breaker.rs  circuit breaker for a failing engine
//! format.rs           times, speeds and costs as text
//! ```

pub mod circuit_breaker;
mod document;
pub mod format;
pub mod profile_devices;
mod roofline;
mod workload;

use std::fmt;

use octavo_model::id::TypeName;
use octavo_model::reported::Reported;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

pub use self::document::{EstimateAnswer, EstimateRequest, EstimateRow, MAX_ITEMS, TimesStatus};
pub use self::roofline::{DECODING, Efficiency, SOURCE_NAME, TRAINING, assumptions, roofline};
pub use self::workload::{MAX_DEVICES, Precision, Workload, parse_count};
use crate::matching::resolve_type;
use crate::price::{Amount, Currency, Price, PurchaseOption};

/// Closed interval of positive finite numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "Bounds")]
pub struct Interval {
    /// Lower bound.
    low: f64,
    /// Upper bound.
    high: f64,
}

/// Bounds of an interval before they are checked.
#[derive(Deserialize)]
struct Bounds {
    low: f64,
    high: f64,
}

/// Estimated time or speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EstimateValue {
    /// Total duration in seconds.
    Seconds(Interval),
    /// Decoding speed of one sequence in tokens per second.
    TokensPerSecond(Interval),
}

/// Devices of one type that work together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Devices)]
pub struct DeviceGroup {
    /// Type of the devices. A request can have any name that denotes one type alone.
    #[serde(rename = "type", deserialize_with = "resolved_type")]
    #[schema(value_type = String)]
    pub type_name: TypeName,
    /// Number of devices.
    #[schema(value_type = u64)]
    pub count: u32,
}

/// Cost interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CostRange {
    /// Lower bound, a decimal.
    #[schema(value_type = String)]
    pub low: Amount,
    /// Upper bound, a decimal.
    #[schema(value_type = String)]
    pub high: Amount,
    /// Three-letter code of the currency of both bounds.
    #[schema(value_type = String)]
    pub currency: Currency,
    /// Unit that the cost is for: `run`, or `million-tokens`, decoded sequentially.
    #[schema(value_type = String)]
    pub per: Reported<CostUnit>,
    /// Purchase option of the price.
    #[schema(value_type = String)]
    pub purchase_option: Reported<PurchaseOption>,
}

/// Unit that a cost is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostUnit {
    /// One complete training run.
    Run,
    /// One million tokens, decoded sequentially.
    MillionTokens,
}

/// Reason why two numbers do not form an interval.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum IntervalError {
    /// A number is not finite and positive.
    #[error("{0} is not a valid time or speed")]
    NotPositive(f64),
    /// The lower bound exceeds the upper bound.
    #[error("the interval from {low} to {high} is reversed")]
    Inverted {
        /// Claimed lower bound.
        low: f64,
        /// Claimed upper bound.
        high: f64,
    },
}

/// Reason why there is no estimate.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum NoEstimate {
    /// The type is not in the catalog.
    #[error("the catalog does not contain {0}")]
    UnknownType(TypeName),
    /// The catalog lacks a required figure.
    #[error("the catalog has no {what} for {type_name}")]
    NoFigure {
        /// Missing figure.
        what: String,
        /// Type of the devices.
        type_name: TypeName,
    },
    /// The model does not fit into the devices' memory.
    #[error("the weights alone need {needed}, but {count} x {type_name} have {has}")]
    TooLarge {
        /// Memory that the weights need.
        needed: String,
        /// Number of devices.
        count: u32,
        /// Type of the devices.
        type_name: TypeName,
        /// Memory of the devices.
        has: String,
    },
    /// The result is not a valid interval.
    #[error("the result is not a valid time: {0}")]
    Interval(IntervalError),
}

impl Interval {
    /// Creates an interval from its bounds.
    pub fn new(low: f64, high: f64) -> Result<Self, IntervalError> {
        let amount = |figure: f64| {
            if figure.is_finite() && figure > 0.0 {
                Ok(())
            } else {
                Err(IntervalError::NotPositive(figure))
            }
        };
        amount(low)?;
        amount(high)?;
        if low > high {
            return Err(IntervalError::Inverted { low, high });
        }
        Ok(Self { low, high })
    }

    /// Smallest interval that contains both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// Lower bound.
    pub fn low(self) -> f64 {
        self.low
    }

    /// Upper bound.
    pub fn high(self) -> f64 {
        self.high
    }
}

/// Cost of `count` devices at this price for an estimate; `None` if it overflows.
pub fn cost(figure: EstimateValue, price: &Price, count: u32) -> Option<CostRange> {
    let all = price.per_hour.times(count);
    let (shortest, longest, per) = match figure {
        EstimateValue::Seconds(time) => (time.low, time.high, CostUnit::Run),
        EstimateValue::TokensPerSecond(speed) => {
            (1e6 / speed.high, 1e6 / speed.low, CostUnit::MillionTokens)
        }
    };
    Some(CostRange {
        low: all.for_seconds(shortest)?,
        high: all.for_seconds(longest)?,
        currency: price.currency.clone(),
        per: per.into(),
        purchase_option: price.purchase_option.clone(),
    })
}

impl TryFrom<Bounds> for Interval {
    type Error = IntervalError;

    fn try_from(bounds: Bounds) -> Result<Self, IntervalError> {
        Self::new(bounds.low, bounds.high)
    }
}

/// Formats a cost such as `4,000 to 9,600 USD per run`.
impl fmt::Display for CostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = Amount::format_estimate(self.low, self.high);
        let currency = self.currency.to_string();
        let range = format::format_range((low, &currency), (high, &currency));
        match &self.per {
            Reported::Known(CostUnit::Run) => write!(f, "{range} per run"),
            Reported::Known(CostUnit::MillionTokens) => write!(f, "{range} per 10^6 tokens"),
            Reported::Unknown(unit) => write!(f, "{range} per {unit}"),
        }
    }
}

fn resolved_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TypeName, D::Error> {
    let name = String::deserialize(deserializer)?;
    resolve_type(&name).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests;
