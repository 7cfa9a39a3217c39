//! Counts and percentages of nodes.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Number of nodes, or percentage of the selected nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "IntOrText", into = "IntOrText")]
pub enum MaxUnavailable {
    /// This many nodes.
    Count(u32),
    /// This percentage of the nodes, rounded down, but at least one node.
    Percent(u32),
}

/// Integer, or percentage as a text.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum IntOrText {
    /// An integer.
    Int(u32),
    /// A percentage such as `10%`.
    Text(String),
}

impl MaxUnavailable {
    /// Number of nodes that may be unavailable if this many are selected.
    pub fn of(self, selected: usize) -> usize {
        match self {
            Self::Count(count) => usize::try_from(count).unwrap_or(usize::MAX),
            Self::Percent(percent) => {
                let percent = usize::try_from(percent).unwrap_or(100);
                (selected.saturating_mul(percent) / 100).max(1)
            }
        }
    }
}

impl TryFrom<IntOrText> for MaxUnavailable {
    type Error = String;

    fn try_from(value: IntOrText) -> Result<Self, String> {
        let refused = |text: &str| {
            format!(
                "{text:?} is neither a number of nodes nor a percentage such as 10%; use at least 1 or 1%"
            )
        };
        match value {
            IntOrText::Int(count @ 1..) => Ok(Self::Count(count)),
            IntOrText::Int(count) => Err(refused(&count.to_string())),
            IntOrText::Text(text) => {
                let percent = text.strip_suffix('%').and_then(|digits| digits.parse().ok());
                let percent = percent.filter(|percent| (1..=100).contains(percent));
                percent.map(Self::Percent).ok_or_else(|| refused(&text))
            }
        }
    }
}

impl From<MaxUnavailable> for IntOrText {
    fn from(amount: MaxUnavailable) -> Self {
        match amount {
            MaxUnavailable::Count(count) => Self::Int(count),
            MaxUnavailable::Percent(_) => Self::Text(amount.to_string()),
        }
    }
}

impl fmt::Display for MaxUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn budget_is_a_count_or_a_percentage_and_never_zero() {
        let read = |value| from_value::<MaxUnavailable>(value);
        assert_eq!(read(json!(3)).unwrap().of(10), 3);
        for (percent, selected, expected) in
            [("10%", 30, 3), ("10%", 5, 1), ("100%", 7, 7), ("50%", 3, 1)]
        {
            assert_eq!(
                read(json!(percent)).unwrap().of(selected),
                expected,
                "{percent} of {selected}"
            );
        }
        for invalid in [json!(0), json!(-1), json!("0%"), json!("101%"), json!("10"), json!("x%")] {
            read(invalid).unwrap_err();
        }
    }
}
