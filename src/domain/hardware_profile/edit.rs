//! What a person says otherwise of a draft: how many of each resource, and which taints of the nodes do not matter.
//!
//! Only what the nodes really have can be said, so that nobody makes a profile whose work waits for ever.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::draft::{MEMORY, Refusal};
use super::{Count, Identifier};
use crate::domain::cluster::{CPU, Quantity, Taint, TaintOperator, Toleration};

/// How many of one resource; what is not said stays as it was drafted. As text `RESOURCE:LEAST:USUAL:MOST`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// The resource, such as `nvidia.com/gpu`.
    pub resource: String,
    /// The least that a person can ask for, as Kubernetes writes amounts.
    pub min: Option<String>,
    /// What is asked for where nobody says.
    pub default: Option<String>,
    /// The most.
    pub max: Option<String>,
}

/// Which of the fields of [`Counts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The resource.
    Resource,
    /// The least.
    Min,
    /// What is usual.
    Default,
    /// The most.
    Max,
}

/// Counts that cannot be, and where that stands.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{resource}, {}: {problem}", part.shown())]
pub struct CountError {
    /// Which of the counts that were said, from 0.
    pub at: usize,
    /// Of which resource they are.
    pub resource: String,
    /// Which of them.
    pub part: Part,
    /// What is wrong.
    pub problem: CountProblem,
}

/// What is wrong with a count.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CountProblem {
    /// The profile has no such resource.
    #[error("the profile does not ask for it; it asks for {}", .0.join(", "))]
    Unknown(Vec<String>),
    /// It is said twice.
    #[error("it is said twice")]
    Twice,
    /// It is no amount.
    #[error("{0:?} is not an amount like 8, 1500m or 64Gi")]
    NoAmount(String),
    /// Devices are given out whole.
    #[error("{0:?} is no whole number: devices are given out whole")]
    NotWhole(String),
    /// None at all.
    #[error("it has to be more than nothing")]
    Nothing,
    /// More than a node has.
    #[error("none of these nodes gives more than {0}")]
    TooMany(String),
    /// What is usual is less than the least.
    #[error("{usual} is less than the least, which is {least}")]
    BelowLeast {
        /// What is usual.
        usual: String,
        /// The least.
        least: String,
    },
    /// The most is less than what is usual.
    #[error("{most} is less than what is usual, which is {usual}")]
    BelowUsual {
        /// The most.
        most: String,
        /// What is usual.
        usual: String,
    },
}

/// A text that is no counts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not RESOURCE:LEAST:USUAL:MOST, such as nvidia.com/gpu:1:2:4")]
pub struct CountsError(String);

/// Who says that no taint is tolerated says this.
pub const NO_TAINT: &str = "none";
/// Characters of a text that an error repeats.
const SHOWN: usize = 64;

impl Part {
    /// As documents name it.
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

/// The same with these counts. What was drafted as the most is what a node has.
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

/// An amount of a resource that is more than nothing.
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

/// What those of `taints` need that are named as they are shown, and which are not tolerated then.
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

/// What a taint needs, as narrow as it is.
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
