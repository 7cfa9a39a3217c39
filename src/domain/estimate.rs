//! How long a training takes and how fast a model answers: always an interval, always with its source, never a promise.
//!
//! Called by the aggregator. The reference provider ([`roofline`]) reckons from what makers publish; an engine of somebody else's
//! may be asked instead, and what it says comes through [`Interval::new`], which refuses what no time can be.
//!
//! ```text
//! workload.rs   what shall run, each figure within what can be
//! roofline.rs   the reference provider
//! breaker.rs    when an engine that fails is left alone
//! words.rs      times, speeds and costs for people
//! ```

pub mod breaker;
mod roofline;
pub mod words;
mod workload;

use thiserror::Error;

pub use self::roofline::{DECODING, Efficiency, SOURCE, TRAINING, assumptions, roofline};
pub use self::workload::{MOST_DEVICES, Precision, Workload, amount, batch, model, tokens_of};
use crate::domain::id::TypeName;
use crate::domain::price::{Amount, Currency, Price, PurchaseOption};

/// From the least to the most of something that is more than nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    low: f64,
    high: f64,
}

/// A time, a speed, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    /// Seconds from the first token to the last.
    Seconds(Interval),
    /// Tokens a second of one sequence.
    TokensPerSecond(Interval),
}

/// Devices of one type that work together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices {
    /// Their type.
    pub type_name: TypeName,
    /// How many.
    pub count: u32,
}

/// What something costs, from the least to the most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostRange {
    /// The least.
    pub low: Amount,
    /// The most.
    pub high: Amount,
    /// In which currency.
    pub currency: Currency,
    /// How it is paid for.
    pub option: PurchaseOption,
    /// For what.
    pub per: Per,
}

/// For what a cost is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Per {
    /// The whole training.
    Run,
    /// A million tokens of one sequence after the other.
    MillionTokens,
}

/// Figures that are no interval.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum IntervalError {
    /// Not a number, endless, nothing, or less.
    #[error("{0} is no amount of time and no speed")]
    NoAmount(f64),
    /// The end is before the beginning.
    #[error("the interval from {low} to {high} is upside down")]
    UpsideDown {
        /// What is said to be the least.
        low: f64,
        /// What is said to be the most.
        high: f64,
    },
}

/// Why there is no figure for some devices.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum NoEstimate {
    /// The catalogue does not have the type.
    #[error("the catalogue knows nothing of {0}")]
    UnknownType(TypeName),
    /// The catalogue has no figure.
    #[error("the catalogue has no {what} of {type_name}")]
    NoFigure {
        /// What is missing.
        what: String,
        /// Of which type.
        type_name: TypeName,
    },
    /// The model is larger than the devices.
    #[error("the weights alone need {needed}, and {count} x {type_name} have {has}")]
    TooLarge {
        /// What the weights need.
        needed: String,
        /// How many devices.
        count: u32,
        /// Of which type.
        type_name: TypeName,
        /// What they have.
        has: String,
    },
    /// It would be longer or faster than anything.
    #[error("what comes of it is no time: {0}")]
    Interval(IntervalError),
}

impl Interval {
    /// From the least to the most.
    pub fn new(low: f64, high: f64) -> Result<Self, IntervalError> {
        let amount = |figure: f64| {
            if figure.is_finite() && figure > 0.0 {
                Ok(())
            } else {
                Err(IntervalError::NoAmount(figure))
            }
        };
        amount(low)?;
        amount(high)?;
        if low > high {
            return Err(IntervalError::UpsideDown { low, high });
        }
        Ok(Self { low, high })
    }

    /// The least.
    pub fn low(self) -> f64 {
        self.low
    }

    /// The most.
    pub fn high(self) -> f64 {
        self.high
    }
}

/// What `count` devices of this price cost for a figure; `None` where it cannot be counted.
pub fn cost(figure: Figure, price: &Price, count: u32) -> Option<CostRange> {
    let all = price.per_hour.times(count);
    let (shortest, longest, per) = match figure {
        Figure::Seconds(time) => (time.low, time.high, Per::Run),
        Figure::TokensPerSecond(speed) => (1e6 / speed.high, 1e6 / speed.low, Per::MillionTokens),
    };
    Some(CostRange {
        low: all.for_seconds(shortest)?,
        high: all.for_seconds(longest)?,
        currency: price.currency.clone(),
        option: price.option,
        per,
    })
}

impl Per {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::MillionTokens => "million-tokens",
        }
    }
}

#[cfg(test)]
mod tests;
