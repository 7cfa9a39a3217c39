//! User's changes to a draft: counts of resources, and tolerated taints.
//!
//! Only values that the nodes can satisfy are accepted, so that no profile is created whose workloads stay pending.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::draft::{MEMORY, Refusal};
use super::{Count, Identifier};
use crate::domain::cluster::{CPU, Quantity, Taint, TaintOperator, Toleration};

/// Counts of one resource; omitted ones keep the drafted value. Text form: `RESOURCE:LEAST:USUAL:MOST`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Resource name, such as `nvidia.com/gpu`.
    pub resource: String,
    /// Minimum, as a Kubernetes quantity.
    pub min: Option<String>,
    /// Default.
    pub default: Option<String>,
    /// Maximum.
    pub max: Option<String>,
}

/// Field of [`Counts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
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
    pub part: Part,
    /// Reason why it is invalid.
    pub problem: CountProblem,
}

/// Reason why a count is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CountProblem {
    /// The profile does not request the resource.
    #[error("the profile does not ask for it; it asks for {}", .0.join(", "))]
    Unknown(Vec<String>),
    /// The resource occurs twice.
    #[error("it is said twice")]
    Twice,
    /// It is not a quantity.
    #[error("{0:?} is not an amount like 8, 1500m or 64Gi")]
    NoAmount(String),
    /// Devices are only allocated whole.
    #[error("{0:?} is no whole number: devices are given out whole")]
    NotWhole(String),
    /// It is zero.
    #[error("it has to be more than nothing")]
    Nothing,
    /// It exceeds the allocatable amount of every node.
    #[error("none of these nodes gives more than {0}")]
    TooMany(String),
    /// The default is below the minimum.
    #[error("{usual} is less than the least, which is {least}")]
    BelowLeast {
        /// Default.
        usual: String,
        /// Minimum.
        least: String,
    },
    /// The maximum is below the default.
    #[error("{most} is less than what is usual, which is {usual}")]
    BelowUsual {
        /// Maximum.
        most: String,
        /// Default.
        usual: String,
    },
}

/// Text that is not in the form of [`Counts`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not RESOURCE:LEAST:USUAL:MOST, such as nvidia.com/gpu:1:2:4")]
pub struct CountsError(String);

/// Value that stands for "no taint is tolerated".
pub const NO_TAINT: &str = "none";
/// Maximum number of characters of user input that an error repeats.
const SHOWN: usize = 64;

impl Part {
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
            Self::Min => "least",
            Self::Default => "usual",
            Self::Max => "most",
        }
    }
}

impl FromStr for Counts {
    type Err = CountsError;

    fn from_str(text: &str) -> Result<Self, CountsError> {
        let wrong = || CountsError(text.chars().take(SHOWN).collect());
        let parts: Vec<&str> = text.split(':').map(str::trim).collect();
        let [resource, min, default, max] = parts.as_slice() else {
            return Err(wrong());
        };
        if resource.is_empty() {
            return Err(wrong());
        }
        let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok(Self {
            resource: (*resource).to_owned(),
            min: said(min),
            default: said(default),
            max: said(max),
        })
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |text: &Option<String>| text.clone().unwrap_or_default();
        let (min, default, max) = (said(&self.min), said(&self.default), said(&self.max));
        write!(f, "{}:{min}:{default}:{max}", self.resource)
    }
}

/// Applies these counts. The drafted maximum is the largest amount that a node has.
pub(super) fn counted(
    mut drafted: Vec<Identifier>,
    said: &[Counts],
) -> Result<Vec<Identifier>, CountError> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (at, counts) in said.iter().enumerate() {
        let wrong = |part, problem| CountError {
            at,
            resource: counts.resource.chars().take(SHOWN).collect(),
            part,
            problem,
        };
        if !seen.insert(&counts.resource) {
            return Err(wrong(Part::Resource, CountProblem::Twice));
        }
        let known: Vec<String> = drafted.iter().map(|one| one.resource.clone()).collect();
        let mut all = drafted.iter_mut();
        let Some(one) = all.find(|one| one.resource == counts.resource) else {
            return Err(wrong(Part::Resource, CountProblem::Unknown(known)));
        };
        *one = of_one(one, counts).map_err(|(part, problem)| wrong(part, problem))?;
    }
    Ok(drafted)
}

fn of_one(drafted: &Identifier, said: &Counts) -> Result<Identifier, (Part, CountProblem)> {
    let has = drafted.max.as_ref();
    let read = |part: Part, text: &Option<String>, otherwise: &Count| {
        let Some(text) = text else {
            return Ok(otherwise.clone());
        };
        let count = amount(&drafted.resource, text).map_err(|problem| (part, problem))?;
        match has.filter(|has| count.quantity > has.quantity) {
            Some(has) => Err((part, CountProblem::TooMany(has.text.clone()))),
            None => Ok(count),
        }
    };
    let min = read(Part::Min, &said.min, &drafted.min)?;
    let default = read(Part::Default, &said.default, &drafted.default)?;
    let max = match has {
        Some(has) => Some(read(Part::Max, &said.max, has)?),
        None => None,
    };
    if default.quantity < min.quantity {
        let part = if said.default.is_some() {
            Part::Default
        } else {
            Part::Min
        };
        let (usual, least) = (default.text, min.text);
        return Err((part, CountProblem::BelowLeast { usual, least }));
    }
    if let Some(max) = max.as_ref().filter(|max| max.quantity < default.quantity) {
        let part = if said.max.is_some() {
            Part::Max
        } else {
            Part::Default
        };
        let (most, usual) = (max.text.clone(), default.text);
        return Err((part, CountProblem::BelowUsual { most, usual }));
    }
    Ok(Identifier {
        min,
        max,
        default,
        ..drafted.clone()
    })
}

/// Parses a positive amount of a resource.
fn amount(resource: &str, text: &str) -> Result<Count, CountProblem> {
    let start = || text.chars().take(SHOWN).collect();
    let quantity: Quantity = text
        .parse()
        .map_err(|_odd| CountProblem::NoAmount(start()))?;
    let is_device = resource != CPU && resource != MEMORY;
    if is_device && !text.chars().all(|c| c.is_ascii_digit()) {
        return Err(CountProblem::NotWhole(start()));
    }
    if quantity == Quantity::default() {
        return Err(CountProblem::Nothing);
    }
    Ok(Count {
        text: text.to_owned(),
        quantity,
    })
}

/// Tolerations for those of `taints` whose text form is in `named`, and the remaining taints.
pub(super) fn tolerated<'a>(
    taints: &'a [Taint],
    named: &BTreeSet<String>,
) -> Result<(Vec<Toleration>, Vec<&'a Taint>), Refusal> {
    let known: Vec<String> = taints.iter().map(ToString::to_string).collect();
    let odd = named.iter().find(|one| !known.contains(one));
    if let Some(odd) = odd {
        return Err(Refusal::NoSuchTaint {
            named: odd.chars().take(SHOWN).collect(),
            known,
        });
    }
    let (chosen, left): (Vec<&Taint>, Vec<&Taint>) = taints
        .iter()
        .partition(|taint| named.contains(&taint.to_string()));
    Ok((chosen.into_iter().map(toleration).collect(), left))
}

/// Narrowest toleration for a taint.
pub(super) fn toleration(taint: &Taint) -> Toleration {
    Toleration {
        key: taint.key.clone(),
        operator: if taint.value.is_empty() {
            TaintOperator::Exists
        } else {
            TaintOperator::Equal
        },
        value: taint.value.clone(),
        effect: Some(taint.effect),
    }
}
