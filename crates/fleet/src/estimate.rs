//! Estimates of training time and decoding speed: always an interval with its source, never a guarantee.
//!
//! Used by the aggregator. The reference provider ([`roofline`]) computes estimates from vendors' published figures.
//! An external engine can be used instead; its results pass through [`Interval::new`], which rejects impossible
//! values.
//!
//! ```text
//! workload.rs         workload parameters, validated
//! roofline.rs         reference provider
//! circuit_breaker.rs  circuit breaker for a failing engine
//! format.rs           times, speeds and costs as text
//! ```

pub mod circuit_breaker;
pub mod format;
mod roofline;
mod workload;

use octavo_model::id::TypeName;
use thiserror::Error;

pub use self::roofline::{DECODING, Efficiency, SOURCE_NAME, TRAINING, assumptions, roofline};
pub use self::workload::{
    MAX_DEVICES, Precision, Workload, parse_count, total_tokens, validate_batch,
    validate_model_name,
};
use crate::price::{Amount, Currency, Price, PurchaseOption};

/// Closed interval of positive finite numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceGroup {
    /// Type of the devices.
    pub type_name: TypeName,
    /// Number of devices.
    pub count: u32,
}

/// Cost interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostRange {
    /// Lower bound.
    pub low: Amount,
    /// Upper bound.
    pub high: Amount,
    /// Currency of both bounds.
    pub currency: Currency,
    /// Purchase option of the price.
    pub option: PurchaseOption,
    /// Unit that the cost is for.
    pub per: CostUnit,
}

/// Unit that a cost is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    #[error("{0} is no amount of time and no speed")]
    NotPositive(f64),
    /// The lower bound exceeds the upper bound.
    #[error("the interval from {low} to {high} is upside down")]
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
    #[error("the catalogue knows nothing of {0}")]
    UnknownType(TypeName),
    /// The catalog lacks a required figure.
    #[error("the catalogue has no {what} of {type_name}")]
    NoFigure {
        /// Missing figure.
        what: String,
        /// Type of the devices.
        type_name: TypeName,
    },
    /// The model does not fit into the devices' memory.
    #[error("the weights alone need {needed}, and {count} x {type_name} have {has}")]
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
    #[error("what comes of it is no time: {0}")]
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
        option: price.option,
        per,
    })
}

impl CostUnit {
    /// Name in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::MillionTokens => "million-tokens",
        }
    }
}

#[cfg(test)]
mod tests;
