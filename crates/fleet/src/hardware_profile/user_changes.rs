//! User's changes to the counts of a draft.
//!
//! Only values that the nodes can satisfy are accepted, so that no profile is created whose workloads stay pending.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use thiserror::Error;
use utoipa::ToSchema;

use super::{Count, Identifier};
use crate::cluster::{CPU, MEMORY, Quantity};

/// Counts of one resource; omitted ones keep the drafted value. Text form: `RESOURCE:MIN:DEFAULT:MAX`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ResourceCounts)]
pub struct CountOverride {
    /// Resource name.
    #[serde(rename = "identifier")]
    #[schema(example = "nvidia.com/gpu")]
    pub resource: String,
    /// Minimum, as a Kubernetes quantity.
    #[schema(example = "1")]
    pub min: Option<String>,
    /// Default.
    #[schema(example = "2")]
    pub default: Option<String>,
    /// Maximum.
    #[schema(example = "4")]
    pub max: Option<String>,
}

/// Field of [`CountOverride`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountField {
    /// Resource name.
    Resource,
    /// Minimum.
    Min,
    /// Default.
    Default,
    /// Maximum.
    Max,
}

/// Invalid count and its position.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{resource}, {}: {problem}", part.shown())]
pub struct CountError {
    /// Index in the list of counts.
    pub at: usize,
    /// Resource name.
    pub resource: String,
    /// Invalid field.
    pub part: CountField,
    /// Reason why it is invalid.
    pub problem: CountProblem,
}

/// Reason why a count is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CountProblem {
    /// The profile does not request the resource.
    #[error("the profile does not request it; it requests {}", .0.join(", "))]
    Unknown(Vec<String>),
    /// The resource occurs twice.
    #[error("it is specified twice")]
    Duplicate,
    /// It is not a quantity.
    #[error("{0:?} is not an amount like 8, 1500m or 64Gi")]
    NotAQuantity(String),
    /// Devices are only allocated whole.
    #[error("{0:?} is not an integer: only whole devices can be allocated")]
    NotWhole(String),
    /// It is zero.
    #[error("it must be greater than 0")]
    Zero,
    /// It exceeds the allocatable amount of every node.
    #[error("none of these nodes has more than {0}")]
    TooMany(String),
    /// The default is below the minimum.
    #[error("{usual} is less than the minimum, which is {least}")]
    DefaultBelowMin {
        /// Default.
        usual: String,
        /// Minimum.
        least: String,
    },
    /// The maximum is below the default.
    #[error("{most} is less than the default, which is {usual}")]
    MaxBelowDefault {
        /// Maximum.
        most: String,
        /// Default.
        usual: String,
    },
}

/// Text that is not in the form of [`CountOverride`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not RESOURCE:MIN:DEFAULT:MAX, such as nvidia.com/gpu:1:2:4")]
pub struct CountsError(String);

/// Maximum number of characters of user input that an error repeats.
pub(super) const MAX_SHOWN_CHARS: usize = 64;

impl CountField {
    /// Name in documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Resource => "identifier",
            Self::Min => "min",
            Self::Default => "default",
            Self::Max => "max",
        }
    }

    fn shown(self) -> &'static str {
        match self {
            Self::Resource => "resource",
            Self::Min => "minimum",
            Self::Default => "default",
            Self::Max => "maximum",
        }
    }
}

impl FromStr for CountOverride {
    type Err = CountsError;

    fn from_str(text: &str) -> Result<Self, CountsError> {
        let wrong = || CountsError(text.chars().take(MAX_SHOWN_CHARS).collect());
        let parts: Vec<&str> = text.split(':').map(str::trim).collect();
        let [resource, min, default, max] = parts.as_slice() else {
            return Err(wrong());
        };
        if resource.is_empty() {
            return Err(wrong());
        }
        let optional = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok(Self {
            resource: (*resource).to_owned(),
            min: optional(min),
            default: optional(default),
            max: optional(max),
        })
    }
}

impl fmt::Display for CountOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &Option<String>| text.clone().unwrap_or_default();
        let (min, default, max) = (shown(&self.min), shown(&self.default), shown(&self.max));
        write!(f, "{}:{min}:{default}:{max}", self.resource)
    }
}

/// Applies these counts. The drafted maximum is the largest amount that a node has.
pub(super) fn apply_counts(
    mut drafted: Vec<Identifier>,
    overrides: &[CountOverride],
) -> Result<Vec<Identifier>, CountError> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (at, counts) in overrides.iter().enumerate() {
        let wrong = |part, problem| CountError {
            at,
            resource: counts.resource.chars().take(MAX_SHOWN_CHARS).collect(),
            part,
            problem,
        };
        if !seen.insert(&counts.resource) {
            return Err(wrong(CountField::Resource, CountProblem::Duplicate));
        }
        let known: Vec<String> = drafted.iter().map(|one| one.resource.clone()).collect();
        let mut all = drafted.iter_mut();
        let Some(one) = all.find(|one| one.resource == counts.resource) else {
            return Err(wrong(CountField::Resource, CountProblem::Unknown(known)));
        };
        *one = apply_count(one, counts).map_err(|(part, problem)| wrong(part, problem))?;
    }
    Ok(drafted)
}

fn apply_count(
    drafted: &Identifier,
    overrides: &CountOverride,
) -> Result<Identifier, (CountField, CountProblem)> {
    let has = drafted.max.as_ref();
    let read = |part: CountField, text: &Option<String>, otherwise: &Count| {
        let Some(text) = text else {
            return Ok(otherwise.clone());
        };
        let count = parse_amount(&drafted.resource, text).map_err(|problem| (part, problem))?;
        match has.filter(|has| count.quantity > has.quantity) {
            Some(has) => Err((part, CountProblem::TooMany(has.text.clone()))),
            None => Ok(count),
        }
    };
    let min = read(CountField::Min, &overrides.min, &drafted.min)?;
    let default = read(CountField::Default, &overrides.default, &drafted.default)?;
    let max = match has {
        Some(has) => Some(read(CountField::Max, &overrides.max, has)?),
        None => None,
    };
    if default.quantity < min.quantity {
        let part = if overrides.default.is_some() { CountField::Default } else { CountField::Min };
        let (usual, least) = (default.text, min.text);
        return Err((part, CountProblem::DefaultBelowMin { usual, least }));
    }
    if let Some(max) = max.as_ref().filter(|max| max.quantity < default.quantity) {
        let part = if overrides.max.is_some() { CountField::Max } else { CountField::Default };
        let (most, usual) = (max.text.clone(), default.text);
        return Err((part, CountProblem::MaxBelowDefault { most, usual }));
    }
    Ok(Identifier { min, max, default, ..drafted.clone() })
}

/// Parses a positive amount of a resource.
fn parse_amount(resource: &str, text: &str) -> Result<Count, CountProblem> {
    let start = || text.chars().take(MAX_SHOWN_CHARS).collect();
    let quantity: Quantity = text.parse().map_err(|_odd| CountProblem::NotAQuantity(start()))?;
    let is_device = resource != CPU && resource != MEMORY;
    if is_device && !text.chars().all(|c| c.is_ascii_digit()) {
        return Err(CountProblem::NotWhole(start()));
    }
    if quantity == Quantity::default() {
        return Err(CountProblem::Zero);
    }
    Ok(Count { text: text.to_owned(), quantity })
}
