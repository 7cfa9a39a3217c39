//! How fast a model was measured to write on which devices, so that who must take others hears what that means.
//!
//! Figures are those of a model catalogue's performance rows, and nothing is reckoned from them: without a row for as many devices of
//! that very type there is no figure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::domain::accelerators::Catalogue;
use crate::domain::id::TypeName;
use crate::domain::slo::Hardware;

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// What the catalogue calls the hardware.
    pub hardware: String,
    /// Devices of one copy.
    pub count: u32,
    /// Tokens that one copy writes a second, on average.
    pub tokens_per_second: f64,
}

/// What was measured, by type and number of devices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Speeds {
    known: BTreeMap<(TypeName, u32), Speed>,
    unknown: BTreeSet<String>,
}

/// Tokens a second, from the least to the most that was measured, in tenths; and what the rows call the hardware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speed {
    low: u32,
    high: u32,
    rows: BTreeSet<String>,
    /// Whether the rows' name means other types too.
    is_open: bool,
}

/// Tenths of a token a second that no device comes near to.
const MOST: f64 = 4e9;

impl Speeds {
    /// Of these rows. Hardware is looked up by any name that the catalogue has; one that leaves the type open counts for each that it may
    /// mean, where no row names that one alone.
    pub fn of(rows: &[Measured], catalogue: &Catalogue) -> Self {
        let mut names: BTreeMap<&str, Hardware> = BTreeMap::new();
        let mut speeds = Self::default();
        for row in rows {
            let hardware = names
                .entry(&row.hardware)
                .or_insert_with(|| Hardware::named(catalogue, &row.hardware));
            let Hardware::Types(types) = hardware else {
                speeds.unknown.insert(row.hardware.clone());
                continue;
            };
            for type_name in types.iter() {
                let speed = Speed::of(row, types.len() > 1);
                let key = (type_name.clone(), row.count);
                speeds
                    .known
                    .entry(key)
                    .and_modify(|known| known.add(&speed))
                    .or_insert(speed);
            }
        }
        speeds
    }

    /// Of so many devices of this type.
    pub fn get(&self, type_name: &TypeName, count: u32) -> Option<&Speed> {
        self.known.get(&(type_name.clone(), count))
    }

    /// Names of hardware that nobody knows.
    pub fn unknown(&self) -> &BTreeSet<String> {
        &self.unknown
    }
}

impl Speed {
    fn of(row: &Measured, is_open: bool) -> Self {
        let tenths = (row.tokens_per_second * 10.0).round().clamp(0.0, MOST);
        let tenths = format!("{tenths:.0}").parse().unwrap_or(0);
        Self {
            low: tenths,
            high: tenths,
            rows: BTreeSet::from([row.hardware.clone()]),
            is_open,
        }
    }

    /// A row that names one type alone is worth more than any that leaves it open.
    fn add(&mut self, other: &Self) {
        if self.is_open && !other.is_open {
            *self = other.clone();
        } else if self.is_open == other.is_open {
            self.low = self.low.min(other.low);
            self.high = self.high.max(other.high);
            self.rows.extend(other.rows.iter().cloned());
        }
    }

    /// The least and the most, in tenths of a token a second.
    pub fn tenths(&self) -> (u32, u32) {
        (self.low, self.high)
    }

    /// What the rows call the hardware.
    pub fn rows(&self) -> &BTreeSet<String> {
        &self.rows
    }
}

/// `75`, `74.5` or `60 to 75`.
impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |tenths: u32| match (tenths / 10, tenths % 10) {
            (whole, 0) => whole.to_string(),
            (whole, tenth) => format!("{whole}.{tenth}"),
        };
        if self.low == self.high {
            f.pad(&text(self.low))
        } else {
            f.pad(&format!("{} to {}", text(self.low), text(self.high)))
        }
    }
}

/// What to expect of `own` instead of `other`, with the source: "expect 75 instead of 120 tokens/s (performance rows: A100-80, H200)".
pub(super) fn expectation(own: &Speed, other: &Speed) -> String {
    let rows: BTreeSet<&str> = own.rows.union(&other.rows).map(String::as_str).collect();
    let rows: Vec<&str> = rows.into_iter().collect();
    format!(
        "expect {own} instead of {other} tokens/s (performance rows: {})",
        rows.join(", ")
    )
}
